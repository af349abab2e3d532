"""What a call looks like, as JSON can hold it: shapes and kinds, never data (docs/users.md says which).

Loaded only where HATCH_PRECOMPILE asks for a record.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from ..calling.prologue import arguments_of
from ..torch_internals import torch_private
from ..values.references import original
from ..values.static_lookup import attribute, class_name, dict_of, is_a

if TYPE_CHECKING:
    from ..calling.activation import Entrypoint, Frame

__all__ = ["Form", "state_of", "type_name"]

_DEEPEST = 12
_LONGEST_KEY = 64
_LONGEST_NAME = 200
_NUMBERS = (int, float, bool)


class Form:
    """How a frame of an entrypoint takes its arguments: made once, used for each of its calls."""

    def __init__(self, entrypoint: Entrypoint, frame: Frame) -> None:
        function = entrypoint.function()
        own = next((site.function for site in frame.sites if site.function is not None), None)
        self._code = frame.code
        self._names = arguments_of(frame.code)
        self._has_owner = _has_owner(entrypoint)
        self._cls = entrypoint.value if isinstance(entrypoint.value, type) else None
        self._defaults = _defaults(own)
        self._positional = _positional_names(function)[int(self._has_owner) :]
        self._words = frozenset(_words(frame.code)) | frozenset(_words(_innermost(function)))

    def describe(self, frame_locals: dict[str, Any]) -> dict[str, Any]:
        """The call: arguments, and what else in this thread decides who serves it."""
        positional, keywords, owner = self._split(frame_locals)
        walk = _Walk(self._words)
        named = [
            [self._positional[index] if index < len(self._positional) else None, walk.value(value)]
            for index, value in enumerate(positional)
        ]
        call: dict[str, Any] = {
            "args": named,
            "kwargs": {name: walk.value(value) for name, value in keywords.items()},
            **state_of(),
        }
        if is_a(owner, torch.nn.Module):
            if attribute(owner, "training"):
                call["training"] = True
            if self._cls is not None and type(owner) is not self._cls:
                call["owner"] = type_name(type(owner))
        return call

    def _split(self, frame_locals: dict[str, Any]) -> tuple[list[Any], dict[str, Any], Any]:
        """The arguments as a caller passes them, and the object. Where a frame does not know how it was
        called, they are keywords; what is its default and no number is left out."""
        code = self._code
        plain = self._names[: code.co_argcount]
        starred = list(self._names[code.co_argcount + code.co_kwonlyargcount :])
        rest = frame_locals[starred.pop(0)] if code.co_flags & inspect.CO_VARARGS else ()
        more = frame_locals[starred.pop(0)] if code.co_flags & inspect.CO_VARKEYWORDS else {}
        count = len(plain) if rest else min(len(plain), max(code.co_posonlyargcount, int(self._has_owner)))
        positional = [*(frame_locals[name] for name in plain[:count]), *rest]
        owner = positional.pop(0) if self._has_owner and positional else None
        keywords = {}
        for name in (*plain[count:], *self._names[code.co_argcount :][: code.co_kwonlyargcount]):
            value = frame_locals[name]
            if name in self._defaults and value is self._defaults[name] and type(value) not in _NUMBERS:
                continue
            keywords[name] = value
        if not all(map(_is_key, more)):  # what a caller has for a name may be data
            more = {f"**{self._names[-1]}": more}
        return positional, {**keywords, **more}, owner


def _has_owner(entrypoint: Entrypoint) -> bool:
    """Whether the first argument is the object, or the class, that the target is called on."""
    return isinstance(entrypoint.value, type) or (
        entrypoint.record["kind"] == "method" and not isinstance(entrypoint.value, staticmethod)
    )


def _defaults(function: Any) -> dict[str, Any]:
    if function is None:
        return {}
    code = function.__code__
    values = function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(values) :]
    return {**dict(zip(names, values, strict=True)), **(function.__kwdefaults__ or {})}


def _positional_names(function: Any) -> list[str]:
    """The names a caller knows the positional arguments by, also behind a decorator's `*args`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in kinds]


def _innermost(function: Any) -> CodeType | None:
    return original(getattr(inspect.unwrap(function), "__code__", None))


def _words(code: CodeType | None) -> Iterator[str]:
    """The strings that are written in a function: of those, one that is passed is no data."""
    pending: list[Any] = list(code.co_consts) if code is not None else []
    while pending:
        value = pending.pop()
        if type(value) is str:
            yield value
        elif isinstance(value, (tuple, frozenset)):
            pending.extend(value)
        elif isinstance(value, CodeType):
            pending.extend(value.co_consts)


def state_of() -> dict[str, Any]:
    """The mode of a call as `mode` of an entrypoint has it, or "grad", and what else is not as it starts."""
    if torch.is_inference_mode_enabled():
        mode = "inference"
    else:
        mode = "grad" if torch.is_grad_enabled() else "no_grad"
    state: dict[str, Any] = {"mode": mode}
    if torch.is_autocast_enabled("cpu"):
        state["autocast"] = _bare(torch.get_autocast_dtype("cpu"))
    if torch.get_default_dtype() is not torch.float32:
        state["default_dtype"] = _bare(torch.get_default_dtype())
    if torch_private.function_modes():
        state["function_modes"] = torch_private.function_modes()
    return state


class _Walk:
    """The values of one call. A tensor that was met before stands as `{"same": its number}`."""

    def __init__(self, words: frozenset[str]) -> None:
        self._words = words
        self._tensors: dict[int, int] = {}

    def value(self, value: Any, depth: int = 0) -> Any:
        kind = type(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**63 else {"type": "int"}
        if kind is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if kind is str:
            return {"string": value} if value in self._words else {"type": "str"}
        if kind is torch.dtype:
            return {"dtype": _bare(value)}
        if kind is torch.device:
            return {"device": str(value)}
        if is_a(value, torch.Tensor):
            return self._tensor(value)
        if depth < _DEEPEST and (found := self._container(value, depth + 1)) is not None:
            return found
        return {"type": type_name(kind)}

    def _container(self, value: Any, depth: int) -> dict[str, Any] | None:
        kind = type(value)
        if kind is list or kind is tuple:
            return {kind.__name__: [self.value(each, depth) for each in value]}
        if kind is dict:
            if not all(_is_key(key) for key in value):
                return None
            return {"dict": {key: self.value(each, depth) for key, each in value.items()}}
        children = _children(value)
        if children is None or not all(_is_key(key) for key, _ in children):
            return None
        return {"type": type_name(kind), "items": {key: self.value(each, depth) for key, each in children}}

    def _tensor(self, tensor: torch.Tensor) -> dict[str, Any]:
        if id(tensor) in self._tensors:
            return {"same": self._tensors[id(tensor)]}
        self._tensors[id(tensor)] = len(self._tensors)
        # A function mode of the user's, or a tensor's class, has no part in this.
        with torch_private.without_torch_function():
            return _tensor(tensor)


def _tensor(tensor: torch.Tensor) -> dict[str, Any]:
    record: dict[str, Any] = {"tensor": _bare(tensor.dtype)}
    if type(tensor) is not torch.Tensor:
        record["class"] = type_name(type(tensor))
    if tensor.device.type != "cpu":
        record["device"] = tensor.device.type
    if tensor.requires_grad:
        record["requires_grad"] = True
    if tensor.is_inference():
        record["inference"] = True
    if tensor.layout is not torch.strided or tensor.is_nested:
        record["layout"] = "nested" if tensor.is_nested else _bare(tensor.layout)
        return record
    size = record["size"] = [int(each) for each in tensor.size()]
    stride = [int(each) for each in tensor.stride()]
    if stride != _contiguous(size):
        record["stride"] = stride
    return record


def _contiguous(size: list[int]) -> list[int]:
    strides, step = [], 1
    for length in reversed(size):
        strides.append(step)
        step *= max(length, 1)
    return strides[::-1]


def _children(value: Any) -> list[tuple[str, Any]] | None:
    """What a container of another class holds; None for what is none. Nothing is imported for it."""
    if is_a(value, dict):
        return [(key, each) for key, each in dict.items(value) if type(key) is str]
    for kind in (list, tuple):
        if is_a(value, kind):
            return [(f"_{index}", each) for index, each in enumerate(kind.__iter__(value))]
    names = attribute(type(value), "__dataclass_fields__")
    if names is not None:
        own = dict_of(value)
        return [(name, own[name]) for name in names if name in own]
    return torch_private.pytree_children(value)


def _is_key(key: Any) -> bool:
    """Names are part of a structure; what is none may be somebody's data."""
    return type(key) is str and key.isidentifier() and len(key) <= _LONGEST_KEY


def type_name(cls: type) -> str:
    """A class in words, bounded."""
    return class_name(cls)[:_LONGEST_NAME]


def _bare(value: Any) -> str:
    """A dtype or a layout without the name of the module."""
    return str(value).removeprefix("torch.")


WHOLE = True
