"""Pages of docs/ beside the code that they are about, not beside what makes them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import click
import pytest

from hatch_precompile.backends import known
from hatch_precompile.backends.x86_64.levels import LEVELS
from hatch_precompile.cli import main
from hatch_precompile.config import Config, Dimension, Entrypoint, Matrix, load
from hatch_precompile.errors import ConfigError
from tests.conftest import REPOSITORY
from tests.unit.test_schema import tables, types_said

DOCS = REPOSITORY / "docs"
ONE = {"target": "textmodel.model:Encoder", "samples": "textmodel.samples:encoder"}


def read(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


# -- configuration.md: each type that it gives, and the reader ---------------------------------------

PARTS = {"Config": Config, "Matrix": Matrix, "Entrypoint": Entrypoint, "Dimension": Dimension}
# The tables, whose keys the page lists elsewhere.
TABLES: dict[str, Any] = {
    "matrix": {"python": ["3.12"], "torch": ["2.13.0"]},
    "dynamic-shapes": {"x": {"0": "batch"}},
    "options": {"max_autotune": False},
}
PROBES: list[Any] = [True, 3, 0.5, "no such thing, ever!", [0.5], {"a": 0.5}]


def said() -> Iterator[tuple[str, str, str]]:
    """(structure, key, the words for its type) of the page."""
    page = read("configuration.md")
    for name in PARTS:
        part = page.partition(f"<!-- {name}:start -->")[2].partition(f"<!-- {name}:end -->")[0]
        for key, words in types_said(part).items():
            yield name, key, words


def taken(key: str, words: str) -> list[Any]:
    """Values of the type that the words are about."""
    if words == "a table":
        return [TABLES[key]]
    if words == "an array of tables":
        return [[ONE]]
    if words == "true or false":
        return [True, False]
    if words == 'true or false, or "run"':
        return [True, False, "run"]
    if words == "a whole number, 0 or more":
        return [0, 3]
    if words == "a number of seconds, more than 0":
        return [3, 0.5]
    if words == "a name of letters, digits, dots, hyphens and underscores":
        return ["Encoder-1.small_2"]
    if words.startswith("an array of one or both"):  # the other needs a variant for GPUs (test_devices.py)
        return [["cpu"]]
    if example := re.search(r"such as (\[.*\])$", words):
        return [tomllib.loads(f"value = {example[1]}")["value"]]
    one = re.sub(r", or an array of such$", "", words)
    texts = [
        "recorded:calls.jsonl" if text == "recorded:FILE" else text for text in re.findall(r'"([^"]+)"', one)
    ]
    assert texts, words
    if words.startswith("an array, each item"):
        return [texts]
    return [*texts, [texts[0]]] if one != words else list(texts)


def table_with(structure: str, key: str, value: Any) -> dict[str, Any]:
    """A table that is right but for, perhaps, the value of one key."""
    entrypoint: dict[str, Any] = dict(ONE)
    if key in ("tuned-kernels", "cuda"):  # are for GPUs
        for_gpus = {"entrypoints": [entrypoint | {"devices": ["cuda"]}], "variants": ["cuda-sm90"]}
        return for_gpus | ({key: value} if key != "cuda" else {"matrix": TABLES["matrix"] | {key: value}})
    if structure == "Config":
        return {"entrypoints": [entrypoint], key: value}
    if structure == "Matrix":
        return {"entrypoints": [entrypoint], "matrix": TABLES["matrix"] | {key: value}}
    if structure == "Dimension":
        value = {"x": {"0": {"name": "batch", key: value}}}
        key = "dynamic-shapes"
    if key == "workload":
        del entrypoint["samples"]
    return {"entrypoints": [entrypoint | {key: value}]}


@pytest.mark.parametrize(("structure", "key", "words"), [pytest.param(*each, id=each[1]) for each in said()])
def test_what_the_page_says_a_key_takes_is_taken_and_nothing_else(
    structure: str, key: str, words: str
) -> None:
    values = taken(key, words)
    for value in values:
        load(table_with(structure, key, value), default_package="textmodel")
    for probe in PROBES:
        alike = [type(value) for value in values]
        if type(probe) in alike and not isinstance(probe, (str, list, dict)):
            continue
        if key == "options" and type(probe) is dict:  # the keys are inductor's
            continue
        if isinstance(probe, int) and not isinstance(probe, bool) and float in alike:
            continue
        with pytest.raises(ConfigError, match=rf"\.{key}\b|\.x\b"):
            load(table_with(structure, key, probe), default_package="textmodel")


def test_every_key_is_on_the_page() -> None:
    keys = {
        (name, field) for name, structure in PARTS.items() for field in structure.__struct_encode_fields__
    }
    assert {(name, key) for name, key, _ in said()} == keys


# -- examples ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["authors.md", "building.md", "recipes.md", "command-line.md", "tutorial.md"]
)
def test_the_tables_of_a_page_are_read(name: str) -> None:
    """Every example that has an entrypoint, as the hook reads it."""
    found = 0
    for text in re.findall(
        r"^(\[\[tool\.hatch.*?|\[build-system\].*?)\n(?:```|\n#)", read(name), re.DOTALL | re.MULTILINE
    ):
        for _, table in tables(text):
            load({"entrypoints": [ONE]} | table, default_package="textmodel")
            found += 1
    assert found


# -- command-line.md: each option, and the parser ------------------------------------------------------

EVERYWHERE = {"--help", "--json"}
OF_OTHERS = {"--resources"}  # of `dask worker`


def section(command: str) -> str:
    """What the page says of a command. Plan's options are in the part about a matrix."""
    heading = "build" if command == "plan" else command
    return read("command-line.md").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def options(command: str) -> set[str]:
    context = click.Context(main)
    found = main.get_command(context, command)
    assert found is not None
    return {option for each in found.params if isinstance(each, click.Option) for option in each.opts}


COMMANDS = main.list_commands(click.Context(main))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_in_the_commands_section_and_the_other_way_round(command: str) -> None:
    own = {option for option in options(command) if option.startswith("--")}
    text = section(command)
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))
    assert own - EVERYWHERE <= mentioned
    others = OF_OTHERS | (options("build") | options("plan") if command in ("build", "plan") else set())
    assert mentioned <= own | EVERYWHERE | others


def test_every_command_has_a_row() -> None:
    rows = re.findall(r"^\| \[`(\w+) ", read("command-line.md"), re.MULTILINE)
    assert sorted(rows) == sorted(COMMANDS)


# -- authors.md: the variants ---------------------------------------------------------------------------

# What the page calls the names of torch.cpu.get_capabilities() that these levels have.
CALLED = {"avx512_f": "AVX-512 F", "avx512_bw": "BW", "avx512_cd": "CD", "avx512_dq": "DQ", "avx512_vl": "VL"}
CALLED |= {"avx512_bf16": "AVX-512 BF16", "sse4_1": "SSE4.1", "sse4_2": "SSE4.2", "fma3": "FMA"}


def test_the_table_of_variants_is_what_the_backends_have() -> None:
    rows = dict(re.findall(r"^\| `([\w.-]+)` \| .*? \| (.*?) \|$", read("authors.md"), re.MULTILINE))
    for_gpus = {name for name in known("cuda") if f"`{name}`" in read("cuda.md")}
    assert set(rows) | for_gpus == set(known())
    for level, capabilities in LEVELS.items():
        needs = {word.strip() for word in rows[level].removeprefix("also ").split(",")}
        assert {word.removeprefix("AVX-512 ") for word in needs} == {
            CALLED.get(each, each.upper()).removeprefix("AVX-512 ") for each in capabilities
        }, level


# -- comparison.md and README -----------------------------------------------------------------------------


def test_the_comparison_has_the_readmes_memory_and_says_that_its_seconds_are_of_another_run() -> None:
    page, readme = read("comparison.md"), (REPOSITORY / "README.md").read_text("utf-8")
    (megabytes,) = re.findall(r"^\| the wheel \|.*\| (\d+) \|$", readme, re.MULTILINE)
    assert f"{int(megabytes) / 1000:.2f} GB with the wheel" in page
    assert "all in one run, which is not the README's" in page


# -- index.md: the glossary ---------------------------------------------------------------------------------


def glossary() -> list[str]:
    text = read("index.md").partition("\n## Glossary\n")[2]
    return [" ".join(item.split()) for item in re.findall(r"^- .*(?:\n  .*)*", text, re.MULTILINE)]


def test_the_glossary_is_in_order_and_few_words_are_ours() -> None:
    terms = [re.findall(r"\*\*(.+?)\*\*", item)[0] for item in glossary()]
    assert len(terms) > 20
    assert [each.lower() for each in terms] == sorted(each.lower() for each in terms)
    ours = re.findall(r"\*\*([\w ]+)\*\*\\\*", "\n".join(glossary()))
    assert 0 < len(ours) <= 8


def test_each_term_of_the_glossary_is_used() -> None:
    """By another page, or in the table and the manifest."""
    others = " ".join(
        page.read_text("utf-8") for page in DOCS.glob("*.md") if page.name != "index.md"
    ).lower()
    others = re.sub(r"[\s*`]+", " ", others)
    for item in glossary():
        for term in re.findall(r"\*\*(.+?)\*\*", item):
            stem = re.sub(r"(ing|s)$", "", term.lower())
            assert stem in others, term


# -- README -----------------------------------------------------------------------------------------------


def test_the_readme_begins_with_its_use_and_has_one_table_of_figures() -> None:
    text = (REPOSITORY / "README.md").read_text("utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE)[:2] == [
        "Quick start",
        "How long until the first answer",
    ]
    assert len(re.findall(r"^\| --- ", text, re.MULTILINE)) == 1
