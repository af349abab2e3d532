"""Wheels of ours that have nothing to do with each other: the zoo (tests/zoo) and the kiosk (tests/kiosk)."""

from __future__ import annotations

import probe
import torch
import zoo
import zoo.functions

torch.set_grad_enabled(False)

IMAGE = torch.randn(2, 3, 4, 5)


def hits_of_the_zoo() -> int:
    """Of a call."""
    zoo.functions.whiten(IMAGE)
    return probe.hits("whiten")


def hits_of_both() -> dict[str, list[int]]:
    """Of a call of each; and of another one of the kiosk's after the zoo was uninstalled."""
    import kiosk

    def call() -> None:
        kiosk.tint(torch.randn(6))
        zoo.functions.whiten(IMAGE)

    call()
    both = [probe.hits("tint", "kiosk"), probe.hits("whiten", "zoo")]
    zoo._precompiled.uninstall()
    call()
    return {"both": both, "kiosk": [probe.hits("tint", "kiosk")]}
