"""Places of a program that somebody may patch at run time, and what is put there."""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

__all__ = ["another", "patch", "places_of"]

Place = list[str]
_NOTHING = object()


def places_of(run: Any) -> list[Place]:
    """Each as the way to it: a kind, where it is, and its name there."""
    found: list[Place] = []
    for module_name, names in run.parameter.items():
        module = importlib.import_module(module_name)
        for name in names:
            value = getattr(module, name, None)
            found += _of_value(value, [module_name, name])
    if run.object is not None:
        found += [["object", "", name] for name in _simple(vars_of(run.object))]
        if isinstance(run.object, torch.nn.Module):
            for path, inner in list(run.object.named_modules())[1:]:
                found += [["object", path, name] for name in _simple(vars_of(inner)) if name != "training"]
                found += [["forward", path, "forward"]]
    return found


def _of_value(value: Any, way: list[str]) -> Iterator[Place]:
    if another(value) is not _NOTHING:
        yield ["global", *way]
    if isinstance(value, (dict, list)):
        yield ["item", *way]
    if isinstance(value, FunctionType):
        yield ["global function", *way]
        original = inspect.unwrap(value)
        yield ["code", *way]
        yield from (["default", *way, str(number)] for number, _ in enumerate(original.__defaults__ or ()))
        yield from (["keyword default", *way, name] for name in original.__kwdefaults__ or ())
        yield from (["attribute", *way, name] for name in _simple(vars(value)))
    if isinstance(value, type):
        yield from (["attribute", *way, name] for name in _simple(dict(vars(value))))
        for name, item in vars(value).items():
            if isinstance(item, (FunctionType, staticmethod, classmethod)) and not name.startswith("__"):
                yield ["method", *way, name]
            if isinstance(item, property):
                yield ["property", *way, name]
        if not issubclass(value, enum.Enum):
            yield ["new attribute", *way, "__getattribute__"]
    if isinstance(value, functools.partial):
        yield ["global function", *way]
    if not isinstance(value, (type, FunctionType, ModuleType)) and hasattr(value, "__dict__"):
        yield from (["attribute", *way, name] for name in _simple(vars(value)))


def vars_of(value: Any) -> dict[str, Any]:
    return dict(vars(value)) if hasattr(value, "__dict__") else {}


def _simple(attributes: dict[str, Any]) -> list[str]:
    plain = (bool, int, float, str, tuple, torch.dtype)
    return [
        name
        for name, value in attributes.items()
        if isinstance(value, plain) and not name.startswith("__") and another(value) is not _NOTHING
    ]


def another(value: Any) -> Any:
    """A value that is of the same kind, and not equal; `_NOTHING` where there is none."""
    if isinstance(value, enum.Enum):
        return next((other for other in type(value) if other is not value), _NOTHING)
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value * 2 + 1
    if isinstance(value, str):
        return {"sin": "cos", "tanh": "sin", "first": "second"}.get(value, value + "_")
    if isinstance(value, torch.dtype):
        return torch.float64 if value is not torch.float64 else torch.float32
    if isinstance(value, tuple) and value and type(value) is tuple:
        changed = another(value[-1])
        return _NOTHING if changed is _NOTHING else (*value[:-1], changed)
    if isinstance(value, (torch.Tensor,)) and type(value) is torch.Tensor and value.is_floating_point():
        return value + 1.0
    return _NOTHING


def _times_seven(function: Any) -> Any:
    def patched(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return result * 7.0 if isinstance(result, (torch.Tensor, float)) else result

    return patched


def patch(run: Any, place: Place) -> Callable[[], None]:
    """Put another value there; what is returned takes it back."""
    kind, where, name, *rest = place
    if kind in ("object", "forward"):
        owner = run.object.get_submodule(where) if where else run.object
        if kind == "object":
            return _set(owner, name, another(getattr(owner, name)))
        return _set(owner, name, _times_seven(owner.forward))
    module = importlib.import_module(where)
    value = getattr(module, name)
    if kind == "global":
        return _set(module, name, another(value))
    if kind == "global function":
        return _set(module, name, _times_seven(value))
    if kind == "item":
        return _item(value)
    if kind == "attribute":
        return _set(value, rest[0], another(getattr(value, rest[0])))
    if kind == "method":
        item = vars(value)[rest[0]]
        plain = isinstance(item, FunctionType)
        return _set(value, rest[0], _times_seven(item) if plain else type(item)(_times_seven(item.__func__)))
    if kind == "property":
        return _set(value, rest[0], property(_times_seven(vars(value)[rest[0]].fget)))
    if kind == "new attribute":
        return _set(value, rest[0], _doubling_floats)
    return _function(kind, inspect.unwrap(value), rest)


def _doubling_floats(self: Any, name: str) -> Any:
    value = object.__getattribute__(self, name)
    return value * 2.0 if type(value) is float else value


def _function(kind: str, function: Any, rest: list[str]) -> Callable[[], None]:
    if kind == "code":
        # The same source with another number in it, compiled again, as a reloader does.
        return _set(function, "__code__", _with_other_constants(_compiled_again(function)))
    if kind == "default":
        values = list(function.__defaults__)
        values[int(rest[0])] = another(values[int(rest[0])])
        return _set(function, "__defaults__", tuple(values))
    before = dict(function.__kwdefaults__)
    return _set(function, "__kwdefaults__", {**before, rest[0]: another(before[rest[0]])})


def _compiled_again(function: Any) -> CodeType:
    """The code of a function, from its source: what stands in the function may be a wheel's."""
    source = inspect.getsource(sys.modules[function.__module__])
    waiting = [compile(source, function.__code__.co_filename, "exec", dont_inherit=True)]
    for code in waiting:
        if code.co_qualname == function.__qualname__:
            return code
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    found: CodeType = function.__code__
    return found


def _with_other_constants(code: Any) -> Any:
    constants = [value + 1.0 if type(value) is float else value for value in code.co_consts]
    if constants == list(code.co_consts):
        return code.replace(co_name=code.co_name + "_")
    return code.replace(co_consts=tuple(constants))


def _set(owner: Any, name: str, value: Any) -> Callable[[], None]:
    had = vars(owner).get(name, _NOTHING) if hasattr(owner, "__dict__") else getattr(owner, name)
    if isinstance(owner, FunctionType) and name.startswith("__"):
        had = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: delattr(owner, name) if had is _NOTHING else setattr(owner, name, had)


def _item(value: Any) -> Callable[[], None]:
    if isinstance(value, list):
        last = value.pop()
        return lambda: value.append(last)
    key = next(iter(value))
    before, changed = value[key], another(value[key])
    if changed is _NOTHING:
        changed = list(value.values())[-1]
    value[key] = changed

    def undo() -> None:
        value[key] = before

    return undo
