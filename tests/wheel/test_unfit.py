"""A bundle that does not fit: one warning that says why, and the model runs as if it had none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Site

CALL = """
import warnings
said = warnings.catch_warnings(record=True).__enter__()
warnings.simplefilter("always")
import torch, zoo, probe
import zoo.models
model = zoo.models.Mlp().eval()
x = torch.randn(4, 8)
with torch.no_grad():
    same = all(torch.equal(model(x), probe.eager(model)(x)) for _ in range(3))
said = [str(w.message) for w in said if w.category.__name__ == "PrecompileWarning"]
"""


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
        manifest_change(lambda m: m["built_with"].update(torch="2.12.1")),
        "it was built with torch 2.12.1, this is",
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
    "a manifest without its parts": (write_manifest('{"format": 2}'), "built_with"),
    "a later format": (manifest_change(lambda m: m.update(format=99)), "its bundle has format 99"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_the_model_runs_without_its_bundle_and_one_warning_says_why(zoo_copy: Site, case: str) -> None:
    change, reason = UNFIT[case]
    change(zoo_copy.directory / "zoo")
    seen = zoo_copy.run(f"{CALL}\nprobe.result(same=same, said=said, imported=probe.compilers())").result
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
    finished = zoo_copy.run(CALL, ok=False, HATCH_PRECOMPILE="strict")
    assert finished.returncode == 1
    assert "PrecompileError: zoo: " in finished.stderr
    assert reason in finished.stderr


def test_an_entry_that_does_not_fit_takes_out_only_itself(zoo_copy: Site) -> None:
    flip(next((zoo_copy.directory / "zoo/_precompiled/bundle/mlp/graphs").glob("*.so")))
    seen = zoo_copy.run(f"""
{CALL}
import zoo.functions
with torch.no_grad():
    zoo.functions.whiten(torch.randn(2, 3, 4, 5))
mlp = probe.status("mlp")
probe.result(hits=probe.hits("whiten"), left_out=len(mlp["left_out"]), loaded=mlp["loaded"], mlp=mlp["hits"])
""").result
    assert seen == {"hits": 1, "left_out": 1, "loaded": 0, "mlp": 0}


def test_what_cannot_change_a_result_is_no_reason(zoo_copy: Site) -> None:
    """Comments, line numbers and the readable guard source."""
    package = zoo_copy.directory / "zoo"
    helpers = package / "helpers.py"
    helpers.write_text("# a comment\n\n" + helpers.read_text())
    for path in (package / "_precompiled/bundle/mlp/entries").glob("*.txt"):
        path.unlink()
    code = "torch.no_grad().__enter__(); model(x); probe.result(said=said, hits=probe.hits('mlp'))"
    assert zoo_copy.run(f"{CALL.replace('same = all', 'all')}\n{code}").result == {"said": [], "hits": 4}


def test_off_installs_nothing(zoo: Site) -> None:
    seen = zoo.run(
        f"""
{CALL}
status = zoo._precompiled.status()
probe.result(
    same=same, said=said, status=status, wrapped=probe.activated(zoo.models.Mlp.forward),
    runtime=[name for name in __import__("sys").modules if name.startswith("zoo._precompiled.")],
)
""",
        HATCH_PRECOMPILE="off",
    ).result
    assert seen == {
        "same": True,
        "said": [],
        "status": {
            "installed": False,
            "reason": "HATCH_PRECOMPILE=off",
            "variant": None,
            "entrypoints": {},
            "prepared_bytes": 0,
        },
        "wrapped": False,
        "runtime": [],
    }


def test_a_package_without_its_runtime_imports(zoo_copy: Site) -> None:
    import shutil

    shutil.rmtree(zoo_copy.directory / "zoo/_precompiled")
    assert zoo_copy.run(f"{CALL}\nprobe.result(same=same, said=said)").result == {"same": True, "said": []}


def test_log_says_what_is_installed_hit_and_missed_and_why(zoo: Site) -> None:
    finished = zoo.run(
        """
import torch, zoo.models
from zoo._precompiled import reporting
reporting.SECONDS = 10**9
model = zoo.models.Mlp().eval()
with torch.no_grad():
    model(torch.randn(4, 8)), model(torch.randn(5, 8))
    model(torch.randn(17, 8))
    for _ in range(20):
        model(torch.randn(18, 8))
""",
        HATCH_PRECOMPILE="log",
    )
    lines = [line for line in finished.stderr.splitlines() if line.startswith("zoo._precompiled: ")]
    text = "\n".join(lines)
    assert "installed mlp: 1 entries, variant native" in text
    assert text.count("hit of mlp: Mlp.forward, entry 0") == 1
    assert "miss of mlp: x is a tensor of shape (17, 8); needed: 3 <= x.size()[0]" in text
    assert "; pass a size in that range, or rebuild the wheel" in text
    assert text.count("miss of mlp") == 5


def test_log_goes_to_the_handlers_of_the_process(zoo: Site) -> None:
    finished = zoo.run(
        """
import logging, probe, sys
class Facts(logging.Handler):
    def emit(self, record):
        facts.append(record.precompiled)
facts = []
logging.basicConfig(format="mine: %(message)s", stream=sys.stdout, level=logging.INFO)
logging.getLogger("zoo._precompiled").addHandler(Facts())
import torch, zoo.models
with torch.no_grad():
    try:
        zoo.models.Mlp().eval()(torch.ones(4, 8, dtype=torch.long))
    except RuntimeError:
        pass
probe.result(facts=facts)
""",
        HATCH_PRECOMPILE="log",
    )
    assert "mine: installed mlp: 1 entries" in finished.stdout
    assert "installed mlp" not in finished.stderr
    installed = {
        "package": "zoo",
        "event": "installed",
        "entrypoint": "mlp",
        "entries": 1,
        "variant": "native",
    }
    assert installed in finished.result["facts"]
    assert finished.result["facts"][-1] == {
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
    finished = zoo.run(
        """
import probe, torch, zoo.models
model = zoo.models.Mlp().eval()
with torch.no_grad():
    model(torch.randn(17, 8))
    before = probe.compilers()
    import torch._dynamo
    model(torch.randn(18, 8))
probe.result(before=before, misses=probe.status("mlp")["misses"])
""",
        TORCH_LOGS="recompiles",
    )
    assert finished.result == {"before": [], "misses": 2}
    (line,) = [line for line in finished.stderr.splitlines() if "miss of mlp" in line]
    assert "[__recompiles] miss of mlp: x is a tensor of shape (18, 8)" in line
