"""Two wheels of ours over the same classes and functions: in either order, and each without the other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TESTS, ZOO, Site, build_entrypoints

ENTRYPOINTS: list[dict[str, Any]] = [
    {"target": "zoo.models:Mlp", "name": "mlp", "samples": "annex.samples:mlp"},
    {"target": "zoo.models:Chatty", "name": "chatty", "samples": "annex.samples:vectors"},
    {"target": "zoo.functions:whiten", "name": "whiten", "samples": "annex.samples:images"},
    {
        "target": "transformers.models.bert.modeling_bert:BertModel",
        "name": "bert",
        "instance": "zoo.bert:small",
        "samples": "annex.samples:sentences",
    },
]

NAMES = ("mlp", "chatty", "whiten")
EACH = ["zoo", "annex", ""]
ORDERS = [("zoo", "annex"), ("annex", "zoo")]


@pytest.fixture(scope="module")
def sites(zoo: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Where both wheels are installed."""
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(ZOO / "src"))
    work = tmp_path_factory.mktemp("annex") / "work"
    annex = build_entrypoints("annex", ENTRYPOINTS, TESTS / "neighbours", work)
    patch.undo()
    shutil.copytree(zoo.directory / "zoo", annex.directory / "zoo")
    return annex


@pytest.fixture(scope="class", params=ORDERS, ids=" then ".join)
def order(request: pytest.FixtureRequest) -> Any:
    return request.param


class TestBoth:
    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, sites: Site, order: tuple[str, str]) -> Any:
        return sites.play("neighbours.both", order=order)

    def test_each_serves_its_own_calls(self, seen: Any) -> None:
        assert seen["served"] == dict.fromkeys(NAMES, EACH)
        assert seen["left out"] == [[]] * 6

    def test_the_names_they_put_into_a_module_are_each_wheels_own(self, seen: Any) -> None:
        assert seen["prefixes"] == [1, 2]


class TestOneWithoutTheOther:
    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, sites: Site, order: tuple[str, str]) -> Any:
        return sites.play("neighbours.one_without_the_other", order=order)

    @pytest.mark.parametrize("when", ["before a call", "after a call"])
    @pytest.mark.parametrize("gone", ["zoo", "annex"])
    def test_uninstalling_one_leaves_the_other(self, seen: Any, gone: str, when: str) -> None:
        assert seen["without"][f"{gone} {when}"] == {
            "served": {name: ["" if who == gone else who for who in EACH] for name in NAMES},
            "restored": [False] * 3,
        }

    def test_uninstalling_both_leaves_nothing(self, seen: Any) -> None:
        assert seen["none"] == [{"served": {name: [""] * 3 for name in NAMES}, "restored": [True] * 3}] * 4


def test_a_name_imported_before_the_second_wheel_came_is_served_by_both(sites: Site) -> None:
    seen = sites.play("neighbours.a_name_imported_before_the_second_wheel")
    assert seen == {"both": [EACH, EACH], "one": [["", "annex", ""]] * 2}


def test_two_models_over_one_class_of_a_library(sites: Site) -> None:
    seen = sites.play("neighbours.models_over_one_class_of_a_library")
    assert seen == {"both": EACH, "one": ["", "annex", ""]}


def test_a_dependency_that_changed_takes_out_only_what_traced_it(sites: Site, tmp_path: Path) -> None:
    """The zoo is a dependency of the annex, and another version of it is installed now."""
    site = sites.copy(tmp_path / "site")
    shutil.rmtree(site.directory / "zoo" / "_precompiled")
    helpers = site.directory / "zoo" / "helpers.py"
    text = helpers.read_text()
    helpers.write_text(text.replace("torch.tanh(x)", "torch.tanh(x) * 2"))
    assert helpers.read_text() != text
    seen = site.play("neighbours.the_annex_alone")
    assert seen["served"] == {"mlp": ["", "", ""], "chatty": ["", "annex", ""], "whiten": ["", "annex", ""]}
    (warning,) = seen["said"]
    assert warning.startswith("annex: compiled code for Mlp.forward is not used: ")
    assert warning.endswith("zoo.helpers.squash has changed since the build; rebuild the wheel")
