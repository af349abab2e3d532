"""A build that cannot go on says in a sentence what, where and what to do."""

from __future__ import annotations

import errno
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from hatch_precompile import machine
from hatch_precompile.build import BuiltBundle, build_bundle
from hatch_precompile.config import load
from hatch_precompile.config.cells import Cell, this_cell
from hatch_precompile.errors import BuildError, CaptureError, ConfigError, Unsupported, VerifyError
from tests.conftest import preload
from tests.support.headers import compiled_headers

TORCH = version("torch")
ROOT = Path(__file__).parents[1] / "broken"


def entrypoint(target: str, samples: str = "one", **keys: Any) -> dict[str, Any]:
    reference = f"broken.models:{target}"
    return {"target": reference, "samples": f"broken.models:{samples}", "name": target.lower(), **keys}


def build(
    work: Path, *entrypoints: dict[str, Any], said: list[str] | None = None, **keys: Any
) -> BuiltBundle:
    config = load({"entrypoints": list(entrypoints), "jobs": 2, **keys}, default_package="broken")
    work.mkdir(parents=True)
    report = [].append if said is None else said.append
    preload()
    return build_bundle(config, source_roots=[ROOT], work=work, report=report, headers=compiled_headers())


@pytest.mark.parametrize(("torch", "said"), [("2.1.0", True), (this_cell(TORCH).torch, False)])
def test_a_build_outside_of_its_matrix_says_so(torch: str, said: bool, tmp_path: Path) -> None:
    here = this_cell(TORCH)
    lines: list[str] = []
    with pytest.raises(CaptureError):  # later than this is asked
        build(
            tmp_path / "work",
            entrypoint("Missing"),
            said=lines,
            matrix={"python": [here.python], "torch": [torch]},
        )
    text = f"this wheel is for {here.name}, which is not of the matrix: {Cell(here.python, torch).name}"
    assert (text in lines) == said


class TestWarn:
    """With on-error = "warn", what fails is left out, loudly, for the reason a failing build would give."""

    REASONS: ClassVar = {
        "missing": "broken.models has no Missing",
        "misfit": "sample 1/1: the model itself raises RuntimeError",
        "uncopied": "sample 1/1: the arguments cannot be copied (TypeError: cannot pickle 'generator'",
        "unlike": "sample 1/1: output differs from eager",
        "local": "has no name that another process could find it by",
        "made": "has no name that another process could find it by",
        "looping": "sample 1/1: torch.compile leaves a frame uncompiled",
        "printing": "sample 1/1: torch.compile breaks the graph of a frame, which fullgraph = true forbids",
        "deciding": "sample 1/1: torch.compile leaves a frame uncompiled",
        "startless": 'on-miss = "compile", but of broken.models:calling itself nothing was compiled',
        "otherwise": "fine is under a torch.compile of the package's own, with another backend than inductor",
        "torchs": 'target = "broken.models:Linear" is code of torch itself; name a module',
        "untraceable": "sample 1/1: torch.compile captured nothing of broken.models:untraceable",
        "die": "the capturing process ended with 42",
    }

    @pytest.fixture(scope="class")
    @classmethod
    def said(cls, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
        lines: list[str] = []
        built = build(
            tmp_path_factory.mktemp("warn") / "work",
            entrypoint("fine"),
            entrypoint("Missing"),
            entrypoint("Fine", "misfit", name="misfit"),
            entrypoint("fine", "uncopied", name="uncopied"),
            entrypoint("unlike"),
            entrypoint("Locked"),
            entrypoint("Local"),
            entrypoint("Made"),
            entrypoint("looping"),
            entrypoint("printing", fullgraph=True),
            entrypoint("deciding"),
            entrypoint("calling", name="startless", **{"on-skip": "eager", "on-miss": "compile"}),
            entrypoint("otherwise", **{"on-skip": "eager"}),
            entrypoint("Linear", name="torchs"),
            entrypoint("untraceable"),
            entrypoint("die"),
            said=lines,
            **{"on-error": "warn"},
        )
        said = {line.split()[2]: line for line in lines if line.startswith("WARNING: entrypoint ")}
        said["lines"] = "\n".join(lines)
        said["manifest"] = (built.directory / "bundle/manifest.json").read_text()
        return said

    @pytest.mark.parametrize("name", REASONS)
    def test_the_reason_is_given(self, said: dict[str, str], name: str) -> None:
        assert said[name].startswith(
            f"WARNING: entrypoint {name} is left out of the wheel: entrypoint {name}: "
        )
        assert self.REASONS[name] in said[name]

    def test_the_wheel_knows_what_it_lacks(self, said: dict[str, str]) -> None:
        left_out = json.loads(said["manifest"])["left_out"]
        assert {each["name"] for each in left_out} == self.REASONS.keys()
        assert {"name": "missing", "target": "broken.models:Missing"} in left_out

    @pytest.mark.parametrize("name", ["local", "made"])
    def test_a_thing_without_a_name_comes_with_advice_and_its_source_line(
        self, said: dict[str, str], name: str
    ) -> None:
        assert "Name it: make it a module-level function, class or object" in said[name]
        assert "models.py:" in said[name]

    def test_a_graph_break_in_a_loop_names_the_frame(self, said: dict[str, str]) -> None:
        assert "looping (" in said["looping"]
        assert "graph break in loop; Failed to trace builtin operator, at models.py:" in said["looping"]
        assert "Change the code so that torch.compile takes it whole" in said["looping"]
        assert 'With on-skip = "eager" it runs as Python, and what it calls is compiled.' in said["looping"]

    def test_what_breaks_the_one_graph_is_named(self, said: dict[str, str]) -> None:
        assert "printing (" in said["printing"]
        assert "Failed to trace builtin operator, at models.py:" in said["printing"]
        assert "Without fullgraph what is before the break" in said["printing"]

    def test_fullgraph_is_advised_where_it_helps(self, said: dict[str, str]) -> None:
        assert "With fullgraph = true the graph has what only data tells, too." in said["deciding"]
        assert "fullgraph" not in said["looping"]

    def test_what_a_miss_cannot_start_from_is_named(self, said: dict[str, str]) -> None:
        assert "calling: graph break in loop" in said["startless"]
        assert 'Set on-miss = "eager" or "error"' in said["startless"]

    def test_the_rest_is_built(self, said: dict[str, str]) -> None:
        assert "fine" not in said
        assert "locked" not in said
        assert len(json.loads(said["manifest"])["entrypoints"]) == 2

    def test_the_build_says_what_it_does_while_it_does_it(self, said: dict[str, str]) -> None:
        assert "fine: import broken.models:fine\n" in said["lines"]
        assert "fine: sample 1: graph 0: 2 operations, compiling\n" in said["lines"]
        assert "fine: verify: sample 1/1: hit, largest difference from eager" in said["lines"]
        assert said["lines"].splitlines()[-1].startswith("2 entrypoints, 2 entries, 2 libraries, ")


def test_by_default_the_first_error_stops_the_build(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"^entrypoint missing: target = .*broken.models has no Missing"):
        build(tmp_path / "work", entrypoint("Missing"))


def test_it_does_not_wait_for_the_captures_before_it(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(CaptureError, match=r"^entrypoint missing: target = .*broken.models has no Missing"):
        build(tmp_path / "work", entrypoint("hang"), entrypoint("Missing"), timeout=200)
    assert time.monotonic() - started < 150


def test_a_build_with_nothing_left_fails(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="every entrypoint failed"):
        build(tmp_path / "work", entrypoint("Missing"), **{"on-error": "warn"})


def test_a_sample_that_makes_no_progress_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"entrypoint hang: no progress for 8 s \(timeout\) after: "):
        build(tmp_path / "work", entrypoint("hang"), timeout=8)


# A compiler that works, crashes, complains or has no room for what it writes, by the entrypoint's name.
COMPILER = r"""#!/bin/sh
case "$*" in
*/capture/crashes/*) kill -SEGV $$ ;;
*/capture/complains/*) echo "model.cpp:3: no such thing" >&2; exit 1 ;;
*/capture/fills/*) ulimit -f 1 ;;
esac
exec g++ "$@"
"""


def test_a_compiler_that_fails_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    lines: list[str] = []
    names = ("crashes", "complains", "fills")
    with pytest.raises(CaptureError, match="every entrypoint failed"):
        build(
            tmp_path / "work",
            *(entrypoint("fine", name=name) for name in names),
            said=lines,
            **{"on-error": "warn"},
        )
    said = {line.split()[2]: line for line in lines if line.startswith("WARNING: entrypoint ")}
    for name in names:
        assert f"entrypoint {name}: sample 1/1: torch.compile failed: " in said[name]
        assert "TORCHDYNAMO_VERBOSE" not in said[name]
        assert said[name].endswith(
            "HATCH_PRECOMPILE_TRACEBACK=1 in the environment of the build adds the traceback"
        )
        assert "C++ compile error" in said[name]
    assert "no such thing" in said["complains"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that holds less than a build writes; needs the right to mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_disk_that_gets_full_is_the_reason(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_LEAST_DISK", 0)
    with pytest.raises(BuildError, match="No space left on device") as caught:
        build(small_disk / "work", entrypoint("fine"))
    assert "Traceback" not in str(caught.value)


def test_a_file_of_the_bundle_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_bundle(directory: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory / "manifest.json"))

    captured = SimpleNamespace(name="fine"), SimpleNamespace(gpu=""), None
    monkeypatch.setattr("hatch_precompile.build._Build._capture", lambda *_: [captured])
    monkeypatch.setattr("hatch_precompile.build.write_bundle", write_bundle)
    with pytest.raises(
        BuildError, match=r"cannot write or read .*manifest\.json: No space left on device; .*TMPDIR"
    ):
        build(tmp_path / "work", entrypoint("fine"))


def test_an_answer_that_differs_from_eager_is_not_shipped(tmp_path: Path) -> None:
    match = r"entrypoint two_faced: sample 1/1: .* differs from eager: "
    with pytest.raises(VerifyError, match=match) as caught:
        build(tmp_path / "work", entrypoint("two_faced"))
    assert "Mismatched elements: 6 / 6" in str(caught.value)


def test_a_sample_that_raises_where_it_runs_eagerly_is_named(tmp_path: Path) -> None:
    match = "sample 1/1 raised ValueError where it runs eagerly: slow"
    with pytest.raises(VerifyError, match=match):
        build(tmp_path / "work", entrypoint("wants_a_compiler"))


def test_a_torch_that_says_another_version_than_its_package_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0a0+git123")
    with pytest.raises(
        BuildError, match=r"torch 2\.99\.0a0\+git123 is newer than .*; upgrade hatch-precompile"
    ):
        build(tmp_path / "work", entrypoint("fine"))
    assert list((tmp_path / "work").iterdir()) == []


# What prints nothing and compiles nothing, as a compiler of ten years ago
OLD_COMPILER = """#!/bin/sh
echo "g++: error: unrecognized command line option '$1'" >&2
exit 1
"""


class TestMachines:
    """What a machine lacks is said in one sentence, before a child is started or anything is written."""

    def say(self, work: Path, **keys: Any) -> str:
        with pytest.raises(BuildError) as caught:
            build(work, entrypoint("fine"), **keys)
        assert list(work.iterdir()) == []
        text = str(caught.value)
        assert "\n" not in text
        return text

    def versioned(self, monkeypatch: pytest.MonkeyPatch, torch: str) -> None:
        found = importlib.metadata.version
        monkeypatch.setattr(
            importlib.metadata, "version", lambda name: torch if name == "torch" else found(name)
        )

    def compiler(self, monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> Path:
        path = folder / "g++"
        path.write_text(text)
        path.chmod(0o755)
        monkeypatch.setenv("CXX", str(path))
        return path

    def test_no_compiler(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CXX", "/nonexistent/g++")
        said = self.say(tmp_path / "work")
        assert said.startswith("the C++ compiler '/nonexistent/g++' was not found; install g++ or set CXX (")

    @pytest.mark.parametrize(("torch", "standard"), [("2.11.0", "c++17"), ("2.13.0", "c++20")])
    def test_a_compiler_that_is_too_old(
        self, torch: str, standard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.versioned(monkeypatch, torch)
        path = self.compiler(monkeypatch, tmp_path, OLD_COMPILER)
        assert self.say(tmp_path / "work") == (
            f"the C++ compiler '{path}' does not take -std={standard}, which torch {torch} needs: "
            f"g++: error: unrecognized command line option '-std={standard}'; install a newer one, or set CXX"
        )

    def test_a_compiler_that_does_not_run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = self.compiler(monkeypatch, tmp_path, "#!/nonexistent/interpreter\n")
        said = self.say(tmp_path / "work")
        assert said.startswith(f"the C++ compiler '{path}' does not run: [Errno 2] No such file or directory")

    def test_no_strip(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CXX", str(shutil.which("g++")))
        monkeypatch.setenv("PATH", str(tmp_path))
        assert self.say(tmp_path / "work").startswith("strip was not found; it is in the package binutils ")

    def test_no_headers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sysconfig, "get_path", lambda *_, **__: str(tmp_path))
        assert self.say(tmp_path / "work").startswith("the headers of Python were not found (")

    @pytest.mark.parametrize(("torch", "is_"), [("2.10.0", "older than"), ("2.16.0", "newer than")])
    def test_another_torch(
        self, torch: str, is_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.versioned(monkeypatch, torch)
        assert self.say(tmp_path / "work").startswith(f"torch {torch} is {is_} ")

    def test_another_python(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        here = SimpleNamespace(version_info=(3, 15), implementation=sys.implementation)
        monkeypatch.setattr(machine, "sys", here)
        assert self.say(tmp_path / "work").startswith("Python 3.15 is not known to this hatch-precompile, ")

    def test_a_torch_for_cpus_and_a_variant_for_gpus(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch.version, "cuda", None)
        work = tmp_path / "work"
        with pytest.raises(BuildError, match=r"torch \S+ is not built for CUDA; [^\n]*$"):
            build(work, entrypoint("fine", devices=["cuda"]), variants=["cuda-sm80"])
        assert list(work.iterdir()) == []

    def test_no_disk(self, small_disk: Path) -> None:
        assert re.fullmatch(
            rf"the folder for temporary files, {small_disk}/work, is on a disk with [\d.]+ kB free, and a "
            "build writes 20 MB at least; free some, or set TMPDIR to another",
            self.say(small_disk / "work"),
        )

    def test_no_memory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("hatch_precompile.build.free_memory", lambda: 500_000_000)
        assert self.say(tmp_path / "free") == (
            "the processes of this build may have 400 MB of memory together, and the compilers take more "
            "than 600 MB for the smallest model; free some, or raise memory-limit where it is set"
        )
        assert "may have 50 MB of memory " in self.say(tmp_path / "limit", **{"memory-limit": 50})


def test_an_unknown_variant_is_named_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'variants: unknown variant "x86-64-v9"; known: "native", '):
        build(tmp_path / "work", entrypoint("fine"), variants=["x86-64-v9"])
    assert list((tmp_path / "work").iterdir()) == []


def test_every_error_of_a_build_is_one_for_its_author() -> None:
    assert all(issubclass(kind, BuildError) for kind in (CaptureError, ConfigError, Unsupported, VerifyError))
    text = str(Unsupported("a construct", "model.py:3", "Do this."))
    assert text == "a construct\n  at model.py:3\n  Do this."


@pytest.mark.skipif(torch.__version__ >= (2, 14), reason="this torch breaks the graph there")
def test_a_number_that_is_another_in_every_call_is_explained(tmp_path: Path) -> None:
    with pytest.raises(VerifyError) as error:
        build(tmp_path / "work", entrypoint("drawing"))
    assert "sample 1/1 is not served by any entry" in str(error.value)
    assert "___stack is what a call gave that torch.compile does not look into" in str(error.value)
