"""What a call does that no entry of a frame takes. Loaded with a frame's entries, after them."""

from __future__ import annotations

import inspect
import os
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

from . import torch_private
from .activation import current
from .installation import PrecompileError, warn
from .references import Stale

if TYPE_CHECKING:
    from .activation import Entrypoint, Frame
    from .installation import Installation

__all__ = ["install_miss"]


def install_miss(installation: Installation, frame: Frame) -> None:
    """The last entry of a frame: it counts and reports a miss, and serves it where on-miss says so."""
    code = frame.code
    log = installation.log
    if log is None and "recompiles" in os.environ.get("TORCH_LOGS", ""):
        from .reporting import Log

        log = Log(installation.package, own=False)
    answer = None
    owners = frame.owners
    policy = next((owner.on_miss for owner in owners if owner.on_miss != "eager"), "eager")
    if policy != "eager":
        try:
            answer = _answering_code(code, frame)
        except Stale as error:
            # Not under the mode: whatever is raised here, inside a guard, torch drops.
            warn(installation.package, f"on-miss = {policy} has no effect: {error}", "")

    def missed(frame_locals: dict[str, Any]) -> bool:
        if installation.uninstalled or current.jitting or not torch_private.standing_by():
            return False
        if not _is_ours(frame, frame_locals):
            return False
        frame.misses += 1
        if log is not None:
            log.miss(frame, frame_locals)
        entrypoint = current.entrypoint
        if answer is None or entrypoint is None or entrypoint not in owners or entrypoint.on_miss == "eager":
            return False
        # A JIT compile restarts at the target: a frame inside it has no way back to there.
        return entrypoint.on_miss == "error" or entrypoint.owns(frame)

    torch_private.add_entry(code, missed, answer if answer is not None else code)


def _is_ours(frame: Frame, frame_locals: dict[str, Any]) -> bool:
    """Whether a target's own frame, which classes may share (a decorator's wrapper), runs for one of ours."""
    classes = tuple(
        owner.value for owner in frame.owners if isinstance(owner.value, type) and owner.owns(frame)
    )
    if len(classes) < len(frame.owners) or "self" not in frame_locals:
        return True
    return isinstance(frame_locals["self"], classes)


def _answering_code(code: CodeType, frame: Frame) -> CodeType:
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
        raise Stale(f"the cells of {code.co_qualname} cannot be rebuilt")
    return answer


def _answer_miss(frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    entrypoint = current.entrypoint
    assert entrypoint is not None
    if entrypoint.on_miss == "compile":
        return _jit(entrypoint, args, kwargs)
    return _refuse(entrypoint, frame, args, kwargs)


def _refuse(entrypoint: Entrypoint, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
    from .explanation import explain_bound

    raise PrecompileError(
        f"{entrypoint.installation.package}: no entry of {entrypoint.name} fits this call: "
        + explain_bound(entrypoint, frame, args, kwargs)
    )


def _jit(entrypoint: Entrypoint, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch.compile now, as if there were no bundle: from here on dynamo's own entries serve such calls."""
    import torch

    compiled = getattr(entrypoint, "_compiled", None)
    if compiled is None:
        compiled = entrypoint._compiled = torch.compile(entrypoint.function())  # type: ignore[attr-defined]
    current.jitting = True
    try:
        return compiled(*args, **kwargs)
    finally:
        current.jitting = False


for _function in (_answer_miss, _jit):
    torch_private.leave_untraced(_function, below=False)
torch_private.leave_untraced(_refuse, below=True)
