"""docs/limits.md has a line for every refusal of a capture, with a test that there is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMITS = (ROOT / "docs/limits.md").read_text()
SOURCES = [
    *(
        file
        for room in ("tracing", "inductor", "backends")
        for file in sorted((ROOT / "hatch_precompile" / room).rglob("*.py"))
    ),
    *(
        ROOT / "hatch_precompile/capture" / f"{name}.py"
        for name in ("run_samples", "size_cases", "entries", "graphs")
    ),
    *sorted((ROOT / "hatch_precompile/lower").rglob("*.py")),
]
REFUSING = {"Unsupported", "unsupported", "BuildError", "CaptureError"}
TEST = re.compile(r"`(test_\w+\.py)((?:::\w+)+)(?:\[(\w+)\])?`")


def refusals() -> Iterator[tuple[str, str]]:
    """(where, words) for every sentence that stops a capture; what a sentence has filled in is left out."""
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            found: list[ast.expr] = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REFUSING:
                found = node.args[:1]
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                found = [node.value] if node.targets[0].attr == "obstacle" else []
            for expression in found:
                for part in ast.walk(expression):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        words = part.value.strip(" \n'(),:;")
                        if len(words) > 10:
                            yield f"{source.name}:{part.lineno}", words


def test_every_refusal_has_a_line() -> None:
    found = list(refusals())
    assert len(found) > 30
    assert [refusal for refusal in found if refusal[1] not in LIMITS] == []


def said(text: str) -> str:
    """On one line, without what a pattern or the pieces of a literal have between the words."""
    return re.sub(r"[\"'\\]|\bf(?=\")", "", " ".join(text.split()))


def is_in(file: str, item: str) -> bool:
    """Whether a file of tests looks for the words of an item."""
    (path,) = (ROOT / "tests").rglob(file)
    (words, *_) = re.findall(r"`([^`]+)`", " ".join(item.split()))
    longest = max((part.strip(" :,();") for part in re.split(r"\.\.\.", words)), key=len)
    return len(longest) > 10 and said(longest) in said(path.read_text())


def items() -> Iterator[tuple[str, bool]]:
    """The items of the lists of what stops a build, and whether the text above them names a test for them."""
    part = LIMITS.partition("## What stops a build")[2].partition("## What works, at a cost")[0]
    for section in part.split("\n### ")[1:]:
        text = section.partition("\n- ")[0]
        other = re.search(r"The test, if no other is named, is(?: in)?\s`(test_\w+\.py)(::\w+)?", text)
        for item in re.findall(r"^- .*(?:\n  .*)*", section, re.MULTILINE):
            yield item, other is not None and (other[2] is not None or is_in(other[1], item))


def test_every_line_has_a_test() -> None:
    assert len(list(items())) > 50
    assert [item for item, named in items() if not named and not TEST.search(item)] == []


@pytest.mark.parametrize("page", ["limits.md", "programs.md"])
def test_the_tests_are_there(page: str) -> None:
    named = TEST.findall((ROOT / "docs" / page).read_text())
    assert len(named) > 15
    for file, names, parameter in named:
        (path,) = (ROOT / "tests").rglob(file)
        text = path.read_text()
        for name in names.strip(":").split("::"):
            assert re.search(rf"(def|class) {name}\b", text), f"{page}: {file} has no {name}"
        assert not parameter or f'"{parameter}"' in text, f"{page}: {file} has no {parameter}"
