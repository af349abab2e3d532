"""One call captured here, with a backend that compiles nothing, and whether it would be served again."""

from __future__ import annotations

import inspect
import marshal
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from packaging.version import Version

from hatch_precompile.errors import BuildError
from hatch_precompile.inductor import capture_settings
from hatch_precompile.lower.dependencies.writer import dependencies_of
from hatch_precompile.lower.guards.lowering import function_codes, lower_guards
from hatch_precompile.lower.names import Namer
from hatch_precompile.runtime import runtime
from hatch_precompile.tracing import FrameTrace, dispatch_keys, graph_break_reasons, tracing_frames
from hatch_precompile.tracing.guardtree import GuardRecorder


@dataclass
class Captured:
    """What a wheel would carry of one frame: its inputs, and its guards as data."""

    records: Any
    data: dict[str, Any]
    frame_globals: dict[str, Any]
    frame_locals: dict[str, Any]

    def verdict(self) -> str:
        """What a fresh process would say: nothing if it is served, why it is not otherwise."""
        references = runtime("values.references")
        try:
            runtime("dependencies.comparison").check_dependencies(self.records)
            guard = self._guard()
        except references.Stale as error:
            return str(error)
        return self.asked(guard)

    def loaded(self) -> Callable[[], str]:
        """The same for a process that has loaded the entry: only the guards are asked."""
        guard = self._guard()
        return lambda: self.asked(guard)

    def asked(self, guard: Any) -> str:
        try:
            return "" if guard(self.frame_locals) else "refused by a guard"
        except Exception as error:
            return f"refused by a guard ({error!r})"

    def _guard(self) -> Any:
        namespace = runtime("loading.guards").guard_namespace()
        entry = types.SimpleNamespace(hits=0)
        code = runtime("loading.guards").prepare_guard(namespace, self.data, self.frame_globals, entry)
        return types.FunctionType(code, namespace, "guard")


def captured(
    call: Callable[..., Any], *args: Any, frame_self: Any = None, backend: str = "eager", **kwargs: Any
) -> Captured:
    """Capture a call of one frame. Raises the BuildError that would stop a build.

    frame_self: what a method is called on; backend: of torch.compile; only another traces the backward
    """
    torch._dynamo.reset()
    recorder = GuardRecorder()
    kept: list[Captured] = []
    failed: list[BuildError] = []
    keys = dispatch_keys()

    def on_frame(trace: FrameTrace) -> None:
        tree = recorder.tree(trace.root)
        try:
            namer = Namer(trace.frame_globals, trace.injected)
            dependencies = dependencies_of(trace.code, trace.traced, trace.assumed, tree, namer)
            lowered = lower_guards(tree, trace.frame_globals, trace.injected, dependencies)
        except BuildError as error:
            failed.append(error)
            return
        data = {
            "guard": function_codes(lowered.source, "<guards>"),
            "constants": lowered.constants,
            "tensors": tuple(group.encoded() for group in lowered.tensors),
            "state": lowered.state,
            "dispatch": keys,
        }
        records, data = marshal.loads(
            marshal.dumps((tuple(each.encoded() for each in dependencies.at_load), data), 2)
        )
        cells = tuple(types.CellType() for _ in trace.code.co_freevars)
        signature = inspect.signature(types.FunctionType(trace.code, {}, None, None, cells))
        bound = signature.bind_partial(
            *([] if frame_self is None else [frame_self]), *args, **kwargs
        ).arguments
        empty = {inspect.Parameter.VAR_POSITIONAL: (), inspect.Parameter.VAR_KEYWORD: {}}
        rest = {name: empty[each.kind] for name, each in signature.parameters.items() if each.kind in empty}
        cells_of_call = zip(trace.code.co_freevars, getattr(call, "__closure__", None) or (), strict=False)
        free = {name: cell.cell_contents for name, cell in cells_of_call}
        found = {**rest, **bound}
        given = {**free, **{name: found[name] for name in signature.parameters if name in found}}
        kept.append(Captured(records, data, trace.frame_globals, given))

    graph_break_reasons()
    with capture_settings({}, 1), recorder.recording(), tracing_frames(on_frame, lambda *_: None):
        try:
            torch.compile(call, backend=backend)(*args, **kwargs)
        except torch._dynamo.exc.InternalTorchDynamoError:
            _skip_what_torch_does_not_trace(call, args, kwargs)
            raise
    torch._dynamo.reset()
    if failed:
        raise failed[0]
    if len(kept) != 1:
        _skip_what_torch_does_not_trace(call, args, kwargs)
    (one,) = kept
    return one


def _skip_what_torch_does_not_trace(call: Callable[..., Any], args: Any, kwargs: Any) -> None:
    """An older torch may fail by itself, or break the graph, where a later one has what the test is for."""
    if Version(torch.__version__) >= Version("2.13"):
        return
    reasons = graph_break_reasons()  # of the call, while it was watched
    torch._dynamo.reset()
    with capture_settings({}, 1):
        try:
            torch.compile(call, backend="eager")(*args, **kwargs)
        except torch._dynamo.exc.InternalTorchDynamoError:
            pytest.skip("this torch does not trace it")
    if reasons or graph_break_reasons():
        pytest.skip("this torch breaks the graph there")
