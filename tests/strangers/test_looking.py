"""A package whose process is full of things that must not be looked at, and whose own parts call each other
in ways that a runtime may trip over. Built once; what each entrypoint does stands in one table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Site, build, made_once

PROJECT = Path(__file__).parent / "looking"

# Hits and misses of an entrypoint's sample called as often as `each_as_its_sample` does.
SERVED = {
    "net": [24, 2],  # the misses: its constructor runs it, with another size
    "derived": [24, 0],
    "base": [24, 0],
    "columns": [4, 0],
    "mentioning": [2, 0],
    "metric-update": [4, 0],
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    place = made_once(
        tmp_path_factory, "looking", lambda place: build(PROJECT, PROJECT / "src", place / "work")
    )
    return Site(place / "work" / "installed")


def play(site: Site, scenario: str, mode: str = "", **environment: str) -> Any:
    environment = {"HATCH_PRECOMPILE": mode, **environment}
    return site.play(f"strangers_looking.{scenario}", environment=environment)


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, list):
        for item in value:
            yield from _numbers(item)
    else:
        yield value


@pytest.fixture(scope="module")
def seen(site: Site) -> Any:
    return play(site, "each_as_its_sample")


@pytest.fixture(scope="module")
def explained(site: Site) -> Any:
    return play(site, "explained")


@pytest.fixture(scope="module")
def raised_eagerly(site: Site) -> Any:
    return play(site, "missed_in_every_way", "off")["raised"]


class TestEachIsServed:
    @pytest.mark.parametrize("entrypoint", SERVED)
    def test_like_its_sample(self, seen: Any, entrypoint: str) -> None:
        assert seen["counted"][entrypoint] == SERVED[entrypoint]

    def test_and_nothing_was_run_that_nobody_called(self, seen: Any) -> None:
        assert seen["ran"] == []

    def test_answers_are_eager_codes(self, site: Site) -> None:
        served, expected = play(site, "answers"), play(site, "answers", "off")
        assert list(_numbers(served)) == pytest.approx(list(_numbers(expected)), abs=1e-6)


class TestAClassAndAnotherDerivedFromIt:
    def test_a_miss_counts_where_it_belongs(self, site: Site) -> None:
        missed = play(site, "of_a_class_and_another_derived_from_it")
        assert missed == {
            "Base": {"base": 1, "derived": 0, "raised": ""},
            "Derived": {"base": 0, "derived": 1, "raised": ""},
            "Foreign": {"base": 0, "derived": 1, "raised": ""},  # code compiled for a class serves no other
        }

    def test_strict_raises_for_that_one_alone(self, site: Site) -> None:
        missed = play(site, "of_a_class_and_another_derived_from_it", "strict")
        raised = {name: each["raised"].partition(" fits")[0] for name, each in missed.items()}
        assert raised == {
            "Base": "looking: no entry of base",
            "Derived": "looking: no entry of derived",
            "Foreign": "looking: no entry of derived",
        }


REASONS = {
    "size": "x has size 5 in dimension 0, the entry needs 4",
    "dtype": "x has dtype float64, the entry needs float32",
    "dtype of the input": "x has dtype float64, the entry needs float32",
    "strides": "tensor 'x' stride mismatch at index 0. expected 8, actual 1",
    "layout": "x has layout sparse_coo, the entry needs a strided tensor",
    "device": "x is on the device meta, the entry needs cpu",
    "requires_grad": "tensor 'x' requires_grad mismatch",
    "a subclass": "x is a torch.nn.parameter.Parameter, the entry needs a torch.Tensor",
    "another class": "x is a looking.things.Hostile, the entry needs a torch.Tensor",
    "nothing": "x is a NoneType, the entry needs a torch.Tensor",
    # Of which block first is another one in torch 2.15.
    "training": tuple(
        f"self.blocks[{number}].norm.training is True; needed: self.blocks[{number}].norm.training is False"
        for number in range(2)
    ),
    "frozen": "tensor 'self.head.bias' requires_grad mismatch",
    "frozen in a block": "tensor 'self.blocks[1].linear.bias' requires_grad mismatch",
    "a missing attribute": "self.scale is not there",
    "another attribute": "self.scale is a looking.things.Words",
    "a hostile attribute": "self.scale is a looking.things.Hostile",
    "a hook": "other hooks or methods are on the modules than at the build",
    "fewer blocks": "self.blocks._modules is a collections.OrderedDict; needed: ",
    "another block": "self.blocks[2] is a torch.nn.modules.linear.Linear; "
    "needed: type(self.blocks[2]) is looking.models.Block",
    "shared parts": "self.blocks[2].linear.bias is the same tensor as self.blocks[1].linear.bias",
    "shared weights": "self.blocks[2].linear.weight is the same tensor as self.blocks[1].linear.weight",
}


class TestExplaining:
    @pytest.mark.parametrize("kind", REASONS)
    def test_each_kind_of_miss(self, explained: Any, kind: str) -> None:
        reports = [explained[kind][loaded] for loaded in ("at first", "loaded", "native")]
        assert reports[0] == reports[1] == reports[2]
        hit, reason, remedy = reports[0]
        assert not hit and reason.startswith(REASONS[kind]) and remedy
        assert "it cannot be said" not in reason

    def test_it_loads_counts_and_runs_nothing(self, explained: Any) -> None:
        assert explained["size"]["loads"] == 0
        assert explained["size"]["counted"] == [1 + 13 + 13, 0]
        assert explained["size"]["ran"] == []

    def test_those_who_watch_see_nothing_of_it(self, site: Site) -> None:
        found = play(site, "explained_in_modes")
        assert found["seen"] == []
        assert [hit for hit, _ in found["reasons"].values()] == [False, False]
        assert found["reasons"]["Watching"][1] == "a torch function mode is active"

    def test_a_module_that_only_a_call_imports_stays_out(self, site: Site) -> None:
        assert play(site, "explained_before_an_import") == [
            "module looking.late is not imported, and only a call that passes the entry's first checks "
            "imports it",
            "import it to see which check fails",
            False,
            "x has size 5 in dimension 0, the entry needs 4",
        ]

    @pytest.mark.parametrize("mode", ["", "log", "strict"])
    def test_a_miss_raises_what_eager_code_raises_and_under_strict_that_it_is_one(
        self, site: Site, raised_eagerly: Any, mode: str
    ) -> None:
        found = play(site, "missed_in_every_way", mode)
        if mode == "strict":
            assert set(found["raised"].values()) == {"PrecompileError"}
        else:
            assert found["counted"]["net"] == [0, len(REASONS)]
            assert found["raised"] == raised_eagerly
        assert found["ran"] == []

    def test_nothing_is_kept(self, site: Site) -> None:
        assert play(site, "kept") == [False] * 9


class TestTheSwitch:
    @pytest.mark.parametrize("mode", ["log", "record-all:{}"])
    def test_what_a_runtime_does_itself_is_done_at_work(self, site: Site, tmp_path: Path, mode: str) -> None:
        found = play(site, "at_work", mode.format(tmp_path / "record"))
        assert found["beside"] == [] and found["left"] == []
        called = {"entries.check_dependencies", "Bundle.graph", "explanation.first_failure"}
        assert called <= set(found["inside"])
