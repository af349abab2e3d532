"""Says why a call is not served: the first check of each entry's guard function that fails."""

from __future__ import annotations

import inspect
import re
import sys
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from .references import unwrap

if TYPE_CHECKING:
    from .entries import Entry
    from .frames import Frame
    from .installation import Installation

__all__ = ["explain_bound", "explain_call", "explain_frame"]

_VARIABLE = re.compile(r"\bv\d+\b")  # a variable of a guard function


def explain_call(
    installation: Installation, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[dict[str, Any]]:
    """See `explain` in the package. The frame looked at is the entrypoint's own."""
    if name not in installation.entrypoints:
        known = ", ".join(installation.entrypoints) or "none is active"
        raise KeyError(f"no active entrypoint {name!r}; there are: {known}")
    entrypoint = installation.entrypoints[name]
    frame = entrypoint.frames[0]
    frame.load()
    function = _function_of(entrypoint.function(), frame.code)
    if function is None:
        raise KeyError(f"the function compiled for {name!r} is not the one its target names now")
    return _reports(frame, _locals(frame.code, function, args, kwargs))


def explain_frame(frame: Frame, frame_locals: dict[str, Any]) -> str:
    """One sentence for a frame that no entry took: the entry that came furthest and what it lacked."""
    reports = _reports(frame, frame_locals)
    if not reports:
        left_out = [
            reason for owner in frame.owners for reason in owner.installation.left_out.get(owner.name, ())
        ]
        return "none of its entries is installed" + "".join(
            f"; {reason}" for reason in dict.fromkeys(left_out)
        )
    nearest = max(reports, key=lambda report: report["passed"])
    return str(nearest["reason"])


def explain_bound(frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """`explain_frame` for a frame's arguments."""
    bound = inspect.Signature(_parameters(frame.code)).bind(*args, **kwargs)
    return explain_frame(frame, dict(bound.arguments))


def _reports(frame: Frame, frame_locals: dict[str, Any]) -> list[dict[str, Any]]:
    return [_report(number, entry, frame_locals) for number, entry in enumerate(frame.entries)]


def _report(number: int, entry: Entry, frame_locals: dict[str, Any]) -> dict[str, Any]:
    hits = entry.hits
    accepted, line, values = _traced(entry, frame_locals)
    entry.hits = hits  # explaining is not calling
    if accepted:
        return {"entry": number, "hit": True, "check": None, "reason": "it would be served", "passed": 10**9}
    check, _, where = _source_line(entry, line).partition("  # ")
    check = check.removeprefix("if not (").removesuffix("): return False").strip()
    reason = _words(entry, check, values)
    if where:
        reason += f"  ({where})"
    return {"entry": number, "hit": False, "check": check, "reason": reason, "passed": line}


def _traced(entry: Entry, frame_locals: dict[str, Any]) -> tuple[bool, int, dict[str, Any]]:
    """Run a guard function and note the last line of it that ran, and its variables there."""
    code = entry.guard.__code__
    last: tuple[int, dict[str, Any]] = (code.co_firstlineno, {})

    def trace(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal last
        if frame.f_code is not code:
            return None
        if event == "exception" or (event == "line" and not _is_handler(entry, frame.f_lineno)):
            last = frame.f_lineno, dict(frame.f_locals)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        accepted = bool(entry.guard(frame_locals))
    finally:
        sys.settrace(before)
    return accepted, *last


def _is_handler(entry: Entry, line: int) -> bool:
    """The lines after a check that raised, which say nothing about it."""
    return _source_line(entry, line) in ("except Exception:", "return False")


def _source_line(entry: Entry, line: int) -> str:
    """A line of the readable guard source that lies beside the entry."""
    lines = entry.source_lines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def _words(entry: Entry, check: str, values: dict[str, Any]) -> str:
    if check.startswith("T") and ".check(" in check:
        return _tensor_words(entry, check, values)
    if check.startswith("state.check()"):
        return f"torch's global state differs: {entry.state.reason()}"
    if check == "standing_by()":
        return "a tracer, a dispatch mode or a functorch transform is active"
    names = dict.fromkeys(_VARIABLE.findall(check))
    check = _VARIABLE.sub(lambda match: entry.source_of(match[0]), check)
    for name in names:
        if name in values:
            return f"{entry.source_of(name)} is {_short(values[name])}; needed: {check}"
    return f"needed: {check}"


def _tensor_words(entry: Entry, check: str, values: dict[str, Any]) -> str:
    group, _, rest = check.partition(".check(")
    names = rest.rstrip(")").split(", ")
    tensors = [values.get(name) for name in names]
    sources = [entry.source_of(name) or name for name in names]
    guards = entry.guard.__globals__[group]
    return str(guards.check_verbose(*tensors, tensor_check_names=sources))


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__qualname__}"
    if isinstance(value, sys.modules["torch"].Tensor):
        text = f"a tensor of shape {tuple(value.shape)}"
    return text if len(text) <= 80 else text[:77] + "..."


def _function_of(function: Any, code: CodeType) -> Any:
    """The function with this code, at or below the target (a decorated one wraps it)."""
    function = unwrap(function)
    for _ in range(8):
        if getattr(function, "__code__", None) is code:
            return function
        function = getattr(function, "__wrapped__", None)
    return None


def _locals(code: CodeType, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """A frame's locals at its first instruction: parameters and free variables."""
    bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    bound.apply_defaults()
    free = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    return {**bound.arguments, **{name: cell.cell_contents for name, cell in free.items()}}


def _parameters(code: CodeType) -> list[inspect.Parameter]:
    kinds = inspect.Parameter
    names = list(code.co_varnames)
    parameters = []
    for index in range(code.co_argcount):
        kind = kinds.POSITIONAL_ONLY if index < code.co_posonlyargcount else kinds.POSITIONAL_OR_KEYWORD
        parameters.append(kinds(names.pop(0), kind))
    keywords = [kinds(names.pop(0), kinds.KEYWORD_ONLY) for _ in range(code.co_kwonlyargcount)]
    if code.co_flags & inspect.CO_VARARGS:
        parameters.append(kinds(names.pop(0), kinds.VAR_POSITIONAL))
    parameters += keywords
    if code.co_flags & inspect.CO_VARKEYWORDS:
        parameters.append(kinds(names.pop(0), kinds.VAR_KEYWORD))
    return parameters
