"""The tag of a merged wheel: all its interpreters, and the oldest platform that all of them run on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from packaging.tags import Tag

from hatch_precompile.errors import BuildError

__all__ = ["merged_tag"]

_POLICY = re.compile(r"manylinux_(\d+)_(\d+)_(\w+)")
_ALIASES = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_ALIAS = re.compile(rf"({'|'.join(_ALIASES)})_(\w+)")


def merged_tag(wheels: Mapping[Path, frozenset[Tag]]) -> str:
    """One compressed tag for all wheels. Raises BuildError where they run on different systems."""
    tags = frozenset().union(*wheels.values())
    platforms = {wheel: {tag.platform for tag in own} - {"any"} for wheel, own in wheels.items()}
    platform = _platform({wheel: own for wheel, own in platforms.items() if own})
    # A wheel without libraries names no ABI; beside one that has some, it has to.
    abis = {tag.abi if tag.abi != "none" or platform == "any" else tag.interpreter for tag in tags}
    interpreters = {tag.interpreter for tag in tags}
    return "-".join([".".join(sorted(interpreters)), ".".join(sorted(abis)), platform])


def _platform(platforms: Mapping[Path, set[str]]) -> str:
    if not platforms:
        return "any"
    first, its = next(iter(platforms.items()))
    oldest = []
    for wheel, own in platforms.items():
        policies = [_policy(platform) for platform in own]
        if own != its and {machine for machine, _ in policies} != {_policy(next(iter(its)))[0]}:
            raise BuildError(
                f"{first} is for {', '.join(sorted(its))} and {wheel} for {', '.join(sorted(own))}: "
                "one wheel cannot be for both; merge those of each machine by themselves"
            )
        oldest.append(min(policies, key=lambda policy: policy[1]))
    machine, glibc = max(oldest, key=lambda policy: policy[1])
    if glibc == _NO_LINUX:
        return ".".join(sorted(its))
    return f"linux_{machine}" if glibc == _NO_POLICY else f"manylinux_{glibc[0]}_{glibc[1]}_{machine}"


_NO_LINUX = (0, 0)

# Of a wheel for the machine it was built on no policy promises anything, so that the newest is not enough.
_NO_POLICY = (10**9, 0)


def _policy(platform: str) -> tuple[str, tuple[int, int]]:
    """The machine that a platform is of, and the oldest glibc that it has. Others than Linux with glibc are
    machines of their own."""
    if found := _POLICY.fullmatch(platform):
        return found[3], (int(found[1]), int(found[2]))
    if found := _ALIAS.fullmatch(platform):
        return found[2], _ALIASES[found[1]]
    if platform.startswith("linux_"):
        return platform.removeprefix("linux_"), _NO_POLICY
    return platform, _NO_LINUX
