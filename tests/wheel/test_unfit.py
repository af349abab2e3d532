"""A bundle that does not fit: one warning that says why, and the model runs as if it had none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Site


def manifest_change(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def apply(package: Path) -> None:
        path = package / "_precompiled/bundle/manifest.json"
        manifest = json.loads(path.read_text())
        change(manifest)
        path.write_text(json.dumps(manifest))

    return apply


def source_change(name: str, old: str, new: str) -> Callable[[Path], object]:
    def apply(package: Path) -> None:
        path = package / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return apply


def file_change(pattern: str, change: Callable[[Path], object]) -> Callable[[Path], object]:
    def apply(package: Path) -> None:
        (path,) = (package / "_precompiled/bundle/mlp").glob(pattern)
        change(path)

    return apply


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def write_manifest(text: str) -> Callable[[Path], object]:
    return lambda package: (package / "_precompiled/bundle/manifest.json").write_text(text)


UNFIT = {
    "another torch": (
        manifest_change(lambda m: m["built_with"].update(torch="2.10.0")),
        "it was built with torch 2.10.0, this is",
    ),
    "another build of this torch": (
        manifest_change(lambda m: m["built_with"].update(torch_git="0123456789abcdef")),
        "it was built with another build of torch",
    ),
    "another Python": (
        manifest_change(lambda m: m["built_with"].update(python="3.9", magic="610d0d0a")),
        "it was built for Python 3.9",
    ),
    "a CPU that lacks something": (
        manifest_change(lambda m: m["variants"][0]["requires"].append("time_travel")),
        "this CPU cannot run it: native needs time_travel",
    ),
    "a changed function that was traced": (
        source_change("helpers.py", "x + by", "x - by"),
        "zoo.helpers.lift has changed since the build",
    ),
    "a changed forward of a part": (
        source_change("models.py", "torch.relu(self.mix(x))", "torch.sigmoid(self.mix(x))"),
        "zoo.models.Block.forward has changed since the build",
    ),
    "a changed target": (
        source_change("models.py", "* self.scale * self.gain", "+ self.scale"),
        "zoo.models.Mlp.forward has changed since the build",
    ),
    "a traced function that is gone": (
        source_change(
            "helpers.py", "def squash(x)", "def squash(x): return x\nsquash = torch.relu\ndef squish(x)"
        ),
        "zoo.helpers.squash",
    ),
    "a damaged library": (file_change("graphs/*.so", flip), "is damaged (its sha256 is not the manifest's)"),
    "a damaged entry": (
        file_change("entries/*.entry", flip),
        "is damaged (its sha256 is not the manifest's)",
    ),
    "a truncated entry": (
        file_change("entries/*.entry", lambda path: path.write_bytes(b"")),
        "is damaged (its sha256 is not the manifest's)",
    ),
    "a missing library": (file_change("graphs/*.so", Path.unlink), "cannot be read (No such file"),
    "a missing entry": (file_change("entries/*.entry", Path.unlink), "cannot be read (No such file"),
    "a missing manifest": (
        lambda package: (package / "_precompiled/bundle/manifest.json").unlink(),
        "manifest.json cannot be read",
    ),
    "a manifest that is no JSON": (write_manifest("{'"), "manifest.json cannot be read"),
    "a manifest that is something else": (write_manifest("[]"), "its bundle has format None"),
    "a manifest without its parts": (write_manifest('{"format": 3}'), "built_with"),
    "a later format": (manifest_change(lambda m: m.update(format=99)), "its bundle has format 99"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_the_model_runs_without_its_bundle_and_one_warning_says_why(zoo_copy: Site, case: str) -> None:
    change, reason = UNFIT[case]
    change(zoo_copy.directory / "zoo")
    seen = zoo_copy.play("unfit.calls")
    assert seen["same"]
    assert len(seen["said"]) == 1
    assert seen["said"][0].startswith("zoo: ")
    assert reason in seen["said"][0]
    assert seen["imported"] == []


@pytest.mark.parametrize(
    "case",
    [
        "a missing manifest",
        "another Python",
        "another torch",
        "a CPU that lacks something",
        "a changed target",
        "a changed function that was traced",
        "a damaged library",
        "a damaged entry",
    ],
)
def test_strict_raises(zoo_copy: Site, case: str) -> None:
    change, reason = UNFIT[case]
    change(zoo_copy.directory / "zoo")
    finished = zoo_copy.process("unfit.calls", ok=False, environment={"HATCH_PRECOMPILE": "strict"})
    assert finished.returncode == 1
    assert "PrecompileError: zoo: " in finished.stderr
    assert reason in finished.stderr


def test_an_entry_that_does_not_fit_takes_out_only_itself(zoo_copy: Site) -> None:
    flip(next((zoo_copy.directory / "zoo/_precompiled/bundle/mlp/graphs").glob("*.so")))
    seen = zoo_copy.play("unfit.calls_of_one_entrypoint_and_another")
    assert seen["whiten"] == 1
    mlp = seen["mlp"]
    assert (len(mlp["left_out"]), mlp["loaded"], mlp["hits"]) == (1, 0, 0)


def test_what_cannot_change_a_result_is_no_reason(zoo_copy: Site) -> None:
    """Comments, line numbers and the readable guard source."""
    package = zoo_copy.directory / "zoo"
    helpers = package / "helpers.py"
    helpers.write_text("# a comment\n\n" + helpers.read_text())
    for path in (package / "_precompiled/bundle/mlp/entries").glob("*.txt"):
        path.unlink()
    assert zoo_copy.play("unfit.hits") == {"said": [], "hits": 4}


def test_off_installs_nothing(zoo: Site) -> None:
    seen = zoo.play("unfit.calls_with_nothing_installed", environment={"HATCH_PRECOMPILE": "off"})
    assert (seen["same"], seen["said"]) == (True, [])
    assert seen["status"] == {
        "installed": False,
        "reason": "HATCH_PRECOMPILE=off",
        "variant": None,
        "cell": None,
        "cells": [],
        "entrypoints": {},
        "prepared_bytes": 0,
    }
    assert seen["activated"] is False
    assert seen["modules"] == []


def test_a_package_without_its_runtime_imports(zoo_copy: Site) -> None:
    shutil.rmtree(zoo_copy.directory / "zoo/_precompiled")
    seen = zoo_copy.play("unfit.calls")
    assert (seen["same"], seen["said"]) == (True, [])


def test_log_says_what_is_installed_hit_and_missed_and_why(zoo: Site) -> None:
    finished = zoo.process("unfit.hits_and_misses_for_the_log", environment={"HATCH_PRECOMPILE": "log"})
    lines = [line for line in finished.stderr.splitlines() if line.startswith("zoo._precompiled: ")]
    text = "\n".join(lines)
    assert "installed mlp: 1 entries, variant native" in text
    assert text.count("hit of mlp: Mlp.forward, entry 0") == 1
    assert "miss of mlp: x is a tensor of shape (17, 8); needed: 3 <= x.size()[0]" in text
    assert "; pass a size in that range, or rebuild the wheel" in text
    assert text.count("miss of mlp") == 5


class TestNeverServed:
    def test_calls_that_all_miss_are_told_once_with_what_would_help(self, zoo: Site) -> None:
        (text,) = zoo.play("unfit.calls_that_are_never_served", hits=0)
        assert text.startswith("zoo: none of 10 calls of mlp was served by compiled code: ")
        assert "grad_mode" in text
        assert text.endswith("; make the call under torch.no_grad()")

    def test_where_one_was_served_nothing_is_said(self, zoo: Site) -> None:
        assert zoo.play("unfit.calls_that_are_never_served", hits=1) == []

    def test_quiet_says_nothing(self, zoo: Site) -> None:
        quiet = {"HATCH_PRECOMPILE": "quiet"}
        assert zoo.play("unfit.calls_that_are_never_served", hits=0, environment=quiet) == []


def test_log_goes_to_the_handlers_of_the_process(zoo: Site) -> None:
    finished = zoo.process("unfit.facts_in_log_records", environment={"HATCH_PRECOMPILE": "log"})
    assert "mine: installed mlp: 1 entries" in finished.stdout
    assert "installed mlp" not in finished.stderr
    installed = {
        "package": "zoo",
        "event": "installed",
        "entrypoint": "mlp",
        "entries": 1,
        "variant": "native",
    }
    assert installed in finished.result
    assert finished.result[-1] == {
        "package": "zoo",
        "event": "miss",
        "entrypoint": "mlp",
        "function": "Mlp.forward",
        "misses": 1,
        "held_back": 0,
        "entry": 0,
        "check": "v0.dtype is torch.float32",
        "reason": "x has dtype int64, the entry needs float32",
        "remedy": "convert it to torch.float32, or rebuild the wheel with a sample that has it",
    }


def test_torchs_own_log_has_the_misses_once_dynamo_is_there(zoo: Site) -> None:
    scenario = "unfit.misses_before_and_after_dynamo_is_imported"
    finished = zoo.process(scenario, environment={"TORCH_LOGS": "recompiles"})
    assert finished.result == {"before": [], "misses": 2}
    (line,) = [line for line in finished.stderr.splitlines() if "miss of mlp" in line]
    assert "[__recompiles] miss of mlp: x is a tensor of shape (18, 8)" in line
