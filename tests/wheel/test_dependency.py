"""An entrypoint that lives in a dependency: transformers' BertModel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Site


@pytest.fixture(scope="module")
def bert(zoo: Site) -> Any:
    return zoo.play_all("dependency", "calls_of_two_models", "other_calls")


def test_it_hits(bert: Any) -> None:
    calls = bert["calls_of_two_models"]
    assert (calls["hits"], calls["misses"]) == (2, 0)


def test_it_agrees_with_eager(bert: Any) -> None:
    calls = bert["calls_of_two_models"]
    assert calls["alike"] == [True, True]
    assert calls["largest difference"] < 1e-5


def test_no_more_of_a_compiler_is_imported_than_the_dependency_does(bert: Any) -> None:
    assert bert["calls_of_two_models"]["imported"] == []


def test_it_hits_where_another_model_was_made_before(zoo: Site) -> None:
    assert zoo.play("dependency.beside_another_model")


@pytest.mark.parametrize("call", ["longer", "hidden", "other"])
def test_another_call_is_not_served(bert: Any, call: str) -> None:
    assert bert["other_calls"][call] is False
