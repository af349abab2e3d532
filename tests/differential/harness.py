"""Dynamo's guard tree and our guard function, side by side, for frames captured here.

`hold` captures one call with a backend that compiles nothing and keeps, per frame, dynamo's own
RootGuardManager, our generated function and the locals they were made from.
"""

from __future__ import annotations

import marshal
import tempfile
import types
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hatch_precompile.inductor import capture_settings
from hatch_precompile.lower.guards.checks import Function
from hatch_precompile.lower.guards.explanation_data import words_of
from hatch_precompile.lower.guards.lowering import function_codes, lower_guards
from hatch_precompile.lower.guards.native.library import NativeGuards
from hatch_precompile.records import MARSHAL
from hatch_precompile.runtime import runtime
from hatch_precompile.tracing import FrameTrace, dispatch_keys, tracing_frames
from hatch_precompile.tracing.guardtree import GuardRecorder


@dataclass
class HeldFrame:
    """One frame: `dynamo(locals)` and `ours(locals)` answer whether it may serve them. words, beside: what an
    explanation of it has."""

    name: str
    root: Any
    guard: Callable[[dict[str, Any]], bool]
    native: Callable[[dict[str, Any]], bool]
    source: str
    words: Any
    beside: Any
    frame_globals: dict[str, Any]
    injected: dict[str, Any]
    mode: Callable[[], AbstractContextManager[Any]]

    def dynamo(self, frame_locals: dict[str, Any]) -> bool:
        # Dynamo takes its names out of the globals again when it forgets the frame.
        for name, value in self.injected.items():
            self.frame_globals.setdefault(name, value)
        try:
            return bool(self.root.check(frame_locals))
        except Exception:
            return False  # dynamo's own lookup treats an error in a guard as a failed one or raises

    def ours(self, frame_locals: dict[str, Any]) -> bool:
        answer, other = _asked(self.guard, frame_locals), _asked(self.native, frame_locals)
        assert answer == other, f"as Python the guard answers {answer}, as native code {other}"
        return answer


def _asked(guard: Callable[[dict[str, Any]], bool], frame_locals: dict[str, Any]) -> bool:
    try:
        return bool(guard(frame_locals))
    except Exception:
        return False  # an error in a guard of ours is a refusal


def hold(call: Callable[..., Any], *args: Any, numbers: Sequence[str] = (), **kwargs: Any) -> list[HeldFrame]:
    """Capture one call under torch.compile, in the grad mode it is made in.

    numbers: arguments of which any value is traced
    """
    torch._dynamo.reset()
    recorder = GuardRecorder()
    held: list[HeldFrame] = []
    keys = dispatch_keys()
    errors: list[Exception] = []

    def on_frame(trace: FrameTrace) -> None:
        try:
            held.append(_held(recorder, trace, keys))
        except Exception as error:
            errors.append(error)

    def backend(gm: Any, _inputs: Any) -> Any:
        return gm.forward

    with capture_settings({}, 1, numbers), recorder.recording(), tracing_frames(on_frame, lambda *_: None):
        torch.compile(call, backend=backend)(*args, **kwargs)
    if errors:
        raise errors[0]
    return held


def _held(recorder: GuardRecorder, trace: FrameTrace, keys: tuple[int, int]) -> HeldFrame:
    tree = recorder.tree(trace.root)
    lowered = lower_guards(tree, trace.frame_globals, trace.injected, numbers=trace.numbers)
    data = {
        "guard": function_codes(lowered.source, "<guards>"),
        "constants": lowered.constants,
        "tensors": tuple(group.encoded() for group in lowered.tensors),
        "state": lowered.state,
        "dispatch": keys,
    }
    entry = types.SimpleNamespace(hits=0)
    # A call meets the stub first, and the guard only if that lets it pass.
    namespace = runtime("loading.guards").guard_namespace()
    code = runtime("loading.guards").prepare_guard(namespace, data, trace.frame_globals, entry)
    whole = types.FunctionType(code, namespace, "guard")
    stub = types.FunctionType(function_codes(lowered.stub.text(), "<stub>")[0], namespace, "guard")

    def guard(frame_locals: dict[str, Any]) -> bool:
        return bool(stub(frame_locals) and whole(frame_locals))

    made = native(lowered.functions, namespace)

    def native_guard(frame_locals: dict[str, Any]) -> bool:
        return bool(stub(frame_locals) and made(frame_locals))

    mode = torch.inference_mode if torch.is_inference_mode_enabled() else torch.no_grad
    if torch.is_grad_enabled():
        mode = torch.enable_grad
    return HeldFrame(
        trace.code.co_qualname,
        trace.root,
        guard,
        native_guard,
        lowered.source,
        marshal.loads(marshal.dumps(words_of(lowered.functions, lowered.notes), MARSHAL)),
        types.SimpleNamespace(guard=whole, state=namespace["state"]),
        trace.frame_globals,
        trace.injected,
        mode,
    )


def native(functions: Sequence[Function], namespace: dict[str, Any]) -> Callable[[dict[str, Any]], bool]:
    """The guard with these functions as native code."""
    guards = NativeGuards()
    translated = guards.add(functions)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "guards.so")
        problem = guards.compile(library)
        assert not problem, problem
        make = runtime("graphs.callers").load_library(str(library), f"native{id(guards)}", "guards")
    return runtime("loading.guards").native_guard(make, namespace, translated)
