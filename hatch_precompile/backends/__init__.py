"""Kinds of hardware, a folder each: which there are, and which of their variants this machine builds."""

from __future__ import annotations

import importlib
import pkgutil
import platform
from collections.abc import Collection, Iterator, Sequence
from functools import cache

from hatch_precompile.backends.base import Backend, Variant
from hatch_precompile.errors import ConfigError

__all__ = [
    "backend",
    "backends_of",
    "built_here",
    "by_own_names",
    "every",
    "is_for_gpus",
    "known",
    "most_demanding",
    "runs_here",
    "variants_for_this_machine",
]


@cache
def backend(name: str) -> Backend:
    """The backend of that name."""
    found: Backend = importlib.import_module(f"{__name__}.{name}").BACKEND
    return found


def every() -> list[Backend]:
    """All there are, by name."""
    return [backend(each.name) for each in pkgutil.iter_modules(__path__) if each.ispkg]


def known(device: str = "") -> tuple[str, ...]:
    """The names of variants; for devices of one kind, as torch calls it, where that is given."""
    there = [each for each in every() if device in ("", each.device)]
    natives = dict.fromkeys(each.native for each in there if each.native)
    return (*natives, *(name for each in there for name in each.variants))


def backends_of(name: str) -> list[Backend]:
    """Those of this machine that have a variant of that name; with an empty name all that are for CPUs."""
    there = [each for each in every() if each.is_here()]
    if not name:
        return [each for each in there if each.device == "cpu"]
    return [each for each in there if name in (each.native, *each.variants)]


def is_for_gpus(name: str) -> bool:
    """Whether that is the name of a variant for GPUs."""
    return name in known("cuda")


def runs_here(name: str) -> bool:
    """Whether this machine runs code for a variant."""
    return any(each.runs_here(each.variant(name)) for each in backends_of(name))


def most_demanding(names: Collection[str]) -> Iterator[str]:
    """Of these variants the most demanding of each backend, where it is not for any machine."""
    return filter(None, (each.most_demanding(names) for each in every()))


def built_here(names: Sequence[str]) -> list[str]:
    """The variants that are not for another kind of machine: a project may declare some for each kind. If
    none is left, all of them, so that `variants_for_this_machine` says what is wrong."""
    here = platform.machine()
    owners = {
        name: [
            each for each in every() if name in each.variants or (is_for_gpus(name) and name == each.native)
        ]
        for name in names
    }
    left = [name for name in names if not owners[name] or any(here in each.machines for each in owners[name])]
    return left or list(names)


def by_own_names(names: Sequence[str], table: str = "") -> list[str]:
    """The declared variants, with "cuda-native" replaced by the variant of the GPU here. Raises ConfigError
    where there is none. table: where the author wrote them"""
    try:
        found = [owners[0].own_name(name) if (owners := backends_of(name)) else name for name in names]
    except ConfigError as error:
        raise ConfigError(f"{table}.variants: {error}" if table else f"variants: {error}") from None
    return list(dict.fromkeys(found))


def variants_for_this_machine(names: Sequence[str], table: str = "") -> list[Variant]:
    """The declared variants, checked against this machine.

    table: where the author wrote them, for errors. Raises ConfigError for an unknown name and for a
    variant this machine cannot run: what cannot be run here cannot be verified here.
    """
    key = f"{table}.variants" if table else "variants"
    return [_variant(name, key) for name in names]


def _variant(name: str, key: str) -> Variant:
    if name not in known():
        names = ", ".join(f'"{each}"' for each in known())
        raise ConfigError(f'{key}: unknown variant "{name}"; known: {names}')
    here = backends_of(name)
    if not here:
        raise ConfigError(f'{key}: "{name}" cannot be built on {platform.machine()}')
    owner = here[0]
    if name == owner.native:
        return owner.native_variant(owner.capabilities())
    variant = owner.variant(name)
    if missing := owner.missing(variant):
        raise ConfigError(
            f'{key}: this machine cannot run "{name}", '
            f"its {owner.hardware} has no {', '.join(missing)}; build on one that has"
        )
    if problem := owner.cannot_compile(variant):
        raise ConfigError(f'{key}: "{name}" cannot be compiled here: {problem}')
    return variant
