"""An earlier wheel that is not one's own: of what its entries depend on nothing is done."""

from __future__ import annotations

import marshal
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hatch_precompile.records import CAPTURE, Capture, CapturedEntry, CapturedFrame
from hatch_precompile.reuse.cache_key import what_has_changed
from hatch_precompile.validation.effects import refusing_effects

NOW = dict.fromkeys(("configuration", "variants", "compiler", "settings", "samples"), "same")


def capture(folder: Path, data: bytes) -> None:
    entry = CapturedEntry("0.entry", "0.txt", checks=1, head="0.head")
    frame = CapturedFrame("f", "p", entries=[entry])
    made = {**NOW, "sources": "0" * 16}
    whole = Capture("f", "p:f", ("p", []), "function", 1, [frame], [], [], 0.0, made_from=made)
    (folder / CAPTURE).write_bytes(msgspec.json.encode(whole))
    (folder / "0.entry").write_bytes(data)


def call(module: str, name: str, *arguments: Any) -> bytes:
    """An entry that depends on what a function returns."""
    function = ["ref", module, [["a", name]], f"builtin {name}"]
    inputs = [("call", function, ["tuple", *arguments], ["dict"], 0, name)]
    return marshal.dumps({"modules": [module], "inputs": inputs})


@pytest.mark.parametrize("how", ["started", "written", "removed", "imported"])
def test_a_wheel_runs_nothing(tmp_path: Path, how: str) -> None:
    victim = tmp_path / "victim"
    data = {
        "started": call("posix", "system", f"touch {victim}"),
        "written": call("io", "open", str(victim), "w"),
        "removed": call("posix", "unlink", str(tmp_path / "0.entry")),
        "imported": marshal.dumps({"modules": ["no_such_module"], "inputs": []}),
    }[how]
    capture(tmp_path, data)
    assert what_has_changed(tmp_path, NOW)
    assert not victim.exists() and (tmp_path / "0.entry").exists()


@pytest.mark.parametrize(
    "data",
    [b"", b"N", b"garbage", marshal.dumps({}), marshal.dumps({"modules": [1], "inputs": []})]
    + [marshal.dumps({"modules": [], "inputs": [each]}) for each in (1, (), ("no such kind",), ("call",))],
)
def test_what_is_no_entry_is_captured_anew(tmp_path: Path, data: bytes) -> None:
    capture(tmp_path, data)
    assert what_has_changed(tmp_path, NOW)


def test_the_hook_is_there_as_long_as_it_should(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match="to write"),
        refusing_effects(OSError),
        (tmp_path / "file").open("w"),
    ):
        pass
    with refusing_effects(OSError), pytest.raises(OSError, match=r"os\.system"):
        os.system("true")
    assert os.system("true") == 0
