"""Wheels that have some of the entrypoints each are merged to the wheel that a whole build makes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hatch_precompile.bundle.reader import find
from hatch_precompile.bundle.writer import Part, write_bundle
from hatch_precompile.config import load
from hatch_precompile.config.cells import Shard
from hatch_precompile.errors import BuildError, ConfigError
from hatch_precompile.frontends.common import SHARD, shard
from hatch_precompile.merge import merge_wheels
from hatch_precompile.reuse.previous_wheel import find_earlier
from hatch_precompile.validation.manifests import LeftOutRecord
from tests.conftest import made_once
from tests.reuse.shop import ENTRYPOINTS, NAMES, Made, make, pack
from tests.support.hardware import a_variant

MANIFEST = "bundle/manifest.json"


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Shard 2 of 2, as a build makes it."""
    return Made(made_once(tmp_path_factory, "second", lambda folder: make(folder, {}, shard=Shard(2, 2))))


@pytest.fixture(scope="module")
def other(first: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shard 1 of 2."""
    return from_captures(first, tmp_path_factory.mktemp("other"), Shard(1, 2), NAMES)


def from_captures(
    first: Made, folder: Path, shard: Shard, names: list[str], left_out: Sequence[LeftOutRecord] = ()
) -> Path:
    """The wheel of a shard, written from the captures of the whole. names: all of the configuration."""
    manifest = json.loads(first.files[MANIFEST])
    earlier, _ = find_earlier(first.wheel, "shop", manifest["built_with"])
    assert earlier is not None
    config = load({"entrypoints": ENTRYPOINTS}, default_package="shop")
    captures = []
    for entrypoint in shard.part(config.entrypoints):
        captured = earlier.unpack(entrypoint.name, folder / entrypoint.name)
        assert captured is not None
        captures.append((entrypoint, captured, folder / entrypoint.name))
    variants = [a_variant(each["name"], each["requires"]) for each in manifest["variants"]]
    part = Part(shard.number, shard.of, names)
    write_bundle(folder / "bundle", captures, variants, manifest["built_with"], part, left_out)
    written = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in (folder / "bundle").rglob("*")
        if path.is_file()
    }
    runtime = {name: content for name, content in first.files.items() if not name.startswith("bundle/")}
    wheel = folder / first.wheel.name
    pack(wheel, {**runtime, **written})
    return wheel


def changed(made: Made, folder: Path, **part: Any) -> Path:
    """The wheel of a shard that says another thing of itself."""
    manifest = json.loads(made.files[MANIFEST])
    manifest["part"].update(part)
    del manifest["sha256"]  # one without is taken for what was made by hand
    wheel = folder / made.wheel.name
    pack(wheel, {**made.files, MANIFEST: json.dumps(manifest).encode()})
    return wheel


def test_a_shard_has_its_part(second: Made) -> None:
    manifest = json.loads(second.files[MANIFEST])
    assert [each["name"] for each in manifest["entrypoints"]] == ["twice", "trained"]
    assert manifest["part"] == {"shard": 2, "of": 2, "entrypoints": NAMES}


def test_all_shards_are_the_whole(first: Made, second: Made, other: Path, tmp_path: Path) -> None:
    whole = merge_wheels([first.wheel], tmp_path / "whole")
    merged = merge_wheels([other, second.wheel], tmp_path / "merged")
    backwards = merge_wheels([second.wheel, other, second.wheel], tmp_path / "backwards")
    assert merged.wheel.read_bytes() == whole.wheel.read_bytes() == backwards.wheel.read_bytes()
    assert merged.cells == whole.cells and merged.missing == []


def test_what_failed_in_a_shard_is_told_by_the_whole(first: Made, tmp_path: Path) -> None:
    failed = [LeftOutRecord("failed", "shop:failed"), LeftOutRecord("late", "shop:late")]
    wheels = []
    for number, left_out in ((1, failed[1:]), (2, failed[:1])):
        (tmp_path / str(number)).mkdir()
        names = [*NAMES, "failed", "late"]
        wheels.append(from_captures(first, tmp_path / str(number), Shard(number, 2), names, left_out))
    merged = merge_wheels(wheels, tmp_path / "merged").wheel
    (bundle,) = find(str(merged))
    assert bundle.manifest.left_out == failed


def test_one_that_is_missing_is_named(second: Made, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"cp3\d+-torch.* is not whole: of its 2 shards 1 are missing"):
        merge_wheels([second.wheel], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_those_of_two_plans_do_not_mix(second: Made, other: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"are shards of cp3\d+-torch.* planned differently: of 2 and 3"):
        merge_wheels([other, changed(second, tmp_path, of=3)], tmp_path / "dist")


def test_two_of_a_number_are_refused(second: Made, other: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"are both shard 1 of cp3\d+-torch.*, and not the same one"):
        merge_wheels([other, changed(second, tmp_path, shard=1)], tmp_path / "dist")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"shard": "x"}, "its manifest does not say which shard it is: Expected `int`, got `str`"),
        ({"shard": 3}, "there is no shard 3 of 2"),
        ({"of": 10**9, "shard": 1}, "there is no shard 1 of 1000000000"),
    ],
)
def test_one_that_says_nonsense_is_damaged(
    second: Made, other: Path, tmp_path: Path, part: dict[str, Any], said: str
) -> None:
    with pytest.raises(BuildError, match=f"is damaged: {said}"):
        merge_wheels([other, changed(second, tmp_path, **part)], tmp_path / "dist")


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
    assert [len(part) for part in parts] == [2, 2, 1]
