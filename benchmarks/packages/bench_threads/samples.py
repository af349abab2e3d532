"""Large enough that every thread has something to do."""

from __future__ import annotations

import torch


def samples() -> list[tuple[torch.Tensor, ...]]:
    x = torch.linspace(-3, 3, 512 * 2048).reshape(512, 2048)
    return [(x, x.flip(0).contiguous())]
