"""The documentation names tests that exist, pages that exist, and what a bundle holds."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import msgspec
import pytest

from hatch_precompile.inductor.prepacking.weights import PrepackGraph
from hatch_precompile.lower import entries
from hatch_precompile.lower.bytecode import LoweredCode
from hatch_precompile.lower.dependencies.kinds import Dependency
from hatch_precompile.lower.guards.tensors import TensorSpec
from hatch_precompile.records import ConstantRecord
from hatch_precompile.runtime import runtime
from hatch_precompile.validation import manifests

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


def test_the_page_of_the_format_has_all_that_a_manifest_holds() -> None:
    """All that the readers of it look for."""
    page = (REPOSITORY / "docs/bundle-format.md").read_text()
    structs = [
        value
        for value in [*vars(manifests).values(), ConstantRecord]
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value is not msgspec.Struct
    ]
    assert len(structs) >= 12
    fields = {field.encode_name for struct in structs for field in msgspec.structs.fields(struct)}
    fields -= {"lacking"}  # of the reader's own
    assert [name for name in sorted(fields) if f"`{name}`" not in page] == []
    assert f"version {runtime('loading.manifest').FORMAT}" in page.splitlines()[0]
    assert f"`format`, now `{runtime('loading.manifest').FORMAT}`" in page


# -- what marshalled files hold, which is described where it is defined --------------------------------


def function_of(file: str, name: str) -> ast.FunctionDef:
    nodes = ast.walk(ast.parse((REPOSITORY / file).read_text()))
    (found,) = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == name]
    return found


def test_the_files_of_an_entry() -> None:
    """What is written, and what the runtime asks for."""
    written = [
        key.value
        for node in ast.walk(function_of("hatch_precompile/lower/entries.py", "write_entry"))
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    ]
    read = [
        node.slice.value
        for node in ast.walk(ast.parse((REPOSITORY / "templates/loading/entries.py").read_text()))
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "data"
        if isinstance(node.slice, ast.Constant)
    ]
    assert len(written) > 5 and read and set(read) <= set(written)
    assert re.findall(r"^- `(\w+)`:", entries.__doc__ or "", re.MULTILINE) == written


def test_each_kind_of_global() -> None:
    """That an entry of the runtime compares a global's with, and the one that is left."""
    compared = [
        constant.value
        for node in ast.walk(function_of("templates/loading/entries.py", "_global"))
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == "kind"
        for constant in ast.walk(node)
        if isinstance(constant, ast.Constant)
    ]
    assert len(compared) > 4
    described = LoweredCode.__doc__ or ""
    assert [kind for kind in [*compared, "constant"] if f'"{kind}"' not in described] == []


def test_each_kind_of_dependency() -> None:
    described = {each.__struct_config__.tag: each.__doc__ for each in Dependency.__subclasses__()}
    assert set(described) == set(runtime("dependencies.comparison")._CHECKS)
    assert [kind for kind, text in described.items() if not text] == []


def test_each_tag_of_a_constant_and_each_kind_of_step() -> None:
    constants, references = runtime("values.constants"), runtime("values.references")
    assert [tag for tag in constants._DECODERS if f'"{tag}"' not in constants.decode.__doc__] == []
    text = (REPOSITORY / "templates/values/references.py").read_text()
    kinds = [
        node.comparators[0].id
        for node in ast.walk(function_of("templates/values/references.py", "follow"))
        if isinstance(node, ast.Compare) and isinstance(node.comparators[0], ast.Name)
    ]
    assert len(kinds) > 5
    assert [
        kind for kind in kinds if not re.search(rf'^{kind} = "{getattr(references, kind)}"  # .', text, re.M)
    ] == []


def test_each_step_of_our_own_of_a_prepack_graph() -> None:
    steps = dict(runtime("graphs.weights")._OWN)
    for file in REPOSITORY.glob("templates/backends/*/steps.py"):
        steps |= runtime(f"backends.{file.parent.name}.steps").STEPS
    assert len(steps) > 4
    assert [name for name, function in steps.items() if not function.__doc__] == []


def test_each_field_of_what_is_stored_by_its_fields() -> None:
    for stored, where in ((TensorSpec, TensorSpec.__doc__), (PrepackGraph, PrepackGraph.__doc__)):
        fields = [field.name for field in dataclasses.fields(stored)]
        plain = {"type", "dtype", "device", "requires_grad"}  # which say it themselves
        assert [name for name in fields if name not in plain and name not in (where or "")] == []
