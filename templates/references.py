"""Finds the objects an entry names, in this process, and says whether they are still the same.

A reference is plain data: a module name and the steps from that module to the object. The plugin
uses the same functions on the build machine to check that a name it wrote leads back to the object.

A constant is a value that marshal can hold, or a tagged list (see `decode`) for one it cannot.
"""

from __future__ import annotations

import enum
import hashlib
import marshal
import opcode
import re
import sys
from collections.abc import Callable
from functools import reduce
from operator import or_
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import Any

from .errors import raised_by_signal

__all__ = [
    "MARK",
    "Damaged",
    "Stale",
    "check",
    "decode",
    "fingerprint",
    "follow",
    "function_with",
    "original",
    "is_torchs",
    "resolve",
    "spell",
    "unwrap",
]

# A step is (kind, key); these are the kinds.
ATTRIBUTE = "a"  # getattr(value, key)
ITEM = "i"  # value[key]
CLASS_DICT = "d"  # vars(value)[key], so that a descriptor is not bound
TYPE = "t"  # type(value)
CODE_CONSTANT = "k"  # value.co_consts[key]
FLAGS = "e"  # the member of an enum.Flag that has the flags named in the key


class Stale(Exception):
    """An object an entry names is missing here, or is not what it was at the build."""

    advice = "rebuild the wheel"


class Damaged(Stale):
    """A file of the bundle is missing, or is not what was built."""

    advice = "reinstall the package"


def follow(value: Any, steps: Any) -> Any:
    """Walk from a value along steps; raises whatever a missing attribute or item raises."""
    for kind, key in steps:
        if kind == ATTRIBUTE:
            value = original(unwrap(getattr(value, key)))
        elif kind == ITEM:
            value = unwrap(value[key])
        elif kind == CLASS_DICT:
            value = unwrap(vars(value)[key])
        elif kind == TYPE:
            value = type(value)
        elif kind == CODE_CONSTANT:
            value = original(value.co_consts[key])
        elif kind == FLAGS and isinstance(value, enum.EnumMeta):
            value = reduce(or_, [value[name] for name in key], value(0))
        else:
            raise Stale(f"unknown step {kind!r}")
    return value


# The last two constants of code that stands in for other code are this, and that other code.
MARK = "__precompiled_original__"


def original(code: Any, steps: int = -1) -> Any:
    """The code that a function had before entrypoints were activated, of this wheel or another.

    steps: how many of them to undo; -1 for all
    """
    while steps and type(code) is CodeType and code.co_consts[-2:-1] == (MARK,):
        code = code.co_consts[-1]
        steps -= 1
    return code


# Dynamo puts these in the place of two methods of torch.nn.Module's when it first compiles: its function,
# and the free variable of it that holds torch's own (torch/_dynamo/mutation_guard.py in 2.13).
_TAGGING = {"patched_init": "init", "patched_setstate": "setstate"}


def unwrap(value: Any) -> Any:
    """The function behind a wrapper of dynamo's around one of torch.nn.Module's; all else is itself."""
    while (
        type(value) is FunctionType
        and value.__module__ == "torch._dynamo.mutation_guard"
        and value.__name__ in _TAGGING
    ):
        free = value.__code__.co_freevars.index(_TAGGING[value.__name__])
        value = (value.__closure__ or ())[free].cell_contents
    return value


def function_with(function: Any, code: CodeType) -> Any:
    """The function with this code: `function`, or one that it decorates; None where there is none."""
    function = unwrap(function)
    for _ in range(8):
        if original(getattr(function, "__code__", None)) is code:
            return function
        function = getattr(function, "__wrapped__", None)
    return None


def resolve(module: str, steps: Any) -> Any:
    """The object that `module` and `steps` lead to. Raises `Stale` where the way is broken.

    A module is never imported here: at install time that would cost more than it is worth.
    """
    found = sys.modules.get(module)
    if found is None:
        raise Stale(f"module {module} is not imported")
    try:
        return follow(found, steps)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        if raised_by_signal(error):
            raise
        raise Stale(f"{spell(module, steps)} is gone ({error})") from None


def spell(module: str, steps: Any) -> str:
    """A reference in words, for messages and for the readable guard source."""
    text = module
    for kind, key in steps:
        if kind == ATTRIBUTE:
            text += f".{key}"
        elif kind == ITEM:
            text += f"[{key!r}]"
        elif kind == CLASS_DICT:
            text += f".__dict__[{key!r}]"
        elif kind == TYPE:
            text = f"type({text})"
        elif kind == FLAGS:
            text += f"({'|'.join(key)})"
        else:
            text += f".co_consts[{key}]"
    return text


def fingerprint(value: Any) -> str:
    """What of an object must not change between build and use; "" where identity is all there is.

    A function or code object counts with what it executes: bytecode, constants, names; not with
    file names, line numbers or addresses, which differ between machines. A function counts with its
    default arguments too, as far as they are plain, a member of an enumeration with its value, a pattern
    with its text.
    """
    if isinstance(value, FunctionType):
        defaults = _plain_defaults(value)
        code = fingerprint(original(value.__code__))
        if not defaults:
            return code
        return hashlib.sha256(marshal.dumps((code, defaults), 2)).hexdigest()[:16]
    if isinstance(value, CodeType):
        cached = _fingerprints.get(value)
        if cached is None:
            # Version 2 knows no references: equal values have equal bytes, and sets are written sorted.
            content = marshal.dumps(_shape(value), 2)
            cached = _fingerprints[value] = hashlib.sha256(content).hexdigest()[:16]
        return cached
    if isinstance(value, type):
        return f"type {value.__module__}.{value.__qualname__}"
    if isinstance(value, BuiltinFunctionType):
        return f"builtin {value.__name__}"
    if isinstance(value, enum.Enum):
        inner = value._value_
        return f"{type(value).__qualname__}.{value._name_} = {inner if _is_plain(inner) else ''!r}"
    if type(value) is re.Pattern:
        return f"re.compile({value.pattern!r}, {value.flags})"
    return ""


# Modules with classes whose instances are values, told apart by what they say of themselves.
_OF_VALUES = {"datetime", "decimal", "fractions", "numpy", "numpy.dtypes", "operator", "torch", "uuid"}


def likeness(value: Any) -> str:
    """The fingerprint of an object that is known by its place alone: what else could stand there must not
    pass for it. A value's text, what a method of a built-in class belongs to, and of anything without such
    its class."""
    found = fingerprint(value)
    cls = type(value)
    if cls is BuiltinFunctionType:
        return f"{found} of {getattr(value.__self__, '__name__', '')}"
    if isinstance(value, _DESCRIPTORS):
        return f"{value.__objclass__.__module__}.{value.__qualname__}"
    if cls is re.Match:
        return f"{fingerprint(value.re)} in {value.string!r} at {value.regs}, {value.pos} to {value.endpos}"
    if cls.__module__.partition(".")[0] == "torch" and not found:
        from .torch_private import settings_of

        found = settings_of(value)
    if found or cls.__module__ not in _OF_VALUES or hasattr(value, "__array__"):
        return found or f"a {cls.__module__}.{cls.__qualname__}"
    text = repr(value)
    return f"a {cls.__module__}.{cls.__qualname__}{'' if ' at 0x' in text else ' ' + text}"


_DESCRIPTORS = (
    *(MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType),
    *(GetSetDescriptorType, MemberDescriptorType),
)


def _plain_defaults(function: FunctionType) -> list[tuple[str, Any]]:
    """Default arguments that are numbers, words, constants of torch or of enumerations, or tuples of these.

    Not a text that may be a path: such a default may be made where the module is imported.
    """
    code = function.__code__
    positional = function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(positional) : code.co_argcount]
    found = [*zip(names, positional, strict=True), *sorted((function.__kwdefaults__ or {}).items())]
    return [(name, _default(value)) for name, value in found if _is_default(value)]


def _is_default(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_default, value))
    if isinstance(value, (enum.Enum, type)) or type(value) is re.Pattern:
        return True
    return _is_plain(value) or is_torchs(value)


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    if type(value) is str:
        return "/" not in value
    return value is None or type(value) in (bool, int, float, complex)


def _default(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_default, value))
    return value if _is_plain(value) else fingerprint(value) or str(value)


def is_torchs(value: Any) -> bool:
    """Whether a value is a constant of torch's, such as torch.float32, and its text tells it from others."""
    torch = sys.modules.get("torch")
    kinds = () if torch is None else (torch.dtype, torch.device, torch.layout, torch.memory_format)
    return isinstance(value, kinds)


# Code objects compare by value, line table included, so equal keys have equal fingerprints.
_fingerprints: dict[CodeType, str] = {}


# Up to Python 3.12 the first constant of a function is its docstring, or None where it has none.
_TAKES_FIRST_CONSTANT = [bytes((number, 0)) for number in opcode.hasconst]


def _without_docstring(code: CodeType) -> tuple[Any, ...]:
    """The constants that are loaded: a docstring is none of them, unless the code uses the same text."""
    constants = code.co_consts
    if not constants or type(constants[0]) is not str:
        return constants
    for instruction in _TAKES_FIRST_CONSTANT:
        position = code.co_code.find(instruction)
        while position > 0 and position % 2:  # two bytes of two instructions
            position = code.co_code.find(instruction, position + 1)
        if position >= 0:
            return constants
    return (None, *constants[1:])


def _shape(code: CodeType) -> tuple[Any, ...]:
    """All that a code object executes, as plain values."""
    return (
        code.co_name,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_code,
        code.co_exceptiontable,
        tuple(
            [
                _shape(original(value)) if type(value) is CodeType else value
                for value in _without_docstring(code)
            ]
        ),
    )


def check(module: str, steps: Any, expected: str) -> Any:
    """Resolve a reference and compare its fingerprint. Raises `Stale` naming what changed."""
    value = resolve(module, steps)
    if expected and expected not in (fingerprint(value), likeness(value)):
        raise Stale(f"{spell(module, steps).removesuffix('.__code__')} has changed since the build")
    return value


def decode(constant: Any) -> Any:
    """The value of a constant as the plugin encoded it.

    Plain values stand for themselves. A list is a tag and its parts: "ref" (module, steps,
    fingerprint), "builtins", "globals" (module), "tuple", "list", "set", "frozenset", "dict",
    "slice", "range", "size", "device", "dataclass" (class, fields), "parametrized", "if-imported" (module,
    parts).
    """
    if type(constant) is not list:
        return constant
    tag, *parts = constant
    make = _DECODERS.get(tag) if type(tag) is str else None
    if make is None:
        raise Stale(f"unknown constant {tag!r}")
    return make(*parts)


def _parametrized(part: Any) -> Any:
    from .parametrized import ParametrizedClass

    return ParametrizedClass(decode(part))


def _dataclass(cls: Any, *fields: Any) -> Any:
    """One with these fields, whatever its class does when one is made."""
    made = object.__new__(decode(cls))
    for name, value in fields:
        object.__setattr__(made, name, decode(value))
    return made


def _device(kind: str, *index: int) -> Any:
    return sys.modules["torch"].device(kind, *index)


def _if_imported(*parts: Any) -> Any:
    from .if_imported import IfImported

    return IfImported(*parts)


_DECODERS: dict[str, Callable[..., Any]] = {
    "ref": check,
    "builtins": lambda: sys.modules["builtins"].__dict__,
    "globals": lambda module: resolve(module, ()).__dict__,
    "tuple": lambda *parts: tuple(map(decode, parts)),
    "list": lambda *parts: list(map(decode, parts)),
    "set": lambda *parts: set(map(decode, parts)),
    "frozenset": lambda *parts: frozenset(map(decode, parts)),
    "dict": lambda *pairs: {decode(key): decode(value) for key, value in pairs},
    "slice": lambda *parts: slice(*map(decode, parts)),
    "range": range,
    "size": lambda *sizes: sys.modules["torch"].Size(sizes),
    "device": _device,
    "dataclass": _dataclass,
    "parametrized": _parametrized,
    "if-imported": _if_imported,
}
