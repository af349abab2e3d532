"""How far gradients are from themselves where numbers are rounded otherwise.

A gradient is a sum, and what is left of it may be nothing: that of a bias before a batch norm is 0, and what
is computed of it is what rounding leaves of the numbers that were added up. Its own size is no measure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

__all__ = ["noise_of_gradients"]

_TIMES = 3

# The error of a sum of n numbers of either sign grows as the root of n where each is rounded otherwise, as n
# where a kernel adds them one to the other: this is the root of 4,096.
_ONE_BY_ONE = 64.0


def noise_of_gradients(
    module: torch.nn.Module,
    expected: Mapping[str, torch.Tensor],
    copied: Callable[[torch.nn.Module], torch.nn.Module],
    gradients: Callable[[torch.nn.Module], Mapping[str, torch.Tensor]],
) -> dict[str, float]:
    """By parameter, how far rounding may bring a gradient from the expected one.

    Measured a few times, with weights, outputs of modules, and the gradients of these multiplied by 1 + eps
    or 1 - eps of their dtype. copied: makes a copy of the module; gradients: those that a call of one gives.
    """
    found = dict.fromkeys(expected, 0.0)
    draw = torch.Generator().manual_seed(0)

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        signs = torch.randint(2, tensor.shape, generator=draw).mul_(2).sub_(1)
        return tensor * (1 + signs.to(tensor) * torch.finfo(tensor.dtype).eps)

    def hook(_module: Any, _args: Any, output: Any) -> Any:
        if not _is_dense(output):
            return None
        if output.requires_grad:
            output.register_hook(rounded)
        return rounded(output)

    for _ in range(_TIMES):
        other = copied(module)
        with torch.no_grad():
            for parameter in filter(_is_dense, other.parameters()):
                parameter.copy_(rounded(parameter))
        for each in other.modules():
            each.register_forward_hook(hook)
        for name, gradient in gradients(other).items():
            if name in found and gradient.shape == expected[name].shape and gradient.numel():
                apart = float((gradient.double() - expected[name].double()).abs().max())
                found[name] = max(found[name], _ONE_BY_ONE * apart)
    return found


def _is_dense(value: Any) -> bool:
    plain = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return plain and value.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
