"""Which variant of the libraries this machine runs, decided where the wheel runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import Unfit

__all__ = ["choose_variant"]


def choose_variant(manifest: dict[str, Any], backends: Mapping[str, Any]) -> str:
    """The most demanding variant of which this machine has all that it requires; "" where all are for GPUs.
    Raises Unfit.

    backends: the module of each backend that the manifest names. Each has `here()`, the names of what this
    machine has, and `HARDWARE`, what a person calls it.
    """
    here = {name: backend.here() for name, backend in backends.items()}
    # What is for GPUs says so entry by entry: a process may have several, of several kinds.
    variants = [each for each in manifest["variants"] if "device" not in each]
    if manifest["variants"] and not variants:
        return ""
    fitting = [v for v in variants if here[v["backend"]].issuperset(v["requires"])]
    if not fitting:
        lacking = {v["name"]: sorted(set(v["requires"]) - here[v["backend"]]) for v in variants}
        words = "; ".join(f"{name} needs {', '.join(flags)}" for name, flags in lacking.items())
        hardware = " or ".join(dict.fromkeys(backend.HARDWARE for backend in backends.values()))
        raise Unfit(f"this {hardware} cannot run it: {words}; install a wheel with a variant for it")
    best: str = max(fitting, key=lambda v: len(v["requires"]))["name"]
    return best


WHOLE = True
