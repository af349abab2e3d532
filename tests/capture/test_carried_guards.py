"""Checks that need some care to be carried: about parts of torch's compiler, about keys that are objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hatch_precompile.inductor import capture_settings
from hatch_precompile.lower.guards.lowering import LoweredGuards, lower_guards
from hatch_precompile.runtime import runtime
from hatch_precompile.tracing import tracing_frames
from hatch_precompile.tracing.guardtree import GuardRecorder


def lowered(call: Callable[..., Any], *args: Any) -> LoweredGuards:
    """The guards of the one frame that a call compiles."""
    torch._dynamo.reset()
    recorder = GuardRecorder()
    found: list[LoweredGuards] = []

    def on_frame(trace: Any) -> None:
        found.append(lower_guards(recorder.tree(trace.root), trace.frame_globals, trace.injected))

    with (
        torch.no_grad(),
        capture_settings({}, 1),
        recorder.recording(),
        tracing_frames(on_frame, lambda *_: None),
    ):
        torch.compile(call, backend="eager")(*args)
    torch._dynamo.reset()
    (guards,) = found
    return guards


class Sliced(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks[:2]:
            x = block(x)
        return x


def test_a_slice_of_a_module_list_needs_no_compiler() -> None:
    """Its guards say that a name in dynamo's polyfills is a class of collections.abc."""

    def modules(value: Any) -> set[str]:
        if not isinstance(value, (list, tuple)):
            return set()
        own = {value[1]} if len(value) == 4 and value[0] == "ref" else set()
        return own.union(*map(modules, value))

    guards = lowered(Sliced(), torch.ones(1, 2))
    assert not {name for name in modules(guards.constants) if name.startswith("torch._dynamo")}
    assert "# c" in guards.source
    assert "collections.abc.Iterable" in guards.source


def by_dtype(x: torch.Tensor, table: dict[torch.dtype, float]) -> torch.Tensor:
    return x * table[torch.float32]


class Options:
    def __init__(self) -> None:
        self.factor = 3.0


class Numbering:
    """Another class, in which reading an attribute changes something."""

    def __init__(self) -> None:
        self.read = 0

    @property
    def factor(self) -> float:
        self.read += 1
        return 3.0


def by_options(x: torch.Tensor, options: Any) -> torch.Tensor:
    return x * options.factor


def test_the_stub_of_a_guard_runs_nothing_of_another_class() -> None:
    guards = lowered(by_options, torch.ones(2), Options())
    namespace = {**runtime("loading.guards").guard_namespace(), "load": lambda _: "loaded"}
    exec(guards.stub.text(), namespace)
    other = Numbering()
    assert namespace["guard"]({"x": torch.ones(2), "options": other}) == "loaded"
    assert other.read == 0
    assert namespace["guard"]({"x": torch.ones(3), "options": other}) is False


def test_the_stub_of_a_guard_asks_only_what_it_can() -> None:
    """A key that is an object is found when an entry is loaded; the stub is asked before."""
    table = {torch.float32: 2.0, torch.float64: 3.0}
    guards = lowered(by_dtype, torch.ones(2), table)
    namespace = {**runtime("loading.guards").guard_namespace(), "load": lambda _: "loaded"}
    exec(guards.stub.text(), namespace)
    assert namespace["guard"]({"x": torch.ones(2), "table": table}) == "loaded"
    assert namespace["guard"]({"x": torch.ones(2), "table": [table]}) is False
    assert "== 2.0" in guards.source
    assert "== 2.0" not in guards.stub.text()
