"""Data flows one way: which room may import which is their order, read from the imports themselves."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hatch_precompile.runtime import runtime
from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "hatch_precompile"

# From the ground up. A room imports those before it, and modules of its own. Of `backends` what each is, and
# which there are, stands low; the folder of each, "a backend", drives torch's compiler.
ROOMS = [
    *("errors", "formatting", "quoting", "runtime", "looking", "processes", "events", "records", "backends"),
    *("config", "outside", "traffic", "torch_versions", "tracing", "inductor", "a backend", "entrypoints"),
    *("lower", "bundle", "reuse", "capture", "wheel", "merge", "verify", "machine"),
    *("bench", "report", "build", "frontends", "matrix", "init", "suggest", "cli", "__main__"),
    "generate_docs",
]


def imported(file: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of each import of the package's own modules, wherever in the file it stands."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("hatch_precompile."):
                yield node.lineno, name.removeprefix("hatch_precompile.")


BACKENDS = {folder.name for folder in (PACKAGE / "backends").iterdir() if (folder / "__init__.py").exists()}


def room_of(name: str) -> str:
    """The room of a module. name: with dots, as `backends.x86_64.levels`."""
    room, _, rest = name.partition(".")
    return "a backend" if room == "backends" and rest.partition(".")[0] in BACKENDS else room


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_every_module_is_in_a_room() -> None:
    found = {room_of(module_name(file)) for file in sources()} - {"__init__"}
    assert found == set(ROOMS)


@pytest.mark.parametrize("file", sources(), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_no_room_imports_one_above_it(file: Path) -> None:
    own = room_of(module_name(file))
    if own == "__init__":
        return
    upward = [
        f"{file.name}:{line} imports {name}"
        for line, name in imported(file)
        if room_of(name) in ROOMS and ROOMS.index(room_of(name)) > ROOMS.index(own)
    ]
    assert upward == []


# Not the special names: torch.__version__ is public.
PRIVATE = re.compile(r"torch(\.\w+)*?\._(?!_)")
OF_THE_RUNTIME = (
    "torch_internals/torch_frames.py",
    "torch_internals/torch_private.py",
    "graphs/callers.py",
    "graphs/autograd.py",
)


def private_torch(file: Path) -> Iterator[tuple[int, str]]:
    """(line, name) of each private name of torch's that the code of a file uses."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        for name in names:
            if PRIVATE.match(name):
                yield getattr(node, "lineno", 0), name


def _may_use_private_torch(file: Path) -> bool:
    side, _, place = file.relative_to(REPOSITORY).as_posix().partition("/")
    if side == "templates":
        return place in OF_THE_RUNTIME
    return place.partition("/")[0] in ("tracing", "inductor", "backends")


@pytest.mark.parametrize("folder", ["hatch_precompile", "templates"])
def test_private_torch_stands_in_few_places_only(folder: str) -> None:
    found = {
        f"{file.relative_to(REPOSITORY)}:{line}: {name}"
        for file in sorted((REPOSITORY / folder).rglob("*.py"))
        if not _may_use_private_torch(file)
        for line, name in private_torch(file)
    }
    assert found == set()


def test_they_do_use_it() -> None:
    """Or the test above would find nothing anywhere."""
    assert len(list(private_torch(PACKAGE / "tracing/dynamo.py"))) > 10
    assert len(list(private_torch(REPOSITORY / "templates/torch_internals/torch_private.py"))) > 10


def test_no_module_of_the_runtime_takes_the_place_of_one_of_its_functions() -> None:
    """An imported module, or folder of them, becomes an attribute of its package."""
    package = sys.modules[runtime("errors").__package__ or ""]
    assert {file.stem for file in (REPOSITORY / "templates").iterdir()}.isdisjoint(package.__all__)


def module_name(file: Path) -> str:
    name = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
    return name.removesuffix(".__init__")


def test_no_modules_import_each_other_in_a_circle() -> None:
    """But for types: what stands under TYPE_CHECKING is for readers and mypy."""
    files = {module_name(file): file for file in sources()}
    edges: dict[str, set[str]] = {}
    for name, file in files.items():
        lines = _for_types(file)
        edges[name] = {
            known
            for line, full in imported(file)
            if line not in lines
            and (known := full if full in files else full.rpartition(".")[0]) in files
            and known != name
        }
    assert _circle(edges) == []


def _for_types(file: Path) -> set[int]:
    """The lines under `if TYPE_CHECKING:`."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def _circle(edges: dict[str, set[str]]) -> list[str]:
    done: set[str] = set()

    def visit(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        for other in sorted(edges[name]):
            if found := visit(other, [*way, name]):
                return found
        done.add(name)
        return []

    for name in sorted(edges):
        if found := visit(name, []):
            return found
    return []


def test_each_file_of_the_runtime_ends_with_what_says_that_it_is_whole() -> None:
    """One that is cut off may be Python all the same: `errors.check_parts()`."""
    templates = REPOSITORY / "templates"
    for file in templates.rglob("*.py"):
        end = "\n    _install(variant)\n" if file == templates / "__init__.py" else "\nWHOLE = True\n"
        assert file.read_text("utf-8").endswith(end), file.name
