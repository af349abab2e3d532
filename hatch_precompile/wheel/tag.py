"""The tag of a wheel: the oldest platform that its libraries run on."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable
from pathlib import Path

from packaging.tags import sys_tags

from hatch_precompile.backends import every
from hatch_precompile.errors import BuildError

__all__ = ["wheel_tag"]

# What a graph's library may need because the wheel requires torch, which brings it. libgomp has to be
# in this list and not in the policies': torch loads its own copy first, and that copy has the plain
# SONAME (torch 2.13, CPU). A torch whose copy carries a hash in its SONAME does not satisfy it.
_TORCH_LIBRARIES = frozenset(
    {"libc10.so", "libgomp.so.1", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so"}
)


def wheel_tag(libraries: Iterable[Path]) -> str:
    """The tag of a wheel with these libraries: this interpreter, its ABI and the oldest platform they run on.

    Bytecode and guards are tied to one minor version of Python whether or not there are libraries.
    """
    here = next(iter(sys_tags()))
    paths = list(libraries)
    if not paths:
        return f"{here.interpreter}-none-any"
    return f"{here.interpreter}-{here.abi}-{_platform(paths)}"


def _platform(libraries: list[Path]) -> str:
    """The oldest manylinux policy with every symbol version and library needed, else `linux_<machine>`."""
    # auditwheel offers no API; these are the parts its `show` command is made of (6.8).
    from auditwheel.architecture import Architecture
    from auditwheel.libc import Libc
    from auditwheel.policy import WheelPolicies

    try:
        policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture.detect())
    except ValueError:  # a machine no policy is written for
        return sysconfig.get_platform().replace("-", "_").replace(".", "_")
    symbols: dict[str, set[str]] = {}
    needed: set[str] = set()
    for library in libraries:
        required, versions = _requirements_of(library)
        needed |= required
        for name, found in versions.items():
            symbols.setdefault(name, set()).update(found)
    brought = _TORCH_LIBRARIES.union(*(each.libraries for each in every()))
    oldest = policies.versioned_symbols_policy(symbols)
    for policy in sorted(policies, reverse=True):
        if policy.priority <= oldest.priority and needed - brought <= policy.whitelist:
            return policy.name
    return policies.linux.name


def _requirements_of(library: Path) -> tuple[set[str], dict[str, set[str]]]:
    """The libraries this one needs, and the symbol versions it needs of each; the dynamic loader left out."""
    from auditwheel.elfutils import elf_find_versioned_symbols, elf_read_dt_needed
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with library.open("rb") as file:
            versions: dict[str, set[str]] = {}
            for name, version in elf_find_versioned_symbols(ELFFile(file)):
                versions.setdefault(name, set()).add(version)
        needed = elf_read_dt_needed(library)
    except (ELFError, ValueError) as error:
        raise BuildError(f"{library.name} is not a shared library of this platform: {error}") from error
    return {name for name in needed if not name.startswith(("ld-linux", "ld64"))}, versions
