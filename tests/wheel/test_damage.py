"""A damaged bundle: whatever is wrong with it, the model runs, and what is not right is not used."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Site

START = """
import hashlib, json, os, pathlib, sys, warnings, torch, probe
import zoo, zoo.models
bundle = pathlib.Path(zoo._precompiled.__file__).parent / "bundle"
model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
torch.set_grad_enabled(False)
expected = probe.eager(model)(x)

def use(name="mlp", call=lambda: model(x), expected=expected):
    '''Install anew and call: the warnings there were, whether the answer is eager's, and the hits.'''
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        zoo._precompiled.install()
        same = torch.allclose(call(), expected)
        hits = zoo._precompiled.status()["entrypoints"].get(name, {}).get("hits", 0)
        zoo._precompiled.uninstall()
    return [str(warning.message) for warning in said], same, hits

def replace(file, content):
    file.unlink(missing_ok=True)  # a library that is mapped must not change below the process
    file.write_bytes(content)

zoo._precompiled.uninstall()
"""

WATCHING = """
pristine = set(json.loads((bundle / "manifest.json").read_text())["files"].values())
unverified = []

def watch(event, args):
    '''What no damage may lead to: a library that is not as it was built, a file that is not the bundle's.'''
    if event == "import" and str(bundle) in str(args[1]):
        if hashlib.sha256(pathlib.Path(args[1]).read_bytes()).hexdigest() not in pristine:
            unverified.append(args[1])
    if event == "open" and str(args[0]).endswith(("passwd", "bundle/../../../__init__.py")):
        unverified.append(str(args[0]))

sys.addaudithook(watch)
"""


def test_any_value_in_the_manifest_may_be_anything(zoo_copy: Site) -> None:
    seen = zoo_copy.run(
        START
        + WATCHING
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
    if not same or len(said) > 1:
        wrong.append([list(map(str, path)), repr(value), said])

damage()
probe.result(tried=len(tried), wrong=wrong, unverified=unverified)
"""
    ).result
    assert seen["tried"] >= 300
    assert (seen["wrong"], seen["unverified"]) == ([], [])


def test_any_byte_of_any_file_may_be_anything(zoo_copy: Site) -> None:
    seen = zoo_copy.run(
        START
        + WATCHING
        + """
from hypothesis import given, settings, strategies as st

contents = {path: path.read_bytes() for path in sorted((bundle / "mlp").rglob("*")) if path.is_file()}
tried, wrong = [], []

@settings(max_examples=200, deadline=None, database=None)
@given(st.data())
def damage(data):
    file = data.draw(st.sampled_from(list(contents)))
    content = bytearray(contents[file])
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 64)))
    content[start:end] = data.draw(st.binary(max_size=64))
    replace(file, content)
    said, same, hits = use()
    if bytes(content) == contents[file] or file.suffix == ".txt":
        fine = (said, hits) == ([], 1)
    else:
        fine = len(said) == 1 and file.name in said[0] and hits == 0
    if not same or not fine:
        wrong.append([str(file), start, end, said, same, hits])
    replace(file, contents[file])
    tried.append(file)

damage()
probe.result(tried=len(tried), wrong=wrong, unverified=unverified)
"""
    ).result
    assert seen["tried"] >= 200
    assert (seen["wrong"], seen["unverified"]) == ([], [])


@pytest.fixture(scope="module")
def damaged(zoo: Site, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Every file that a call needs, damaged in every way."""
    copy = zoo.copy(tmp_path_factory.mktemp("damage") / "site")
    return copy.run(
        START
        + WATCHING
        + """
def truncated(file, content):
    replace(file, content[: len(content) // 2])

def emptied(file, content):
    replace(file, b"")

def flipped(file, content):
    middle = len(content) // 2
    replace(file, content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])

def missing(file, content):
    file.unlink()

def swapped_with_anothers(file, content):
    others = [*(bundle / "whiten").rglob(f"*{file.suffix}"), bundle / "manifest.json"]
    replace(file, others[0].read_bytes())

def a_folder(file, content):
    file.unlink()
    file.mkdir()

chatty, vector = zoo.models.Chatty(), torch.randn(6)
follows = "chatty", lambda: chatty(vector), probe.eager(chatty)(vector)
results = {}
files = [path for path in (bundle / "mlp").rglob("*") if path.suffix in (".heads", ".entry", ".so")]
for file in (*sorted(files), bundle / "chatty/resume/0.code"):
    content = file.read_bytes()
    for damage in (truncated, emptied, flipped, missing, swapped_with_anothers, a_folder):
        damage(file, content)
        target = follows if file.suffix == ".code" else ()
        results[f"{file.suffix} {damage.__name__}"] = [file.name, *use(*target)]
        if file.is_dir():
            file.rmdir()
        replace(file, content)
results["nothing"] = ["", *use()]
probe.result(results=results, unverified=unverified)
"""
    ).result


def test_every_damaged_file_is_named_in_one_warning_and_not_used(damaged: dict[str, Any]) -> None:
    results = dict(damaged["results"])
    assert len(results) == 4 * 6 + 1
    assert results.pop("nothing") == ["", [], True, 1]
    for case, (name, said, same, hits) in results.items():
        assert (len(said), same, hits) == (1, True, 0), (case, said)
        assert name in said[0], case
        assert "reinstall the package" in said[0], case


def test_no_library_is_loaded_unverified(damaged: dict[str, Any]) -> None:
    assert damaged["unverified"] == []


@pytest.fixture
def open_to_all(zoo: Site) -> Iterator[Site]:
    """A copy that another user can read, too."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield zoo.copy(Path(folder, "site"))


def test_what_may_not_be_read_is_named(open_to_all: Site) -> None:
    seen = open_to_all.run(
        START
        + """
results = {}
for name in ("manifest.json", "mlp/entries/0.entry", "mlp/graphs/0-native.so", "mlp/frames"):
    (bundle / name).chmod(0)
    if os.geteuid() == 0:
        os.seteuid(65534)  # root may read everything
    results[name] = use()
    os.seteuid(os.getuid())
    (bundle / name).chmod(0o755)
probe.result(results=results)
"""
    ).result["results"]
    assert len(seen) == 4
    for name, (said, same, hits) in seen.items():
        assert (len(said), same, hits) == (1, True, 0), name
        assert name in said[0]
        assert "Permission denied" in said[0]
        assert "reinstall the package" in said[0]
