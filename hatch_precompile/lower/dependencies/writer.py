"""What an entry depends on besides its guards, which templates/dependencies/comparison.py compares.

Each thing that the trace took for constant becomes a dependency, is covered by one, or stops the build.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import inspect
import os
import re
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, cast

import torch

from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.dependencies.executed import ExecutedReads
from hatch_precompile.lower.dependencies.functions import FunctionDependencies
from hatch_precompile.lower.dependencies.kinds import (
    Absent,
    AnsweredCall,
    Builtins,
    Classes,
    ClassRow,
    Dependency,
    EnvironmentVariable,
    Global,
    Installed,
    Object,
    Operator,
    PathGlobal,
    Prepared,
    Table,
    file_dependency,
)
from hatch_precompile.lower.dependencies.origin import is_python, is_torch
from hatch_precompile.lower.names import NAME_IT, Namer
from hatch_precompile.lower.parametrized import made_for_one_object
from hatch_precompile.runtime import fingerprints, references
from hatch_precompile.static_lookup import dict_of, file_of, is_a, module_of, qualname_of
from hatch_precompile.tracing import Asked, Assumed, Call, einops_was_prepared
from hatch_precompile.tracing.guardtree import GuardNode

__all__ = ["SPECIAL", "Dependencies", "Memory", "dependencies_of"]


# How a class answers to Python itself: looked up on it without any name in the code.
_SPECIAL_WORDS = (
    "new init post_init call getattr getattribute setattr delattr dir len iter next reversed contains "
    "getitem setitem delitem missing class_getitem bool eq ne lt le gt ge hash int float index complex "
    "add radd iadd sub rsub isub mul rmul imul matmul rmatmul imatmul truediv rtruediv itruediv "
    "floordiv rfloordiv ifloordiv mod rmod imod pow rpow ipow and rand iand or ror ior xor rxor ixor "
    "lshift rlshift ilshift rshift rrshift irshift divmod rdivmod neg pos abs invert round trunc floor ceil "
    "enter exit get set delete set_name instancecheck subclasscheck subclasshook torch_function "
    "torch_dispatch tensor_flatten tensor_unflatten format str repr bytes fspath length_hint match_args "
    "slots dataclass_fields copy deepcopy reduce reduce_ex getstate setstate "
)
SPECIAL = frozenset(f"__{word}__" for word in _SPECIAL_WORDS.split())
# What tables by class are asked for without a guard that would show it.
_PLAIN = (bool, int, float, complex, str, bytes, type(None), tuple, list, dict, set, type, FunctionType)
_CALLED_MODULE = frozenset({"forward", "_call_impl", "_wrapped_call_impl"})
# Answers that stay the same as long as a process lives.
_STEADY = {
    *("is_available", "get_device_properties", "promote_types", "can_cast", "get_enum", "_assert"),
    *("_get_device_index", "_get_privateuse1_backend_name", "is_complex", "is_floating_point"),
}


@dataclasses.dataclass(frozen=True)
class LackingModule:
    """The globals of a module, and names that are not among them."""

    own: dict[str, Any]
    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class LackingClass:
    """A class, and names that the first `bases` classes of its __mro__ do not have."""

    cls: type
    bases: int
    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class SpecialMethods:
    """A class, and the special methods that it has itself."""

    cls: type
    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Memory:
    """Dynamo's names of the tensors that a graph writes to, and of its other ones."""

    written: tuple[str, ...]
    others: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Dependencies:
    """at_load: compared when the entry is loaded; the rest is asked at each call as well.

    environment: the variables that were read; state: functions with what they answered; called: ids of the
    modules that are called in the trace, with their hooks; variadic: the parameter that takes any keyword,
    where their order is not seen; draws: whether the graph has random numbers;
    copied: dynamo's names of objects of which no two are the same; apart: pairs of such names
    same: dynamo's names of two places with one object
    asked: what was asked of each dict of a class derived from dict
    memory: of each graph that writes to inputs
    """

    at_load: tuple[Dependency, ...] = ()
    environment: tuple[EnvironmentVariable, ...] = ()
    state: tuple[Call, ...] = ()
    called: frozenset[int] = frozenset()
    variadic: str = ""
    draws: bool = False
    copied: tuple[str, ...] = ()
    apart: tuple[tuple[str, str], ...] = ()
    lacking: tuple[LackingClass, ...] = ()
    hiding: tuple[LackingModule, ...] = ()
    special: tuple[SpecialMethods, ...] = ()
    asked: tuple[Asked, ...] = ()
    same: tuple[tuple[str, str], ...] = ()
    memory: tuple[Memory, ...] = ()


def dependencies_of(
    code: CodeType,
    traced: Sequence[CodeType],
    assumed: Assumed,
    tree: GuardNode,
    namer: Namer,
    resumes: Container[CodeType] = (),
) -> Dependencies:
    """Those of one frame's entry.

    traced: the code objects that dynamo says it traced; resumes: code that dynamo has made itself

    Raises Unsupported for what was taken for constant and could not be compared in another process.
    """
    for obstacle in assumed.obstacles:
        raise Unsupported(
            f"{obstacle.construct}: another process may have another value than the one in the trace",
            obstacle.where,
            obstacle.advice,
        )
    reading = ExecutedReads(assumed, namer)
    functions = FunctionDependencies(assumed, tree, namer, reading)
    writer = _Writer(assumed, tree, namer, reading, [code, *traced])
    environment = tuple(EnvironmentVariable(*each) for each in sorted(assumed.environment.items()))
    at_load = [
        *functions.of_code([each for each in [code, *traced] if each not in resumes]),
        *writer.helpers(),
        *writer.classes(),
        *writer.library_globals(),
        *writer.builtins(),
        *writer.prepared(traced),
        *writer.operators(),
        *functions.of_attributes(),
        *writer.objects(),
        *environment,
        *(Installed(*each) for each in sorted(assumed.installed.items())),
        *map(writer.call, assumed.calls),
    ]
    state = [call for call in assumed.calls if call.state and call.function.__name__ not in _STEADY]
    return Dependencies(
        tuple(at_load),
        environment,
        tuple(state),
        frozenset(assumed.called),
        _unordered_keywords(code, assumed, tree),
        assumed.draws,
        # Those that are one object are compared by a guard of dynamo's.
        tuple({identity: name for name, identity in assumed.copied.items()}.values()),
        tuple(sorted(pair for pair in assumed.apart if _made_by_call(code).isdisjoint(pair))),
        tuple(writer.lacking()),
        tuple(writer.hiding()),
        tuple(writer.special()),
        tuple(assumed.asked),
        tuple(sorted(assumed.same)),
    )


def _made_by_call(code: CodeType) -> set[str]:
    """Dynamo's names of what Python makes anew for each call: the parameters that take any argument."""
    count = code.co_argcount + code.co_kwonlyargcount
    more = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return {f"L[{name!r}]" for name in code.co_varnames[count : count + more]}


def _unordered_keywords(code: CodeType, assumed: Assumed, tree: GuardNode) -> str:
    """The parameter that takes any keyword, if nobody has seen in which order they came."""
    if not code.co_flags & inspect.CO_VARKEYWORDS:
        return ""
    name = code.co_varnames[
        code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    ]
    given = {
        key
        for node in tree.children
        if node.source == f"L[{name!r}]" and is_a(node.value, dict)
        for key in node.value
    }
    return "" if any(len(given.intersection(keys)) > 1 for keys in assumed.orders_seen) else name


class _Writer:
    """codes: those that were traced"""

    def __init__(
        self,
        assumed: Assumed,
        tree: GuardNode,
        namer: Namer,
        reading: ExecutedReads,
        codes: Sequence[CodeType],
    ) -> None:
        self.assumed = assumed
        self.tree = tree
        self.namer = namer
        self.reading = reading
        self.codes = codes
        self._covered: set[int] = set()  # objects whose content is compared

    def helpers(self) -> Iterator[Dependency]:
        """What code that ran while tracing has read."""
        yield from self.reading.of_modules()
        for cls in self.reading.classes(self._taking_part()):
            if not self._needs_no_row(cls):
                self.reading.files.add(module_of(cls))
        for module in sorted(self.reading.files):
            yield file_dependency(module)

    def hiding(self) -> Iterator[LackingModule]:
        """For the globals of a module, the names that it must not get."""
        names: dict[str, set[str]] = {}
        for each in self.builtins():
            found = each.names if isinstance(each, Builtins) else [each.name]
            names.setdefault(each.module, set()).update(found)
        for module, hidden in sorted(names.items()):
            if module in sys.modules and module.partition(".")[0] != "torch":
                yield LackingModule(
                    cast("dict[str, Any]", dict_of(sys.modules[module])), tuple(sorted(hidden))
                )

    def builtins(self) -> Iterator[Builtins | Absent]:
        """Builtins that a global of the same name would hide. Dynamo guards the builtins themselves."""
        names: dict[str, set[str]] = {}
        for module, name in self.assumed.builtins:
            found = sys.modules.get(module)
            own = not is_torch(file_of(found))
            if found is not None and own and name not in dict_of(found):
                names.setdefault(module, set()).add(name)
        for module, hidden in sorted(names.items()):
            yield Builtins(module, tuple(sorted(hidden)))
        yield from (Absent(*each) for each in sorted(self.assumed.absent))

    def prepared(self, traced: Iterable[CodeType]) -> Iterator[Dependency]:
        """Libraries that dynamo itself calls before it goes into their code."""
        file = file_of(sys.modules.get("einops"))
        folder = Path(file or "/").parent
        if (
            file
            and any(folder in Path(code.co_filename).parents for code in traced)
            and einops_was_prepared()
        ):
            yield Prepared("einops")

    def operators(self) -> Iterator[Dependency]:
        yield from (Operator(*each) for each in sorted(self.assumed.operators.items()))

    # -- classes ---------------------------------------------------------------------------------

    def classes(self) -> Iterator[Dependency]:
        names = self._names()
        taken = set(map(fingerprints.class_name, self._taking_part()))
        bases: dict[tuple[str, Any], int] = {}
        rows: list[ClassRow] = []
        for cls in self._taking_part():
            try:
                _, module, steps, _ = self.namer.reference(cls)
            except Unsupported:
                if self._needs_no_row(cls):
                    continue
                raise Unsupported(
                    f"the class {cls.__qualname__} takes part in the trace and has no name that another "
                    "process could find it by",
                    _defined_at(cls),
                    NAME_IT,
                ) from None
            numbers = []
            for base in filter(fingerprints.is_changeable, cls.__mro__):
                name = fingerprints.class_name(base)
                has = fingerprints.of_class(base, names)
                if has or name in taken:
                    numbers.append(bases.setdefault((name, has), len(bases)))
                    self._covered.update(id(dict_of(base)[key]) for key, _ in has)
                    self._covered.update(map(id, _fields(base)))
            rows.append((module, tuple(steps), tuple(numbers)))
        if rows:
            rows.sort(key=repr)
            classes = [references.resolve(module, steps) for module, steps, _ in rows]
            registered = fingerprints.virtual_subclasses(dict(enumerate(classes)))
            yield Classes(tuple(sorted(names)), tuple(bases), tuple(rows), registered)

    def lacking(self) -> Iterator[LackingClass]:
        """Of classes that guards can name."""
        asked = self.assumed.lacking
        for cls in self._named({each for each, _ in asked}):
            for count in sorted(count for other, count in asked if other is cls):
                yield LackingClass(cls, count, tuple(sorted(asked[cls, count])))

    def special(self) -> Iterator[SpecialMethods]:
        """Python looks these up on classes by itself. Of the program's own, which may get more of them."""
        bases = {base for each in self._taking_part() for base in each.__mro__}
        for cls in self._named(bases):
            if fingerprints.is_changeable(cls) and not self._needs_no_row(cls):
                yield SpecialMethods(cls, tuple(sorted(SPECIAL & dict_of(cls).keys())))

    def _named(self, classes: set[type]) -> Iterator[type]:
        """Those that another process can find. One that torch's parametrize makes is known by its parts."""
        for cls in sorted(classes, key=fingerprints.type_name):
            with contextlib.suppress(Unsupported):
                self.namer.reference(cls)
                if not made_for_one_object(cls) and not _is_compilers(cls):
                    yield cls

    def _names(self) -> frozenset[str]:
        found = {
            *self.assumed.attributes,
            *(name for names in self.assumed.lacking.values() for name in names),
        }
        for code in self.assumed.helpers:
            found.update(name for name in code.co_names if name not in self.reading.stored)
        for code in (*self.codes, *(function.__code__ for function in self.assumed.functions)):
            found.update(code.co_names)
        if self.assumed.called:
            found |= _CALLED_MODULE
        return frozenset(found | SPECIAL)

    def _taking_part(self) -> list[type]:
        """The classes of the trace and of its guards, and their own classes."""
        found = dict.fromkeys([torch.Tensor, *self.assumed.classes])
        for node in self.tree.nodes():
            if node.leaves:
                found[type(node.value)] = None
                if is_a(node.value, type):
                    found[node.value] = None
        for cls in list(found):
            found[type(cls)] = None
        kept = [cls for cls in found if fingerprints.is_changeable(cls) and not _is_compilers(cls)]
        return sorted(kept, key=fingerprints.type_name)

    def _needs_no_row(self, cls: type) -> bool:
        if made_for_one_object(cls):
            return True  # known by its parts, each time it is met
        file = file_of(sys.modules.get(module_of(cls))) or "<frozen>"
        return is_torch(file) or is_python(file)

    # -- values ----------------------------------------------------------------------------------

    def library_globals(self) -> Iterator[Dependency]:
        """Dynamo puts no guard on globals of the standard library."""
        for (module, name), where in sorted(self.assumed.names.items()):
            value = dict_of(sys.modules[module]).get(name)
            if value is os.environ or is_a(value, FunctionType, type, type(os), type(len)):
                continue  # the environment and functions are dependencies of their own
            if type(value) is dict and value and all(is_a(key, type) for key in value):
                self._covered.add(id(value))
                yield Table(module, name, *self._looked_up(value))
                continue
            found = fingerprints.of_value(value, True)
            opaque = found == fingerprints.type_name(type(value)) and module_of(type(value)) != "typing"
            if opaque and dict_of(value):
                raise Unsupported(
                    f"{module}.{name}, a {qualname_of(type(value))} of the standard library, is in the trace",
                    where,
                    "Ask for it outside of the traced code.",
                )
            self._covered.add(id(value))
            if type(value) is str and Path(value).is_absolute() and not is_python(value):
                yield PathGlobal(module, name, value)
            else:
                yield Global(module, name, found)

    def _looked_up(self, table: dict[type, Any]) -> tuple[tuple[tuple[str, Any], ...], tuple[str, ...]]:
        """What it has for classes of the trace, and those that it has nothing for. Others register theirs."""
        met: set[type[Any]] = {
            *_PLAIN,
            *self.assumed.classes,
            *(type(node.value) for node in self.tree.nodes() if node.leaves),
        }
        name = fingerprints.type_name
        entries = ((name(cls), fingerprints.of_table_entry(table[cls])) for cls in met & table.keys())
        return tuple(sorted(entries)), tuple(sorted(map(name, met - table.keys())))

    def objects(self) -> Iterator[Dependency]:
        """Instances that the trace met without a guard on them."""
        for value in self.assumed.objects.values():
            if is_a(value, enum.Enum):
                yield Object(self.namer.reference(value))
            elif id(value) in self._covered or is_a(value, re.Match, type, os._Environ):
                continue
            elif self._needs_no_row(type(value)):
                continue  # made of other things here, or as much a constant as its module
            else:
                raise Unsupported(
                    f"an object of the class {qualname_of(type(value))} is in the trace, without a guard",
                    f"module {module_of(type(value))}",
                    "Make it an attribute of the model, or a global of the module that uses it.",
                )

    def call(self, call: Call) -> AnsweredCall:
        name = f"{call.function.__module__}.{call.function.__qualname__}"
        try:
            function = self.namer.constant(call.function, None, call.where)
            args, kwargs, value = (
                self.namer.constant(part, None, call.where) for part in (call.args, call.kwargs, call.value)
            )
        except Unsupported as error:
            raise Unsupported(
                f"{name}() was called while tracing and its answer is in the trace, but it, its arguments "
                f"or its answer cannot be carried in a wheel ({str(error).splitlines()[0]})",
                call.where,
                "Let it take and return numbers and words only, or call it outside of the traced code.",
            ) from None
        return AnsweredCall(function, args, kwargs, value, name)


def _fields(cls: type) -> list[Any]:
    return list((dict_of(cls).get("__dataclass_fields__") or {}).values())


def _defined_at(cls: type) -> str:
    """Where the source of a class is, as far as it has one."""
    try:
        _, line = inspect.getsourcelines(cls)
        return f"{inspect.getsourcefile(cls)}:{line}"
    except (OSError, TypeError):
        return f"module {module_of(cls)}"


def _is_compilers(cls: type) -> bool:
    return module_of(cls).startswith(("torch._dynamo", "torch._inductor", "hatch_precompile"))
