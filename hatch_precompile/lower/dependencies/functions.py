"""Functions: the code that was traced or ran while tracing, and what of their closures counts."""

from __future__ import annotations

import collections
import functools
import gc
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any

from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.dependencies.executed import ExecutedReads
from hatch_precompile.lower.dependencies.kinds import Attribute, Dependency, Function, file_dependency
from hatch_precompile.lower.dependencies.origin import is_python, is_torch
from hatch_precompile.lower.names import NAME_IT, Namer, Place, is_plain, naming
from hatch_precompile.lower.parametrized import made_for_one_object
from hatch_precompile.runtime import fingerprints, references
from hatch_precompile.static_lookup import attribute, class_name, dict_of, is_a, modules
from hatch_precompile.tracing import Assumed, closure_of
from hatch_precompile.tracing.guardtree import GuardNode
from hatch_precompile.tracing.tensors import shapes_kernel

__all__ = ["FunctionDependencies"]

Owners = dict[CodeType | FunctionType, tuple[type, tuple[Any, ...]]]


class FunctionDependencies:
    """Of one frame's trace. Raises Unsupported for a function that another process could not find."""

    def __init__(self, assumed: Assumed, tree: GuardNode, namer: Namer, reading: ExecutedReads) -> None:
        self.reading = reading
        self.assumed = assumed
        self.tree = tree
        self.namer = namer
        self._owners: Owners | None = None

    def of_code(self, codes: Sequence[CodeType]) -> Iterator[Dependency]:
        known: dict[Place, Function] = {}
        files: set[str] = set()
        everything = self._everything(codes)
        every_code = [each for each, *_ in everything]
        for code, function, closure, held in everything:
            _require_one_text(code)
            place = self._place(code, function)
            if closure and self._found(place) is not function:
                place = self._owned(code, function) or place
            cells = closure if self._found(place) is function else ()
            if closure and not cells and not self._is_covered(code, every_code):
                self._check_closure(function, closure)
            if place is None:
                if self._is_covered(code, every_code):
                    continue
                place = self._owned(code)
                helper = code in self.assumed.helpers
                if place is None and (module := _module_of(code, nested=helper)) is not None:
                    files.add(module)
                    continue
                if place is None:
                    raise _nameless(code)
            text = fingerprints.of_function(self._found(place), cells, held)
            known[place] = Function(*place, text, cells, held)
        for each in sorted(known.values(), key=lambda each: repr(each.encoded()[1:])):
            yield each
            yield from self.reading.of_function(
                each.module, each.steps, self._found((each.module, each.steps))
            )
        for module in sorted(files):
            yield file_dependency(module)

    def _everything(
        self, codes: Iterable[CodeType]
    ) -> list[tuple[CodeType, FunctionType | None, tuple[str, ...], bool]]:
        """What was traced or ran: each code with its functions, which of their free variables count, and
        whether with what is in dicts and lists."""
        # What is in a dict of a function that ran may be what it keeps, which fills up as a process goes on.
        functions = {function: (self._steady(function.__code__), False) for function in self._closed_over()}
        for function, guarded in self.assumed.functions.items():
            functions[function] = (() if guarded else function.__code__.co_freevars, True)
        by_code: dict[CodeType, list[FunctionType]] = {}
        for function in functions:
            by_code.setdefault(function.__code__, []).append(function)
        found: list[tuple[CodeType, FunctionType | None, tuple[str, ...], bool]] = []
        for code in dict.fromkeys([*codes, *by_code, *self.assumed.helpers]):
            if code in by_code:
                found += [(code, each, *functions[each]) for each in by_code[code]]
            else:
                found.append((code, None, (), False))
        return found

    def _steady(self, code: CodeType) -> tuple[str, ...]:
        """The free variables that no code that ran gives another value."""
        return tuple(name for name in code.co_freevars if name not in self.reading.stored)

    def _place(self, code: CodeType, function: FunctionType | None) -> Place | None:
        """Where the function is found: itself, or what its code alone is found by."""
        if function is not None:
            try:
                _, module, steps, _ = self.namer.reference(function)
                return module, tuple(steps)
            except Unsupported:
                pass
        try:
            module, steps = _function_reference(self.namer, code)
            return module, tuple(steps)
        except Unsupported:
            return shapes_kernel(code)

    def _found(self, place: Place | None) -> Any:
        found = references.resolve(*place) if place is not None else None
        return attribute(found, "__func__", found)

    def _check_closure(self, function: Any, names: Container[str]) -> None:
        """Raise Unsupported for a function without a name, if other functions of its code may have in their
        closures what gives other answers."""
        code = function.__code__
        for name, value in zip(code.co_freevars, closure_of(function), strict=True):
            plain = fingerprints.of_value(value) != fingerprints.type_name(type(value))
            if name in names and plain and value is not None and not is_a(value, type):
                raise Unsupported(
                    f"the code of {code.co_qualname} is in the trace with {name} = {_said(value)} in its "
                    "closure, and the function has no name that another process could find it by",
                    f"{code.co_filename}:{code.co_firstlineno}",
                    NAME_IT,
                )

    def _closed_over(self) -> Iterator[FunctionType]:
        """The functions with cells that ran while tracing. One that is gone was made by what ran."""
        closures = self.assumed.closures
        for value in gc.get_objects() if closures else ():
            if (
                type(value) is FunctionType
                and value.__closure__
                and _has_hash(value.__code__)
                and (value.__code__ in closures)
            ):
                steady, names = self._steady(value.__code__), value.__code__.co_freevars
                own = closure_of(value)
                for cells in closures[value.__code__].values():
                    if all(a is b for name, a, b in zip(names, own, cells, strict=True) if name in steady):
                        yield value
                        break

    def _owned(self, code: CodeType, function: FunctionType | None = None) -> Place | None:
        """Below the class that holds the function: what `dataclasses` and decorators make has no name."""
        if self._owners is None:
            self._owners = _functions_of_classes()
        cls, way = self._owners.get(function or code, (object, ()))
        try:
            _, module, steps, _ = self.namer.reference(cls)
        except Unsupported:
            return None
        return (module, (*steps, *way)) if way else None

    def _is_covered(self, code: CodeType, everything: Iterable[CodeType]) -> bool:
        """Whether something else says when the code has changed."""
        if is_torch(code.co_filename) or is_python(code.co_filename):
            return True  # of torch and Python without a name: they are the versions that they were
        if any(_contains(other, code) for other in everything if other is not code):
            return True
        if _is_named_tuples(code) or self._is_of_checked_class(code):
            return True
        return id(code) in self._guarded_codes()

    def _is_of_checked_class(self, code: CodeType) -> bool:
        """Whether the class that holds the code is known by its parts, of which this is one."""
        self._owned(code)
        cls, _ = (self._owners or {}).get(code, (object, ()))
        return made_for_one_object(cls) and any(
            type(node.value) is cls and any(leaf.kind == "type_match_guard" for leaf in node.leaves)
            for node in self.tree.nodes()
        )

    def _guarded_codes(self) -> set[int]:
        """Code that guards compare by identity, under a name that they found."""
        found: set[int] = set()
        for node in self.tree.nodes():
            if any(leaf.kind == "id_match_guard" for leaf in node.leaves):
                value = node.value.__code__ if type(node.value) is FunctionType else node.value
                found.add(id(value))
        return found

    def of_attributes(self) -> Iterator[Dependency]:
        for function, name in self.assumed.looked_at:
            place = self._place(function.__code__, function)
            if place is None:
                if self._is_covered(function.__code__, [each.__code__ for each in self.assumed.functions]):
                    continue
                module = _module_of(function.__code__, nested=True)
                if module is None:
                    raise _nameless(function.__code__)
                yield file_dependency(module)
            else:
                yield Attribute(*place, name, fingerprints.of_attribute(function, name))


def _said(value: Any) -> str:
    return f"{value!r:.50}" if is_plain(value) else f"a {class_name(type(value))}"


_ADDRESS = re.compile(r"\d{9,}")


def _require_one_text(code: CodeType) -> None:
    """Raise Unsupported for generated code that has addresses in its names: beartype's has."""
    if code.co_filename.startswith("<") and any(map(_ADDRESS.search, (*code.co_varnames, *code.co_names))):
        raise Unsupported(
            f"the code of {code.co_qualname} was generated by a decorator, with names that are others in "
            "each process",
            code.co_filename,
            "Take the decorator away, such as beartype's, or name a target that has none.",
        )


def _nameless(code: CodeType) -> Unsupported:
    return Unsupported(
        f"the code of {code.co_qualname} is in the trace and has no name that another "
        "process could find it by, to see whether it is still the same",
        f"{code.co_filename}:{code.co_firstlineno}",
        naming(code),
    )


def _function_reference(namer: Namer, code: CodeType) -> tuple[str, Any]:
    """(module, steps) of the function with this code: its default arguments count, too.

    Of the code itself where no function with it has a name. Raises Unsupported where that has none.
    """
    _, module, steps, _ = namer.reference(code)
    if steps and steps[-1] == ("a", "__code__"):
        way = steps[:-1]
        function = references.resolve(module, way)
        if isinstance(function, MethodType):  # a class method is read bound
            function, way = function.__func__, (*way, ("a", "__func__"))
        if isinstance(function, FunctionType):
            return module, way
    return module, steps


def _contains(code: CodeType, inner: CodeType) -> bool:
    return any(
        constant is inner or _contains(constant, inner)
        for constant in code.co_consts
        if isinstance(constant, CodeType)
    )


def _is_named_tuples(code: CodeType) -> bool:
    """Whether it is the code that `collections.namedtuple` writes for a class with these fields."""
    if code.co_name != "<lambda>" or not code.co_filename.startswith("<"):
        return False
    try:
        made: Any = collections.namedtuple("made", code.co_varnames[1 : code.co_argcount])  # type: ignore[misc]
    except ValueError:  # no names of fields
        return False
    return bool(made.__new__.__code__ == code)


def _functions_of_classes() -> Owners:
    """By function and by code, the class that holds it, and the way there."""
    found: Owners = {}
    pending: list[type] = [object]
    seen: set[int] = set()
    while pending:
        cls = pending.pop()
        if id(cls) in seen:
            continue
        seen.add(id(cls))
        pending += type.__subclasses__(cls)
        own = dict_of(cls)
        for name, field in (own.get("__dataclass_fields__") or {}).items():
            if type(field.default_factory) is FunctionType:
                way = (("d", "__dataclass_fields__"), ("i", name), ("a", "default_factory"))
                found.setdefault(field.default_factory, (cls, way))
                if _has_hash(field.default_factory.__code__):
                    found.setdefault(field.default_factory.__code__, (cls, way))
        for name, value in list(own.items()):
            for part in _PARTS.get(type(value), ()):
                inner = getattr(value, part) if part else value
                if type(inner) is FunctionType:
                    steps = (("d", name), ("a", part)) if part else (("d", name),)
                    found.setdefault(inner, (cls, steps))
                    if _has_hash(inner.__code__):
                        found.setdefault(inner.__code__, (cls, steps))
    return found


def _has_hash(code: CodeType) -> bool:
    """Not so where somebody has made code with a dict among its constants."""
    try:
        hash(code)
    except TypeError:
        return False
    return True


# Where the kinds of things that classes hold keep their functions.
_PARTS: dict[type, tuple[str, ...]] = {
    FunctionType: ("",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    functools.cached_property: ("func",),
    functools.partialmethod: ("func",),
}


def _module_of(code: CodeType, *, nested: bool) -> str | None:
    """The module with the code of a function that nothing names, such as a lambda given to a registry.

    nested: of one that was made in a function, too: what it has in its closure does not count then.
    """
    if "<locals>" in code.co_qualname and not nested:
        return None
    for name, own in modules():
        if name != "__main__" and own.get("__file__") == code.co_filename:
            return name
    return None
