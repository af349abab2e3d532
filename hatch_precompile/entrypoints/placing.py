"""Samples and instances on a GPU: they are made on the CPU, and moved."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from types import FunctionType, MethodType
from typing import Any

import torch

from hatch_precompile.entrypoints.call import Copying, Sample
from hatch_precompile.entrypoints.finding import Target
from hatch_precompile.static_lookup import dict_of, is_a

__all__ = ["moved", "place"]


class _Moving(Copying):
    """Copies of tensors that lie on another device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.seen_there = False

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = super().__torch_function__(function, types, args, kwargs)
        if function is not torch.Tensor.__deepcopy__:
            return result
        self.seen_there |= args[0].device.type == self.device.type
        with torch.inference_mode(result.is_inference()), torch.no_grad():
            there = result.to(self.device)
            if there is not result and is_a(result, torch.nn.Parameter):
                return torch.nn.Parameter(there, requires_grad=result.requires_grad)
            return there if there is result else there.requires_grad_(result.requires_grad)


def moved(sample: Sample, device: torch.device) -> Sample:
    """A copy of a sample with all its tensors on a device. One that has a tensor on such a device already is
    copied as it is: it has been made for one."""
    with _Moving(device) as moving:
        args, kwargs = copy.deepcopy((sample.args, sample.kwargs))
    if moving.seen_there:
        with Copying():
            args, kwargs = copy.deepcopy((sample.args, sample.kwargs))
    return replace(sample, args=args, kwargs=kwargs)


def place(target: Target, device: torch.device) -> None:
    """Move what a target is called on: a module, or the modules and tensors that are an object's attributes.
    One that lies on such a device already stays as it is."""
    owner: Any = target.call
    if is_a(owner, MethodType):
        owner = owner.__self__
    if is_a(owner, torch.nn.Module):
        _move(owner, device)
    elif not is_a(owner, type) and not is_a(owner, FunctionType):
        for name, value in list(dict_of(owner).items()):
            if is_a(value, torch.nn.Module):
                _move(value, device)
            elif type(value) is torch.Tensor and value.device.type == "cpu":
                setattr(owner, name, value.to(device))


def _move(module: torch.nn.Module, device: torch.device) -> None:
    if not any(tensor.device.type == device.type for tensor in _tensors_of(module)):
        module.to(device)


def _tensors_of(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()
