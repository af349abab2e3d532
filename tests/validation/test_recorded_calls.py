"""Records of strangers: what is in them stays in its place, and what is none is a damaged line."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from hatch_precompile.cli import main
from hatch_precompile.entrypoints.recorded import sample_of
from hatch_precompile.errors import BuildError, CaptureError, ConfigError, OutsideError
from hatch_precompile.runtime import runtime
from hatch_precompile.traffic.reading import read_records
from hatch_precompile.validation.recorded_calls import calls_in, lines_of
from tests.validation.fabricated import GOOD, PROJECT, line, tensor

INJECTED = 'X\n[[tool.hatch.build.hooks.precompile.entrypoints]]\ntarget = "os:system"\nsamples = "a:b"\n#'
# What ends a line for somebody, closes a string, or is for a terminal.
HOSTILE = [
    INJECTED,
    "a\r\ninjected = 1",
    "a\x85injected = 1",
    "a\u2028x = 1",
    'a"""\nx = 1',
    "a\0b",
    "\x1b[2J",
]


def suggest(folder: Path, *lines: str | bytes, arguments: tuple[str, ...] = ()) -> Result:
    (folder / "pyproject.toml").write_text(PROJECT)
    record = folder / "record.jsonl"
    record.write_bytes(b"\n".join(each if isinstance(each, bytes) else each.encode() for each in lines))
    return CliRunner().invoke(main, ["suggest", str(folder), str(record), *arguments])


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize(
    "where", ["type", "class", "device", "layout", "name", "key", "owner", "string", "dict", "float"]
)
def test_nothing_of_a_record_leaves_its_comment(tmp_path: Path, where: str, hostile: str) -> None:
    lines = {
        "type": line({"type": hostile}),
        "class": line(tensor([4, 8], **{"class": hostile})),
        "device": line(tensor([4, 8], device=hostile)),
        "layout": line({"tensor": "float32", "layout": hostile}),
        "name": line({"type": "str"}, name=hostile),
        "key": line(1, kwargs={hostile: {"type": "str"}}),
        "owner": line(tensor([4, 8]), owner=hostile),
        "string": line({"string": hostile}, count=1),
        "dict": line({"dict": {hostile: 1}}, count=1),
        "float": line({"float": hostile}, count=1),
    }
    result = suggest(tmp_path, GOOD, lines[where], arguments=("--rare", "0.1"))
    assert result.exit_code == 0, result.output
    proposal = tomllib.loads(result.stdout)
    (entrypoint,) = proposal["tool"]["hatch"]["build"]["hooks"]["precompile"]["entrypoints"]
    assert entrypoint == {"target": "p.model:Net", "samples": "recorded:record.jsonl"}
    assert list(proposal) == ["tool"]
    assert not set("\x1b\0\x85\u2028") & set(result.output)


DAMAGED: dict[str, str | bytes] = {
    "a mode of another type": GOOD.replace('"no_grad"', '["no_grad"]'),
    "no number": GOOD.replace("1000", "NaN"),
    "an infinite number": line(1.5).replace("1.5", "1e999"),
    "a number beyond all": line(10**30),
    "a size beyond all": line(tensor([10**30])),
    "a large size": line(tensor([1 << 62])),
    "many dimensions": line(tensor([1] * 1000)),
    "a negative size": line(tensor([-1])),
    "a count beyond all": GOOD.replace("1000", "9" * 300),
    "a count without an end": GOOD.replace("1000", "9" * 5000),
    "half a character": line({"type": "\ud800"}),
    "no text": b"\xff\xfe",
    "deep": GOOD.replace('"kwargs": {}', '"kwargs": {"a": ' + '{"list": [' * 5000 + "]}" * 5000 + "}"),
    "long": line({"type": "x" * 100_000}),
    "a package that is none": GOOD.replace('"p"', '"\\u001b[2J"'),
    "an entrypoint that is none": GOOD.replace('"net"', '"n\\n"'),
    "a dtype that is none": line({"tensor": "q\nx", "size": [1]}),
    "a flag that is none": line(tensor([1], requires_grad=1)),
    "an owner that is none": line(1, owner=["x"]),
    "no object": "[]",
    "again without a count": '{"again": "x"}',
}


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_no_line_of_a_record_is_counted(tmp_path: Path, what: str) -> None:
    for arguments in ((), ("--json",)):
        result = suggest(tmp_path, GOOD, DAMAGED[what], arguments=arguments)
        assert result.exit_code == 0, result.output
        assert "1 damaged lines of the record were skipped" in result.stderr


@pytest.mark.parametrize("kind", ["a pipe", "a folder", "too large", "missing"])
def test_what_is_no_file_is_not_read(tmp_path: Path, kind: str) -> None:
    record = tmp_path / "record.jsonl"
    if kind == "a pipe":
        os.mkfifo(record)
    elif kind == "a folder":
        record.mkdir()
    elif kind == "too large":
        with record.open("wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(ConfigError, match=r"record\.jsonl"):
        list(lines_of(record))
    with pytest.raises(ConfigError):
        read_records([record])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (tensor([1 << 30, 1 << 9]), "more than half of the memory here"),
        (tensor([2, 2], stride=[1 << 39, 1 << 39]), "more than half of the memory here"),
        ({"tensor": "no_such_dtype", "size": [1]}, "this torch has no dtype no_such_dtype"),
        ({"tensor": "int64", "size": [1], "requires_grad": True}, "require gradients"),
        ({"same": 3}, "cannot be made again"),
        ({"float": "x"}, "could not convert string to float"),
        ({"device": "no such"}, "cannot be made again"),
        ({"dtype": "nn"}, "this torch has no dtype nn"),
    ],
)
def test_a_call_that_cannot_be_made_again_is_said(value: Any, said: str) -> None:
    content = {"args": [["x", value]], "kwargs": {}, "mode": "no_grad"}
    with pytest.raises(CaptureError, match=said):
        sample_of(content, "recorded call 1")


def test_one_that_can_is_made(tmp_path: Path) -> None:
    sample = sample_of({"args": [["x", tensor([2, 3])]], "kwargs": {}, "mode": "no_grad"}, "it")
    assert sample.args[0].shape == torch.Size([2, 3])


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"calls": 1}', '{"calls": [1]}', "[" * 10_000])
def test_calls_in_a_manifest_are_calls(text: str) -> None:
    with pytest.raises(OutsideError, match="damaged"):
        calls_in(text)
    assert issubclass(OutsideError, BuildError)


def test_a_record_is_for_who_runs_the_process(tmp_path: Path) -> None:
    recording = runtime("recording.recorder")
    recording.Recorder("p", f"record:{tmp_path / 'record'}").flush()
    assert (tmp_path / "record").stat().st_mode & 0o077 == 0
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match="cannot be written"):
        recording.Recorder("p", f"record:{tmp_path / 'link'}")
