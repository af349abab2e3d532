"""Says why a call is not served: the first check of each entry's guard function that fails.

It loads the entries of the frame, as a call does; it calls nothing that is served, and counts nothing. Who
asks why a call is not served must not get another error for it: what cannot be said is said to be so.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from ..calling.activation import followed
from ..calling.serving import load
from ..errors import raised_by_signal
from ..torch_internals import torch_private
from ..values.references import Stale, Unimported, function_with
from ..values.static_lookup import attribute, class_name, is_a, is_exactly
from .advice import remedy, torchs_kind
from .asked import ABSENCES
from .refusal import Check, Stop, first_failure

if TYPE_CHECKING:
    from ..calling.activation import Frame
    from ..installation import Installation
    from ..loading.entries import Entry
    from ..loading.guards import Beside

__all__ = ["explain_call", "nearest"]


def explain_call(
    installation: Installation, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[dict[str, Any]]:
    """See `explain` in the package. The frame looked at is the entrypoint's own."""
    if name not in installation.entrypoints:
        if any(record["name"] == name for record in installation.manifest.get("left_out", ())):
            raise KeyError(f"{name!r} was left out when the wheel was built, because it failed there")
        known = ", ".join(installation.entrypoints) or "none is active"
        raise KeyError(f"no active entrypoint {name!r}; there are: {known}")
    entrypoint = installation.entrypoints[name]
    frame = entrypoint.frames[0]
    load(frame)
    function = function_with(entrypoint.function(), frame.code)
    if function is None:
        skipped = entrypoint.record.get("skipped")
        if skipped:
            raise KeyError(f"the target of {name!r} is not compiled itself, only what it calls")
        raise KeyError(f"the function compiled for {name!r} is not the one its target names now")
    return _reports(frame, _locals(frame.code, function, args, kwargs))


def nearest(frame: Frame, frame_locals: dict[str, Any]) -> dict[str, Any]:
    """The report on the entry that came furthest, for a frame that no entry took."""
    try:
        reports = _reports(frame, frame_locals)
    except Exception as error:
        if raised_by_signal(error):
            raise
        return _report_of(None, _not_to_be_said(error))
    if reports:
        return max(reports, key=lambda report: report["passed"])
    left_out = [
        reason for owner in frame.owners for reason in owner.installation.left_out.get(owner.name, ())
    ]
    reason = "; ".join(["none of its entries is installed", *dict.fromkeys(left_out)])
    return _report_of(None, reason)


def _reports(frame: Frame, frame_locals: dict[str, Any]) -> list[dict[str, Any]]:
    with torch_private.at_work():
        return [
            _report(number, entry, frame_locals)
            for number, entry in enumerate(frame.entries)
            if not entry.given_up
        ]


def _report(number: int, entry: Entry, frame_locals: dict[str, Any]) -> dict[str, Any]:
    try:
        if not entry.ready and not torch_private.may_serve():
            return _report_of(number, _STANDS_ASIDE, check="may_serve()", remedy=remedy("STAND_ASIDE", ()))
        if entry.is_for_unused_gpu:
            reason = f"it is for {entry.record['gpu']['variant']}, and this process has no tensor on a GPU"
            return _report_of(number, reason)
        try:
            beside = entry.beside()
        except Unimported as error:
            reason = f"{error}, and only a call that passes the entry's first checks imports it"
            return _report_of(number, reason, remedy="import it to see which check fails")
        except Stale as error:
            return _report_of(number, f"it would be left out: {error}", remedy=error.advice)
        stop = first_failure(beside.guard, entry.words(), frame_locals)
        if stop is None:
            aside = bool(followed())
            reason = "a debugger, or coverage, follows this thread" if aside else "it would be served"
            return _report_of(number, reason, hit=not aside, passed=10**9)
        return _refusal(number, entry, beside, stop)
    except Exception as error:
        if raised_by_signal(error):
            raise
        return _report_of(number, _not_to_be_said(error))


def _report_of(
    number: int | None,
    reason: str,
    *,
    hit: bool = False,
    check: str | None = None,
    remedy: str | None = None,
    passed: int = 0,
) -> dict[str, Any]:
    return {
        "entry": number, "hit": hit, "check": check, "reason": reason, "remedy": remedy, "passed": passed,
    }  # fmt: skip


def _not_to_be_said(error: Exception) -> str:
    return f"it cannot be said why ({type(error).__name__}: {error})"


def _refusal(number: int, entry: Entry, beside: Beside, stop: Stop) -> dict[str, Any]:
    check = stop.check
    if check is None:
        kind = "REACHED" if stop.missing else "UNKNOWN"
        reason = f"{stop.missing} is not there" if stop.missing else _UNTOLD
        return _report_of(number, reason, check=stop.line, remedy=remedy(kind, ()), passed=stop.passed)
    kind, reason = _words(beside, check, stop)
    place = stop.path(check.places[0]) if check.places else ""
    owners = entry.frame.owners
    modes = owners[0].record["mode"] if owners else ["no_grad"]
    if not any(owner.owns(entry.frame) for owner in owners):
        place = ""  # no argument of the target's, which is what can be declared
    if check.where:
        reason += f"  ({check.where})"
    return _report_of(
        number,
        reason,
        check=stop.line,
        remedy=remedy(kind, modes, place, check.expected),
        passed=stop.passed,
    )


_UNTOLD = "a check that cannot be told: the bundle has no words for it, or they are damaged"
_STANDS_ASIDE = (
    "a tracer, a dispatch mode or a functorch transform is active, "
    'or torch.compiler.disable, or torch.compiler.set_stance("force_eager")'
)
_SENTENCES = {
    "STAND_ASIDE": _STANDS_ASIDE,
    "TORCH_FUNCTION_STATE": "a torch function mode is active",
    "CHECKPOINT": (
        "the call is made by torch.utils.checkpoint with use_reentrant=True, and draws random numbers"
    ),
    "GPU_SETTINGS": (
        "torch's settings for GPUs differ: the kinds of attention that are enabled, their order, or cuDNN"
    ),
    "HOOKS": "other hooks or methods are on the modules than at the build",
}


def _words(beside: Beside, check: Check, stop: Stop) -> tuple[str, str]:
    """The kind of a check that failed, more exactly where that can be told, and the reason."""
    kind = check.kind
    constants: Any = beside.guard.__globals__
    if kind == "TENSOR_MATCH":
        return _tensor_words(constants, check, stop)
    if kind == "GLOBAL_STATE":
        said = beside.state.reason()
        return torchs_kind(kind, said), f"torch's global state differs: {said}"
    if kind in _SENTENCES:
        return kind, _SENTENCES[kind]
    if kind == "GPU":
        return kind, f"it is for {constants['gpu']}"
    if kind == "ENVIRONMENT":
        name = check.expected
        where = "which the traced code reads, is not as it was at the build"
        return kind, f"the environment variable {name}, {where}"
    if kind in ABSENCES:
        return kind, ABSENCES[kind](check, stop, constants)
    there = [name for name in check.places if name in stop.values]
    if there and kind in _OF_A_TENSOR:
        return kind, f"{stop.path(there[0])} {_OF_A_TENSOR[kind](stop.values[there[0]], check.expected)}"
    needed = stop.spelled(check.needed or check.condition, lambda name: _short(constants.get(name)))
    if there:
        return kind, f"{stop.path(there[0])} is {_short(stop.values[there[0]])}; needed: {needed}"
    return kind, f"needed: {needed}"


# What one of the frame's locals is, and should be.
_OF_A_TENSOR: dict[str, Callable[[Any, Any], str]] = {
    "TENSOR_CLASS": lambda value, cls: f"is a {class_name(type(value))}, the entry needs a {cls}",
    "TENSOR_DTYPE": lambda value, dtype: (
        f"has dtype {_of_torch(value.dtype)}, the entry needs {_of_torch(dtype)}"
    ),
    "TENSOR_RANK": lambda value, rank: f"is {value.dim()}-dimensional, the entry needs {rank} dimensions",
    "TENSOR_SIZE": lambda value, asked: (
        f"has size {value.size(asked[0])} in dimension {asked[0]}, the entry needs {asked[1]}"
    ),
    "ARRAY_WRITEABLE": lambda value, _: "cannot be written to, the entry needs an array that can",
}


def _of_torch(name: object) -> str:
    return str(name).removeprefix("torch.")


def _tensor_words(constants: Any, check: Check, stop: Stop) -> tuple[str, str]:
    tensors = [stop.values.get(name, constants.get(name)) for name in check.places]
    paths = [stop.path(name) for name in check.places]
    for number, tensor in enumerate(tensors):
        for other in range(number):
            if tensor is tensors[other]:  # torch's words say which of them, but not which is the other
                same = f"{paths[number]} is the same tensor as {paths[other]}, the entry needs two"
                return "TENSOR_ALIASING", same
    text = str(constants[check.expected].check_verbose(*tensors, tensor_check_names=paths))
    if "device index" in text and (apart := _on_two_gpus(paths, tensors)):  # torch's words lack the numbers
        return "TENSOR_DEVICE", apart
    kind = torchs_kind(check.kind, text)
    if kind == "TENSOR_KEYS":
        for path, tensor in zip(paths, tensors, strict=True):
            if text.startswith(f"tensor '{path}' dispatch key") and (words := _other_kind(tensor, text)):
                return words[0], f"{path} {words[1]}"
    return kind, text


def _on_two_gpus(paths: list[str], tensors: list[Any]) -> str | None:
    lying_there = [(path, each.device) for path, each in zip(paths, tensors, strict=True) if each.is_cuda]
    first, device = lying_there[0] if lying_there else ("", None)
    others = (f"{path} is on {there}" for path, there in lying_there if there != device)
    said = next(others, None)
    return said and f"{said}, and {first} is on {device}; the entry needs one GPU for all"


def _other_kind(tensor: Any, text: str) -> tuple[str, str] | None:
    """What torch's words on dispatch keys come to, where that is the layout or the device."""
    if tensor.layout is not sys.modules["torch"].strided:
        return "TENSOR_LAYOUT", f"has layout {_of_torch(tensor.layout)}, the entry needs a strided tensor"
    expected = text.partition("DispatchKeySet(")[2].partition(",")[0].lower()
    if expected.isalpha() and expected != tensor.device.type:
        return "TENSOR_DEVICE", f"is on the device {tensor.device.type}, the entry needs {expected}"
    return None


def _short(value: Any) -> str:
    """A value in a few words. `repr` would run code of its class."""
    kind = type(value)
    torch = sys.modules["torch"]
    if is_a(value, torch.Tensor):
        if kind is not torch.Tensor:
            return f"a {class_name(kind)}"
        if value.is_nested:
            return "a nested tensor"
        strided = value.layout is torch.strided and not value.is_contiguous()
        return f"a tensor of shape {tuple(value.shape)}{f' and strides {value.stride()}' if strided else ''}"
    if is_exactly(value, *_PLAIN, torch.dtype, torch.device, torch.layout, torch.Size):
        text = repr(value)
        return text if len(text) <= 80 else text[:77] + "..."
    if is_exactly(value, list, tuple) and len(value) <= 8:
        words = ", ".join(map(_short, value))
        return f"[{words}]" if kind is list else f"({words}{',' * (len(value) == 1)})"
    if is_a(value, type):
        return class_name(value)
    if is_exactly(value, list, tuple, dict, set, frozenset):
        return f"a {kind.__name__} of {len(value)}"
    name = attribute(value, "__qualname__") if kind is FunctionType else None
    return f"the function {name}" if name else f"a {class_name(kind)}"


_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))


def _locals(code: CodeType, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """A frame's locals at its first instruction: parameters, and free variables that have a value."""
    bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    bound.apply_defaults()
    found = dict(bound.arguments)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # an empty cell
            continue
    return found


WHOLE = True
