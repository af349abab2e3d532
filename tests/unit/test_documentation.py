"""The documentation names tests that exist, pages that exist, and all that a bundle holds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import msgspec
import pytest

from hatch_precompile.outside import manifests
from hatch_precompile.records import ConstantRecord
from hatch_precompile.runtime import runtime

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("[!.]*/README.md")])


def names_in(file: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(file.read_text() if file.is_file() else ""))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(?:\w+::)?(test_\w+)`", page.read_text())
    missing = [(file, name) for file, name in named if name not in names_in(REPOSITORY / file)]
    assert missing == []


def test_the_list_of_faults_names_a_test_for_each() -> None:
    text = (REPOSITORY / "docs/faults.md").read_text()
    faults = re.findall(r"^- .*(?:\n  .*)*", text, re.MULTILINE)
    assert len(faults) > 40
    assert [fault for fault in faults if "::test_" not in fault] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_every_page_that_a_page_links_to_exists(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def kinds_of_globals() -> set[str]:
    """The kinds that an entry of the runtime compares a global's with."""
    (asked,) = [
        node
        for node in ast.walk(ast.parse((REPOSITORY / "templates/loading/entries.py").read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "_global"
    ]
    compared = [node for node in ast.walk(asked) if isinstance(node, ast.Compare)]
    return {
        constant.value
        for node in compared
        if isinstance(node.left, ast.Name) and node.left.id == "kind"
        for constant in ast.walk(node)
        if isinstance(constant, ast.Constant)
    }


def test_the_page_of_the_format_has_all_that_a_bundle_holds() -> None:
    """All that the readers of it look for."""
    page = (REPOSITORY / "docs/bundle-format.md").read_text()
    structs = [
        value
        for value in [*vars(manifests).values(), ConstantRecord]
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value is not msgspec.Struct
    ]
    assert len(structs) >= 12
    fields = {field.encode_name for struct in structs for field in msgspec.structs.fields(struct)}
    own_steps = [file.parent.name for file in REPOSITORY.glob("templates/backends/*/steps.py")]
    references = runtime("values.references")
    steps = [references.ATTRIBUTE, references.ITEM, references.CLASS_DICT, references.TYPE]
    steps += [references.CODE_CONSTANT, references.FLAGS]
    named = {
        *(fields - {"lacking"}),  # of the reader's own
        *runtime("dependencies.inputs")._CHECKS,
        *runtime("graphs.weights")._OWN,
        *(step for name in own_steps for step in runtime(f"backends.{name}.steps").STEPS),
        *kinds_of_globals(),
    }
    assert [name for name in sorted(named) if f"`{name}`" not in page] == []
    assert [step for step in steps if f'`"{step}"`' not in page] == []
    tags = runtime("values.constants")._DECODERS
    assert [tag for tag in tags if f"`{tag}`" not in page and f'`["{tag}"' not in page] == []
    assert f"version {runtime('loading.manifest').FORMAT}" in page.splitlines()[0]
    assert f"`format`, now `{runtime('loading.manifest').FORMAT}`" in page
