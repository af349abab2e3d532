"""Wheels that have some of the entrypoints each are merged to the wheel that a whole build makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hatch_precompile.config.cells import Shard
from hatch_precompile.errors import BuildError, ConfigError
from hatch_precompile.frontends.common import SHARD, shard
from hatch_precompile.merge import merge_wheels
from tests.conftest import made_once
from tests.reuse.shop import ENTRYPOINTS, NAMES, Made, make


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Made]:
    def build(folder: Path) -> None:
        for number in (1, 2, 3):
            make(folder / str(number), {}, shard=Shard(number, 3))

    folder = made_once(tmp_path_factory, "shards", build)
    return [Made(folder / str(number)) for number in (1, 2, 3)]


def wheels(*shards: Made) -> list[Path]:
    return [shard.wheel for shard in shards]


def test_all_shards_are_the_whole(first: Made, shards: list[Made], tmp_path: Path) -> None:
    whole = merge_wheels([first.wheel], tmp_path / "whole")
    merged = merge_wheels(wheels(*shards), tmp_path / "merged")
    backwards = merge_wheels(wheels(*shards[::-1], shards[1]), tmp_path / "backwards")
    assert merged.wheel.read_bytes() == whole.wheel.read_bytes() == backwards.wheel.read_bytes()
    assert merged.cells == whole.cells and merged.missing == []


def test_one_that_is_missing_is_named(shards: list[Made], tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"cp311-torch.* is not whole: of its 3 shards 1, 3 are missing"):
        merge_wheels([shards[1].wheel], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_those_of_two_plans_do_not_mix(shards: list[Made], tmp_path: Path) -> None:
    some = ENTRYPOINTS[NAMES.index("widened") :][:1] * 1 + ENTRYPOINTS[2:3]
    other = make(tmp_path / "other", {}, entrypoints=some, shard=Shard(2, 2))
    with pytest.raises(BuildError, match=r"are shards of cp311-torch.* planned differently \(of: 3 and 2\)"):
        merge_wheels(wheels(shards[0], other), tmp_path / "dist")


def test_two_of_a_number_are_refused(shards: list[Made], tmp_path: Path) -> None:
    other = make(tmp_path / "other", {"x * 2": "x * 5"}, shard=Shard(1, 3))
    with pytest.raises(BuildError, match=r"are both shard 1 of cp311-torch.*, and not the same one"):
        merge_wheels(wheels(shards[0], other), tmp_path / "dist")


@pytest.mark.parametrize("text", ["", "1of4", "4of4"])
def test_the_environment_says_which(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARD, text)
    assert shard() == (Shard(int(text[0]), 4) if text else None)


@pytest.mark.parametrize("text", ["5of4", "0of4", "1/4", "of", "1of04"])
def test_what_is_no_shard_stops_the_build(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SHARD, text)
    with pytest.raises(ConfigError, match=f'{SHARD}: expected a shard such as "1of4", got "{text}"'):
        shard()


def test_shards_have_each_entrypoint_once() -> None:
    parts = [Shard(number, 3).part(NAMES) for number in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(NAMES)
    assert [len(part) for part in parts] == [3, 3, 2]
