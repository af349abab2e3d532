"""`hatch-precompile tune` where no GPU is: what it says, and that it loses nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from hatch_precompile.cli import main
from hatch_precompile.processes import Finished
from hatch_precompile.records import Autotuning, Configuration, MeasuredKernel
from hatch_precompile.tuning import parent
from hatch_precompile.tuning.parent import Outcome
from tests.validation import fabricated

COMMAND = import_module("hatch_precompile.cli.tune")
KEY = "0" * 32
SMALL, LARGE = (Configuration({"XBLOCK": size}, 4, 1) for size in (64, 128))
KERNELS = msgspec.json.encode(Autotuning("raise AssertionError", {KEY: ("add", SMALL)}))
TIMES = Outcome("a card", [MeasuredKernel(KEY, "add", [(SMALL, 3.0), (LARGE, 1.0)])])

# Has the measuring process end with what is given: measured kernels, or a return code.
Ending = Callable[[Outcome | int], None]


def tuned(wheel: Path, output: Path, *more: str) -> Result:
    arguments = ["tune", str(wheel), "--output", str(output), *more]
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "300"})


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Ending:
    """There is one, and this torch."""
    monkeypatch.setattr(COMMAND, "runs_here", lambda name: name == "cuda-sm90")
    monkeypatch.setattr(COMMAND, "torch_here", lambda: "2.13.0+cu130")

    def ending(given: Outcome | int) -> None:
        def run(module: str, arguments: list[str], **_: Any) -> Finished:
            if isinstance(given, Outcome):
                Path(arguments[1]).write_bytes(msgspec.json.encode(given))
            if given == parent.FAILED:
                Path(arguments[1]).with_name("error.txt").write_text("it cannot be measured: because")
            return Finished(given if isinstance(given, int) else 0, [], timed_out=False)

        monkeypatch.setattr(parent, "run_module", run)

    return ending


def test_what_is_faster_is_written_beside_what_was_there(gpu: Ending, tmp_path: Path) -> None:
    gpu(TIMES)
    other = {"arguments": {}, "num_warps": 1, "num_stages": 1, "name": "k", "gpu": "g"}
    kept = {"1" * 32: other | {"microseconds": 1.0, "before": 2.0}}
    (tmp_path / "tuned.json").write_text(json.dumps({"variants": {"cuda-sm80": kept, "cuda-sm90": kept}}))
    done = tuned(fabricated.wheel_for_gpus(tmp_path, autotuning=KERNELS), tmp_path / "tuned.json")
    assert done.exit_code == 0, done.output
    assert "of 1 kernels for cuda-sm90 1 tuned, 0 fastest as they are" in done.output
    variants = json.loads((tmp_path / "tuned.json").read_text())["variants"]
    assert variants["cuda-sm80"] == kept
    assert variants["cuda-sm90"].keys() == {KEY, *kept}
    assert variants["cuda-sm90"][KEY]["arguments"] == {"XBLOCK": 128}


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (parent.FAILED, "0-cuda-sm90.autotuning: it cannot be measured: because"),
        (-9, "0-cuda-sm90.autotuning: the measuring process was ended by SIGKILL"),
        (1, "0-cuda-sm90.autotuning: the measuring process ended with 1"),
    ],
)
def test_a_library_that_fails_is_said(gpu: Ending, tmp_path: Path, ending: int, said: str) -> None:
    gpu(ending)
    done = tuned(fabricated.wheel_for_gpus(tmp_path, autotuning=KERNELS), tmp_path / "tuned.json")
    assert done.exit_code == 1 and said in done.output
    assert json.loads((tmp_path / "tuned.json").read_text()) == {"format": 1, "variants": {}}


class TestBeforeAnythingIsMeasured:
    """Nothing is: `gpu` was not told how a process ends."""

    def test_no_gpu(self, gpu: Ending, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(COMMAND, "runs_here", lambda name: False)
        done = tuned(fabricated.wheel_for_gpus(tmp_path, autotuning=KERNELS), tmp_path / "tuned.json")
        assert done.exit_code == 2 and "no GPU here runs code for cuda-sm90, which" in done.output
        assert not (tmp_path / "tuned.json").exists()

    def test_another_torch(self, gpu: Ending, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(COMMAND, "torch_here", lambda: "2.11.0+cu130")
        done = tuned(fabricated.wheel_for_gpus(tmp_path, autotuning=KERNELS), tmp_path / "tuned.json")
        assert done.exit_code == 2
        assert "was built with torch 2.13.0+cpu, and here is 2.11.0+cu130" in done.output

    def test_a_wheel_for_cpus(self, gpu: Ending, tmp_path: Path) -> None:
        wheel = fabricated.wheel(tmp_path)
        done = tuned(wheel, tmp_path / "tuned.json")
        assert done.exit_code == 2 and f"{wheel} has no kernels for GPUs" in done.output
        done = tuned(wheel, tmp_path / "tuned.json", "--entrypoint", "other")
        assert done.exit_code == 2 and "there is no entrypoint 'other'; there are: net" in done.output

    @pytest.mark.parametrize(
        "content", [b"{", b"[]", b'{"source": "", "kernels": {"x": ["k", {}]}}', b"\xff"]
    )
    def test_a_damaged_list_of_kernels(self, gpu: Ending, tmp_path: Path, content: bytes) -> None:
        done = tuned(fabricated.wheel_for_gpus(tmp_path, autotuning=content), tmp_path / "tuned.json")
        assert done.exit_code == 2 and "0-cuda-sm90.autotuning is damaged: " in done.output

    def test_a_file_that_is_another(self, gpu: Ending, tmp_path: Path) -> None:
        (tmp_path / "tuned.json").write_text("[]")
        done = tuned(fabricated.wheel_for_gpus(tmp_path, autotuning=KERNELS), tmp_path / "tuned.json")
        assert done.exit_code == 2 and "tuned.json is no file of tuned kernels" in done.output
        assert (tmp_path / "tuned.json").read_text() == "[]"

    def test_a_folder_that_is_not_there(self, gpu: Ending, tmp_path: Path) -> None:
        wheel = fabricated.wheel_for_gpus(tmp_path, autotuning=KERNELS)
        done = tuned(wheel, tmp_path / "none/tuned.json")
        assert done.exit_code == 2 and "none/tuned.json cannot be written: No such file" in done.output
