"""A case of tests/strangers/outcomes.toml, called as its samples or its workload call it."""

from __future__ import annotations

import importlib
import operator
from contextlib import nullcontext
from typing import Any

import probe
import torch
from torch.utils._pytree import tree_leaves

_MODES: dict[str, Any] = {"no_grad": torch.no_grad, "inference": torch.inference_mode, "train": nullcontext}


def called(package: str, table: dict[str, Any], calls: str, out: str) -> dict[str, Any]:
    """Hits and misses, of how many calls, and what was imported. Writes the answers to `out`."""
    module = importlib.import_module(package)
    name, mode = table["name"], table.get("mode", "no_grad")
    torch.manual_seed(0)
    if "workload" in table:
        before = _served(module, name)
        with _MODES[mode]():
            answers = [_found(table["workload"])()]
    else:
        call, answers = _call(table, mode), []
        samples = list(_found(calls or table["samples"])())
        before = _served(module, name)  # making them, or the instance, may have called the model
        for args, kwargs in map(_split, samples):
            torch.manual_seed(0)
            with _MODES[mode]():
                answers.append(call(*args, **kwargs))
    after = _served(module, name)
    leaves = [
        _plain(leaf)
        for answer in answers
        for leaf in tree_leaves(answer)
        if isinstance(leaf, (torch.Tensor, float))
    ]
    torch.save(leaves, out)
    return {
        "hits": after[0] - before[0],
        "misses": after[1] - before[1],
        "calls": len(answers),
        "tensors": len(leaves),
        "imported": probe.loaded("torch._dynamo", "torch._inductor.compile_fx"),
    }


def _call(table: dict[str, Any], mode: str) -> Any:
    module, _, path = table["target"].partition(":")
    *owner, last = path.split(".")
    holder = operator.attrgetter(".".join(owner))(_imported(module)) if owner else _imported(module)
    found = getattr(holder, last)
    if not owner and not isinstance(found, type):
        return found
    kind = found if isinstance(found, type) else holder
    instance = _found(table["instance"])() if "instance" in table else kind()
    if mode != "train" and isinstance(instance, torch.nn.Module):
        instance.eval()
    return instance if isinstance(found, type) else getattr(instance, last)


def _imported(module: str) -> Any:
    return importlib.import_module(module)


def _found(reference: str) -> Any:
    module, _, path = reference.partition(":")
    return operator.attrgetter(path)(_imported(module))


def _split(sample: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(sample, dict):
        return (), sample
    if len(sample) == 2 and isinstance(sample[0], tuple) and isinstance(sample[1], dict):
        return sample
    return sample, {}


def _plain(leaf: Any) -> torch.Tensor:
    return torch.as_tensor(leaf).detach().clone()


def _served(module: Any, name: str) -> tuple[int, int]:
    """So far; with nothing installed there are none."""
    entrypoint = module._precompiled.status()["entrypoints"].get(name, {})
    return entrypoint.get("hits", 0), entrypoint.get("misses", 0)
