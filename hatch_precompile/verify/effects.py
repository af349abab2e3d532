"""What a call leaves behind other than in what it gives: attributes of objects, globals of modules.

Dynamo replays such effects after a graph, and drops some. They are compared where a call from the bundle and
one of eager code find the same.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import reprlib
import sys
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from hatch_precompile.errors import VerifyError
from hatch_precompile.runtime import RUNTIME_PACKAGE
from hatch_precompile.static_lookup import (
    attribute,
    dict_of,
    is_a,
    is_exactly,
    module_of,
    modules,
    qualname_of,
)
from hatch_precompile.tracing.tensors import version_of, without_subclass
from hatch_precompile.verify.agreement import compare

__all__ = ["Effects", "Place", "differing", "kept", "roots_of"]

_DEEP = 6
_MANY = 200
"""Items of a container, beyond which only their number is looked at."""
_MOST = 50_000
"""Places in all."""
_SMALL = 1 << 16
"""Elements of a tensor of which there is a copy; of a larger one it is known that it was written to."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_NAMES = ("module", "qualname")
_NAMED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
# Values, of which one and the same may be in many places where eager code makes one for each.
_VALUES = (torch.device, torch.dtype, torch.layout, torch.memory_format)
_IMMUTABLE = (tuple, frozenset, torch.Size)
# They cache whether a level is enabled, which is no effect of the program's.
_ASIDE = (logging.Logger, logging.Handler)
_OF_MODULES = {*torch.nn.Module().__dict__} - {"training"}


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """A tensor that was met. `version`: how often it was written to, as torch counts; `content`: a copy, of a
    small one."""

    itself: torch.Tensor
    version: int
    content: torch.Tensor | None


@dataclasses.dataclass(frozen=True)
class _Kind:
    """What something is that holds others, and how many."""

    name: str
    count: int = 0


State = dict[str, Any]
"""Place -> what is there: a plain value, or one of the above."""


@dataclasses.dataclass(frozen=True)
class Effects:
    """What was there before a call and after it."""

    before: State
    after: State

    def changed(self) -> Iterator[str]:
        for place in dict.fromkeys([*self.before, *self.after]):
            if not _is_same(self.before.get(place, _NOTHING), self.after.get(place, _NOTHING)):
                yield place


@dataclasses.dataclass(frozen=True)
class Place:
    """One that two calls have left in two ways. `words`: how."""

    name: str
    words: str


_NOTHING = _Kind("nothing")


def roots_of(call: Any, args: Any, kwargs: Any, packages: tuple[str, ...]) -> dict[str, Any]:
    """Where to look, by name: what is called, what it is given, modules that have been imported.

    packages: dotted names; the modules are these and those below them
    """
    owner = call if is_a(call, torch.nn.Module) else attribute(call, "__self__")
    roots = {} if owner is None or is_a(owner, type, ModuleType) else {"self": owner}
    roots |= {f"args[{number}]": value for number, value in enumerate(args)}
    roots |= {f"kwargs[{name!r}]": value for name, value in kwargs.items()}
    for name, _ in modules():
        module = sys.modules.get(name)
        ours = any(name == package or name.startswith(f"{package}.") for package in packages)
        if ours and type(module) is ModuleType and RUNTIME_PACKAGE not in name.split("."):
            roots[name] = module
    return roots


def kept(roots: Mapping[str, Any]) -> State:
    """What is there now. It runs no code of the objects that it looks at."""
    walk = _Walk()
    with without_subclass():
        for name, value in roots.items():
            if is_a(value, ModuleType):
                walk.module(value, name)
            else:
                walk.value(value, name, _DEEP)
    return walk.found


class _Walk:
    def __init__(self) -> None:
        self.found: State = {}
        self._seen: dict[int, Any] = {}

    def module(self, module: ModuleType, path: str) -> None:
        for name, value in list(dict_of(module).items()):
            if name.startswith("__") or is_a(value, ModuleType):
                continue
            if not is_a(value, type, FunctionType):
                self.value(value, f"{path}.{name}", _DEEP)
            elif attribute(value, "__module__") == module.__name__:
                for inner, item in list(dict_of(value).items()):
                    if not inner.startswith(("__", "_abc_")) and not callable(item):
                        self.value(item, f"{path}.{name}.{inner}", _DEEP)

    def value(self, value: Any, path: str, depth: int) -> None:
        if len(self.found) >= _MOST:
            return
        if is_exactly(value, *_PLAIN):
            self.found[path] = value
        elif is_a(value, torch.Tensor):
            self.found[path] = _tensor(value)
        elif is_a(value, *_NAMED):
            named = attribute(value, "__func__", value)  # a method's is its function's
            self.found[path] = ".".join(str(attribute(named, f"__{part}__", "")) for part in _NAMES)
        elif is_exactly(value, *_VALUES):
            self.found[path] = repr(value)
        elif is_a(value, *_ASIDE):
            self.found[path] = _Kind(_name(value), 0)
        elif is_exactly(value, *_IMMUTABLE) or id(value) not in self._seen:
            self._seen[id(value)] = value
            kinds: Any = (dict, list, tuple, collections.deque, set, frozenset)
            for kind in kinds:
                if is_a(value, kind) and (count := kind.__len__(value)) > _MANY:
                    self.found[path] = _Kind(_name(value), count)
                    return
            items = _items(value)
            self.found[path] = _Kind(_name(value), len(items))
            if depth and (len(items) <= _MANY or is_a(value, torch.nn.Module)):
                for step, item in items:
                    self.value(item, path + step, depth - 1)


def _tensor(value: torch.Tensor) -> _Tensor:
    content = None
    plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
    if plain and not (value.is_meta or value.is_nested or value.is_quantized) and value.numel() <= _SMALL:
        content = value.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return _Tensor(value, version_of(value), content)


def _items(value: Any) -> list[tuple[str, Any]]:
    """What an object holds, each with the step that leads to it."""
    if is_a(value, torch.nn.Module):
        own = dict_of(value)
        named = [own.get(table, {}) for table in ("_parameters", "_buffers", "_modules")]
        rest = {name: item for name, item in own.items() if name not in _OF_MODULES}
        return [(f".{name}", item) for table in (*named, rest) for name, item in table.items()]
    if is_a(value, dict):
        pairs = enumerate(list(dict.items(value)))
        return [
            (f"[{repr(key) if is_exactly(key, *_PLAIN) else number}]", item) for number, (key, item) in pairs
        ]
    kinds: Any
    for kinds in (list, tuple, collections.deque):
        if is_a(value, kinds):
            return [(f"[{number}]", item) for number, item in enumerate(list(kinds.__iter__(value)))]
    for kinds in (set, frozenset):
        if is_a(value, kinds):
            return [(f"{{{text}}}", None) for text in sorted(map(_text, kinds.__iter__(value)))]
    return [(f".{name}", item) for name, item in dict_of(value).items()]


def _text(value: Any) -> str:
    return repr(value) if is_exactly(value, *_PLAIN) else _name(value)


def _name(value: Any) -> str:
    return f"{module_of(type(value))}.{qualname_of(type(value))}"


def _is_same(one: Any, other: Any) -> bool:
    """Whether nothing has happened to it."""
    if type(one) is not type(other):
        return False
    if isinstance(one, _Tensor):
        if one.content is not None and other.content is not None:
            mine, its = one.content, other.content
            bits = (each.reshape(-1).view(torch.uint8) for each in (mine, its))
            return mine.shape == its.shape and mine.dtype is its.dtype and torch.equal(*bits)
        return one.itself is other.itself and one.version == other.version
    return bool(one == other) or (one != one and other != other)


def differing(served: Effects, eager: Effects, rounded: str | None) -> Iterator[Place]:
    """Places that both calls found alike, and did not leave so. rounded: see `agreement.compare`."""
    ours, theirs = list(served.changed()), list(eager.changed())
    for place in dict.fromkeys([*ours, *theirs]):
        left = [effects.after.get(place, _NOTHING) for effects in (served, eager)]
        if not _found_alike(place, served.before, eager.before, rounded):
            continue
        if not _is_close(left[0], left[1], rounded):
            yield Place(place, f"leaves {place} as {_words(left[0])}, eager code as {_words(left[1])}")
        elif _is_large(left[0]) and (place in ours) is not (place in theirs):
            who = ("writes", "does not") if place in ours else ("does not write", "does")
            yield Place(place, f"{who[0]} to {place}, eager code {who[1]}")


def _found_alike(place: str, mine: State, its: State, rounded: str | None) -> bool:
    """Whether two calls found the same in a place and, as far as it counts, in what it is part of."""
    around = [place[:end] for end, sign in enumerate(place) if sign in ".[{"]
    return all(
        _is_close(mine.get(each, _NOTHING), its.get(each, _NOTHING), rounded) for each in (*around, place)
    )


def _is_large(value: Any) -> bool:
    return isinstance(value, _Tensor) and value.content is None


def _is_close(one: Any, other: Any, rounded: str | None) -> bool:
    if isinstance(one, _Tensor) and isinstance(other, _Tensor):
        if one.content is None or other.content is None:
            return _is_large(one) and _is_large(other) and one.itself.shape == other.itself.shape
        one, other = one.content, other.content
    try:
        compare({"it": one}, {"it": other}, "", rounded=rounded)
    except VerifyError:
        return False
    return True


def _words(value: Any) -> str:
    if isinstance(value, _Tensor):
        value = value.itself if value.content is None else value.content
        numbers = value.flatten()[:4].tolist() if value.layout is torch.strided and not value.is_meta else []
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} {reprlib.repr(numbers)}"
    if isinstance(value, _Kind):
        return value.name if value is _NOTHING or not value.count else f"a {value.name} with {value.count}"
    return reprlib.repr(value)
