"""What goes into the wheel besides the bundle: the line in `__init__`, the tag, the requirement on torch."""

from __future__ import annotations

import ast
import io
import platform
import tokenize
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import sys_tags
from packaging.version import Version

from hatch_precompile.errors import BuildError

__all__ = [
    "RUNTIME_PACKAGE",
    "import_packages",
    "package_path",
    "page_path",
    "requirement",
    "shim_line",
    "source_roots",
    "wheel_tag",
    "with_shim",
]

RUNTIME_PACKAGE = "_precompiled"
"""The name of the runtime inside the package that carries it."""

# What a graph's library may need because the wheel requires torch, which brings it. libgomp has to be
# in this list and not in the policies': torch loads its own copy first, and that copy has the plain
# SONAME (torch 2.13, CPU). A torch whose copy carries a hash in its SONAME does not satisfy it.
_TORCH_LIBRARIES = frozenset(
    {"libc10.so", "libgomp.so.1", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so"}
)


def package_path(package: str) -> PurePosixPath:
    """`ns.textmodel` -> `ns/textmodel`."""
    return PurePosixPath(*package.split("."))


def page_path(wheel: Path) -> Path:
    """Where the report of the build goes: beside the wheel, under its name."""
    return wheel.with_suffix(".report.html")


def import_packages(files: Iterable[str]) -> list[str]:
    """The import packages among the paths of a wheel: the outermost folders with an `__init__.py`."""
    folders = {PurePosixPath(file).parent for file in files if PurePosixPath(file).name == "__init__.py"}
    return sorted(
        ".".join(folder.parts) for folder in folders if folder.parts and folders.isdisjoint(folder.parents)
    )


def source_roots(files: Mapping[str, Path], stage: Path) -> list[Path]:
    """The folders to import the project's modules from, given which file becomes which path of the wheel.

    A file that keeps its path below some folder is imported from there: the project's root, or its
    `src`. If one does not (Hatch's `sources` can rename folders), all are linked into `stage` as the
    wheel will have them, and that is the only root.
    """
    modules = {path: file for path, file in files.items() if path.endswith(".py")}
    roots = []
    for path, file in modules.items():
        depth = len(PurePosixPath(path).parts)
        if file.parts[-depth:] != PurePosixPath(path).parts:
            return [_staged(files, stage)]
        roots.append(file.parents[depth - 1])
    return list(dict.fromkeys(roots))


def _staged(files: Mapping[str, Path], stage: Path) -> Path:
    for path, file in files.items():
        link = stage / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    return stage


def shim_line(package: str) -> str:
    """The statement that installs the bundle when `package` is imported.

    It names the runtime in full because `from . import _precompiled` would first ask the package's own
    `__getattr__`, which in a lazy package may import torch. Without the runtime it does nothing.
    """
    runtime = f"{package}.{RUNTIME_PACKAGE}"
    return (
        f'with __import__("contextlib").suppress(ImportError): '
        f"import {runtime} as {RUNTIME_PACKAGE}; {RUNTIME_PACKAGE}.install()"
        "  # added by hatch-precompile: installs what was compiled into this wheel"
    )


def with_shim(source: bytes, package: str) -> bytes:
    """The package's `__init__.py` with the shim as its last line.

    Every earlier line keeps its number, and the file its encoding and its line ends. Raises BuildError
    if the source is not valid Python.
    """
    name = f"{package_path(package)}/__init__.py"
    try:
        before = ast.parse(source, name)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    except (SyntaxError, ValueError) as error:  # ValueError: null bytes
        raise BuildError(f"{name} is not valid Python: {error}") from error
    newline = b"\r\n" if b"\r\n" in source else b"\n"
    start = newline if source and not source.endswith((b"\n", b"\r")) else b""
    # A byte order mark stands at the start of the file only; "utf-8-sig" would write another.
    line = shim_line(package).encode("utf-8" if encoding == "utf-8-sig" else encoding)
    result = source + start + line + newline
    after = ast.parse(result, name)
    if ast.dump(ast.Module(after.body[:-1], after.type_ignores)) != ast.dump(before):
        raise BuildError(f"cannot append a line to {name}: its last statement would take it in")
    return result


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
        return f"linux_{platform.machine()}"
    symbols: dict[str, set[str]] = {}
    needed: set[str] = set()
    for library in libraries:
        required, versions = _requirements_of(library)
        needed |= required
        for name, found in versions.items():
            symbols.setdefault(name, set()).update(found)
    oldest = policies.versioned_symbols_policy(symbols)
    for policy in sorted(policies, reverse=True):
        if policy.priority <= oldest.priority and needed - _TORCH_LIBRARIES <= policy.whitelist:
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


def requirement(torch_version: str, policy: str, dependencies: Iterable[str] = ()) -> str | None:
    """What the wheel has to require of torch, None if nothing needs adding.

    `policy` is the configuration's require-torch, `dependencies` what the project requires anyway. The
    local part ("+cpu") is left out: which build of a version is installed is the user's choice, and
    `==` without a local part accepts them all. Raises BuildError if the project's own requirement
    excludes the version built with.
    """
    if policy == "none":
        return None
    public = Version(torch_version).public
    exact = f"torch=={public}"
    for own in _on_torch(dependencies):
        if not own.specifier.contains(public, prereleases=True):
            raise BuildError(
                f"the project requires {own}, but the build environment has torch {torch_version}; "
                "pin a torch in build-system.requires that the project's dependencies allow, "
                'or set require-torch = "none"'
            )
        if str(own) == exact:
            return None
    return exact


def _on_torch(dependencies: Iterable[str]) -> Iterable[Requirement]:
    for dependency in dependencies:
        try:
            found = Requirement(dependency)
        except InvalidRequirement:
            continue
        if found.name.lower() == "torch" and (found.marker is None or found.marker.evaluate({"extra": ""})):
            yield found
