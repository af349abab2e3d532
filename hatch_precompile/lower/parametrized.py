"""The parts of a class that every process makes for itself, as data; see templates/values/parametrized.py."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any

from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.names import Namer, is_plain
from hatch_precompile.runtime import parametrized, references

__all__ = ["made_for_one_object", "parametrized_class"]

_PARAMETRIZE = "torch.nn.utils.parametrize"
_GRAPH_MODULE = ("torch.fx.graph_module", "GraphModule.__new__.<locals>.GraphModuleImpl")


def made_for_one_object(cls: type) -> bool:
    """Whether `torch.nn.utils.parametrize` or `torch.fx` made the class, for one module."""
    if type(cls) is not type:
        return False
    parametrized = cls.__module__ == _PARAMETRIZE and cls.__name__.startswith("Parametrized")
    return parametrized or (cls.__module__, cls.__qualname__) == _GRAPH_MODULE


def parametrized_class(cls: type, namer: Namer, where: str) -> list[Any]:
    """A constant that the runtime decodes to a `ParametrizedClass`. Raises Unsupported for unknown parts."""
    bases = namer.constant(cls.__bases__, None, where)
    parts = [
        [key, _part(value, key, cls, namer, where)]
        for key, value in vars(cls).items()
        if key != parametrized.REMEMBERED
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
        if value.__code__.co_filename.startswith("<") and not value.__closure__:
            return _generated(value, namer, where)
        cells = [part(cell.cell_contents) for cell in value.__closure__ or ()]
        code = namer.reference(value.__code__, None, where)
        return ["tuple", "function", code, ["tuple", *cells], value.__defaults__, None]
    if type(value).__module__ == cls.__module__:  # what calls the class's own functions
        return ["tuple", "object", namer.reference(type(value), None, where)]
    raise Unsupported(
        f"the class {cls.__name__}, made at run time, has the attribute {name!r} "
        f"of the type {type(value).__qualname__}, which cannot be carried in a wheel",
        where,
        "Parametrize the module with torch.nn.utils.parametrize alone, and leave the class of a GraphModule "
        "as torch.fx makes it.",
    )


def _generated(function: FunctionType, namer: Namer, where: str) -> list[Any]:
    """A function whose source was written at run time, and has no name."""
    code = function.__code__
    named = [name for name in names_in(code) if name in function.__globals__]
    values = [[name, namer.constant(function.__globals__[name], None, where)] for name in sorted(named)]
    found = references.fingerprint(code)
    return ["tuple", "generated", found, function.__defaults__, ["dict", *values]]


def names_in(code: CodeType) -> set[str]:
    """The names that code uses, and the code of functions in it."""
    inner = (names_in(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*inner)
