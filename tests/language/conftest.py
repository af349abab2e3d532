"""One package of small programs, built once, and what processes that call them start with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Site, build_entrypoints, made_once

HERE = Path(__file__).parent

ENTRYPOINTS: list[dict[str, Any]] = [
    {"target": "programs.calls:run", "name": "calls", "samples": "programs.calls:samples"},
    {
        "target": "programs.shapes:run",
        "name": "shapes",
        "samples": "programs.shapes:samples",
        "dynamic-shapes": {"x": {"0": "one"}, "y": {"0": "other"}},
    },
    {"target": "programs.shapes:bucket", "name": "bucket", "samples": "programs.shapes:buckets"},
    {
        "target": "programs.shapes:counted",
        "name": "counted",
        "samples": "programs.shapes:counted_samples",
        "dynamic-numbers": ["factor", "places"],
    },
    {
        "target": "programs.modules:Mixed",
        "name": "mixed",
        "instance": "programs.modules:mixed",
        "samples": "programs.modules:samples",
    },
    {
        "target": "programs.modules:Trained",
        "name": "trained",
        "instance": "programs.modules:trained",
        "samples": "programs.modules:samples",
        "mode": "train",
    },
    {
        "target": "programs.scenarios:plus_one",
        "name": "plus_one",
        "samples": "programs.scenarios:samples",
    },
    {
        "target": "programs.scenarios:plus_rows",
        "name": "plus_rows",
        "samples": "programs.scenarios:samples",
        "dynamic-shapes": {"x": {"0": {"name": "rows", "min": 3, "max": 5}}},
    },
    {"target": "programs.scenarios:search", "name": "search", "samples": "programs.scenarios:searches"},
    *(
        {
            "target": f"programs.skipped:{name}",
            "name": name,
            "samples": "programs.skipped:samples",
            "on-skip": "eager",
        }
        for name in ("calls_what_loops", "imports_in_its_loop", "Repeating")
    ),
    {
        "target": "programs.subclasses:doubled",
        "name": "doubled",
        "samples": "programs.subclasses:samples_of_subclasses",
    },
    {"target": "programs.subclasses:Layer", "name": "layer", "samples": "programs.subclasses:samples"},
    {
        "target": "programs.modules:Recurrent",
        "name": "recurrent",
        "instance": "programs.modules:recurrent",
        "samples": "programs.modules:sequences",
    },
    {"target": "programs.compiled:doubled_sine", "name": "sine", "samples": "programs.compiled:samples"},
    *(
        {
            "target": f"programs.compiled:{name}",
            "instance": f"programs.compiled:{name.lower()}",
            "samples": "programs.compiled:samples",
        }
        for name in ("Decorated", "Compiling")
    ),
    {
        "target": "programs.compiled:calls_it_in_a_loop",
        "samples": "programs.compiled:samples",
        "on-skip": "eager",
    },
]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The package tests/language/programs, built and verified; shared, so read-only."""
    place = made_once(
        tmp_path_factory,
        "programs",
        lambda place: build_entrypoints("programs", ENTRYPOINTS, HERE, place / "work"),
    )
    return Site(place / "work" / "installed")


START = """
import contextlib, io, sys, torch, probe, programs
from programs import calls, modules, shapes

# torch.compiler.disable, in one of the modules, imports dynamo; compiling would import AOTAutograd too.
already = probe.compilers()

def imported():
    return [name for name in probe.compilers() if name not in already]

def status(name):
    return programs._precompiled.status()["entrypoints"][name]

def plain(value):
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), list(value.shape), list(value.stride()), value.tolist()]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(plain, value)]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [type(value).__name__, {key: plain(item) for key, item in vars(value).items()}] if hasattr(
        value, "__dict__") else value

def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    elif not isinstance(value, (list, tuple)):
        value = list(vars(value).values()) if hasattr(value, "__dict__") else []
    return [tensor for item in value for tensor in tensors(item)]

# For each tensor, the first that is the same object, and the first in the same memory.
def shared(found):
    memory = [tensor.untyped_storage().data_ptr() for tensor in found]
    return [[next(i for i, other in enumerate(found) if other is tensor), memory.index(place)]
            for tensor, place in zip(found, memory)]

# All that there is to see of a call: result, arguments, which of them share memory, output, effects.
def observed(call, *arguments):
    torch.manual_seed(7)
    calls.reset()
    said = io.StringIO()
    with contextlib.redirect_stdout(said), torch.no_grad():
        result = call(*arguments)
    kept = [tensor for tensor in [*tensors(result), *tensors(list(arguments))] if tensor.numel()]
    return [plain(result), plain(list(arguments)), shared(kept), said.getvalue(), plain(calls.left_behind())]

def close(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-5 + 1e-4 * abs(b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a)
    return a == b
"""
