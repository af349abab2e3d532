"""A damaged bundle: whatever is wrong with it, the model runs, and what is not right is not used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Site

START = """
import json, os, pathlib, shutil, warnings, torch, probe
import zoo, zoo.models
bundle = pathlib.Path(zoo._precompiled.__file__).parent / "bundle"
model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
torch.set_grad_enabled(False)
expected = model._call_impl(x)

def use():
    '''Install anew and call: the warnings there were, and whether the answer is eager's.'''
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        zoo._precompiled.install()
        same = torch.allclose(model(x), expected)
        zoo._precompiled.status()
        hits = zoo._precompiled.status()["entrypoints"].get("mlp", {}).get("hits", 0)
        zoo._precompiled.uninstall()
    return [str(warning.message) for warning in said], same, hits

zoo._precompiled.uninstall()
"""


def test_any_value_in_the_manifest_may_be_anything(zoo_copy: Site) -> None:
    seen = zoo_copy.run(
        START
        + """
import copy
from hypothesis import given, settings, strategies as st

manifest = json.loads((bundle / "manifest.json").read_text())
manifest["entrypoints"] = [each for each in manifest["entrypoints"] if each["name"] == "mlp"]

def paths(value, path=()):
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths(value[key], (*path, key))

ways = [path for path in paths(manifest) if path]
junk = (
    st.none() | st.booleans() | st.integers() | st.just(10**30) | st.floats() | st.text(max_size=8)
    | st.sampled_from(["/etc/passwd", "../../../__init__.py", "mlp/entries/0.entry", "manifest.json"])
    | st.lists(st.integers(), max_size=3) | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)
)
tried, wrong = [], []

@settings(max_examples=300, deadline=None, database=None)
@given(st.sampled_from(ways), junk)
def damage(path, value):
    changed = copy.deepcopy(manifest)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    (bundle / "manifest.json").write_text(json.dumps(changed))
    tried.append(path)
    said, same, hits = use()
    if not same:
        wrong.append([list(map(str, path)), repr(value), said])

damage()
probe.result(tried=len(tried), wrong=wrong)
"""
    ).result
    assert seen["tried"] >= 300
    assert seen["wrong"] == []


@pytest.fixture(scope="module")
def damaged(zoo: Site, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Every file of one entrypoint, damaged in every way."""
    copy = zoo.copy(tmp_path_factory.mktemp("damage") / "site")
    return copy.run(
        START
        + """
def truncated(file, content):
    file.write_bytes(content[: len(content) // 2])

def emptied(file, content):
    file.write_bytes(b"")

def flipped(file, content):
    middle = len(content) // 2
    file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])

def missing(file, content):
    file.unlink()

def swapped(file, content):
    file.write_bytes((bundle / "manifest.json").read_bytes())

def a_folder(file, content):
    file.unlink()
    file.mkdir()

results = {}
files = [path for path in (bundle / "mlp").rglob("*") if path.suffix in (".heads", ".entry", ".so")]
for file in sorted(files):
    content = file.read_bytes()
    for damage in (truncated, emptied, flipped, missing, swapped, a_folder):
        damage(file, content)
        results[f"{file.suffix} {damage.__name__}"] = [file.name, *use()]
        if file.is_dir():
            file.rmdir()
        file.write_bytes(content)
results["nothing"] = ["", *use()]
probe.result(results=results)
"""
    ).result["results"]


def test_every_damaged_file_is_named_in_one_warning_and_not_used(damaged: dict[str, Any]) -> None:
    assert len(damaged) == 3 * 6 + 1
    assert damaged.pop("nothing") == ["", [], True, 1]
    for case, (name, said, same, hits) in damaged.items():
        assert (len(said), same, hits) == (1, True, 0), (case, said)
        assert name in said[0], case
        assert "reinstall the package" in said[0], case
