"""A build that takes over from an earlier wheel makes the wheel that it would make without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hatch_precompile.errors import BuildError
from hatch_precompile.frontends.common import REUSE, earlier_wheel
from hatch_precompile.reuse.earlier import find_earlier
from tests.reuse.shop import ENTRYPOINTS, NAMES, Made, make, pack

EDITS = {
    "return x * 3": "return x * 4",
    "torch.ones(2, 2)": "torch.ones(4, 2)",
    "return Scaled(2.0)": "return Scaled(3.0)",
}
"""A change of a source, of samples, and of what only guards look at; no line moves."""


def test_what_has_not_changed_is_taken_over(first: Made, tmp_path: Path) -> None:
    whole = make(tmp_path / "whole", EDITS)
    again = make(tmp_path / "again", EDITS, first.wheel)

    assert again.files == whole.files != first.files
    # Of the last one only verification finds that it is another.
    assert sorted(again.taken_over()) == sorted(set(NAMES) - {"tripled", "widened"})
    named = f"nothing is taken over from {first.wheel.name}: "
    assert f"{named}shop.models.tripled.__wrapped__ has changed since the build" in again.about("tripled")
    assert f"{named}its samples are others" in again.about("widened")
    (refused,) = [line for line in again.about("scaled") if "it is captured again: " in line]
    assert "entrypoint scaled: sample 1/1 is not served by any entry: " in refused


@pytest.mark.parametrize(
    ("edits", "entrypoint", "table", "reason"),
    [
        ({"x.exp()": "x.exp()  # e"}, {}, {}, "its sources have changed, or moved within their files"),
        ({"ROWS = 3": "ROWS = 3\n"}, {}, {}, "its sources have changed, or moved within their files"),
        ({}, {"mode": "inference"}, {}, "its configuration is another"),
        ({}, {}, {"variants": ["x86-64-v3"]}, "the variants are others"),
        (
            {"import torch\n": "import torch; torch._inductor.config.max_fusion_size = 7\n"},
            {},
            {},
            "the settings",
        ),
        ({"import torch\n": "import torch; torch.set_num_threads(1)\n"}, {}, {}, "the settings"),
    ],
    ids=["a comment", "a line above", "the mode", "the variants", "a setting", "threads"],
)
def test_what_would_have_other_bytes_is_captured_again(
    first: Made,
    tmp_path: Path,
    edits: dict[str, str],
    entrypoint: dict[str, str],
    table: dict[str, Any],
    reason: str,
) -> None:
    widened = {**ENTRYPOINTS[NAMES.index("widened")], **entrypoint}
    again = make(tmp_path, edits, first.wheel, [widened], **table)
    assert again.taken_over() == []
    assert any(f"nothing is taken over from {first.wheel.name}: {reason}" in line for line in again.said)


def test_without_verification_nothing_is_taken_over(first: Made, tmp_path: Path) -> None:
    again = make(tmp_path, {}, first.wheel, ENTRYPOINTS[2:3], verify=False)
    text = f"nothing is taken over from {first.wheel.name}: that needs verification, and verify is false"
    assert text in again.said and again.taken_over() == []


class TestEarlierWheels:
    @pytest.fixture
    def built_with(self, first: Made) -> Iterator[dict[str, str]]:
        yield json.loads((first.bundle / "manifest.json").read_text())["built_with"]

    def test_one_of_the_same_versions_is_used(self, first: Made, built_with: dict[str, str]) -> None:
        earlier, reason = find_earlier(first.wheel, "shop", built_with)
        assert earlier is not None and reason == ""

    @pytest.mark.parametrize("key", ["hatch_precompile", "torch", "torch_git", "python", "magic", "platform"])
    def test_one_of_another_version_is_not(self, first: Made, built_with: dict[str, str], key: str) -> None:
        earlier, reason = find_earlier(first.wheel, "shop", {**built_with, key: "other"})
        assert earlier is None
        assert reason == f"it was built with {key} {built_with[key]}, not other"

    def test_one_of_another_package_is_not(self, first: Made, built_with: dict[str, str]) -> None:
        assert find_earlier(first.wheel, "store", built_with) == (None, "it has no bundle of store")

    def test_one_that_cannot_be_read_stops_the_build(self, tmp_path: Path) -> None:
        wheel = tmp_path / "shop-1-cp311-cp311-linux_x86_64.whl"
        with pytest.raises(BuildError, match=r"nothing can be taken over from .*: there is no file"):
            find_earlier(wheel, "shop", {})
        wheel.write_bytes(b"PK")
        with pytest.raises(BuildError, match=r"nothing can be taken over from .* is not a wheel"):
            find_earlier(wheel, "shop", {})

    def test_a_damaged_one_stops_the_build(
        self, first: Made, built_with: dict[str, str], tmp_path: Path
    ) -> None:
        wheel = tmp_path / first.wheel.name
        libraries = [name for name in first.files if name.startswith("bundle/sine/graphs/")]
        pack(wheel, {**first.files, **dict.fromkeys(libraries, b"other")})
        earlier, _ = find_earlier(wheel, "shop", built_with)
        assert earlier is not None
        (tmp_path / "capture").mkdir()
        with pytest.raises(BuildError, match=r"sine/graphs/.* is damaged: its sha256"):
            earlier.unpack("sine", tmp_path / "capture")

    def test_the_environment_names_it(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        assert earlier_wheel() is None
        monkeypatch.setenv(REUSE, str(tmp_path))
        assert earlier_wheel() == tmp_path
