"""Compares what an entry's trace took for constant with this process.

Dynamo's guards cover what can change within one process. The rest is a dependency of the entry, one record
for each: code that was inlined, what classes have, the environment, answers of functions. The table of the
kinds is hatch_precompile/lower/dependencies/table.py, and docs/inputs.md the page made from it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Container
from types import ModuleType
from typing import Any

from ..errors import raised_by_signal
from ..values.constants import alike, decode
from ..values.references import Stale, changed, resolve, spell
from ..values.static_lookup import dict_of, file_of, is_a, mro_of
from . import fingerprints
from .call_checks import methods_at_load
from .fingerprints import class_name, is_changeable, type_name

__all__ = ["check_dependencies", "has_global"]


def check_dependencies(records: Any) -> None:
    """Compare every record of an entry. Raises Stale in words for the first that is not as at the build."""
    methods_at_load()
    for kind, *record in records:
        check: Any = _CHECKS.get(kind)
        if check is None:
            raise Stale(f"unknown dependency {kind!r}")
        check(*record)


# -- functions and classes ----------------------------------------------------------------------------


def _function(module: str, steps: Any, expected: str, names: Container[str], held: bool) -> None:
    if _left_out(module):
        return
    if fingerprints.of_function(resolve(module, steps), names, held) != expected:
        raise changed(module, steps)


def _left_out(module: str) -> bool:
    """Whether this is a module of torch's that is not imported: torch is the very same build, and nobody can
    have changed it."""
    return module not in sys.modules and module.partition(".")[0] == "torch"


def _classes(names: Any, bases: Any, rows: Any, expected_registered: Any) -> None:
    """names: those looked up; bases: (class, what it defines); rows: (module, steps, numbers of bases);
    expected_registered: pairs of virtual subclasses"""
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
        for base in filter(is_changeable, mro_of(cls)):
            if id(base) not in seen:
                seen[id(base)] = (class_name(base), fingerprints.of_class(base, wanted))
            if seen[id(base)][1] or seen[id(base)][0] in known:
                found.append(seen[id(base)])
        expected = [bases[number] for number in numbers]
        if found != expected:
            raise Stale(_difference(spell(module, steps), found, expected))
    for one, other in set(fingerprints.virtual_subclasses(here)) ^ {
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
    found = fingerprints.of_value(getattr(owner, name), True) if has_global(owner, name) else None
    if found != expected:
        raise Stale(f"{module}.{name} has changed since the build")


def _value(module: str, steps: Any, expected: Any) -> None:
    if fingerprints.of_value(resolve(module, steps), True) != expected:
        raise Stale(f"{spell(module, steps)} has changed since the build")


def _path(module: str, name: str, expected: str) -> None:
    """A path that the trace itself has read."""
    found = dict_of(resolve(module, ())).get(name)
    if found != expected:
        raise Stale(f"{module}.{name} is {found!r} and was {expected!r} at the build")


def _table(module: str, name: str, entries: Any, absent: Any) -> None:
    """entries: the names of classes, each with the fingerprint of what the table has for it"""
    table = dict_of(resolve(module, ())).get(name)
    here = {type_name(cls): value for cls, value in table.items()} if type(table) is dict else {}
    for cls, expected in entries:
        if cls not in here or fingerprints.of_table_entry(here[cls]) != expected:
            raise Stale(f"{module}.{name} has another entry for {cls} than at the build, or none")
    for cls in absent:
        if cls in here:
            raise Stale(f"{module}.{name} has an entry for {cls}, which at the build it had not")


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


def _attribute(module: str, steps: Any, name: str, expected: Any) -> None:
    if not _left_out(module) and fingerprints.of_attribute(resolve(module, steps), name) != expected:
        raise Stale(f"{spell(module, steps)}.{name} has changed since the build")


def _file(module: str, expected: str) -> None:
    path = file_of(resolve(module, ()))
    try:
        found = fingerprints.of_file(path)
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

WHOLE = True
