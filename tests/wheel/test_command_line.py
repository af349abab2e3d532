"""The command line on a package that was built: what it carries, and why a call is not served."""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

if TYPE_CHECKING:
    from tests.conftest import Finished, Site
from tests.wheel.cells import written

INPUTS = Path(__file__).parent / "command_line" / "inputs.py"


def command(zoo: Site, folder: Path, *arguments: str, ok: bool = True) -> Finished:
    shutil.copy(INPUTS, folder)
    code = f"from hatch_precompile.cli import main; main({list(arguments)!r})"
    return zoo.run(code, cwd=folder, ok=ok)


class TestExplain:
    REASONS: ClassVar = {
        "dtype": "x has dtype float64, the entry needs float32",
        "rank": "x is 1-dimensional, the entry needs 2 dimensions",
        "size": "x is a tensor of shape (17, 8); needed: 3 <= x.size()[0] and x.size()[0] <= 16",
        "static_size": "x has size 9 in dimension 1, the entry needs 8",
        "device": "x is on the device meta, the entry needs cpu",
        "flag": "training",
        "another_class": "self is a torch.nn.modules.linear.Linear",
        "attribute": "self.scale is 3.0; needed: type(self.scale) is float and self.scale == 2.0",
        "more_arguments": "shift is a tensor of shape (8,); needed: shift is None",
        "strides": "tensor 'x' stride mismatch at index 0. expected 8, actual 1",
    }

    @pytest.mark.parametrize("name", REASONS)
    def test_the_true_cause_is_named(self, zoo: Site, tmp_path: Path, name: str) -> None:
        arguments = ("explain", "zoo:mlp", "--with", f"inputs:{name}", "--json")
        finished = command(zoo, tmp_path, *arguments, ok=False)
        assert finished.returncode == 1, finished.stderr
        (report,) = json.loads(finished.stdout)
        assert self.REASONS[name] in report["reason"]

    def test_the_grad_mode_is_named(self, zoo: Site, tmp_path: Path) -> None:
        arguments = ("explain", "zoo:mlp", "--with", "inputs:hit", "--mode", "train")
        finished = command(zoo, tmp_path, *arguments, ok=False)
        assert finished.returncode == 1
        assert "entry 0: torch's global state differs: grad_mode" in finished.stdout

    @pytest.mark.parametrize("name", ["hit", "as_keywords"])
    def test_a_hit_is_a_success(self, zoo: Site, tmp_path: Path, name: str) -> None:
        finished = command(zoo, tmp_path, "explain", "zoo:mlp", "--with", f"inputs:{name}")
        assert finished.stdout == "entry 0: hit\n"

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (("zoo", "inputs:hit"), "'zoo' is not of the form PACKAGE:ENTRYPOINT"),
            (("zoo:mpl", "inputs:hit"), "no active entrypoint 'mpl'; there are: "),
            (("zoo:mlp", "inputs"), "'inputs' is not of the form MODULE:FUNCTION"),
            (("zoo:mlp", "inputs:missing"), "inputs has no function missing"),
            (("zoo:mlp", "missing:hit"), "missing cannot be imported: No module named 'missing'"),
            (("zoo:mlp", "inputs:nonsense"), "what inputs:nonsense returned is a int"),
            (("missing:mlp", "inputs:hit"), "missing cannot be imported: No module named 'missing'"),
            (("json:mlp", "inputs:hit"), "the installed package json carries no bundle"),
        ],
    )
    def test_bad_input_is_one_sentence(
        self, zoo: Site, tmp_path: Path, arguments: tuple[str, str], text: str
    ) -> None:
        finished = command(zoo, tmp_path, "explain", arguments[0], "--with", arguments[1], ok=False)
        assert finished.returncode == 2
        assert text in finished.stderr
        assert "Traceback" not in finished.stderr


class TestInspect:
    @staticmethod
    def printed(zoo: Site, folder: Path, *arguments: str) -> Any:
        return json.loads(command(zoo, folder, "inspect", "zoo", *arguments, "--json").stdout)["zoo"]

    def test_the_guard_function_is_printed(self, zoo: Site, tmp_path: Path) -> None:
        (source,) = self.printed(zoo, tmp_path, "--guards", "mlp").values()
        assert "def guard(L):" in source
        assert "L['self']" in source

    def test_the_graph_is_printed_as_captured(self, zoo: Site, tmp_path: Path) -> None:
        (graph,) = self.printed(zoo, tmp_path, "--graph", "mlp").values()
        assert "torch._C._nn.linear" in graph

    def test_the_bytecode_is_disassembled(self, zoo: Site, tmp_path: Path) -> None:
        (bytecode,) = self.printed(zoo, tmp_path, "--bytecode", "mlp").values()
        assert "__precompiled_" in bytecode
        assert "RETURN_VALUE" in bytecode

    def test_an_entrypoint_that_is_not_there_is_one_sentence(self, zoo: Site, tmp_path: Path) -> None:
        finished = command(zoo, tmp_path, "inspect", "zoo", "--guards", "mpl", ok=False)
        assert finished.returncode == 2
        assert "there is no entrypoint 'mpl'; there are: mlp, " in finished.stderr


def wheel_of(zoo: Site, folder: Path) -> Path:
    """The zoo as a wheel's file, as far as this command line reads one."""
    path = folder / "zoo-1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file in sorted(zoo.directory.rglob("*")):
            wheel.write(file, file.relative_to(zoo.directory))
    return path


def with_samples(zoo: Site, entrypoint: str, reference: str) -> None:
    """Have the bundle say that these are the samples of an entrypoint."""
    path = zoo.directory / "zoo/_precompiled/bundle/manifest.json"
    manifest = json.loads(path.read_text())
    (record,) = [each for each in manifest["entrypoints"] if each["name"] == entrypoint]
    record["recipe"]["samples"] = reference
    heads = {name: (path.parent / name).read_bytes() for name in manifest["files"] if name.endswith(".heads")}
    path.write_bytes(written(manifest, heads, ""))
    for name, content in heads.items():
        (path.parent / name).write_bytes(content)


class TestVerify:
    def test_the_samples_of_a_wheel_are_run_in_a_process_without_anything(
        self, zoo: Site, tmp_path: Path
    ) -> None:
        (tmp_path / "empty").mkdir()
        arguments = ("verify", str(wheel_of(zoo, tmp_path)), "--entrypoint", "ripple", "--json")
        finished = command(replace(zoo, directory=tmp_path / "empty"), tmp_path, *arguments)
        (report,) = json.loads(finished.stdout)
        assert (report["package"], report["entrypoint"], report["problem"]) == ("zoo", "ripple", "")
        assert [(each["sample"], each["hit"], each["problem"]) for each in report["samples"]] == [
            (1, True, ""),
            (2, True, ""),
            (3, True, ""),
        ]
        assert all(each["difference"] < 1e-5 and each["seconds"] > 0 for each in report["samples"])
        assert "ripple: sample 3/3: hit, largest difference from eager" in finished.stderr

    def test_a_miss_is_a_failure_that_says_why(self, zoo_copy: Site, tmp_path: Path) -> None:
        samples = "import torch\ndef wide():\n    return [(torch.randn(4, 8),), (torch.randn(17, 8),)]\n"
        (zoo_copy.directory / "zoo/wide.py").write_text(samples)
        with_samples(zoo_copy, "mlp", "zoo.wide:wide")
        finished = command(zoo_copy, tmp_path, "verify", "zoo", "--entrypoint", "mlp", ok=False)
        assert finished.returncode == 1
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in finished.stdout.splitlines()]
        assert [row[1:4:2] for row in rows if row[:1] == ["zoo:mlp"]][1] == ["2", "fails"]
        assert [row[2] for row in rows if row[:1] == ["zoo:mlp"]] == ["hit", "miss"]
        assert "zoo:mlp: sample 2/2 is not served by any entry: " in finished.stdout
        assert "x is a tensor of shape (17, 8); needed: 3 <= x.size()[0]" in finished.stdout
        assert "Traceback" not in finished.stderr

    def test_samples_that_are_not_there_are_one_sentence(self, zoo_copy: Site, tmp_path: Path) -> None:
        with_samples(zoo_copy, "mlp", "zoo.left_out:samples")
        arguments = ("verify", "zoo", "--entrypoint", "mlp", "--json")
        finished = command(zoo_copy, tmp_path, *arguments, ok=False)
        assert finished.returncode == 1
        (report,) = json.loads(finished.stdout)
        assert report["problem"].startswith(
            'entrypoint mlp: samples = "zoo.left_out:samples": cannot import zoo.left_out ('
        )
        assert "Traceback" not in finished.stderr


class TestBench:
    def test_each_way_is_a_row_and_one_that_cannot_be_run_says_why(self, zoo: Site, tmp_path: Path) -> None:
        # No compiler here, so torch.compile is the one that cannot.
        arguments = ("bench", "zoo", "--entrypoint", "whiten", "--runs", "1", "--json")
        finished = command(zoo, tmp_path, *arguments, ok=False)
        assert finished.returncode == 1, finished.stderr
        rows = {row["way"]: row for row in json.loads(finished.stdout)}
        assert list(rows) == ["eager", "torch.compile", "wheel"]
        for way in ("eager", "wheel"):
            assert rows[way]["problem"] == ""
            assert rows[way]["process_s"] * 1000 > rows[way]["first_call_ms"] > 0
            assert rows[way]["steady_ms"] > 0
        assert rows["torch.compile"]["steady_ms"] is None
        assert "InvalidCxxCompiler" in rows["torch.compile"]["problem"]


@pytest.mark.parametrize("name", ["verify", "bench"])
def test_an_unknown_entrypoint_is_one_sentence(zoo: Site, tmp_path: Path, name: str) -> None:
    finished = command(zoo, tmp_path, name, "zoo", "--entrypoint", "mpl", ok=False)
    assert finished.returncode == 2
    assert "there is no entrypoint 'mpl'; there are: mlp, " in finished.stderr
