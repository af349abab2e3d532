"""The parts of a class that every process makes for itself, as data (see templates/parametrized.py)."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.names import Namer, is_plain
from hatch_precompile.runtime import runtime

__all__ = ["made_by_parametrize", "parametrized_class"]

_MAKER = "torch.nn.utils.parametrize"


def made_by_parametrize(cls: type) -> bool:
    """Whether `torch.nn.utils.parametrize` made the class, for one module."""
    return type(cls) is type and cls.__module__ == _MAKER and cls.__name__.startswith("Parametrized")


def parametrized_class(cls: type, namer: Namer, where: str) -> list[Any]:
    """A constant that the runtime decodes to a `ParametrizedClass`. Raises Unsupported for unknown parts."""
    bases = namer.constant(cls.__bases__, None, where)
    parts = [
        [key, _part(value, key, cls, namer, where)]
        for key, value in vars(cls).items()
        if key != runtime("parametrized").REMEMBERED
    ]
    return ["parametrized", ["tuple", cls.__name__, bases, ["dict", *parts]]]


def _part(value: Any, name: str, cls: type, namer: Namer, where: str) -> list[Any]:
    def part(inner: Any) -> list[Any]:
        return _part(inner, name, cls, namer, where)

    if is_plain(value):
        return ["tuple", "value", value]
    if type(value) is cls:
        return ["tuple", "instance"]
    if type(value) is property:
        return ["tuple", "property", part(value.fget), part(value.fset), part(value.fdel)]
    if type(value) is FunctionType and is_plain(value.__defaults__) and not value.__kwdefaults__:
        cells = [part(cell.cell_contents) for cell in value.__closure__ or ()]
        code = namer.reference(value.__code__, None, where)
        return ["tuple", "function", code, ["tuple", *cells], value.__defaults__, None]
    raise Unsupported(
        f"the class {cls.__name__}, made at run time, has the attribute {name!r} "
        f"of the type {type(value).__qualname__}, which cannot be carried in a wheel",
        where,
        "Parametrize the module with torch.nn.utils.parametrize alone.",
    )
