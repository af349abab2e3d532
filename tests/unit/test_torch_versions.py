"""What has another name in another torch: found by one of those that are known, or said in a sentence."""

from __future__ import annotations

import re

import pytest
import torch

from hatch_precompile import torch_versions
from hatch_precompile.errors import BuildError
from hatch_precompile.torch_versions import NAMES, WAYS, require_torch_names, torch_name, way


def test_all_of_it_is_in_this_torch() -> None:
    require_torch_names()
    assert all(torch_name(name) is not None for name in NAMES)
    assert all(way(name) in WAYS[name] for name in WAYS)


def test_the_newest_name_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NAMES, "here", ("torch.no_module:no", "torch:no_name", "torch:Tensor", "torch:nn"))
    assert torch_name("here") is torch.Tensor


def test_all_that_a_way_needs_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = {"new": ("torch:Tensor", "torch:Tensor.no_method"), "old": ("torch:Tensor.sin",)}
    monkeypatch.setitem(WAYS, "something", ways)
    assert way("something") == "old"


def test_a_value_that_is_none_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_versions, "__doc__", None)
    monkeypatch.setitem(NAMES, "none", ("hatch_precompile.torch_versions:__doc__",))
    assert torch_name("none") is None


@pytest.mark.parametrize("table", ["NAMES", "WAYS"])
def test_a_name_that_is_missing_is_said_in_a_sentence(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    places = ("torch.new:Name.method", "torch:no_name")
    entry = places if table == "NAMES" else {place: (place,) for place in places}
    monkeypatch.setitem(getattr(torch_versions, table), "something", entry)
    with pytest.raises(BuildError) as raised:
        require_torch_names()
    text = str(raised.value)
    assert text.startswith(f"torch {torch.__version__} has no torch.new.Name.method (something), and ")
    assert re.search(r'build with another version of torch, as in "torch==2\.\d+\.0"$', text)


@pytest.mark.parametrize("name", NAMES)
def test_each_of_them_is_asked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tuple(f"{place}_gone" for place in NAMES[name])
    monkeypatch.setitem(NAMES, name, gone)
    with pytest.raises(BuildError, match=rf"has no {re.escape(gone[0].replace(':', '.'))} "):
        require_torch_names()
