"""Files, folders and modules that pages, comments and docstrings name are there."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.conftest import REPOSITORY

FILE = re.compile(r"(?<![\w./*<>{}-])((?:[\w.-]+/)*[\w-]+\.(?:py|h))\b(?!\.\w)")
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("benchmarks/*.md")])
PAGES = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which is about what was

# What comments and docstrings are about that is neither ours nor torch's: files of authors, examples, others.
OTHERS = {
    "benchmarks/packages/bench_calls/model.py": {
        "static.py",
        "dynamic.py",
    },  # a file of the package that it writes
    "hatch_precompile/init/pyproject.py": {"setup.py"},
    "hatch_precompile/lower/guards/builder.py": {"toy.py"},
    "hatch_precompile/tracing/torchao.py": {"torchao/utils.py"},
    "tests/language/test_scenarios.py": {"test/dynamo/test_package.py"},  # of torch's repository
    "tests/truth/zygote.py": {"malloc.h"},
    "tests/unit/test_cli_init.py": {"setup.py", "src/textmodel/model.py"},
}


@cache
def tracked() -> list[str]:
    """Every file of the repository, from its root."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listed, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split()
    return [name for name in found if (REPOSITORY / name).exists()]


@cache
def of_torch() -> list[str]:
    return [f"/{file.as_posix()}" for file in Path(torch.__file__).parent.rglob("*.*")]


def is_there(name: str, side: str) -> bool:
    """Whether a file is there that a text of one side (a folder of the root) names by the end of its path. A
    path may be of another side, a name alone is not."""
    places = tracked() if "/" in name else [each for each in tracked() if each.startswith(f"{side}/")]
    return any(f"/{each}".endswith(f"/{name}") for each in places)


def words_of(file: Path) -> str:
    """The comments and docstrings of a file."""
    text = file.read_text("utf-8")
    if file.suffix == ".h":
        return "\n".join(re.findall(r"//.*", text))
    docstrings = [
        node.value.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    return "\n".join([*docstrings, *re.findall(r"#.*", text)])


def sources() -> Iterator[str]:
    for name in tracked():
        if name.endswith((".py", ".h")) and not name.startswith("tests/strangers"):
            yield name


@pytest.mark.parametrize("side", ["hatch_precompile", "templates", "tests", "benchmarks"])
def test_what_a_comment_names_is_there(side: str) -> None:
    """Of this project, or of the torch that is installed."""
    named = [
        (source, name)
        for source in sources()
        if source.startswith(f"{side}/")
        for name in FILE.findall(words_of(REPOSITORY / source))
        if name not in OTHERS.get(source, ())
    ]
    assert named
    missing = [
        (source, name)
        for source, name in named
        if not is_there(name, side) and not any(each.endswith(f"/{name}") for each in of_torch())
    ]
    assert missing == []


def test_what_is_said_to_be_of_others_is_named_there() -> None:
    for source, names in OTHERS.items():
        assert names <= set(FILE.findall(words_of(REPOSITORY / source))), source


def in_quotes(page: Path) -> list[str]:
    """What a page has between backticks, outside of its blocks of code."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL))


SIDES = ("hatch_precompile", "templates", "tests", "benchmarks", "docs", "example_project")
ROOMS = {name.split("/")[1] for name in tracked() if name.startswith(("hatch_precompile/", "templates/"))}
# Folders that a page names and that are made: by a build, by a user, in a wheel.
MADE = {"cells/", "build/site/"}


def paths_of(page: Path) -> Iterator[str]:
    """The paths below one of our folders, or a room, that a page names, without what follows `::`."""
    for text in in_quotes(page):
        path = text.partition("::")[0]
        first = path.partition("/")[0]
        if re.fullmatch(r"[\w./-]+", path) and "/" in path and path not in MADE and first in {*SIDES, *ROOMS}:
            yield path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_what_a_page_names_is_there(page: Path) -> None:
    folders = {f"{parent}/" for name in tracked() for parent in Path(name).parents}
    places = [f"/{each}" for each in (*tracked(), *folders)]
    missing = [
        path
        for path in paths_of(page)
        if "NAME" not in path
        and not any(place.endswith((f"/{path}", f"/{path.removesuffix('/')}/")) for place in places)
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_a_file_that_a_page_names_without_its_folder_is_there(page: Path) -> None:
    names = [text for text in in_quotes(page) if re.fullmatch(r"[\w-]+\.(?:py|h)", text)]
    assert [name for name in names if not any(f"/{each}".endswith(f"/{name}") for each in tracked())] == []


def test_pages_name_enough() -> None:
    """Or the test above would find nothing anywhere."""
    assert sum(len(list(paths_of(page))) for page in PAGES) > 100


MODULE = re.compile(r"`(?:[\w-]+(?:\.[\w-]+)* = \")?((?:hatch_precompile|tests|templates)(?:\.\w+)+)\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_modules_that_a_page_names_are_there(page: Path) -> None:
    for dotted in MODULE.findall(page.read_text("utf-8")):
        parts = dotted.split(".")
        found = [
            count
            for count in range(1, len(parts) + 1)
            if (REPOSITORY / "/".join(parts[:count])).is_dir()
            or (REPOSITORY / "/".join(parts[:count])).with_suffix(".py").exists()
        ]
        assert found and found[-1] >= len(parts) - 1, f"{page.name}: {dotted}"
