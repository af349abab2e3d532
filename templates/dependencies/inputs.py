"""Compares what an entry's trace took for constant with this process.

Dynamo's guards cover what can change within one process. The rest is an input of the entry, one record for
each: code that was inlined, what classes have, the environment, answers of functions. The table of the kinds
is hatch_precompile/lower/dependencies/table.py, and docs/inputs.md the page made from it.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import hashlib
import importlib.util
import os
import re
import sys
import weakref
from collections.abc import Callable, Container
from types import FunctionType, MethodType, ModuleType
from typing import Any

from ..errors import raised_by_signal
from ..values.constants import alike, decode
from ..values.references import Stale, changed, fingerprint, is_torchs, resolve, spell, unwrap
from ..values.static_lookup import (
    attribute,
    dict_of,
    file_of,
    has,
    is_a,
    is_exactly,
    module_of,
    mro_of,
    qualname_of,
)

__all__ = [
    "CALL_CHECKS",
    "HOOKS",
    "attribute_mark",
    "check_inputs",
    "class_name",
    "described",
    "file_mark",
    "function_mark",
    "has_global",
    "hooks_of",
    "is_described",
    "mark",
    "registered",
    "table_mark",
    "type_name",
]

HOOKS = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called"),
)
"""The attributes of a torch.nn.Module that hold the hooks its call runs."""

# Set by this runtime and by torch.compile itself, or never looked up by name.
_UNSEEN = {
    *("_compiled_call_impl", "__dict__", "__weakref__", "__module__", "__abstractmethods__", "_abc_impl"),
    *("__firstlineno__", "__static_attributes__"),
}
# By torch.compile, for good, when a process first compiles: a trace has it off, whatever eager code has.
_SWITCHED_OFF = ("torch.distributions.distribution.Distribution", "_validate_args")
# Py_TPFLAGS_HEAPTYPE and Py_TPFLAGS_IMMUTABLETYPE: other classes than the first cannot be changed, nor can
# the second, as those of Cython's functions.
_HEAP_TYPE, _IMMUTABLE = 1 << 9, 1 << 8
_DEEP = 4
_ADDED = b"# added by hatch-precompile"


def check_inputs(records: Any) -> None:
    """Compare every record of an entry. Raises Stale in words for the first that is not as at the build."""
    _at_load()
    for kind, *record in records:
        check: Any = _CHECKS.get(kind)
        if check is None:
            raise Stale(f"unknown input {kind!r}")
        check(*record)


# -- functions -------------------------------------------------------------------------------------


def function_mark(function: Any, names: Container[str], held: bool) -> str:
    """What of a function's code, defaults and closure must not change.

    names: the free variables that count; held: with what is in dicts and lists
    """
    text: str = fingerprint(function)
    if names and type(function) is FunctionType and function.__closure__:
        cells = zip(function.__code__.co_freevars, function.__closure__, strict=True)
        return f"{text} {[_cell(cell, held) for name, cell in cells if name in names]!r}"
    return text


def _cell(cell: Any, held: bool) -> Any:
    try:
        return mark(cell.cell_contents, held)
    except ValueError:
        return "empty"


def _function(module: str, steps: Any, expected: str, names: Container[str], held: bool) -> None:
    if _left_out(module):
        return
    if function_mark(resolve(module, steps), names, held) != expected:
        raise changed(module, steps)


def _left_out(module: str) -> bool:
    """Torch is the very same version, and nobody can have changed what is not here."""
    return module not in sys.modules and module.partition(".")[0] == "torch"


# -- classes ---------------------------------------------------------------------------------------


def is_described(cls: type) -> bool:
    """Whether a class can be changed at all: not so those that are built into Python."""
    return cls.__flags__ & (_HEAP_TYPE | _IMMUTABLE) == _HEAP_TYPE


def type_name(cls: type) -> str:
    """A class in words; the same in every process."""
    return f"{module_of(cls)}.{qualname_of(cls)}"


def class_name(cls: type) -> str:
    """The same with its own class, where that is not the usual one."""
    return type_name(cls) if type(cls) is type else f"{type_name(cls)} ({type_name(type(cls))})"


def described(cls: type, names: frozenset[str]) -> tuple[tuple[str, Any], ...]:
    """Those of `names` that a class itself defines, each with the mark of what it has there."""
    own = dict_of(cls)
    held = is_a(cls, enum.EnumMeta)
    found = ((name, own[name]) for name in sorted(filter(names.__contains__, own)) if name not in _UNSEEN)
    if module_of(cls).partition(".")[0] == "torch":
        # Dynamo knows what many of these do, such as Module.__getattr__, and does not trace them. It puts
        # wrappers around some of torch.nn.Module's, when it is imported.
        return tuple(
            (name, fingerprint(unwrap(value)) if type(value) is FunctionType else mark(value, held))
            for name, value in found
            if (type_name(cls), name) != _SWITCHED_OFF
        )
    return tuple((name, mark(value, held)) for name, value in found)


def mark(value: Any, held: bool = False, depth: int = _DEEP) -> Any:
    """A value as plain data that is the same in every process, as far as it has such.

    Of functions only that they are one: their code has a record of its own if it was traced. With `held`,
    what is in dicts and lists counts too.
    """
    if value is None or is_exactly(value, bool, int, float, complex, bytes):
        return repr(value)
    if type(value) is str:
        return "a path" if os.path.isabs(value) else repr(value)
    if is_a(value, enum.Enum, re.Pattern):
        return fingerprint(value)
    if is_a(value, type):
        return type_name(value)
    if type(value) is dataclasses.Field:
        return ("field", value.name, mark(value.default, held, depth - 1), mark(value.default_factory))
    if depth and (held or is_a(value, tuple, frozenset)):
        inner = _held(value, held, depth - 1)
        if inner is not None:
            return (type_name(type(value)), *inner)
    if depth and attribute(type(value), "__dataclass_fields__") is not None:
        own = {field.name: attribute(value, field.name) for field in dataclasses.fields(type(value))}
        if not all(has(value, name) for name in own):
            own |= dict_of(value)  # one that is a property, which is not asked, may be made of these
        return (type_name(type(value)), *((name, mark(own[name], held, depth - 1)) for name in own))
    if depth and is_a(value, functools.partial):
        parts = tuple(attribute(value, name) for name in ("func", "args"))
        parts = (*parts, tuple((attribute(value, "keywords") or {}).items()))
        return ("partial", *(mark(part, held, depth - 1) for part in parts))
    return str(value) if is_torchs(value) else type_name(type(value))


def _held(value: Any, held: bool, depth: int) -> list[Any] | None:
    """Of a class derived from one of these, what Python's own class has of it."""
    for kind in (tuple, list, set, frozenset):
        if is_a(value, kind):
            found = [mark(item, held, depth) for item in kind.__iter__(value)]
            return sorted(found, key=repr) if kind in (set, frozenset) else found
    if is_a(value, dict):
        return [(mark(key), mark(item, held, depth)) for key, item in dict.items(value)]
    return None


def registered(classes: dict[int, type]) -> tuple[tuple[int, int], ...]:
    """(class, abstract class), by number, for each pair of which the one was registered as the other."""
    abstract = [(number, cls) for number, cls in classes.items() if is_a(cls, abc.ABCMeta)]
    may_be = {number: _may_be_registered(base) for number, base in abstract}
    derived_from = {number: set(map(id, mro_of(cls))) for number, cls in classes.items()}
    return tuple(
        (one, other)
        for one, cls in classes.items()
        for other, base in abstract
        if id(base) not in derived_from[one] and may_be[other](cls) and _is_subclass(cls, base)
    )


def _may_be_registered(base: Any) -> Callable[[type], bool]:
    """What `issubclass(cls, base)` would say, or True where that has to be asked.

    It asks each class below `base` (Iterable has a hundred), for each `cls` anew. What they could say yes to
    is gathered once here. `abc._get_dump`: CPython 3.7 to 3.14.
    """
    dump = getattr(abc, "_get_dump", None)
    below: list[Any] = [base]
    registered: dict[int, Any] = {}  # by id: a class may have a hash of its own
    hooks: list[Any] = []
    for cls in below:
        hook = getattr(cls.__subclasshook__, "__func__", None)
        # The hooks of collections.abc answer for the class they are in alone.
        known = hook is None or hook.__module__ == "collections.abc"
        asks: Any = type(cls).__subclasscheck__
        if not known or dump is None or asks is not abc.ABCMeta.__subclasscheck__:
            return lambda cls: True
        if "__subclasshook__" in dict_of(cls):
            hooks.append(cls.__subclasshook__)
        found = (reference() for reference in dump(cls)[0])
        registered.update((id(each), each) for each in found if each is not None)  # not one that is gone
        below += type.__subclasses__(cls)
    plain = {number for number, cls in registered.items() if type(cls) is type}
    others = [*(cls.__subclasscheck__ for cls in registered.values() if type(cls) is not type), *hooks]
    return lambda cls: (
        not plain.isdisjoint(map(id, mro_of(cls))) or any(_may_say_yes(ask, cls) for ask in others)
    )


def _may_say_yes(ask: Callable[[type], Any], cls: type) -> bool:
    try:
        return ask(cls) not in (False, NotImplemented)
    except Exception as error:  # a Protocol's, for one, looks at who asks
        if raised_by_signal(error):
            raise
        return True


def _is_subclass(cls: type, base: type) -> bool:
    """False where it cannot be asked, as of most Protocols: then the traced code has not asked it either."""
    try:
        return issubclass(cls, base)
    except Exception as error:
        if raised_by_signal(error):
            raise
        return False


def _classes(names: Any, bases: Any, rows: Any, expected_registered: Any) -> None:
    """names: those looked up; bases: (class, what it defines); rows: (module, steps, numbers of bases);
    expected_registered: what `registered` gave"""
    wanted = frozenset(names)
    known = {name for name, _ in bases}
    seen: dict[int, tuple[str, Any]] = {}
    here: dict[int, type] = {}
    for row, (module, steps, numbers) in enumerate(rows):
        if _left_out(module):
            continue
        cls = resolve(module, steps)
        if not is_a(cls, type):
            raise Stale(f"{spell(module, steps)} is no class any more")
        here[row] = cls
        found = []
        for base in filter(is_described, mro_of(cls)):
            if id(base) not in seen:
                seen[id(base)] = (class_name(base), described(base, wanted))
            if seen[id(base)][1] or seen[id(base)][0] in known:
                found.append(seen[id(base)])
        expected = [bases[number] for number in numbers]
        if found != expected:
            raise Stale(_difference(spell(module, steps), found, expected))
    for one, other in set(registered(here)) ^ {
        pair for pair in expected_registered if set(pair) <= here.keys()
    }:
        raise Stale(f"{type_name(here[one])} is, or was, registered as a {type_name(here[other])}")


def _difference(cls: str, found: Any, expected: Any) -> str:
    now, then = [name for name, _ in found], [name for name, _ in expected]
    if now != then:
        more = [name for name in now if name not in then] or [name for name in then if name not in now]
        return f"{cls} has other bases than at the build ({', '.join(more or now)})"
    for (base, now_has), (_, had) in zip(found, expected, strict=True):
        changed = sorted({name for name, _ in set(now_has) ^ set(had)})
        if changed:
            gone = {name for name, _ in had} - {name for name, _ in now_has}
            new = {name for name, _ in now_has} - {name for name, _ in had}
            verb = "is gone" if changed[0] in gone else "is new" if changed[0] in new else "has changed"
            return f"{base}.{changed[0]} {verb} since the build"
    return f"{cls} has changed since the build"


# -- values ----------------------------------------------------------------------------------------


def _environment(name: str, value: str | None) -> None:
    found = os.environ.get(name)
    if found != value:
        # What it is set to is nobody else's business: it may be a password.
        state = "not set" if found is None else "set" if value is None else "set to something else"
        raise Stale(f"the environment variable {name}, which the traced code reads, is {state}")


def _call(function: Any, args: Any, kwargs: Any, value: Any, name: str) -> None:
    try:
        found = decode(function)(*decode(args), **decode(kwargs))
    except Exception as error:
        if raised_by_signal(error):
            raise
        raise Stale(f"{name}() raises {type(error).__name__} here: {error}") from None
    expected = decode(value)
    if not alike(found, expected):
        raise Stale(f"{name}() gave {expected!r} at the build and gives {found!r} here")


def _installed(name: str, expected: bool) -> None:
    try:
        found = importlib.util.find_spec(name) is not None
    except (ImportError, ValueError) as error:
        if raised_by_signal(error):
            raise
        found = False
    if found is not expected:
        raise Stale(f"{name} is {'' if found else 'not '}installed, which was otherwise at the build")


def _global(module: str, name: str, expected: Any) -> None:
    owner = resolve(module, ())
    found = mark(getattr(owner, name), True) if has_global(owner, name) else None
    if found != expected:
        raise Stale(f"{module}.{name} has changed since the build")


def _value(module: str, steps: Any, expected: Any) -> None:
    if mark(resolve(module, steps), True) != expected:
        raise Stale(f"{spell(module, steps)} has changed since the build")


def _path(module: str, name: str, expected: str) -> None:
    """A path that the trace itself has read."""
    found = dict_of(resolve(module, ())).get(name)
    if found != expected:
        raise Stale(f"{module}.{name} is {found!r} and was {expected!r} at the build")


def table_mark(value: Any) -> Any:
    """What counts of a value that a table has for a class."""
    return fingerprint(value) if type(value) is FunctionType else mark(value, True)


def _table(module: str, name: str, entries: Any, absent: Any) -> None:
    """entries: the names of classes, each with the mark of what the table has for it"""
    table = dict_of(resolve(module, ())).get(name)
    here = {type_name(cls): value for cls, value in table.items()} if type(table) is dict else {}
    for cls, expected in entries:
        if cls not in here or table_mark(here[cls]) != expected:
            raise Stale(f"{module}.{name} has another entry for {cls} than at the build, or none")
    for cls in absent:
        if cls in here:
            raise Stale(f"{module}.{name} has an entry for {cls}, which at the build it had not")


def file_mark(path: str) -> str:
    """What a file holds, but for the line that a build adds to a package's `__init__`."""
    with open(path, "rb") as file:
        lines = [line.rstrip() for line in file if _ADDED not in line]
    return hashlib.sha256(b"\n".join(lines)).hexdigest()[:16]


def _builtins(module: str, names: Any) -> None:
    hidden = [] if _left_out(module) else [name for name in names if name in dict_of(resolve(module, ()))]
    if hidden:
        raise Stale(f"{module}.{hidden[0]} hides the builtin {hidden[0]}, which at the build it did not")


def has_global(module: Any, name: str) -> bool:
    """Whether a module has a name. One that makes what it is asked for is asked, as the traced code did; what
    it raises is no."""
    own = dict_of(module)
    if name in own or ("__getattr__" not in own and type(module) is ModuleType):
        return name in own
    try:
        return hasattr(module, name)
    except Exception as error:  # of an optional dependency, say, that is not installed
        if raised_by_signal(error):
            raise
        return False


def _absent(module: str, name: str) -> None:
    if not _left_out(module) and has_global(resolve(module, ()), name):
        raise Stale(f"{module} has {name}, which at the build it had not")


def attribute_mark(owner: Any, name: str) -> Any:
    """What an object has under a name, which may be nothing."""
    return mark(getattr(owner, name), True) if hasattr(owner, name) else "absent"


def _attribute(module: str, steps: Any, name: str, expected: Any) -> None:
    if not _left_out(module) and attribute_mark(resolve(module, steps), name) != expected:
        raise Stale(f"{spell(module, steps)}.{name} has changed since the build")


def _file(module: str, expected: str) -> None:
    path = file_of(resolve(module, ()))
    try:
        found = file_mark(path)
    except OSError as error:
        if raised_by_signal(error):
            raise
        found = ""
    if found != expected:
        raise Stale(f"the file of {module} has changed since the build")


def _prepared(library: str) -> None:
    """Do what dynamo does when it first meets a library: einops lists the types of tensors it has seen."""
    if library != "einops" or library not in sys.modules:
        raise Stale(f"{library} is not there, or this runtime does not know it")
    sys.modules[library].rearrange(sys.modules["torch"].empty(1, device="cpu"), "i -> i")


def _operator(name: str, schema: str) -> None:
    found: Any = sys.modules["torch"].ops
    try:
        for part in name.split("."):
            found = getattr(found, part)
    except AttributeError:
        raise Stale(f"the operator {name} is not there") from None
    if str(found._schema) != schema:
        raise Stale(f"the operator {name} is {found._schema}, and was {schema} at the build")


def _object(reference: Any) -> None:
    decode(reference)


_CHECKS = {
    "function": _function,
    "classes": _classes,
    "environment": _environment,
    "call": _call,
    "installed": _installed,
    "global": _global,
    "path": _path,
    "value": _value,
    "table": _table,
    "builtins": _builtins,
    "absent": _absent,
    "attribute": _attribute,
    "object": _object,
    "operator": _operator,
    "prepared": _prepared,
    "file": _file,
}

# -- at each call ----------------------------------------------------------------------------------


def hooks_of(*modules: tuple[Any, bool]) -> tuple[Any, ...]:
    """The hooks that a call of these modules, or of any below them, runs: (number of module, which, mark).

    modules: each with whether it is the frame's own, whose hooks its caller has run already. Where somebody
    has put another method into the class of all modules, that method is a hook on them, too.
    """
    own, call, call_impl, getattribute, handle = _at_load()
    if (
        own["__call__"] is not call
        or own["_call_impl"] is not call_impl
        or own["__getattr__"] is not getattribute
    ):
        return ((-1, "torch.nn.Module", "another method"),)
    # Torch numbers hooks as they are registered: where it never did, only a module that was unpickled has
    # any, which is looked for once.
    none_yet = handle.next_id == 0
    if none_yet:
        for top, is_own in modules:
            known = _without_hooks.get((id(top), is_own))
            if known is None or known() is not top:
                break
        else:
            return ()
    every = sys.modules["torch.nn.modules.module"].__dict__
    found = [(-1, name, _hook(hook)) for name in HOOKS[:4] for hook in every[f"_global{name}"].values()]
    below = [(top, own, module) for top, own in modules for module in top.modules()]
    for number, (top, own, module) in enumerate(below):
        if own and module is top:
            continue
        for name in HOOKS:
            hooks = module.__dict__.get(name)
            if hooks:
                found += [(number, name, _hook(hook)) for hook in hooks.values()]
    if none_yet and not found:
        for top, own in modules:
            key = id(top), own
            _without_hooks[key] = weakref.ref(top, functools.partial(_without_hooks.pop, key))
    return tuple(found)


_without_hooks: dict[tuple[int, bool], weakref.ref[Any]] = {}


@functools.cache
def _at_load() -> tuple[Any, ...]:
    """What every call of a module goes through, as it was when the first entry was loaded, which compares the
    classes: dynamo does not trace it where there are no hooks. Before it the dict that has it, after it what
    numbers hooks."""
    own = sys.modules["torch.nn.modules.module"].Module.__dict__
    handle = sys.modules["torch.utils.hooks"].RemovableHandle
    return own, own["__call__"], own["_call_impl"], own["__getattr__"], handle


def _hook(hook: Any) -> Any:
    if type(hook) is FunctionType:
        return fingerprint(hook)
    if is_a(hook, MethodType):
        return ("method", _hook(hook.__func__), type_name(type(hook.__self__)))
    if is_a(hook, functools.partial):
        return (*mark(hook), _hook(hook.func))
    if type(hook) is bool:  # of those that get keywords, that they do
        return repr(hook)
    return (type_name(type(hook)), *((name, mark(value)) for name, value in dict_of(hook).items()))


def class_lacks(cls: type, count: int, names: tuple[str, ...]) -> bool:
    """Whether the first `count` classes that a class finds names in, itself the first, have none of these."""
    return all(base.__dict__.keys().isdisjoint(names) for base in cls.__mro__[:count])


def class_has(cls: type, names: frozenset[str], expected: tuple[str, ...]) -> bool:
    """Whether a class itself has just these of some names."""
    return len(names & cls.__dict__.keys()) == len(expected)


CALL_CHECKS = {
    "environment": os.environ.get,
    "module_hooks": hooks_of,
    "class_lacks": class_lacks,
    "class_has": class_has,
}
"""What guard functions call for inputs that may change between two calls."""

WHOLE = True
