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
    *(
        "errors",
        "formatting",
        "escaping",
        "runtime",
        "static_lookup",
        "processes",
        "events",
        "records",
        "backends",
    ),
    *("config", "validation", "traffic", "torch_versions", "tracing", "inductor", "a backend", "entrypoints"),
    *("lower", "bundle", "reuse", "capture", "wheel", "merge", "verify", "machine"),
    *("bench", "tuning", "report", "build", "frontends", "matrix", "init", "suggest", "cli", "__main__"),
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
        lines = _for_types(ast.parse(file.read_text("utf-8")))
        edges[name] = {
            known
            for line, full in imported(file)
            if line not in lines
            and (known := full if full in files else full.rpartition(".")[0]) in files
            and known != name
        }
    assert _circle(edges) == []


def _for_types(tree: ast.Module) -> set[int]:
    """The lines under `if TYPE_CHECKING:`."""
    found: set[int] = set()
    for node in ast.walk(tree):
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


# -- the runtime --------------------------------------------------------------------------------------

RUNTIME = REPOSITORY / "templates"

# From the ground up, as above: folders, and the modules that stand beside them.
ROOMS_OF_THE_RUNTIME = [
    *(
        "causes",
        "errors",
        "imports",
        "import_hooks",
        "values",
        "dependencies",
        "torch_internals",
        "backends",
        "graphs",
    ),
    *("loading", "calling", "explaining", "recording", "installation", ""),
]

# What imports by a name: the argument, with a dot for each folder up where there is a second one.
BY_NAME = ("whole", "importlib.import_module")


def runtime_modules() -> dict[str, Path]:
    """By their names with dots, as `graphs.weights`; the package itself is ""."""
    files = sorted(RUNTIME.rglob("*.py"))
    names = (".".join(file.relative_to(RUNTIME).with_suffix("").parts) for file in files)
    return {("." + name).removesuffix(".__init__")[1:]: file for name, file in zip(names, files, strict=True)}


def imported_by(name: str, file: Path, text: str | None = None) -> Iterator[tuple[int, str]]:
    """(line, module) of each import of the runtime's own modules, but for types: wherever in the file it
    stands, and also by `whole("name")` and by importlib. What a name that is made at run time leads to is
    its folder."""
    folder = name.split(".") if file.name == "__init__.py" else name.split(".")[:-1]
    tree = ast.parse(file.read_text("utf-8") if text is None else text)
    for_types = _for_types(tree)
    for node in ast.walk(tree):
        if getattr(node, "lineno", 0) in for_types:
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            start = [*folder[: len(folder) - node.level + 1], *(node.module or "").split(".")]
            for alias in node.names:
                yield node.lineno, ".".join(filter(None, [*start, alias.name]))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in BY_NAME:
            dotted = _start_of(node.args[0]).rstrip(".")
            dots = len(dotted) - len(dotted.lstrip("."))
            start = folder[: len(folder) - dots + 1] if len(node.args) > 1 else []
            yield node.lineno, ".".join(filter(None, [*start, dotted.lstrip(".")]))


def _start_of(node: ast.expr) -> str:
    """What is known of a text: all of a constant, the start of one that is put together."""
    if isinstance(node, ast.JoinedStr):
        node = node.values[0]
    return str(node.value) if isinstance(node, ast.Constant) else ""


def edges_of_the_runtime() -> dict[str, dict[str, int]]:
    """The modules that each imports, with the line."""
    files = runtime_modules()
    edges: dict[str, dict[str, int]] = {name: {} for name in files}
    for name, file in files.items():
        for line, full in imported_by(name, file):
            known = full
            while known not in files:  # a name in a module
                known = known.rpartition(".")[0]
            if known not in (name, ""):
                edges[name][known] = line
    return edges


def _upward(edges: dict[str, dict[str, int]]) -> list[str]:
    place = ROOMS_OF_THE_RUNTIME.index
    return [
        f"{name}:{line} imports {other}"
        for name, others in edges.items()
        for other, line in others.items()
        if place(other.partition(".")[0]) > place(name.partition(".")[0])
    ]


def test_every_module_of_the_runtime_is_in_a_room() -> None:
    assert {name.partition(".")[0] for name in runtime_modules()} == set(ROOMS_OF_THE_RUNTIME)


def test_no_room_of_the_runtime_imports_one_above_it() -> None:
    assert _upward(edges_of_the_runtime()) == []


def test_no_modules_of_the_runtime_import_each_other_in_a_circle() -> None:
    """Not inside functions either: what is needed later and stands above is what a caller gives."""
    edges = edges_of_the_runtime()
    assert len(edges) > 30
    assert sum(map(len, edges.values())) > 80
    assert _circle({name: set(others) for name, others in edges.items()}) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from ..installation import Installation", "installation.Installation"),
        ("from .. import installation", "installation"),
        ("from . import serving", "calling.serving"),
        ("def f():\n    from ..explaining import overview", "explaining.overview"),
        ("def f():\n    return whole('explaining.overview')", "explaining.overview"),
        ("def f():\n    return importlib.import_module('..installation', __package__)", "installation"),
        (
            "def f(name):\n    return importlib.import_module(f'..explaining.{name}', __package__)",
            "explaining",
        ),
        ("import typing\nif TYPE_CHECKING:\n    from ..installation import Installation", None),
    ],
)
def test_imports_are_found_wherever_they_stand(text: str, found: str | None) -> None:
    name = "calling.serving"
    assert [each for _, each in imported_by(name, RUNTIME / "calling/serving.py", text)] == (
        [found] if found is not None else []
    )


def test_each_file_of_the_runtime_ends_with_what_says_that_it_is_whole() -> None:
    """One that is cut off may be Python all the same: `errors.check_parts()`."""
    for file in RUNTIME.rglob("*.py"):
        end = "\n    _install(variant)\n" if file == RUNTIME / "__init__.py" else "\nWHOLE = True\n"
        assert file.read_text("utf-8").endswith(end), file.name
