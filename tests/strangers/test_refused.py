"""What packages do that a build once refused: it is served, or the build says a sentence."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import Site, build, made_once

HERE = Path(__file__).parent
PROJECT = HERE / "refused"

# By entrypoint: the modes of a caller that is served, or how the sentence begins that the build says.
OUTCOMES: dict[str, Any] = {
    # What it enters decides, and not what its callers are in.
    "multiplied": {"no_grad", "grad"},
    "model": {"no_grad", "grad", "inference"},
    "predict": {"no_grad", "grad"},
    "shifted": {"no_grad", "grad"},
    "within": {"no_grad", "grad"},
    # The decorator that is outside of no_grad() is in the trace, and nothing that is given needs a gradient.
    "around": {"no_grad", "grad"},
    "under-a-compile": 'activate = "compile", but refused.decorated:under_a_compile is decorated with a',
    "before-a-break": {"no_grad"},
    "policy": {"no_grad"},
    "masked": "sample 1/1: torch.compile failed: "
    "RuntimeError: expected predicate to be bool, got torch.uint8\n  at shapes.py:26 in masked\n",
    "filled": "sample 1/1: torch.compile failed: ValueError: Cannot view a tensor with shape "
    "torch.Size([1, 2, 2, 2]) and strides (8, 2, 4, 1) as a tensor with shape (2, 4)!\n"
    "  While executing %masked_fill_ : [num_users=0] = call_method[target=masked_fill_]"
    "(args = (%heads, %gt, 0.0), kwargs = {})\n  at shapes.py:32 in filled\n  HATCH_PRECOMPILE_TRACEBACK=1",
    "assigned-after": {"no_grad"},
    "scaled-or-not": {"no_grad"},
    "counted": {"no_grad"},
    "held": {"no_grad"},
    "kinds": {"no_grad"},
    "by-names": {"no_grad"},
    "too-many": "the order of a set of other elements than numbers, G['",
    "added": "the order of a set of other elements than numbers: another process may have another value than "
    "the one in the trace\n",
    "given": "the order of a set of other elements than numbers, L['names']: each call has another set, ",
    "queries-and-keys": {"no_grad"},
    "parts": {"no_grad"},
    "shaken": "torch 2.14" if (2, 14) <= torch.__version__ < (2, 15) else {"no_grad"},
    "tracker": {"no_grad", "grad"},
    "halved": {"no_grad"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project, built and verified, with what the build said."""

    def make(place: Path) -> None:
        said: list[str] = []
        build(PROJECT, PROJECT / "src", place / "work", said.append)
        (place / "said.txt").write_text("\n".join(said))

    return made_once(tmp_path_factory, "refused", make)


@pytest.fixture(scope="module")
def answers(place: Path) -> dict[str, dict[str, Any]]:
    """What the calls of a fresh process give: with the wheel, and as eager code."""
    site = Site(place / "work" / "installed")

    def called(mode: str) -> Any:
        # The order of sets is part of an answer.
        environment = {"HATCH_PRECOMPILE": mode, "PYTHONHASHSEED": "1"}
        return site.play("once_refused.calls", environment=environment)

    return {mode: called(mode) for mode in ("quiet", "off")}


@pytest.mark.parametrize("name", [name for name, outcome in OUTCOMES.items() if isinstance(outcome, str)])
def test_the_build_says_why_not(place: Path, name: str) -> None:
    said = (place / "said.txt").read_text()
    start = f"WARNING: entrypoint {name} is left out of the wheel: entrypoint {name}: "
    assert start + OUTCOMES[name] in said


@pytest.mark.parametrize("name", [name for name, outcome in OUTCOMES.items() if isinstance(outcome, set)])
def test_it_is_served_and_as_eager(answers: dict[str, dict[str, Any]], name: str) -> None:
    found, eager = answers["quiet"][name], answers["off"][name]
    assert {mode for mode, call in found.items() if call["served"]} == OUTCOMES[name]
    for mode, call in found.items():
        *facts, values = call["answer"]
        *expected_facts, expected = eager[mode]["answer"]
        assert [*facts, call["inference"]] == [*expected_facts, eager[mode]["inference"]]
        assert _flat(values) == pytest.approx(_flat(expected), rel=1e-5, abs=1e-5)


def _flat(values: Any) -> list[float]:
    return [number for row in values for number in _flat(row)] if isinstance(values, list) else [values]


def test_a_compile_of_the_users_begins_at_the_decorator(place: Path) -> None:
    found = Site(place / "work" / "installed").play("once_refused.under_a_compile")
    assert found == {"compiled": 1, "same": True, "hits": 0}


def test_one_object_in_two_places_is_not_two_where_there_is_no_graph(place: Path) -> None:
    found = Site(place / "work" / "installed").play("once_refused.one_object_twice")
    assert found == {"served": False, "answer": 1.0, "two are": True}


def test_a_graph_module_is_known_by_its_code(place: Path) -> None:
    found = Site(place / "work" / "installed").play("once_refused.another_graph")
    served = {"first": True, "second": True, "first again": True}
    assert found == {**served, "changed": False, "with another hook": False}


def test_a_set_of_strings_is_served_in_each_order(place: Path) -> None:
    site = Site(place / "work" / "installed")
    orders = {"kinds": set[str](), "by-names": set[str]()}
    for seed in map(str, range(1, 13)):
        found_by_name = site.play("once_refused.through_sets", environment={"PYTHONHASHSEED": seed})
        for name, found in found_by_name.items():
            assert (found["served"], found["as eager"]) == (True, True)
            orders[name].add(found["order"])
    assert len(orders["kinds"]) == 2
    assert len(orders["by-names"]) > 3


def test_every_entrypoint_has_an_outcome() -> None:
    hooks = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["hooks"]
    entrypoints = hooks["precompile"]["entrypoints"]
    named = {each.get("name", each["target"].partition(":")[2].lower()) for each in entrypoints}
    assert named == set(OUTCOMES)
