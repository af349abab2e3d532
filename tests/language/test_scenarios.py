"""The scenarios of torch's own tests of its compile packages (test/dynamo/test_package.py), with our bundles.

They run in a fresh process that reaches no compiler. For a training step see test_programs.py's TestTraining.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Site
from tests.language.conftest import START


@pytest.fixture(scope="module")
def seen(programs: Site) -> Any:
    return programs.run(
        START
        + """
import gc, weakref
done = probe.forbid_side_effects()
from programs import scenarios

def tried(name, function, *arguments):
    before = status(name)
    result = observed(function, *arguments)[0]
    after = status(name)
    return [after["hits"] - before["hits"], after["misses"] - before["misses"],
            close(result, observed(probe.eager(function), *arguments)[0])]

results = {}
# Only the first of two functions of a file is called: the other one's entries stay unread.
results["basic"] = tried("plus_one", scenarios.plus_one, torch.ones(3, 2))
results["unread"] = status("plus_rows")["loaded"]
results["rows"] = [tried("plus_rows", scenarios.plus_rows, torch.ones(n, 2)) for n in (3, 4, 5, 2, 7)]
results["both"] = tried("plus_one", scenarios.plus_one, torch.ones(3, 2))

bomb = [torch.tensor(number) for number in range(scenarios.SIZE + 1)]
before = status("search")
with torch.no_grad():
    found = [int(scenarios.search(x, 0, scenarios.SIZE - 1)) for x in bomb[:-1]]
    between = status("search")
    beyond = int(scenarios.search(bomb[-1], 0, scenarios.SIZE - 1))
results["bomb"] = [found, between["misses"] - before["misses"]]
results["beyond"] = [beyond, status("search")["misses"] - between["misses"]]

with torch.no_grad():
    before = status("calls")["hits"]
    x = calls.inputs()
    scaled = []
    for scale in (calls.SCALE, torch.tensor(5.0)):  # another tensor of the same kind; then its value changes
        calls.SCALE = scale
        scaled.append(torch.equal(calls.run("reads_a_global_tensor", x), x * scale))
    scale.fill_(7.0)
    scaled.append(torch.equal(calls.run("reads_a_global_tensor", x), x * 7))
    results["global"] = [scaled, status("calls")["hits"] - before]
    calls.SCALE = torch.tensor([5.0])
    wrong = calls.run("reads_a_global_tensor", x)
    results["another kind"] = [torch.equal(wrong, x * 5), status("calls")["hits"] - before]

    lifetimes = []
    for _ in range(4):
        model = modules.mixed().eval()
        right = torch.allclose(model(modules.inputs()), probe.eager(model)(modules.inputs()), atol=1e-6)
        gone = weakref.ref(model)
        del model
        gc.collect()
        lifetimes.append([right, gone() is None])
    results["lifetimes"] = lifetimes
    results["lifetime hits"] = status("mixed")["hits"]
probe.result(**results, imported=imported(), done=done)
"""
    ).result


def test_a_basic_function(seen: Any) -> None:
    assert seen["basic"] == [1, 0, True]


def test_a_dynamic_shape_with_a_range(seen: Any) -> None:
    assert seen["rows"] == [[1, 0, True]] * 3 + [[0, 1, True]] * 2


def test_a_graph_break_bomb_with_recursion(seen: Any) -> None:
    assert seen["bomb"] == [[0, 1, 2], 0]
    # A number that no sample searched for: its last frame is a miss, and the answer is right.
    assert seen["beyond"] == [3, 1]


def test_two_compiled_functions_in_one_file(seen: Any) -> None:
    assert seen["unread"] == 0
    assert seen["both"] == [1, 0, True]


def test_a_global_tensor(seen: Any) -> None:
    assert seen["global"] == [[True, True, True], 3]
    assert seen["another kind"] == [True, 3]


def test_models_come_and_go(seen: Any) -> None:
    assert seen["lifetimes"] == [[True, True]] * 4
    assert seen["lifetime hits"] == 4


def test_nothing_is_compiled_imported_or_written(seen: Any) -> None:
    assert (seen["imported"], seen["done"]) == ([], [])


def test_entries_are_not_loaded_for_another_function(programs: Site, tmp_path: Path) -> None:
    """Of the same name, in the same place; with other code."""
    site = programs.copy(tmp_path / "site")
    source = site.directory / "programs/scenarios.py"
    source.write_text(source.read_text().replace("return x + 1", "return x + 2"))
    seen = site.run("""
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import torch, probe, programs
    from programs import scenarios
    with torch.no_grad():
        result = scenarios.plus_one(torch.ones(3, 2)).tolist()
        rows = scenarios.plus_rows(torch.ones(3, 2)).tolist()
entrypoints = programs._precompiled.status()["entrypoints"]
probe.result(result=result, rows=rows, said=[str(each.message) for each in said],
             active=[entrypoints[name]["active"] for name in ("plus_one", "plus_rows")],
             hits=[entrypoints[name]["hits"] for name in ("plus_one", "plus_rows")])
""").result
    assert seen["result"] == [[3.0, 3.0]] * 3
    assert seen["rows"] == [[4.0, 4.0]] * 3
    assert (seen["active"], seen["hits"]) == ([False, True], [0, 1])
    assert len(seen["said"]) == 1
    assert "programs.scenarios.plus_one has changed since the build" in seen["said"][0]
