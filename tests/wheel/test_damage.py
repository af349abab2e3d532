"""A damaged bundle: whatever is wrong with it, the model runs, and what is not right is not used."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Site


def test_any_value_in_the_manifest_may_be_anything(zoo_copy: Site) -> None:
    seen = zoo_copy.play("damage.anything_in_the_manifest", examples=300)
    assert seen["tried"] >= 300
    assert (seen["wrong"], seen["unverified"]) == ([], [])


def test_any_byte_of_any_file_may_be_anything(zoo_copy: Site) -> None:
    seen = zoo_copy.play("damage.anything_in_any_file", examples=200)
    assert seen["tried"] >= 200
    assert (seen["wrong"], seen["unverified"]) == ([], [])


@pytest.fixture(scope="module")
def damaged(zoo: Site, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Every file that a call needs, damaged in every way."""
    copy = zoo.copy(tmp_path_factory.mktemp("damage") / "site")
    return copy.play("damage.every_file_in_every_way")


def test_every_damaged_file_is_named_in_one_warning_and_not_used(damaged: Any) -> None:
    assert damaged["undamaged"] == [[], True, 1]
    assert len(damaged["damaged"]) == 4 * 6
    for case, (name, said, same, hits) in damaged["damaged"].items():
        assert (len(said), same, hits) == (1, True, 0), (case, said)
        assert name in said[0], case
        of_a_tool = name.endswith(".so") and "is damaged" in said[0]
        advice = "install the wheel as it was built" if of_a_tool else "reinstall the package"
        assert advice in said[0], case


def test_a_package_replaced_below_a_process_needs_a_restart(zoo_copy: Site) -> None:
    seen = zoo_copy.play("damage.a_package_that_is_replaced")
    assert (seen["same"], seen["hits"], len(seen["said"])) == (True, 0, 1)
    assert seen["said"][0].endswith("after this process had imported it: restart the process")


def test_no_library_is_loaded_unverified(damaged: Any) -> None:
    assert damaged["unverified"] == []


@pytest.fixture
def open_to_all(zoo: Site) -> Iterator[Site]:
    """A copy that another user can read, too."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield zoo.copy(Path(folder, "site"))


def test_what_may_not_be_read_is_named(open_to_all: Site) -> None:
    seen = open_to_all.play("damage.files_that_may_not_be_read")
    assert len(seen) == 4
    for name, (said, same, hits) in seen.items():
        assert (len(said), same, hits) == (1, True, 0), name
        assert name in said[0]
        assert "Permission denied" in said[0]
        assert said[0].endswith("; let this process read it")


@pytest.mark.parametrize("at", ["the first call", "the first miss"])
def test_a_package_that_is_gone_is_said_once(zoo_copy: Site, at: str) -> None:
    seen = zoo_copy.play("damage.a_package_that_is_gone", at=at)
    assert seen["same"] == [True, True]
    (said,) = seen["said"]
    assert "No module named 'zoo._precompiled." in said
    assert said.endswith("restart the process")


def _bad(seen: dict[str, Any]) -> dict[str, Any]:
    """Those with more than a warning, with another answer, or where something was raised."""
    return {
        name: each
        for name, each in seen.items()
        if each[0] is None or len(each[0]) > 1 or each[1] is not True or each[2] is not None
    }


def test_damage_to_the_runtime_is_a_warning(zoo_copy: Site) -> None:
    names = ["emptied", "halved", "halved at a line", "zeroed"]
    seen = zoo_copy.play("damaged_runtime.every_file", pattern="*.py", names=names)
    assert len(seen) > 100
    assert _bad(seen) == {}
    # Those that an import or a call needs are named, or what they lack is.
    silent = {name.partition(".")[0] for name, each in seen.items() if not each[0]}
    assert silent.isdisjoint(
        {"errors", "installation", "imports", "loading/manifest", "calling/activation", "loading/entries"}
        | {"loading/bundle", "loading/guards", "__init__", "calling/__init__", "loading/__init__"}
    )


def test_what_is_in_the_place_of_a_file_is_a_warning(open_to_all: Site) -> None:
    names = ["missing", "a folder", "a pipe", "a link to itself", "unreadable"]
    seen = open_to_all.play("damaged_runtime.every_file", pattern="[es]*.py", names=names)
    assert len(seen) > 20
    assert _bad(seen) == {}


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(zoo_copy: Site) -> None:
    for pattern in ("manifest.json", "mlp/entries/0.entry", "mlp/frames/*.heads", "mlp/graphs/0*.so"):
        seen = zoo_copy.play("damaged_runtime.every_file", pattern=pattern, names=["a pipe", "a device"])
        assert seen
        assert _bad(seen) == {}
        assert all("it is no regular file" in each[0][0] for each in seen.values())


@pytest.mark.parametrize(
    ("how", "number", "right"),
    [
        *[(how, 10, False) for how in ("digits", "words", "bytes", "texts")],
        *[("texts", 5, True), ("values", 15, True), ("kin", 15, True)],
    ],
)
def test_a_change_of_the_manifest_is_a_warning(zoo_copy: Site, how: str, number: int, right: bool) -> None:
    bad = zoo_copy.play("damaged_manifest.changes", how=how, number=number, seed=number, right=right)
    assert bad == []
