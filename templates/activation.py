"""Makes calls of an entrypoint run its entries, and decides what a call does that none of them takes."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from . import torch_private
from .installation import PrecompileError
from .references import Stale, follow

if TYPE_CHECKING:
    from .frames import Frame
    from .installation import Installation

__all__ = ["Entrypoint", "install_miss"]


class _Current(threading.local):
    """The entrypoint whose wrapper is on this thread's stack, and whether its call is being jitted."""

    entrypoint: Entrypoint | None = None
    jitting = False


_current = _Current()


class Entrypoint:
    """A declared target in this process."""

    def __init__(self, installation: Installation, record: dict[str, Any]) -> None:
        self.installation = installation
        self.name: str = record["name"]
        self.record = record
        self.frames: list[Frame] = [installation.frames[number] for number in record["frames"]]
        module, _, self.qualname = record["target"].partition(":")
        self.module = sys.modules[module]
        self.on_miss = "error" if installation.mode == "strict" else record["on_miss"]
        self._undo: list[Callable[[], None]] = []
        *owner, self.attribute = self.qualname.split(".")
        self.owner = follow(self.module, [("a", part) for part in owner])
        self.value = follow(self.owner, [("d", self.attribute)])

    def activate(self) -> None:
        """Watch the frames and, with activate = "call", wrap the target. Raises Stale."""
        for frame in self.frames:
            frame.owners.append(self)
            if frame.record.get("resume") is None and not hasattr(frame, "code"):
                try:
                    frame.locate()
                except Stale:
                    if frame is self.frames[0]:
                        raise
                    continue  # its module is imported later, by the entry that leads to it
                frame.watch()
        if self.record["activate"] != "call":
            return
        if isinstance(self.value, type):
            self._wrap_class(self.value)
        elif isinstance(self.value, (staticmethod, classmethod)):
            self._replace(type(self.value)(self._wrapper(self.value.__func__)))
        else:
            self._replace(self._wrapper(self.value))

    def deactivate(self) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def function(self) -> Any:
        """The Python function whose frame the entries are for."""
        value = self.value
        if isinstance(value, type):
            value = value.forward  # type: ignore[attr-defined]
        return getattr(value, "__func__", value)

    def _wrap_class(self, cls: type) -> None:
        """`Module.__call__` prefers `_compiled_call_impl`: on the class it serves every instance."""
        before = cls.__dict__.get("_compiled_call_impl")
        call = self._runner(None)
        cls._compiled_call_impl = call  # type: ignore[attr-defined]

        def undo() -> None:
            if cls.__dict__.get("_compiled_call_impl") is not call:
                return  # somebody wrapped it after us; our runner then just passes calls on
            if before is None:
                del cls._compiled_call_impl  # type: ignore[attr-defined]
            else:
                cls._compiled_call_impl = before  # type: ignore[attr-defined]

        self._undo.append(undo)

    def _wrapper(self, function: Any) -> Any:
        import functools

        wrapper: Any = functools.update_wrapper(self._runner(function), function)
        # dynamo takes the function itself where it compiles or inlines this wrapper.
        wrapper._torchdynamo_orig_callable = function
        wrapper._torchdynamo_inline = function
        wrapper._precompiled_original = function
        return wrapper

    def _runner(self, function: Any) -> Any:
        """A function that runs `function` (None: a module's `_call_impl`) in run-only mode: entries are
        used, nothing compiles.

        Under a torch.compile of the user's, that one decides: the entries are found by it as well.
        """
        set_eval_frame = torch_private.set_eval_frame
        callback = torch_private.eval_frame_callback
        current = _current
        entrypoint = self
        tracked = self.on_miss != "eager"
        strict = self.installation.mode == "strict"

        def run(*args: Any, **kwargs: Any) -> Any:
            if callback() is not None:
                return function(*args, **kwargs)
            set_eval_frame(False)
            try:
                return function(*args, **kwargs)
            finally:
                set_eval_frame(None)

        def run_module(self: Any, *args: Any, **kwargs: Any) -> Any:
            if callback() is not None:
                return self._call_impl(*args, **kwargs)
            set_eval_frame(False)
            try:
                return self._call_impl(*args, **kwargs)
            finally:
                set_eval_frame(None)

        def run_tracked(*args: Any, **kwargs: Any) -> Any:
            outer = current.entrypoint
            # Under a torch.compile of the user's a miss is that one's to compile.
            current.entrypoint = entrypoint if strict or callback() is None else None
            try:
                return untracked(*args, **kwargs)
            finally:
                current.entrypoint = outer

        untracked: Any = run_module if function is None else run
        for ours in (run, run_module, run_tracked):
            torch_private.leave_untraced(ours, below=False)
        return run_tracked if tracked else untracked

    def _replace(self, wrapper: Any) -> None:
        """Put the wrapper where the target is, and where modules of its package imported it from there."""
        original = self.value
        places: list[tuple[Any, str]] = [(self.owner, self.attribute)]
        if self.owner is self.module:
            top = self.module.__name__.partition(".")[0]
            for name, module in list(sys.modules.items()):
                if isinstance(module, ModuleType) and (name == top or name.startswith(f"{top}.")):
                    places += [
                        (module, key)
                        for key, value in list(vars(module).items())
                        if value is original and (module, key) != places[0]
                    ]
        for owner, key in places:
            setattr(owner, key, wrapper)

        def undo() -> None:
            for owner, key in places:
                if vars(owner).get(key) is wrapper:
                    setattr(owner, key, original)

        self._undo.append(undo)


def install_miss(installation: Installation, frame: Frame) -> None:
    """The last entry of a frame: it counts and reports a miss, and serves it where on-miss says so."""
    code = frame.code
    answer = None
    owners = frame.owners
    policy = next((owner.on_miss for owner in owners if owner.on_miss != "eager"), "eager")
    if policy != "eager":
        answer = _answering_code(code, frame, installation)

    def missed(frame_locals: dict[str, Any]) -> bool:
        if installation.uninstalled or _current.jitting or not torch_private.standing_by():
            return False
        if not _is_ours(frame_locals, owners):
            return False
        frame.misses += 1
        if installation.log:
            from .explanation import explain_frame

            installation.log.info(
                "miss of %s: %s", frame.record["qualname"], explain_frame(frame, frame_locals)
            )
        entrypoint = _current.entrypoint
        if answer is None or entrypoint is None or entrypoint not in owners or entrypoint.on_miss == "eager":
            return False
        # A JIT compile restarts at the target: a frame inside it has no way back to there.
        return entrypoint.on_miss == "error" or frame is entrypoint.frames[0]

    torch_private.add_entry(code, missed, answer if answer is not None else code)


def _is_ours(frame_locals: dict[str, Any], owners: list[Entrypoint]) -> bool:
    """Whether a frame that several classes share (a decorator's wrapper) runs for one of ours."""
    classes = tuple(owner.value for owner in owners if isinstance(owner.value, type))
    if len(classes) < len(owners) or "self" not in frame_locals:
        return True
    return isinstance(frame_locals["self"], classes)


def _answering_code(code: CodeType, frame: Frame, installation: Installation) -> CodeType:
    """Bytecode with the frame's own signature that hands its arguments to `_answer_miss`."""
    name = f"__precompiled_miss_{id(frame):x}"
    frame.globals[name] = lambda *args, **kwargs: _answer_miss(frame, args, kwargs)
    torch_private.leave_untraced(frame.globals[name], below=False)
    positional = list(code.co_varnames[: code.co_argcount])
    keywords = list(code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount])
    rest = list(code.co_varnames[code.co_argcount + code.co_kwonlyargcount :])
    parameters, arguments = list(positional), list(positional)
    if code.co_posonlyargcount:
        parameters.insert(code.co_posonlyargcount, "/")
    if code.co_flags & inspect.CO_VARARGS:
        star = rest.pop(0)
        parameters.append(f"*{star}")
        arguments.append(f"*{star}")
    elif keywords:
        parameters.append("*")
    parameters += keywords
    arguments += [f"{key}={key}" for key in keywords]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        star = rest.pop(0)
        parameters.append(f"**{star}")
        arguments.append(f"**{star}")
    # Cells and free variables must be those of the frame this code stands in for.
    free = ", ".join(code.co_freevars)
    cells = ", ".join(code.co_cellvars)
    body = f"        return {name}({', '.join(arguments)})\n"
    if cells:
        body = f"        lambda: ({cells},)\n" + body
    if free:
        body = f"        ({free},)\n" + body
    binding = f"    {' = '.join(code.co_freevars)} = None\n" if free else ""
    signature = f"{code.co_name}({', '.join(parameters)})"
    source = f"def outer():\n{binding}    def {signature}:\n{body}    return {code.co_name}\n"
    namespace: dict[str, Any] = {}
    exec(compile(source, code.co_filename, "exec", dont_inherit=True), namespace)
    answer: CodeType = namespace["outer"]().__code__
    if answer.co_cellvars != code.co_cellvars or answer.co_freevars != code.co_freevars:
        raise Stale(f"on-miss cannot be served for {code.co_qualname}: its cells cannot be rebuilt")
    return answer


def _answer_miss(frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    entrypoint = _current.entrypoint
    assert entrypoint is not None
    if entrypoint.on_miss == "compile":
        return _jit(entrypoint, args, kwargs)
    from .explanation import explain_bound

    raise PrecompileError(
        f"{entrypoint.installation.package}: no entry of {entrypoint.name} fits this call: "
        + explain_bound(frame, args, kwargs)
    )


def _jit(entrypoint: Entrypoint, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch.compile now, as if there were no bundle: from here on dynamo's own entries serve such calls."""
    import torch

    compiled = getattr(entrypoint, "_compiled", None)
    if compiled is None:
        compiled = entrypoint._compiled = torch.compile(entrypoint.function())  # type: ignore[attr-defined]
    _current.jitting = True
    try:
        return compiled(*args, **kwargs)
    finally:
        _current.jitting = False
