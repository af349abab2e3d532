"""The kinds of things that an entry depends on, with what of each is compared where a wheel runs.

The runtime has a check for each (templates/dependencies/comparison.py), and gets the fields one after the
other: tuples are fast to read. The fingerprints are those of templates/dependencies/fingerprints.py.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

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


@dataclass(frozen=True)
class Dependency:
    """One thing that an entry depends on. kind: what the runtime calls it."""

    kind: ClassVar[str]

    def encoded(self) -> tuple[Any, ...]:
        """As it is in an entry's file: the kind, and the fields as plain data."""
        return (self.kind, *(getattr(self, each.name) for each in dataclasses.fields(self)))

    def modules(self) -> set[str]:
        """Those that are imported before it is compared. Those of torch are not: what is not imported there
        has not been changed there either."""
        module = getattr(self, "module", None)
        return modules_referred_to(self.encoded()) if module is None else _without_torchs({module})


@dataclass(frozen=True)
class Function(Dependency):
    """Code that was traced. free_variables: those that count; deep: with what is in dicts and lists."""

    kind = "function"
    module: str
    steps: Steps
    fingerprint: str
    free_variables: tuple[str, ...]
    deep: bool


@dataclass(frozen=True)
class File(Dependency):
    """The source file of a module, as a whole."""

    kind = "file"
    module: str
    fingerprint: str


@dataclass(frozen=True)
class ClassRow:
    """bases: the numbers of those among its bases that define something, in their order."""

    module: str
    steps: Steps
    bases: tuple[int, ...]


@dataclass(frozen=True)
class Classes(Dependency):
    """What classes have. names: those that were looked up; bases: each with what it defines of these;
    registered: pairs of classes, by number, of which the one is registered as the other."""

    kind = "classes"
    names: tuple[str, ...]
    bases: tuple[Any, ...]
    rows: tuple[ClassRow, ...]
    registered: tuple[tuple[int, int], ...]

    def encoded(self) -> tuple[Any, ...]:
        rows = tuple((each.module, each.steps, each.bases) for each in self.rows)
        return (self.kind, self.names, self.bases, rows, self.registered)

    def modules(self) -> set[str]:
        return _without_torchs({each.module for each in self.rows})


@dataclass(frozen=True)
class Builtins(Dependency):
    """Builtins that no global of a module hides."""

    kind = "builtins"
    module: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Absent(Dependency):
    """A name that a module has not."""

    kind = "absent"
    module: str
    name: str


@dataclass(frozen=True)
class Prepared(Dependency):
    """A library that dynamo calls before it traces its code."""

    kind = "prepared"
    library: str


@dataclass(frozen=True)
class Operator(Dependency):
    """An operator of `torch.library`. schema: as text, with the default values."""

    kind = "operator"
    name: str
    schema: str


@dataclass(frozen=True)
class Attribute(Dependency):
    """An attribute of a function, which may be absent."""

    kind = "attribute"
    module: str
    steps: Steps
    name: str
    fingerprint: Any


@dataclass(frozen=True)
class Object(Dependency):
    """One that is still there, such as a member of an enumeration. reference: an encoded constant."""

    kind = "object"
    reference: Any


@dataclass(frozen=True)
class EnvironmentVariable(Dependency):
    """A variable of the environment. value: None where it is not set."""

    kind = "environment"
    name: str
    value: str | None


@dataclass(frozen=True)
class Installed(Dependency):
    """Whether a package is."""

    kind = "installed"
    name: str
    found: bool


@dataclass(frozen=True)
class AnsweredCall(Dependency):
    """A call that gives the same answer. All but the name, which is for people, are encoded constants."""

    kind = "call"
    function: Any
    args: Any
    kwargs: Any
    value: Any
    name: str


@dataclass(frozen=True)
class Table(Dependency):
    """A dict by class. entries: classes, each with the fingerprint of what there is for it; absent: those
    without an entry."""

    kind = "table"
    module: str
    name: str
    entries: tuple[tuple[str, Any], ...]
    absent: tuple[str, ...]


@dataclass(frozen=True)
class Global(Dependency):
    """A global without a guard of dynamo's."""

    kind = "global"
    module: str
    name: str
    fingerprint: Any


@dataclass(frozen=True)
class PathGlobal(Dependency):
    """A global that is a path, which the trace has read."""

    kind = "path"
    module: str
    name: str
    path: str


@dataclass(frozen=True)
class Value(Dependency):
    """What code that ran while dynamo traced has read."""

    kind = "value"
    module: str
    steps: Steps
    fingerprint: Any


def file_dependency(module: str) -> File:
    """The file of a module that is imported here, as it is now."""
    return File(module, fingerprints.of_file(file_of(sys.modules[module])))


_KINDS: dict[str, type[Dependency]] = {each.kind: each for each in Dependency.__subclasses__()}


def dependency(encoded: Any) -> Dependency:
    """One of an entry's file. Raises KeyError, TypeError or ValueError where it is none."""
    kind, *fields = encoded
    if kind == Classes.kind:
        names, bases, rows, registered = fields
        return Classes(names, bases, tuple(ClassRow(*row) for row in rows), registered)
    return _KINDS[kind](*fields)


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
