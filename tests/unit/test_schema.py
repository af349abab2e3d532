"""What is made from the structures of the configuration: the JSON schema and the list of every key."""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hatch_precompile
from hatch_precompile.config import Config, Dimension, Entrypoint, Matrix, load, schema
from hatch_precompile.config import model as config
from hatch_precompile.config.model import HATCH_KEYS
from hatch_precompile.generate_docs import schema_text, with_keys

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "configuration.md"
ONE = {"target": "textmodel.model:Encoder", "samples": "textmodel.samples:encoder"}


def tables(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables of hatch-precompile in a pyproject.toml: the tool's name and the table."""
    tool = tomllib.loads(text).get("tool", {})
    if "hatch-precompile" in tool:
        yield "hatch-precompile", tool["hatch-precompile"]
    found = tool.get("hatch", {}).get("build", {}).get("hooks", {}).get("precompile")
    if found is not None:
        yield "hatch", found


@functools.cache
def validator() -> Any:
    """validate-pyproject's, with our schemas and none but ours; other plugins' are looked for by ours."""
    api = pytest.importorskip("validate_pyproject.api")
    plugins = pytest.importorskip("validate_pyproject.plugins")
    ours = {"hatch": schema.hatch, "hatch-precompile": schema.setuptools}
    return api.Validator(plugins=[plugins.PluginWrapper(*each) for each in ours.items()])


def types_said(part: str) -> dict[str, str]:
    """Each key of a part of the page, and the words for its type."""
    return {
        heading: re.findall(r"^Type: (.*?)\.(?: Required\.| Default: .*)?$", text, re.MULTILINE)[0]
        for heading, _, text in (each.partition("\n") for each in part.split("### ")[1:])
    }


def _kinds_said(words: str) -> set[str]:
    """The types of JSON that words of the page are about: an array's items are not looked at."""
    kinds = {
        "array": r"\barray\b",
        "object": r"^a table",
        "boolean": r"^true or false",
        "integer": r"^a whole number",
        "number": r"^a number",
        "string": r'^"|, or "|^a (name|reference|string)|^the name',
    }
    return {kind for kind, pattern in kinds.items() if re.search(pattern, words)}


def _kinds_taken(schema: dict[str, Any]) -> set[str]:
    if "anyOf" in schema:
        return set().union(*map(_kinds_taken, schema["anyOf"]))
    if "$ref" in schema:
        return {"object"}
    return {"string"} if "enum" in schema else {schema["type"]}


class TestInStep:
    def test_the_schema_is_the_structures_own(self) -> None:
        stored = (Path(hatch_precompile.__file__).parent / "config/schema.json").read_text()
        assert stored == schema_text(), "make reference"

    def test_the_page_lists_the_structures_keys(self) -> None:
        assert PAGE.read_text() == with_keys(PAGE.read_text()), "make reference"

    def test_the_page_gives_each_key_the_type_that_the_schema_takes(self) -> None:
        """The words of the page beside the schema, which is made by another library."""
        whole = schema.table_schema()
        for structure in (Config, Matrix, Entrypoint, Dimension):
            start, end = (f"<!-- {structure.__name__}:{where} -->" for where in ("start", "end"))
            part = PAGE.read_text().partition(start)[2].partition(end)[0]
            said = types_said(part)
            properties = whole["definitions"].get(structure.__name__, whole)["properties"]
            assert said.keys() == properties.keys()
            for key, words in said.items():
                assert _kinds_said(words) == _kinds_taken(properties[key]), key

    def test_no_key_is_without_its_words(self) -> None:
        structures = [
            value
            for value in vars(config).values()
            if isinstance(value, type) and issubclass(value, msgspec.Struct) and value is not msgspec.Struct
        ]
        assert set(structures) == {Config, Matrix, Entrypoint, Dimension}
        whole = schema.table_schema()
        for structure in structures:
            properties = whole["definitions"].get(structure.__name__, whole)["properties"]
            keys = [field.encode_name for field in msgspec.structs.fields(structure)]
            assert list(properties) == keys
            assert all(properties[key]["description"].endswith(".") for key in keys)
            assert all(f"\n### {key}\n" in PAGE.read_text() for key in keys)

    def test_a_list_that_lacks_a_key_is_written_anew(self) -> None:
        page = PAGE.read_text()
        lacking = page.replace("### on-miss\n", "")
        assert lacking != page
        assert with_keys(lacking) == page

    def test_the_pages_own_example_is_right(self) -> None:
        (example,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
        ((_, table),) = tables(example)
        assert (
            load(table, default_package="textmodel").entrypoints[0].dynamic_shapes["input_ids"][0].max == 64
        )

    def test_the_entry_points_are_there(self) -> None:
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        for tool, name in project["entry-points"]["validate_pyproject.tool_schema"].items():
            module, _, function = name.partition(":")
            assert getattr(import_module(module), function)(tool)["$id"]


class TestValidation:
    @staticmethod
    def validate(project: dict[str, Any]) -> None:
        validator()(project)

    @staticmethod
    def refusal(tool: dict[str, Any]) -> str:
        errors = pytest.importorskip("validate_pyproject.errors")
        with pytest.raises(errors.ValidationError) as caught:
            TestValidation.validate({"tool": tool})
        return str(caught.value)

    @pytest.mark.parametrize("project", ["example_project", "tests/zoo", "tests/kiosk"])
    def test_the_example_and_the_tests_projects_are_valid(self, project: str) -> None:
        text = (REPOSITORY / project / "pyproject.toml").read_text()
        assert list(tables(text))
        self.validate(tomllib.loads(text))

    def test_every_form_of_every_key_is_valid(self) -> None:
        text = """
            package = "ns.textmodel"
            variants = ["x86-64-v3"]
            timeout = 90
            jobs = 3
            matrix = { python = ["3.11", "3.13"], torch = ["2.13.0", "2.15.0rc1"] }
            report = true
            [[entrypoints]]
            target = "textmodel.model:Encoder"
            samples = "textmodel.samples:encoder"
            instance = "textmodel.model:small"
            name = "text"
            dynamic-shapes = { ids = { 0 = { name = "batch", min = 2 }, 10 = "sequence" } }
            options = { max_autotune = false }
        """
        table = tomllib.loads(text)
        load(table, default_package=None)
        self.validate({"tool": {"hatch-precompile": table}})
        own = {
            "dependencies": ["numpy"],
            "enable-by-default": False,
            "path": "hook.py",
            "require-runtime-dependencies": True,
            "require-runtime-features": ["fast"],
        }
        assert own.keys() == HATCH_KEYS
        with_hatchs_own = table | own
        self.validate({"tool": {"hatch": {"build": {"hooks": {"precompile": with_hatchs_own}}}}})

    @pytest.mark.parametrize(
        ("table", "words"),
        [
            ({"entrypoints": [ONE], "varaints": ["native"]}, "varaints"),
            ({"entrypoints": [ONE], "variants": "native"}, "variants"),
            ({"entrypoints": [ONE], "variants": ["avx"]}, "x86-64-v4"),
            ({"entrypoints": [ONE], "jobs": -1}, "jobs"),
            ({"entrypoints": [ONE], "matrix": {"python": ["3.10"], "torch": ["2.13.0"]}}, "matrix.python"),
            ({"entrypoints": [ONE], "matrix": {"python": ["3.11"]}}, "torch"),
            ({"entrypoints": []}, "entrypoints"),
            ({}, "entrypoints"),
            ({"entrypoints": [{"target": "textmodel.model:Encoder"}]}, "samples"),
            ({"entrypoints": [ONE | {"target": "textmodel.model.Encoder"}]}, "target"),
            ({"entrypoints": [ONE | {"on_miss": "eager"}]}, "on_miss"),
            ({"entrypoints": [ONE | {"mode": "eval"}]}, "inference"),
            ({"entrypoints": [ONE | {"dynamic-shapes": {"x": {"first": "batch"}}}]}, "dynamic-shapes"),
            ({"entrypoints": [ONE | {"dynamic-shapes": {"x": {"0": {"min": 2}}}}]}, "dynamic-shapes"),
        ],
    )
    def test_what_is_wrong_is_refused_wherever_the_table_stands(
        self, table: dict[str, Any], words: str
    ) -> None:
        hooks = {"hooks": {"precompile": table}}
        assert words in self.refusal({"hatch-precompile": table})
        assert words in self.refusal({"hatch": {"build": hooks}})
        assert words in self.refusal({"hatch": {"build": {"targets": {"wheel": hooks}}}})

    def test_what_another_plugin_says_of_tool_hatch_still_holds(self) -> None:
        pytest.importorskip("validate_pyproject_schema_store")
        hooks = {"precompile": {"entrypoints": [ONE]}}
        wrong = {"build": {"hooks": hooks, "reproducible": "yes"}}
        assert "reproducible" in self.refusal({"hatch": wrong})
        self.validate({"tool": {"hatch": {"build": {"hooks": hooks, "reproducible": True}}}})

    def test_the_schema_is_plain_json(self) -> None:
        assert json.loads(json.dumps(schema.hatch("hatch")))["definitions"]["hook"]["required"] == [
            "entrypoints"
        ]
