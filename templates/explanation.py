"""Says why a call is not served: the first check of each entry's guard function that fails."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from .advice import remedy
from .errors import raised_by_signal
from .references import function_with

if TYPE_CHECKING:
    from .activation import Entrypoint, Frame
    from .entries import Entry
    from .installation import Installation

__all__ = ["explain_call", "explain_miss", "nearest"]

_VARIABLE = re.compile(r"\bv\d+\b")  # a variable of a guard function
_FUNCTION = re.compile(r"def (\w+)\((\w+)\):")
_CALL = re.compile(r"\b(p\d+)\((v\d+)\)")  # of one of its parts

# A check that the plugin writes on one property of a tensor.
_METADATA = re.compile(
    r"type\((?P<type_of>v\d+)\) is (?P<cls>torch\.[\w.]+)"
    r"|(?P<dtype_of>v\d+)\.dtype is torch\.(?P<dtype>\w+)"
    r"|(?P<rank_of>v\d+)\.dim\(\) == (?P<rank>\d+)"
    r"|(?P<size_of>v\d+)\.size\((?P<dimension>\d+)\) == (?P<size>\d+)"
)


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
    function = function_with(entrypoint.function(), frame.code)
    if function is None:
        skipped = entrypoint.record.get("skipped")
        if skipped:
            raise KeyError(f"the target of {name!r} is not compiled itself, only what it calls")
        raise KeyError(f"the function compiled for {name!r} is not the one its target names now")
    return _reports(frame, _locals(frame.code, function, args, kwargs))


def nearest(frame: Frame, frame_locals: dict[str, Any]) -> dict[str, Any]:
    """The report on the entry that came furthest, for a frame that no entry took."""
    reports = _reports(frame, frame_locals)
    if reports:
        return max(reports, key=lambda report: report["passed"])
    left_out = [
        reason for owner in frame.owners for reason in owner.installation.left_out.get(owner.name, ())
    ]
    reason = "; ".join(["none of its entries is installed", *dict.fromkeys(left_out)])
    return {"entry": None, "hit": False, "check": None, "reason": reason, "remedy": None, "passed": 0}


def explain_miss(entrypoint: Entrypoint, frame: Frame, frame_locals: dict[str, Any]) -> str:
    """One sentence on a call: what the entry that came furthest lacked, and what of the entrypoint was left
    out."""
    left_out = frame.installation.left_out.get(entrypoint.name, ())
    return "; left out: ".join([str(nearest(frame, frame_locals)["reason"]), *left_out])


def _reports(frame: Frame, frame_locals: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        _report(number, entry, frame_locals) for number, entry in enumerate(frame.entries) if entry.load()
    ]


def _report(number: int, entry: Entry, frame_locals: dict[str, Any]) -> dict[str, Any]:
    hits = entry.hits
    stop = _first_failure(entry, frame_locals)
    entry.hits = hits  # explaining is not calling
    if stop is None:
        served = "it would be served"
        return {
            "entry": number, "hit": True, "check": None, "reason": served, "remedy": None, "passed": 10**9,
        }  # fmt: skip
    check, _, where = stop.line.partition("  # ")
    check = check.removeprefix("if not (").removesuffix("): return False").strip()
    reason = _as_written(_words(entry, check, stop))
    owners = entry.frame.owners
    advice = remedy(check, reason, owners[0].record["mode"] if owners else ["no_grad"])
    if where:
        reason += f"  ({where})"
    return {
        "entry": number, "hit": False, "check": check, "reason": reason, "remedy": advice,
        "passed": stop.passed,
    }  # fmt: skip


class _Scope(NamedTuple):
    """One function of a guard's source, as it was called: `p3(v12)` from another scope, or `guard`."""

    name: str
    caller: _Scope | None = None
    argument: str = ""


class _Stop(NamedTuple):
    """Where a guard function refused."""

    line: str
    values: dict[str, Any]  # its variables there
    passed: int  # lines that ran before
    source: _Source
    scope: _Scope

    def path(self, variable: str) -> str:
        return self.source.path(self.scope, variable)


class _Source:
    """The readable guard source that lies beside an entry. One that was removed says nothing."""

    def __init__(self, text: str) -> None:
        self.lines = [line.strip() for line in text.splitlines()]
        self._functions: dict[str, tuple[str, list[str]]] = {}
        for line in self.lines:
            started = _FUNCTION.fullmatch(line)
            if started:
                body: list[str] = []
                self._functions[started[1]] = started[2], body
            elif self._functions:
                body.append(line)

    def line(self, number: int) -> str:
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def scope(self, frames: list[tuple[str, int]]) -> _Scope:
        """The scope of the last of the functions, which called one another in these lines."""
        scope = _Scope(frames[0][0])
        for (_, number), (name, _) in itertools.pairwise(frames):
            call = _CALL.search(self.line(number))
            scope = _Scope(name, scope, call[2] if call else "")
        return scope

    def path(self, scope: _Scope, variable: str) -> str:
        """How a variable's value is reached, such as `L['self']._modules['a']`."""
        parameter, body = self._functions.get(scope.name, ("", []))
        if variable == parameter and scope.caller is not None:
            return self.path(scope.caller, scope.argument)
        before = ""
        for line in body:
            target, assigned, value = line.partition(" = ")
            if assigned and target == variable:
                return _VARIABLE.sub(lambda match: self.path(scope, match[0]), value)
            if assigned and target.startswith("(") and variable in (names := _VARIABLE.findall(target)):
                call = _CALL.search(before)
                if call and call[1] in self._functions:
                    given = _VARIABLE.findall(self._functions[call[1]][1][-1])
                    return self.path(_Scope(call[1], scope, call[2]), given[names.index(variable)])
            before = line
        return variable


def _first_failure(entry: Entry, frame_locals: dict[str, Any]) -> _Stop | None:
    """Run a guard function and note the last line of it that ran; None if it accepts."""
    filename = entry.readable.__code__.co_filename
    functions: list[tuple[str, int]] = []
    last: tuple[list[tuple[str, int]], dict[str, Any]] = ([("guard", 0)], {})
    passed = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal last, passed
        if frame.f_code.co_filename != filename:
            return None
        if event == "call":
            functions.append((frame.f_code.co_name, frame.f_lineno))
        elif event in ("line", "exception"):
            functions[-1] = frame.f_code.co_name, frame.f_lineno
            passed += event == "line"
            last = list(functions), dict(frame.f_locals)
        elif event == "return":
            # A part that refused has said why already.
            functions.pop()
            if arg is False and functions:
                refused.append(last)
        return trace

    refused: list[tuple[list[tuple[str, int]], dict[str, Any]]] = []
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        if entry.readable(frame_locals):
            return None
    except Exception as error:
        if raised_by_signal(error):
            raise
        refused.append(last)  # as torch's lookup takes it
    finally:
        sys.settrace(before)
    frames, values = refused[0] if refused else last
    source = _Source(entry.source())
    return _Stop(source.line(frames[-1][1]), values, passed, source, source.scope(frames))


def _words(entry: Entry, check: str, stop: _Stop) -> str:
    if check.startswith("T") and ".check(" in check:
        return _tensor_words(entry, check, stop)
    if check.startswith("state.check()"):
        return f"torch's global state differs: {entry.state.reason()}"
    if check == "may_serve()":
        return (
            "a tracer, a dispatch mode or a functorch transform is active, "
            'or torch.compiler.disable, or torch.compiler.set_stance("force_eager")'
        )
    if check == "not in_checkpoint()":
        return "the call is made by torch.utils.checkpoint with use_reentrant=True, and draws random numbers"
    if check.startswith("environment("):
        name = check.partition("'")[2].partition("'")[0]
        return f"the environment variable {name}, which the traced code reads, is not as it was at the build"
    if check.startswith("module_hooks("):
        return "other hooks or methods are on the modules than at the build"
    metadata = _METADATA.fullmatch(check)
    if metadata is not None:
        variable = next(filter(None, metadata.group("type_of", "dtype_of", "rank_of", "size_of")))
        if variable in stop.values:
            return _metadata_words(stop.path(variable), stop.values[variable], metadata)
    needed = _VARIABLE.sub(lambda match: stop.path(match[0]), check)
    for name in dict.fromkeys(_VARIABLE.findall(check)):
        if name in stop.values:
            return f"{stop.path(name)} is {_short(stop.values[name])}; needed: {needed}"
    return f"needed: {needed}"


# How a guard function reaches a value, and how the author of a model writes that.
_SPELLINGS = (
    (re.compile(r"dict\.__getitem__\(([^()]*), v\d+_keys\[(\d+)\]\)"), r"\1[\2]"),
    (re.compile(r"\.__dict__\['_modules'\]\['?(\d+)'?\]"), r"[\1]"),
    (re.compile(r"\.__dict__\['_(?:modules|parameters|buffers)'\]\['(\w+)'\]"), r".\1"),
    (re.compile(r"\.__dict__\['([a-zA-Z_]\w*)'\]"), r".\1"),
    (re.compile(r"\bL\['(\w+)'\]"), r"\1"),
)


def _as_written(text: str) -> str:
    before = ""
    while before != text:
        before = text
        for pattern, spelling in _SPELLINGS:
            text = pattern.sub(spelling, text)
    return text


def _metadata_words(source: str, value: Any, metadata: re.Match[str]) -> str:
    """A check on one property of a tensor among the frame's locals."""
    cls, dtype, rank, dimension, size = metadata.group("cls", "dtype", "rank", "dimension", "size")
    if cls:
        return f"{source} is a {type(value).__module__}.{type(value).__qualname__}, the entry needs a {cls}"
    if dtype:
        return f"{source} has dtype {str(value.dtype).removeprefix('torch.')}, the entry needs {dtype}"
    if rank:
        return f"{source} is {value.dim()}-dimensional, the entry needs {rank} dimensions"
    return f"{source} has size {value.size(int(dimension))} in dimension {dimension}, the entry needs {size}"


def _tensor_words(entry: Entry, check: str, stop: _Stop) -> str:
    group, _, rest = check.partition(".check(")
    names = rest.rstrip(")").split(", ")
    tensors = [stop.values.get(name) for name in names]
    paths = [stop.path(name) for name in names]
    for number, tensor in enumerate(tensors):
        for other in range(number):
            if tensor is tensors[other]:  # torch's words say which of them, but not which is the other
                return f"{paths[number]} is the same tensor as {paths[other]}, the entry needs two"
    guards = entry.readable.__globals__[group]
    return str(guards.check_verbose(*tensors, tensor_check_names=paths))


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__qualname__}"
    if isinstance(value, sys.modules["torch"].Tensor):
        text = f"a tensor of shape {tuple(value.shape)}"
    return text if len(text) <= 80 else text[:77] + "..."


def _locals(code: CodeType, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """A frame's locals at its first instruction: parameters and free variables."""
    bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    bound.apply_defaults()
    free = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    return {**bound.arguments, **{name: cell.cell_contents for name, cell in free.items()}}
