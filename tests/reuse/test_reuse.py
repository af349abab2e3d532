"""A build that takes over from an earlier wheel makes the wheel that it would make without."""

from __future__ import annotations

import importlib
import json
import linecache
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from hatch_precompile.config import Entrypoint, load
from hatch_precompile.entrypoints.call import Sample
from hatch_precompile.errors import BuildError
from hatch_precompile.frontends.common import REUSE, earlier_wheel
from hatch_precompile.records import CAPTURE
from hatch_precompile.reuse.cache_key import made_from, what_has_changed
from hatch_precompile.reuse.previous_wheel import find_earlier
from tests.reuse.shop import ENTRYPOINTS, NAMES, Made, make, pack
from tests.support.hardware import a_variant

EDITS = {"return y + 1": "return y + 4", "return Scaled(2.0)": "return Scaled(3.0)"}
"""Of a source, and of what only guards look at; no line moves."""


def built_with(made: Made) -> dict[str, str]:
    found: dict[str, str] = json.loads((made.bundle / "manifest.json").read_text())["built_with"]
    return found


def test_what_has_not_changed_is_taken_over(first: Made, tmp_path: Path) -> None:
    some = [ENTRYPOINTS[NAMES.index(name)] for name in ("doubled", "broken_in_two", "scaled")]
    whole = make(tmp_path / "whole", EDITS, entrypoints=some)
    again = make(tmp_path / "again", EDITS, first.wheel, some)

    assert again.files == whole.files
    # Of the last one only verification finds that it is another.
    assert sorted(again.taken_over()) == ["doubled", "scaled"]
    named = f"nothing is taken over from {first.wheel.name}: "
    assert f"{named}shop.models.broken_in_two has changed since the build" in again.about("broken_in_two")
    (refused,) = [line for line in again.about("scaled") if "it is captured again: " in line]
    assert "entrypoint scaled: sample 1/1 is not served by any entry: " in refused


def test_without_verification_nothing_is_taken_over(first: Made, tmp_path: Path) -> None:
    again = make(tmp_path, {}, first.wheel, ENTRYPOINTS[:1], verify=False)
    text = f"nothing is taken over from {first.wheel.name}: that needs verification, and verify is false"
    assert text in again.said and again.taken_over() == []


@dataclass(frozen=True)
class Known:
    """What the first wheel has of `doubled`, and the source that this is."""

    folder: Path
    source: Path

    @property
    def origin(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.folder / CAPTURE).read_text())["made_from"]
        return found


class TestWhatHasChanged:
    @pytest.fixture
    def known(self, first: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Known]:
        earlier, _ = find_earlier(first.wheel, "shop", built_with(first))
        assert earlier is not None
        assert earlier.unpack("doubled", tmp_path) is not None
        sources = first.folder / "sources"
        monkeypatch.syspath_prepend(sources)
        importlib.import_module("shop.models")
        yield Known(tmp_path, sources / "shop" / "models.py")
        for name in ("shop", "shop.models"):
            del sys.modules[name]
        linecache.clearcache()

    def test_nothing(self, known: Known) -> None:
        assert what_has_changed(known.folder, known.origin) == ""

    @pytest.mark.parametrize("part", ["configuration", "variants", "compiler", "settings", "samples"])
    def test_a_part_of_what_it_was_made_from(self, known: Known, part: str) -> None:
        said = what_has_changed(known.folder, {**known.origin, part: "other"})
        words = {"settings": "settings of torch", "compiler": "C++ compiler"}
        assert words.get(part, part) in said

    def test_a_comment(self, known: Known) -> None:
        lines = known.source.read_text().replace("x * 2", "x * 2  # twice").splitlines(keepends=True)
        linecache.cache[str(known.source)] = (1, None, lines, str(known.source))
        expected = "its sources have changed, or moved within their files"
        assert what_has_changed(known.folder, known.origin) == expected

    def test_the_place_of_a_function(self, known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
        function = sys.modules["shop.models"].doubled.__wrapped__
        moved = function.__code__.replace(co_firstlineno=function.__code__.co_firstlineno + 1)
        monkeypatch.setattr(function, "__code__", moved)
        expected = "its sources have changed, or moved within their files"
        assert what_has_changed(known.folder, known.origin) == expected

    def test_the_code_of_a_function(self, known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
        function = sys.modules["shop.models"].doubled.__wrapped__
        monkeypatch.setattr(function, "__code__", (lambda x: x * 7).__code__)
        assert what_has_changed(known.folder, known.origin).endswith("has changed since the build")

    def test_a_function_that_is_gone(self, known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(sys.modules["shop.models"], "doubled")
        assert "shop.models.doubled" in what_has_changed(known.folder, known.origin)

    def test_what_runs_as_python_is_captured_again(self, known: Known) -> None:
        path = known.folder / CAPTURE
        record = msgspec.json.decode(path.read_bytes())
        path.write_bytes(msgspec.json.encode({**record, "skipped": [{"function": "f", "reason": "r"}]}))
        assert what_has_changed(known.folder, known.origin).startswith("some of it runs as Python")


class TestMadeFrom:
    ENTRYPOINT = load({"entrypoints": ENTRYPOINTS[:1]}, default_package="shop").entrypoints[0]
    VARIANT = a_variant("native", ("avx2",))

    def found(
        self,
        *args: Any,
        entrypoint: Entrypoint = ENTRYPOINT,
        variant: Any = VARIANT,
        mode: str = "no_grad",
        **kwargs: Any,
    ) -> dict[str, str]:
        return made_from(entrypoint, [variant], [Sample(args, kwargs, mode=mode)])

    def parts(self, one: dict[str, str], other: dict[str, str]) -> list[str]:
        return [part for part in one if one[part] != other[part]]

    def test_data_does_not_count(self) -> None:
        assert self.found(torch.ones(2)) == self.found(torch.zeros(2))

    @pytest.mark.parametrize(
        "value",
        [
            torch.ones(3),
            torch.ones(2, dtype=torch.int64),
            torch.ones(2, requires_grad=True),
            torch.ones(4)[::2],
            torch.ones(3)[1:],
            torch.nn.Parameter(torch.ones(2)),
            torch.ones(2).to_sparse(),
            [torch.ones(2)],
            {"a": 1},
            {"a": 2},
            "a",
            1,
            1.0,
            True,
            None,
            {1, 2},
        ],
        ids=repr,
    )
    def test_what_decides_how_it_is_traced_does(self, value: Any) -> None:
        assert self.parts(self.found(torch.ones(2)), self.found(value)) == ["samples"]

    def test_neither_does_the_order_of_sets_and_keys(self) -> None:
        one, other = {"a": 1, "b": {"x", "y"}}, {"b": {"y", "x"}, "a": 1}
        assert self.found(*one["b"]) != self.found()  # type: ignore[misc]
        assert self.found(set(other["b"])) == self.found(set(one["b"]))  # type: ignore[call-overload]

    def test_each_of_the_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = self.found()
        assert self.parts(before, self.found(mode="inference")) == ["samples"]
        assert self.parts(before, self.found(variant=a_variant("native", ("avx",)))) == ["variants"]
        entrypoint = msgspec.structs.replace(self.ENTRYPOINT, on_miss="error")
        assert self.parts(before, self.found(entrypoint=entrypoint)) == ["configuration"]
        with torch._inductor.config.patch(max_fusion_size=7):
            assert self.parts(before, self.found()) == ["settings"]
        monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
        assert self.found() == before

    def test_the_compiler(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        before = self.found()
        compiler = tmp_path / "c++"
        compiler.write_text("#!/bin/sh\necho another 1.0\n")
        compiler.chmod(0o755)
        monkeypatch.setenv("CXX", str(compiler))
        assert self.parts(before, self.found()) == ["compiler"]
        monkeypatch.setenv("CXX", str(tmp_path / "none"))
        with pytest.raises(BuildError, match=r"the C\+\+ compiler '.*none' does not run"):
            self.found()


class TestEarlierWheels:
    def test_one_of_the_same_versions_is_used(self, first: Made) -> None:
        earlier, reason = find_earlier(first.wheel, "shop", built_with(first))
        assert earlier is not None and reason == ""

    @pytest.mark.parametrize("key", ["hatch_precompile", "torch", "torch_git", "python", "magic", "platform"])
    def test_one_of_another_version_is_not(self, first: Made, key: str) -> None:
        versions = built_with(first)
        earlier, reason = find_earlier(first.wheel, "shop", {**versions, key: "other"})
        assert earlier is None
        assert reason == f"it was built with {key} {versions[key]}, not other"

    def test_one_of_another_package_is_not(self, first: Made) -> None:
        assert find_earlier(first.wheel, "store", {}) == (None, "it has no bundle of store")

    def test_an_entrypoint_that_it_does_not_have(self, first: Made, tmp_path: Path) -> None:
        earlier, _ = find_earlier(first.wheel, "shop", built_with(first))
        assert earlier is not None
        assert earlier.unpack("halved", tmp_path) is None

    def test_one_that_cannot_be_read_stops_the_build(self, tmp_path: Path) -> None:
        wheel = tmp_path / "shop-1-cp311-cp311-linux_x86_64.whl"
        with pytest.raises(BuildError, match=r"nothing can be taken over from .*: there is no file"):
            find_earlier(wheel, "shop", {})
        wheel.write_bytes(b"PK")
        with pytest.raises(BuildError, match=r"nothing can be taken over from .* is not a wheel"):
            find_earlier(wheel, "shop", {})

    def test_a_damaged_one_stops_the_build(self, first: Made, tmp_path: Path) -> None:
        wheel = tmp_path / first.wheel.name
        libraries = [name for name in first.files if name.startswith("bundle/scaled/graphs/")]
        pack(wheel, {**first.files, **dict.fromkeys(libraries, b"other")})
        earlier, _ = find_earlier(wheel, "shop", built_with(first))
        assert earlier is not None
        with pytest.raises(BuildError, match=r"scaled/graphs/.* is damaged: its sha256"):
            earlier.unpack("scaled", tmp_path / "capture")

    def test_the_environment_names_it(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        assert earlier_wheel() is None
        monkeypatch.setenv(REUSE, str(tmp_path))
        assert earlier_wheel() == tmp_path
