"""Nothing of it is a call of a math library: element by element, and along rows."""

from __future__ import annotations

import torch


def normalize(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = torch.nn.functional.gelu(x) * y + torch.sin(x)
    return torch.softmax(z, dim=-1) * torch.rsqrt(z.square().mean(dim=-1, keepdim=True) + 1e-6)
