"""Finds the objects an entry names, in this process, and says whether they are still the same.

A reference is plain data: a module name and the steps from that module to the object. The plugin
uses the same functions on the build machine to check that a name it wrote leads back to the object.
"""

from __future__ import annotations

import enum
import hashlib
import marshal
import opcode
import re
import sys
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

from ..errors import check_parts, raised_by_signal

__all__ = [
    "COMPILED",
    "MARK",
    "Damaged",
    "Stale",
    "Unimported",
    "changed",
    "check",
    "fingerprint",
    "follow",
    "function_with",
    "original",
    "is_torchs",
    "full_fingerprint",
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


# `vars`, of a class whose own class has something else for it, too.
_dict_of_class: Any = type.__dict__["__dict__"].__get__


class Stale(Exception):
    """An object an entry names is missing here, or is not what it was at the build. advice: where it is not
    that."""

    advice = "rebuild the wheel"

    def __init__(self, text: str, advice: str = "") -> None:
        super().__init__(text)
        if advice:
            self.advice = advice


class Damaged(Stale):
    """A file of the bundle is missing, or is not what was built."""

    advice = "reinstall the package"


class Unimported(Stale):
    """A module that an entry names is not imported: the first call that may fit imports it."""


def follow(value: Any, steps: Any) -> Any:
    """Walk from a value along steps; raises whatever a missing attribute or item raises."""
    for kind, key in steps:
        if kind == ATTRIBUTE:
            value = original(unwrap(getattr(value, key)))
        elif kind == ITEM:
            value = unwrap(value[key])
        elif kind == CLASS_DICT:
            value = unwrap(_dict_of_class(value)[key])
        elif kind == TYPE:
            value = type(value)
        elif kind == CODE_CONSTANT:
            value = original(value.co_consts[key])
        elif kind == FLAGS and issubclass(type(value), enum.EnumMeta):
            value = reduce(or_, [value[name] for name in key], value(0))
        else:
            raise Stale(f"unknown step {kind!r}")
    return value


# Code that replaces other code has this mark and that other code as its last two constants.
MARK = "__precompiled_original__"

COMPILED = "__precompiled_entry__"
"""The last constant of the bytecode of an entry, of any wheel."""


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
        if type(function) is FunctionType:
            if original(function.__code__) is code:
                return function
            function = function.__dict__.get("__wrapped__")
        elif function is None:
            return None
        else:
            from .static_lookup import attribute

            if original(attribute(function, "__code__")) is code:
                return function
            function = attribute(function, "__func__") or attribute(function, "__wrapped__")
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
    except Stale:
        raise
    except Exception as error:  # of a module that imports what it is asked for, any
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
    default arguments too, as far as they are plain, a member of an enumeration with its value and what its
    `__init__` has given it, a pattern with its text.
    """
    cls = type(value)  # what a value says of itself is no matter: not `isinstance`
    if cls is FunctionType:
        defaults = _plain_defaults(value)
        code = fingerprint(original(value.__code__))
        if not defaults:
            return code
        return hashlib.sha256(marshal.dumps((code, defaults), 2)).hexdigest()[:16]
    if cls is CodeType:
        cached = _fingerprints.get(value)
        if cached is None:
            # Version 2 knows no references: equal values have equal bytes, and sets are written sorted.
            content = marshal.dumps(_shape(value), 2)
            cached = _fingerprints[value] = hashlib.sha256(content).hexdigest()[:16]
        return cached
    if issubclass(cls, type):
        return f"type {_name_of(value)}"
    if cls is BuiltinFunctionType:
        return f"builtin {value.__name__}"
    if issubclass(cls, enum.Enum):
        own = object.__getattribute__(value, "__dict__")
        inner = own["_value_"]
        text = f"{cls.__qualname__}.{own['_name_']} = {inner if _is_plain(inner) else ''!r}"
        more = _attributes_of(own, cls)
        return f"{text}, {more}" if more else text
    if cls is re.Pattern:
        return f"re.compile({value.pattern!r}, {value.flags})"
    return ""


def _attributes_of(member: dict[str, Any], cls: type) -> str:
    """What an author has put into a member's `__dict__`. Not what `enum` keeps, nor what a descriptor of
    the class keeps, which comes in when it is asked."""
    classes: Any = type.__dict__["__mro__"].__get__(cls)
    named = [name for name in member if type(name) is str and not (name[:1] == name[-1:] == "_")]
    own = [name for name in sorted(named) if not any(name in _dict_of_class(base) for base in classes)]
    return ", ".join([f".{name} = {_described(member[name], 0)}" for name in own])


def _described(value: Any, depth: int) -> str:
    """A value by what is plain of it."""
    kind = type(value)
    if issubclass(kind, enum.Enum):  # by its name: members may have one another
        return f"{_name_of(kind)}.{object.__getattribute__(value, '__dict__')['_name_']}"
    if kind is FunctionType:
        return fingerprint(original(value.__code__))
    if kind is not tuple and _is_default(value):
        return f"{_default(value)!r}"
    if depth < _DEEPEST and (kind is list or kind is tuple):
        return f"{kind.__name__}({', '.join([_described(each, depth + 1) for each in value])})"
    if depth < _DEEPEST and kind is dict:
        pairs = [(_described(key, depth + 1), _described(each, depth + 1)) for key, each in value.items()]
        return f"{{{', '.join([f'{key}: {each}' for key, each in pairs])}}}"
    return _name_of(kind)


_DEEPEST = 4


def _name_of(cls: type) -> str:
    from .static_lookup import module_of, qualname_of

    return f"{module_of(cls)}.{qualname_of(cls)}"


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
    if issubclass(type(value), (enum.Enum, type)) or type(value) is re.Pattern:
        return True
    return _is_plain(value) or is_torchs(value)


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    if type(value) is str:
        return "/" not in value
    kind = type(value)  # `in` would ask the class
    return value is None or kind is bool or kind is int or kind is float or kind is complex


def _default(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_default, value))
    return value if _is_plain(value) else fingerprint(value) or str(value)


def is_torchs(value: Any) -> bool:
    """Whether a value is a constant of torch's, such as torch.float32, and its text tells it from others."""
    torch = sys.modules.get("torch")
    kinds = () if torch is None else (torch.dtype, torch.device, torch.layout, torch.memory_format)
    return issubclass(type(value), kinds)


# Code objects compare by value, line table included, so equal keys have equal fingerprints.
_fingerprints: dict[CodeType, str] = {}


# A docstring is a function's first constant; up to Python 3.13 that is None where there is none.
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
    constants = _without_docstring(code)
    if _SLICES:
        constants = tuple(map(_constant, constants))
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
        tuple([_shape(original(value)) if type(value) is CodeType else value for value in constants]),
    )


_SLICES = sys.version_info >= (3, 14)  # are constants


def _constant(value: Any) -> Any:
    """A constant in a form that marshal writes. No constant is a list."""
    if type(value) is slice:
        return ["slice", _constant(value.start), _constant(value.stop), _constant(value.step)]
    return tuple(map(_constant, value)) if type(value) is tuple else value


def check(module: str, steps: Any, expected: str) -> Any:
    """Resolve a reference and compare its fingerprint. Raises `Stale` naming what changed."""
    value = resolve(module, steps)
    if expected and expected != fingerprint(value) and expected != full_fingerprint(value):
        raise changed(module, steps)
    return value


def changed(module: str, steps: Any) -> Stale:
    """The Stale to raise for code that has changed since the build."""
    advice = (
        "rebuild the wheel, or run Python without -O (PYTHONOPTIMIZE), which leaves assertions out of code"
    )
    name = spell(module, steps).removesuffix(".__code__")
    return Stale(f"{name} has changed since the build", advice if sys.flags.optimize else "")


# Modules with classes whose instances are values, told apart by what they say of themselves.
_OF_VALUES = {"datetime", "decimal", "fractions", "numpy", "numpy.dtypes", "operator", "torch", "uuid"}


def full_fingerprint(value: Any) -> str:
    """The fingerprint of an object that is found by its place alone. More exact than `fingerprint`: it has
    the text of a value, the class of a built-in method, and of anything else at least its class."""
    from .static_lookup import attribute, module_of, qualname_of

    found = fingerprint(value)
    cls = type(value)
    if cls is BuiltinFunctionType:
        return f"{found} of {attribute(value.__self__, '__name__', '')}"
    if issubclass(cls, DESCRIPTORS):
        return f"{value.__objclass__.__module__}.{value.__qualname__}"
    if cls is re.Match:
        return f"{fingerprint(value.re)} in {value.string!r} at {value.regs}, {value.pos} to {value.endpos}"
    module = module_of(cls)
    if module.partition(".")[0] == "torch" and not found:
        from .torch_settings import settings_of

        check_parts()
        found = settings_of(value)
    if found or module not in _OF_VALUES or hasattr(cls, "__array__"):
        return found or f"a {module}.{qualname_of(cls)}"
    text = repr(value)
    return f"a {module}.{cls.__qualname__}{'' if ' at 0x' in text else ' ' + text}"


DESCRIPTORS = (
    *(MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType),
    *(GetSetDescriptorType, MemberDescriptorType),
)

WHOLE = True
