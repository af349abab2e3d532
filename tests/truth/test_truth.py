"""A small run of `make truth`: a few programs and changes of every kind; and the harness itself."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.conftest import made_once
from tests.truth.agreement import difference
from tests.truth.cases import Case
from tests.truth.catalogue import Program, all_programs
from tests.truth.changes import CHANGES
from tests.truth.judge import judge
from tests.truth.mutations import mutations_of
from tests.truth.observed import described
from tests.truth.run import Options, Truth
from tests.truth.servers import Answer, Servers

SMALL = ("reads_constants", "Overriding")
ABOUT = "nothing:,source: a number,source: a comment,source: an override,mode:,hook:,fork:,switched off:"


def program(name: str) -> Program:
    return next(each for each in all_programs() if each.name == name)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the small run has found, made once for all workers."""

    def make(place: Path) -> None:
        options = Options(change=ABOUT, limit=12, jobs=2)
        result = Truth(place, options).run([program(name) for name in SMALL])
        (place / "truth.json").write_text(json.dumps(result))

    return json.loads((made_once(tmp_path_factory, "truth", make) / "truth.json").read_text())


def test_the_wheel_answers_as_eager_code_does_whatever_has_changed(found: Any) -> None:
    assert found["failures"] == []
    assert (found["wrong"], found["crashes"], found["hangs"]) == (0, 0, 0)


def test_what_was_not_changed_is_served(found: Any) -> None:
    assert found["needless"] == []
    assert found["served_all"] >= 4


def test_changes_of_every_kind_were_tried(found: Any) -> None:
    assert found["programs"] == len(SMALL)
    assert found["changes"] >= 20
    assert found["harmful_changes"] >= 4, "a run in which eager code never changes shows nothing"


def test_there_are_programs_and_changes_enough() -> None:
    programs = all_programs()
    assert len(programs) >= 75
    assert len(CHANGES) >= 400
    assert sum(len(mutations_of(each)) for each in programs) >= 3000


class TestMutations:
    def test_every_number_of_a_program_and_of_its_dependency_is_changed(self) -> None:
        found = {each.what for each in mutations_of(program("calls_a_dependency")) if "number" in each.kind}
        assert any("parts/arithmetic.py: OFFSET" in what and "0.25 becomes 1.25" in what for what in found)
        assert any("parts/arithmetic.py: TABLE" in what and "0.1 becomes 1.1" in what for what in found)

    def test_samples_are_left_as_they_are(self) -> None:
        assert not any("rows" in each.what for each in mutations_of(program("reads_constants")))

    def test_one_definition_is_changed_and_all_else_stands(self) -> None:
        mutation = next(each for each in mutations_of(program("swaps")) if each.kind == "statements swapped")
        before = program("swaps").source.read_text().splitlines()
        after = mutation.text.splitlines()
        assert len(before) == len(after)
        assert sum(one != other for one, other in zip(before, after, strict=True)) == 2


class TestAgreement:
    def test_tensors_are_compared_by_tolerance_and_nan_is_nan(self) -> None:
        one = torch.tensor([1.0, float("nan")])
        assert difference(described(one), described(one * (1 + 1e-7))) == ""
        assert "float32[2] 1, nan, not float32[2] 2, nan" in difference(described(one), described(one * 2))

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (torch.ones(2), torch.ones(2, dtype=torch.float64)),
            (torch.ones(2), torch.ones(1, 2)),
            (torch.ones(2, 2), torch.ones(2, 2).t().contiguous().t()),
            (torch.ones(2), torch.nn.Parameter(torch.ones(2))),
            (torch.ones(2), torch.ones(2, device="meta")),
            ({"a": 1}, {"b": 1}),
            ([1], (1,)),
            (1, 1.0),
            (ValueError("no"), TypeError("no")),
            (ValueError("no"), ValueError("yes")),
        ],
    )
    def test_what_differs_is_said(self, one: Any, other: Any) -> None:
        assert difference(described(one), described(other)) != ""
        assert difference(described(one), described(one)) == ""

    def test_texts_of_exceptions_count_beside_eager_code_alone(self) -> None:
        one, other = described(ValueError("no")), described(ValueError("yes"))
        assert difference(one, other, texts=False) == ""


@pytest.mark.parametrize(
    ("gave", "served", "verdict"),
    [
        ([2, 1], [0], "as torch.compile"),  # the first call was served, the second ran as Python
        ([2, 1], [1], "wrong"),
        ([2, 3], [0], "wrong"),
        ([2, 2], [0, 1], "as torch.compile"),
        ([3, 1], [0], "wrong"),
        ([1, 1], [], "right"),
    ],
)
def test_a_call_that_is_served_may_be_as_torch_compile(
    gave: list[int], served: list[int], verdict: str
) -> None:
    """Of two calls that eager code answers by 1 each, and torch.compile by 2."""

    def answer(numbers: list[int]) -> Answer:
        report = {
            "notes": [(f"call {number} gave", each) for number, each in enumerate(numbers)],
            "served": [number in served for number in range(2)],
            "served_notes": served,
            "why": "",
        }
        return Answer("exit", 0, report, "")

    answers = {"wheel": answer(gave), "eager": answer([1, 1]), "compile": answer([2, 2])}
    servers = SimpleNamespace(ask=lambda case, role, **how: answers[role])
    case = Case(program("reads_constants"), CHANGES["nothing"], "nothing", "nothing", True)
    assert judge(case, servers, None).verdict == verdict  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux only")
def test_a_crash_and_a_hang_are_noticed(tmp_path: Path) -> None:
    """In the place of a wheel that crashes: a case that ends its process, and one that never does."""
    servers = Servers(tmp_path / "worker", tmp_path / "sites", tmp_path / "cache")
    nothing = CHANGES["nothing"]
    site = tmp_path / "sites/reads_constants/site/specimens"
    (site / "_precompiled").mkdir(parents=True)
    try:
        for code, ended in (("os.abort()", "crash"), ("time.sleep(60)", "hang"), ("pass", "exit")):
            (site / "__init__.py").write_text(f"import os, time\n{code}\n")
            case = Case(program("reads_constants"), replace(nothing, limit=3.0), "nothing", "nothing", True)
            assert servers.ask(case, "eager").ended == ended
    finally:
        servers.close()
