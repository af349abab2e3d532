"""Names the objects an entry needs, so that they can be found again in the target process.

Dynamo guards by identity: this module, this class, this function's code. An identity means nothing
in another process, a name does. `Namer.reference` finds one and proves it by following it back.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import sys
from collections.abc import Collection, Iterable, Iterator
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
)
from typing import Any

import torch

from hatch_precompile.errors import Unsupported
from hatch_precompile.inductor.operators import backward_of, operator_name
from hatch_precompile.lower.dependencies.origin import is_python, is_torch
from hatch_precompile.runtime import references
from hatch_precompile.static_lookup import (
    attribute,
    class_name,
    dict_of,
    is_a,
    is_exactly,
    modules,
    qualname_of,
)
from hatch_precompile.tracing.guardtree import GuardNode

__all__ = ["NAME_IT", "Namer", "Step", "is_plain", "naming", "step"]

Step = tuple[str, Any]
Place = tuple[str, tuple[Step, ...]]

# Accessors of the guard tree whose result follows from the parent alone, as steps of a reference.
_AS_STEP: dict[str, tuple[Step, ...]] = {
    "get_generic_dict": (("a", "__dict__"),),
    "type_dict": (("a", "__dict__"),),
    "type_mro": (("a", "__mro__"),),
    "code": (("a", "__code__"),),
    "closure": (("a", "__closure__"),),
    "func_defaults": (("a", "__defaults__"),),
    "func_kwdefaults": (("a", "__kwdefaults__"),),
    "type": (("t", None),),
}
_ITEMS = {"dict_getitem", "list_getitem", "tuple_getitem", "getitem"}
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))
NAME_IT = (
    "Name it: make it a module-level function, class or object, "
    "so that the process that imports the wheel can find the same one."
)


def naming(value: Any) -> str:
    """The advice on something without a name: who has written its code can give it one."""
    if type(value) is type and value.__module__ == "builtins" and not hasattr(builtins, value.__name__):
        return "Python itself has no name for it. Keep a list or a tuple of what is in it in its place."
    code: Any = value
    if type(value) is not CodeType:
        code = attribute(attribute(value, "__func__", value), "__code__")
    file = code.co_filename if type(code) is CodeType else ""
    if is_torch(file) or is_python(file):
        maker = "torch" if is_torch(file) else "Python"
        return (
            f"It is made by {maker} while the traced code runs. Make what it belongs to where the module is "
            "imported, or outside of the traced code."
        )
    return NAME_IT


def is_plain(value: Any) -> bool:
    """Whether marshal holds the value and compares equal to it after a round trip."""
    if is_exactly(value, tuple, frozenset):
        return all(is_plain(item) for item in value)
    return is_exactly(value, *_PLAIN)


class Namer:
    """Writes references and constants for one frame."""

    def __init__(self, frame_globals: dict[str, Any], injected: Collection[str] = ()) -> None:
        """injected: names that dynamo put into the globals, which are not there in another process."""
        self._globals = frame_globals
        self._injected = frozenset(injected)

    @property
    def module(self) -> str:
        """The name of the module whose globals these are."""
        return str(self._globals["__name__"])

    def constant(self, value: Any, node: GuardNode | None = None, where: str = "") -> Any:
        """A value as data that the runtime's `decode` turns back into it.

        Raises `Unsupported` naming the value, where it came from and what to do.
        """
        if is_plain(value):
            return value
        items: Iterable[Any]
        if is_exactly(value, tuple, list, set, frozenset):
            # A set's order is the process's own; a build must not depend on it.
            items = value if type(value) in (tuple, list) else sorted(value, key=repr)
            return [type(value).__name__, *(self.constant(item, None, where) for item in items)]
        if type(value) is dict:
            if value is vars(builtins):
                return ["builtins"]
            name = value.get("__name__")
            if type(name) is str and name in sys.modules and dict_of(sys.modules[name]) is value:
                return ["globals", name]
            pairs = [[self.constant(k, None, where), self.constant(v, None, where)] for k, v in value.items()]
            return ["dict", *pairs]
        if type(value) is slice:
            return ["slice", *(self.constant(p, None, where) for p in (value.start, value.stop, value.step))]
        if type(value) is range:
            return ["range", value.start, value.stop, value.step]
        if type(value) is torch.Size:
            return ["size", *value]
        if type(value) is torch.device:
            return ["device", str(value)]
        return self.reference(value, node, where)

    def equal(self, value: Any, node: GuardNode | None = None, where: str = "") -> Any:
        """As `constant`, for a value of which only what it is equal to counts: it may hold dataclasses that
        have no name. They are made again of their fields."""
        if is_exactly(value, tuple, list) and not is_plain(value):
            return [type(value).__name__, *(self.equal(item, None, where) for item in value)]
        if type(value) is dict:
            return [
                "dict",
                *([self.constant(k, None, where), self.equal(v, None, where)] for k, v in value.items()),
            ]
        if is_a(value, type) or attribute(type(value), "__dataclass_fields__") is None:
            return self.constant(value, node, where)
        names = [field.name for field in dataclasses.fields(type(value))]
        equals: Any = type(value).__eq__
        if equals is object.__eq__ or sorted(dict_of(value) or names) != sorted(names):
            return self.reference(value, node, where)
        fields = [[name, self.equal(attribute(value, name), None, where)] for name in names]
        return ["dataclass", self.reference(type(value), None, where), *fields]

    def reference(self, value: Any, node: GuardNode | None = None, where: str = "") -> list[Any]:
        """A reference to an object that is known by identity: `["ref", module, steps, fingerprint]`."""
        for module, steps in self._candidates(value, node):
            if not self._is_injected(module, steps) and self._leads_to(module, steps, value):
                return ["ref", module, steps, references.full_fingerprint(value)]
        source = node.source if node is not None else ""
        raise Unsupported(
            f"{_describe(value)}{f', reached as {source},' if source else ''} is compared by identity "
            "and has no name that another process could find it by",
            where,
            naming(value),
        )

    def _is_injected(self, module: str, steps: tuple[Step, ...]) -> bool:
        return bool(steps) and module == self._globals.get("__name__") and steps[0][1] in self._injected

    def _leads_to(self, module: str, steps: tuple[Step, ...], value: Any) -> bool:
        try:
            found = references.resolve(module, steps)
        except references.Stale:
            return False
        # A bound method is a new object each time it is read.
        return found is value or (type(value) is MethodType and found == value)

    def _candidates(self, value: Any, node: GuardNode | None) -> Iterator[Place]:
        yield from self._own_names(value)
        if type(value) is BuiltinFunctionType and id(value) in _module_globals():
            # Its own name first: one in the user's module may later be another function's.
            place = _module_globals()[id(value)]
            if place[0].partition(".")[0] in _LIBRARIES:
                yield place
        if node is not None:
            yield from self._path_names(node)
        if type(value) is CodeType:
            yield from _nested_code_names(value)
        found = _module_globals().get(id(value))
        if found is not None:
            yield found

    def _own_names(self, value: Any) -> Iterator[Place]:
        """Names a thing says of itself, and what a decorator keeps under that name."""
        if is_a(value, ModuleType):
            name = attribute(value, "__name__")
            if type(name) is str:
                yield name, ()
            return
        if is_a(value, enum.Enum):
            for module, steps in self._own_names(type(value)):
                if is_a(value, enum.Flag):  # several together are a member without a name
                    yield module, (*steps, ("e", tuple(str(flag.name) for flag in value)))
                else:
                    yield module, (*steps, ("a", value.name))
            return
        if references.is_torchs(value) and type(value) is not torch.device:
            yield "torch", (("a", str(value).removeprefix("torch.")),)
            return
        if operator := operator_name(value):
            yield "torch", (("a", "ops"), *(("a", part) for part in operator.split(".")))
            return
        if backward := backward_of(value):
            for module, steps in self._own_names(backward[0]):
                yield module, (*steps, ("a", backward[1]))
        # A descriptor is named by the class that defines it, whichever class it was read from.
        if is_a(value, *references.DESCRIPTORS):
            for module, steps in self._own_names(value.__objclass__):
                yield module, (*steps, ("d", value.__name__))
        # `Class.method` of a class method, and such as `tuple.__new__`, whose module nothing tells.
        if is_exactly(value, MethodType, BuiltinFunctionType) and is_a(value.__self__, type):
            for module, steps in self._own_names(value.__self__):
                yield module, (*steps, ("a", value.__name__))
        module, qualname = _home(value)
        if not module or not qualname or "<locals>" in qualname:
            return
        way: tuple[Step, ...] = tuple(("a", part) for part in qualname.split("."))
        yield module, way
        if len(way) > 1:
            yield module, (*way[:-1], ("d", way[-1][1]))
        yield from self._decorated(module, way, value)

    def _decorated(self, module: str, steps: tuple[Step, ...], value: Any) -> Iterator[Place]:
        """Below a decorated function's name, the functions its wrappers hold (breadth first)."""
        try:
            queue: list[tuple[Any, tuple[Step, ...]]] = [(references.resolve(module, steps), steps)]
        except references.Stale:
            return
        seen: set[int] = set()
        while queue and len(seen) < 64:
            thing, way = queue.pop(0)
            if id(thing) in seen:
                continue
            seen.add(id(thing))
            if thing is value:
                yield module, way
                return
            if attribute(thing, "__code__") is value:
                yield module, (*way, ("a", "__code__"))
                return
            if type(thing) is MethodType:  # of a class method
                queue.append((thing.__func__, (*way, ("a", "__func__"))))
            wrapped = attribute(thing, "__wrapped__")
            if wrapped is not None:
                queue.append((wrapped, (*way, ("a", "__wrapped__"))))
            for index, cell in enumerate(attribute(thing, "__closure__") or ()):
                try:
                    content = cell.cell_contents
                except ValueError:  # an empty cell
                    continue
                if type(content) is FunctionType:
                    cell_steps = (("a", "__closure__"), ("i", index), ("a", "cell_contents"))
                    queue.append((content, (*way, *cell_steps)))

    def _path_names(self, node: GuardNode) -> Iterator[Place]:
        """The guard tree's own way to the value, from the nearest ancestor that has a name."""
        steps: tuple[Step, ...] = ()
        current: GuardNode | None = node
        while current is not None:
            if current is not node:
                if current.value is self._globals:
                    if steps[0][1] in self._injected:
                        return
                    yield self._globals["__name__"], (("a", "__dict__"), *steps)
                    return
                for module, way in self._own_names(current.value):
                    if self._leads_to(module, way, current.value):
                        yield module, (*way, *steps)
                        return
            last = step(current)
            if last is None:
                return
            steps = (*last, *steps)
            current = current.parent


def step(node: GuardNode) -> tuple[Step, ...] | None:
    """The way from a node's parent to it, as steps of a reference; None where it is no such way."""
    if node.accessor in _AS_STEP:
        return _AS_STEP[node.accessor]
    if node.accessor in ("getattr", "generic_getattr"):
        return (("a", node.key),)
    if node.accessor in _ITEMS and is_plain(node.key):
        return (("i", node.key),)
    if node.accessor == "get_value" and node.parent is not None and is_a(node.parent.value, dict):
        key = list(dict.keys(node.parent.value))[node.key]
        return (("i", key),) if is_plain(key) else None
    return None


def _home(value: Any) -> tuple[str, str]:
    """(module, qualified name) as the object itself gives them."""
    if type(value) is CodeType:
        # A code object knows its qualified name; the module is where its file was imported from.
        return _modules_by_file().get(value.co_filename, ""), value.co_qualname
    if type(value) is MethodType:
        value = value.__func__
    module, qualname = attribute(value, "__module__"), attribute(value, "__qualname__")
    if module is None and type(value) is BuiltinFunctionType:
        module = attribute(value.__self__, "__name__")
    return (module, qualname) if type(module) is str and type(qualname) is str else ("", "")


def _nested_code_names(code: CodeType) -> Iterator[Place]:
    """A function made inside another at run time: its code is a constant of the outer one's."""
    outer, marker, _ = code.co_qualname.rpartition(".<locals>.")
    module = _modules_by_file().get(code.co_filename)
    if not marker or module is None:
        return
    top = outer.split(".<locals>.")[0]
    start = (*(("a", part) for part in top.split(".")),)
    try:
        function = references.resolve(module, start)
    except references.Stale:
        return
    for steps in ((("a", "__code__"),), (("a", "__wrapped__"), ("a", "__code__"))):
        try:
            base = references.follow(function, steps)
        except AttributeError:
            continue
        way = _find_constant(base, code)
        if way is not None:
            yield module, (*start, *steps, *way)


def _find_constant(base: CodeType, wanted: CodeType) -> tuple[Step, ...] | None:
    for index, constant in enumerate(base.co_consts):
        if constant is wanted:
            return (("k", index),)
        if type(constant) is CodeType:
            deeper = _find_constant(constant, wanted)
            if deeper is not None:
                return (("k", index), *deeper)
    return None


def _modules_by_file() -> dict[str, str]:
    return _files(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _files(_modules: int) -> dict[str, str]:
    files: dict[str, str] = {}
    for name, own in modules():
        file = own.get("__file__")
        if type(file) is str and name != "__main__":
            files.setdefault(file, name)
    return files


_LIBRARIES = {"torch", "numpy", *sys.stdlib_module_names}


@functools.lru_cache(maxsize=1)
def _module_globals() -> dict[int, Place]:
    """Every object that is an attribute of a module, by id. Of several names one of a public module is taken,
    then a library's, then the one with the shortest module name."""
    found: dict[int, Place] = {}
    every = sorted(
        ((name, own) for name, own in modules() if name != "__main__"),
        key=lambda module: (
            module[0].startswith("_"),
            "._" in module[0],
            module[0].partition(".")[0] not in _LIBRARIES,
            len(module[0]),
            module[0],
        ),
    )
    for name, own in every:
        for key, value in list(own.items()):
            if not is_plain(value):
                found.setdefault(id(value), (name, (("a", key),)))
    return found


def _describe(value: Any) -> str:
    if type(value) is CodeType:
        return f"the code of {value.co_qualname} ({value.co_filename}:{value.co_firstlineno})"
    name = attribute(value, "__qualname__")
    kind = type(value)
    return f"{qualname_of(kind)} {name}" if type(name) is str else f"a {class_name(kind)} object"
