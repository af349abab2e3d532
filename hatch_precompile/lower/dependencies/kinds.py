"""The kinds of things that an entry depends on, with what of each is compared where a wheel runs.

The runtime has a check for each (templates/dependencies/comparison.py), and gets the fields one after the
other: tuples are fast to read. The fingerprints are those of templates/dependencies/fingerprints.py.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from hatch_precompile.runtime import fingerprints
from hatch_precompile.static_lookup import file_of

__all__ = [
    "Absent",
    "AnsweredCall",
    "Attribute",
    "Builtins",
    "ClassRow",
    "Classes",
    "Dependency",
    "EnvironmentVariable",
    "File",
    "Function",
    "Global",
    "Installed",
    "Object",
    "Operator",
    "PathGlobal",
    "Prepared",
    "Table",
    "Value",
    "dependency",
    "file_dependency",
    "modules_referred_to",
]

Steps = tuple[Any, ...]
"""Those of a reference, from a module."""


class Dependency(Struct, frozen=True, array_like=True):
    """One thing that an entry depends on. tag: its kind, what the runtime calls it."""

    def encoded(self) -> tuple[Any, ...]:
        """As it is in an entry's file: the kind, and the fields as plain data."""
        return (self.__struct_config__.tag, *msgspec.structs.astuple(self))

    def modules(self) -> set[str]:
        """Those that are imported before it is compared. Those of torch are not: what is not imported there
        has not been changed there either."""
        module = getattr(self, "module", None)
        return modules_referred_to(self.encoded()) if module is None else _without_torchs({module})


class Function(Dependency, frozen=True, tag="function"):
    """Code that was traced. free_variables: those that count; deep: with what is in dicts and lists."""

    module: str
    steps: Steps
    fingerprint: str
    free_variables: tuple[str, ...]
    deep: bool


class File(Dependency, frozen=True, tag="file"):
    """The source file of a module, as a whole."""

    module: str
    fingerprint: str


ClassRow = tuple[str, Steps, tuple[int, ...]]
"""A class: module, steps, and the numbers of those among its bases that define something, in their order."""


class Classes(Dependency, frozen=True, tag="classes"):
    """What classes have. names: those that were looked up; bases: each with what it defines of these;
    registered: pairs of classes, by number, of which the one is registered as the other."""

    names: tuple[str, ...]
    bases: tuple[Any, ...]
    rows: tuple[ClassRow, ...]
    registered: tuple[tuple[int, int], ...]

    def modules(self) -> set[str]:
        return _without_torchs({module for module, _, _ in self.rows})


class Builtins(Dependency, frozen=True, tag="builtins"):
    """Builtins that no global of a module hides."""

    module: str
    names: tuple[str, ...]


class Absent(Dependency, frozen=True, tag="absent"):
    """A name that a module has not."""

    module: str
    name: str


class Prepared(Dependency, frozen=True, tag="prepared"):
    """A library that dynamo calls before it traces its code."""

    library: str


class Operator(Dependency, frozen=True, tag="operator"):
    """An operator of `torch.library`. schema: as text, with the default values."""

    name: str
    schema: str


class Attribute(Dependency, frozen=True, tag="attribute"):
    """An attribute of a function, which may be absent."""

    module: str
    steps: Steps
    name: str
    fingerprint: Any


class Object(Dependency, frozen=True, tag="object"):
    """An object that must still be there, as a member of an enumeration. reference: an encoded constant."""

    reference: Any


class EnvironmentVariable(Dependency, frozen=True, tag="environment"):
    """A variable of the environment. value: None where it is not set."""

    name: str
    value: str | None


class Installed(Dependency, frozen=True, tag="installed"):
    """Whether a package is."""

    name: str
    found: bool


class AnsweredCall(Dependency, frozen=True, tag="call"):
    """A call that gives the same answer. All but the name, which is for people, are encoded constants."""

    function: Any
    args: Any
    kwargs: Any
    value: Any
    name: str


class Table(Dependency, frozen=True, tag="table"):
    """A dict by class. entries: classes, each with the fingerprint of what there is for it; absent: those
    without an entry."""

    module: str
    name: str
    entries: tuple[tuple[str, Any], ...]
    absent: tuple[str, ...]


class Global(Dependency, frozen=True, tag="global"):
    """A global without a guard of dynamo's."""

    module: str
    name: str
    fingerprint: Any


class PathGlobal(Dependency, frozen=True, tag="path"):
    """A global that is a path, which the trace has read."""

    module: str
    name: str
    path: str


class Value(Dependency, frozen=True, tag="value"):
    """What code that ran while dynamo traced has read."""

    module: str
    steps: Steps
    fingerprint: Any


def file_dependency(module: str) -> File:
    """The file of a module that is imported here, as it is now."""
    return File(module, fingerprints.of_file(file_of(sys.modules[module])))


_ANY_KIND = functools.reduce(operator.or_, Dependency.__subclasses__())


def dependency(encoded: Any) -> Dependency:
    """A dependency from an entry's file (see `encoded`). Raises msgspec.ValidationError for anything else."""
    found: Dependency = msgspec.convert(encoded, _ANY_KIND)
    return found


def _without_torchs(modules: set[str]) -> set[str]:
    return {each for each in modules if each.partition(".")[0] != "torch"}


def modules_referred_to(value: Any) -> set[str]:
    """Every module that a reference in encoded constants starts from."""
    return set(_referred_to(value))


def _referred_to(value: Any) -> Iterator[str]:
    if isinstance(value, (tuple, list)):
        if len(value) == 4 and value[0] == "ref":
            yield value[1]
        for item in value:
            yield from _referred_to(item)
