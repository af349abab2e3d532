"""Reading files of a bundle: only what the manifest lists, inside the bundle, as it was built."""

from __future__ import annotations

import hashlib
import marshal
from pathlib import Path
from typing import Any

import pytest

from hatch_precompile.runtime import runtime

bundles = runtime("loading.bundle")
Damaged = runtime("values.references").Damaged


def bundle(folder: Path, **graph: Any) -> Any:
    """A bundle whose manifest lists these names, all with the right sha256 of what lies there."""
    (folder / "bundle/graphs").mkdir(parents=True)
    (folder / "outside.so").write_bytes(b"outside")
    (folder / "bundle/graphs/0.so").write_bytes(b"inside")
    outside, inside = (hashlib.sha256(text).hexdigest() for text in (b"outside", b"inside"))
    names = {"graphs/0.so": inside, "../outside.so": outside, "graphs/../../outside.so": outside}
    names[str(folder / "outside.so")] = outside
    manifest = {"files": names, "graphs": [{"libraries": {"native": "graphs/0.so"}, **graph}], "resumes": []}
    return bundles.Bundle(str(folder / "bundle"), "package", manifest, "native")


def test_a_listed_file_is_read(tmp_path: Path) -> None:
    assert bundle(tmp_path).read("graphs/0.so") == b"inside"


@pytest.mark.parametrize("name", ["../outside.so", "graphs/../../outside.so", "/outside.so"])
def test_a_path_out_of_the_bundle_is_refused_even_if_it_is_listed(tmp_path: Path, name: str) -> None:
    name = f"{tmp_path}{name}" if name.startswith("/") else name
    reader = bundle(tmp_path)
    assert name in reader.manifest["files"]
    with pytest.raises(Damaged, match="leads out of the bundle"):
        reader.read(name)


def test_a_file_that_is_not_listed_is_not_read(tmp_path: Path) -> None:
    reader = bundle(tmp_path)
    (tmp_path / "bundle/other").write_bytes(b"inside")
    with pytest.raises(Damaged, match="other is not listed in the manifest"):
        reader.read("other")


@pytest.mark.parametrize("name", ["graphs/0.so\0", "graphs", "graphs/0.so/", 3, None, ["graphs/0.so"]])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: Any) -> None:
    reader = bundle(tmp_path)
    if isinstance(name, str):
        reader.manifest["files"][name] = "0" * 64
    with pytest.raises((Damaged, TypeError)):
        reader.read(name)


@pytest.mark.parametrize("part", ["library", "constant", "wrapping", "backward"])
def test_every_kind_of_file_is_verified_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """None of these files is one that could be loaded: not even the attempt may be made."""
    changes: dict[str, Any] = {
        "library": {"libraries": {"native": "graphs/1.so"}},
        "constant": {"constants": [{"file": "graphs/1.so", "dtype": "float32", "size": [1]}]},
        "wrapping": {"wrapping": "graphs/1.so"},
        "backward": {"wrapping": "graphs/0.so", "backward": {"libraries": {"native": "graphs/1.so"}}},
    }
    reader = bundle(tmp_path, **changes[part])
    (tmp_path / "bundle/graphs/1.so").write_bytes(b"damaged")
    reader.manifest["files"]["graphs/1.so"] = "0" * 64
    loaded: list[str] = []
    monkeypatch.setattr(bundles.callers, "load_library", lambda path, name: loaded.append(path))
    with pytest.raises(Damaged, match=r"graphs/1\.so is damaged"):
        reader.graph(0)
    assert [path for path in loaded if path.endswith("1.so")] == []


@pytest.mark.parametrize("number", [10**30, -(10**30), 1, "0", None, 0.5])
def test_a_number_that_is_none_is_refused(tmp_path: Path, number: Any) -> None:
    with pytest.raises((IndexError, TypeError)):
        bundle(tmp_path).graph(number)


def _sealed(folder: Path) -> tuple[dict[str, Any], Any]:
    """A manifest with one frame, whose heads have its seal; and what reads it, as changed by then."""
    manifest = {"variants": [], "frames": [{"heads": "0.heads"}], "graphs": [{"inputs": 1}], "files": {}}
    heads = marshal.dumps([b"head", runtime("loading.manifest").seal_of(manifest)], 2)
    (folder / "0.heads").write_bytes(heads)
    manifest["files"] = {"0.heads": hashlib.sha256(heads).hexdigest()}
    return manifest, lambda: bundles.Bundle(str(folder), "package", manifest, "native")


def test_heads_are_of_the_manifest_that_they_were_built_with(tmp_path: Path) -> None:
    manifest, reader = _sealed(tmp_path)
    assert reader().heads(manifest["frames"][0]) == [b"head"]


@pytest.mark.parametrize("value", [2, True, 1.0, "1", -1, None])
def test_a_manifest_that_was_changed_since_is_not_used(tmp_path: Path, value: Any) -> None:
    manifest, reader = _sealed(tmp_path)
    manifest["graphs"][0]["inputs"] = value
    with pytest.raises(runtime("errors").Unfit, match=r"the manifest in .* is damaged; reinstall"):
        reader().heads(manifest["frames"][0])
    with pytest.raises(runtime("errors").Unfit):
        reader().check_seal()


def test_a_manifest_that_does_not_list_heads_is_not_used(tmp_path: Path) -> None:
    """As a whole: it is told once, and not for each frame."""
    manifest, reader = _sealed(tmp_path)
    manifest["files"] = {"0": 0}
    with pytest.raises(runtime("errors").Unfit, match="the manifest in"):
        reader().heads(manifest["frames"][0])
