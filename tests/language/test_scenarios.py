"""The scenarios of torch's own tests of its compile packages (test/dynamo/test_package.py), with our bundles.

They run in a fresh process that reaches no compiler. For a training step see test_programs.py's TestTraining.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Site


@pytest.fixture(scope="module")
def seen(programs: Site) -> Any:
    return programs.play_all(
        "of_torchs_tests",
        "a_basic_function",
        "entries_loaded_of_another_function_of_the_file",
        "calls_with_rows",
        "a_basic_function_again",
        "a_graph_break_bomb_with_recursion",
        "a_global_tensor",
        "models_that_come_and_go",
        "side_effects",
    )


def test_a_basic_function(seen: Any) -> None:
    assert seen["a_basic_function"] == [1, 0, True]


def test_a_dynamic_shape_with_a_range(seen: Any) -> None:
    hit, miss = [1, 0, True], [0, 1, True]
    assert seen["calls_with_rows"] == {"3": hit, "4": hit, "5": hit, "2": miss, "7": miss}


def test_a_graph_break_bomb_with_recursion(seen: Any) -> None:
    bomb = seen["a_graph_break_bomb_with_recursion"]
    assert (bomb["found"], bomb["misses"]) == ([0, 1, 2], [0])
    # A number that no sample searched for: its last frame is a miss, and the answer is right.
    assert bomb["beyond"] == [3, 1]


def test_two_compiled_functions_in_one_file(seen: Any) -> None:
    """Only the first was called so far: the other one's entries stay unread."""
    assert seen["entries_loaded_of_another_function_of_the_file"] == 0
    assert seen["a_basic_function_again"] == [1, 0, True]


def test_a_global_tensor(seen: Any) -> None:
    assert seen["a_global_tensor"] == {
        "as it is": [True, 1],
        "another of the same kind": [True, 1],
        "another value": [True, 1],
        "another kind": [True, 0],
    }


def test_models_come_and_go(seen: Any) -> None:
    assert seen["models_that_come_and_go"] == {"lifetimes": [[True, True]] * 4, "hits": 4}


def test_nothing_is_compiled_imported_or_written(seen: Any) -> None:
    assert seen["side_effects"] == {"imported": [], "done": []}


def test_entries_are_not_loaded_for_another_function(programs: Site, tmp_path: Path) -> None:
    """Of the same name, in the same place; with other code."""
    site = programs.copy(tmp_path / "site")
    source = site.directory / "programs/scenarios.py"
    source.write_text(source.read_text().replace("return x + 1", "return x + 2"))
    seen = site.play("importing.of_another_function_of_the_same_name")
    assert seen["answers"] == [[[3.0, 3.0]] * 3, [[4.0, 4.0]] * 3]
    assert (seen["active"], seen["hits"]) == ([False, True], [0, 1])
    assert len(seen["said"]) == 1
    assert "programs.scenarios.plus_one has changed since the build" in seen["said"][0]
