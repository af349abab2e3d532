"""The command line on a package that was built: what it carries, and why a call is not served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

if TYPE_CHECKING:
    from tests.conftest import Finished, Site

INPUTS = """
import torch, zoo.models

def model(**changes):
    made = zoo.models.Mlp().eval()
    for name, value in changes.items():
        setattr(made, name, value)
    return made

def hit():
    return model(), torch.randn(4, 8)

def as_keywords():
    return (model(),), {"x": torch.randn(4, 8)}

def dtype():
    return model(), torch.randn(4, 8, dtype=torch.float64)

def rank():
    return model(), torch.randn(8)

def size():
    return model(), torch.randn(17, 8)

def static_size():
    return model(), torch.randn(4, 9)

def device():
    return model(), torch.randn(4, 8, device="meta")

def flag():
    return model().train(), torch.randn(4, 8)

def another_class():
    return torch.nn.Linear(8, 8), torch.randn(4, 8)

def attribute():
    return model(scale=3.0), torch.randn(4, 8)

def more_arguments():
    return (model(), torch.randn(4, 8)), {"shift": torch.ones(8)}

def strides():
    return model(), torch.randn(8, 4).t()

def nonsense():
    return 5
"""


def command(zoo: Site, folder: Path, *arguments: str, ok: bool = True) -> Finished:
    (folder / "inputs.py").write_text(INPUTS)
    code = f"from hatch_precompile.cli import main; main({list(arguments)!r})"
    return zoo.run(code, cwd=folder, ok=ok)


class TestExplain:
    REASONS: ClassVar = {
        "dtype": "x has dtype float64, the entry needs float32",
        "rank": "x is 1-dimensional, the entry needs 2 dimensions",
        "size": "x is a tensor of shape (17, 8); needed: 3 <= x.size()[0] and x.size()[0] <= 16",
        "static_size": "x has size 9 in dimension 1, the entry needs 8",
        "device": "'x' dispatch key set mismatch",
        "flag": "training",
        "another_class": "self is Linear(in_features=8, out_features=8, bias=True)",
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
