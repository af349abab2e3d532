"""Wheels of strangers: `inspect` and `merge` say in a sentence what is wrong, and write and run nothing."""

from __future__ import annotations

import json
import marshal
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from hatch_precompile.bundle.reader import find
from hatch_precompile.cli import main
from hatch_precompile.errors import BuildError
from hatch_precompile.records import GraphRecord
from hatch_precompile.reuse.previous_wheel import Earlier
from hatch_precompile.runtime import runtime
from tests.validation import fabricated

# CPython's words for it
TOO_DEEP = "recursion" if sys.version_info < (3, 14) else "stack overflow"

CRASH = b"{" + bytes([ord("(") | 0x80]) + (1).to_bytes(4, "little") + b"r\0\0\0\0N0"
SEAL = b"0" * 64


def command(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments], env={"COLUMNS": "300"})


def refused(result: Result, *words: str) -> None:
    """A sentence, and no traceback."""
    assert result.exit_code in (1, 2), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    for each in words:
        assert each in result.output
    assert "Traceback" not in result.output


def everything(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


def merged(tmp_path: Path, wheel: Path) -> Result:
    """Of a merge that must not write anything."""
    before = everything(tmp_path)
    result = command("merge", wheel, "--outdir", tmp_path / "out")
    assert everything(tmp_path) == before
    return result


def test_a_shard_is_joined_and_a_wheel_is_shown(tmp_path: Path) -> None:
    wheel = fabricated.wheel(tmp_path, shard=True)
    assert command("merge", wheel, "--outdir", tmp_path / "out").exit_code == 0
    shown = command("inspect", wheel)
    assert shown.exit_code == 0 and "Net.forward" in shown.output
    assert "RESUME" in command("inspect", "--bytecode", "net", wheel).output


def _readable(manifest: dict[str, Any], name: str) -> None:
    manifest["graphs"][0]["readable"] = name


def _library(manifest: dict[str, Any], variant: str) -> None:
    manifest["variants"][0]["name"] = variant
    manifest["graphs"][0]["libraries"] = {variant: "net/graphs/0-native.so"}


def _entry(manifest: dict[str, Any], **changes: Any) -> None:
    manifest["frames"][0]["entries"][0].update(changes)


LEADING_OUT: dict[str, Callable[[dict[str, Any], str], None]] = {
    "a readable graph": lambda m, out: _readable(m, f"net/{out}/x.txt"),
    "an absolute one": lambda m, out: _readable(m, f"{out}/x.txt"),
    "a variant": lambda m, out: _library(m, "/../sitecustomize"),
    "an entry": lambda m, out: _entry(m, data=f"net/{out}/any.entry"),
    "a parent": lambda m, out: _entry(m, data="net/entries/../../../any.entry"),
    "a source": lambda m, out: _entry(m, source=f"net/{out}/any.guards.txt"),
    "guards": lambda m, out: _entry(m, guards=f"net/{out}/guards.so"),
    "a resume function": lambda m, out: m.update(resumes=[{"code": f"net/{out}/0.code", "module": "p"}]),
    "an entrypoint": lambda m, out: m["entrypoints"][0].update(name=f"../{out}"),
    "a listed file": lambda m, out: m["files"].update({f"net/../../{out}": "0" * 64}),
    "wrappers": lambda m, out: m["graphs"][0].update(wrapping=f"net/{out}/0.wrapping"),
    "kernels": lambda m, out: m["graphs"][0].update(
        libraries={}, python={"native": "net/graphs/0.txt"}, kernels={"native": [f"net/{out}.so"]}
    ),
    "a constant": lambda m, out: m["graphs"][0].update(
        constants=[{"file": f"net/{out}/c.bin", "dtype": "int8", "size": [1]}]
    ),
    "weights": lambda m, out: m["graphs"][0].update(weights={"native": f"net/{out}/w"}),
    "a backward graph": lambda m, out: m["graphs"][0].update(
        backward={**m["graphs"][0], "readable": f"net/{out}/x.txt"}
    ),
}


@pytest.mark.parametrize("what", LEADING_OUT)
def test_no_name_leads_out_of_where_it_belongs(tmp_path: Path, what: str) -> None:
    """As what is copied is what the names say, the file that a name leads to is listed, too."""
    victim = tmp_path / "victim"
    victim.mkdir()

    def change(manifest: dict[str, Any]) -> None:
        LEADING_OUT[what](manifest, str(victim))
        for name in _names(manifest["graphs"] + manifest["frames"] + manifest["resumes"]):
            manifest["files"].setdefault(name, "0" * 64)

    wheel = fabricated.wheel(tmp_path / "wheel", change, shard=True)
    refused(merged(tmp_path, wheel), "is damaged")
    with pytest.raises(BuildError, match="is damaged"):
        Earlier("", find(str(wheel))[0]).unpack("net", tmp_path / "unpacked")
    assert list(victim.iterdir()) == []


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, str) and "/" in value:
        yield value
    elif isinstance(value, (dict, list)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _names(each)


def test_two_shards_do_not_take_each_others_numbers(tmp_path: Path) -> None:
    for changes in ({"graphs": [1]}, {"first_graph": 1}, {"first_resume": 3}, {"graphs": [-1]}):
        wheel = fabricated.wheel(tmp_path, lambda m, changes=changes: _entry(m, **changes), shard=True)
        refused(merged(tmp_path, wheel), "is damaged")


def test_a_manifest_that_is_not_as_it_was_built_is_said(tmp_path: Path) -> None:
    text = json.dumps(fabricated.manifest(fabricated.files()), indent=1).encode()
    text = runtime("loading.manifest").with_checksum(text)
    assert command("inspect", fabricated.wheel(tmp_path, text=text, shard=True)).exit_code == 0
    wheel = fabricated.wheel(tmp_path, text=text.replace(b'"checks": 1', b'"checks": 2'), shard=True)
    for arguments in (["inspect", wheel], ["merge", wheel], ["verify", wheel], ["bench", wheel]):
        refused(command(*arguments), "manifest.json is damaged: it is not as it was built")


def test_nothing_is_taken_from_a_manifest_that_got_a_checksum_after_a_change(tmp_path: Path) -> None:
    """Where it is copied, or shown beside what it belongs to, the heads' seal of it is compared."""
    with zipfile.ZipFile(fabricated.wheel(tmp_path, shard=True)) as archive:
        files = {name: archive.read(fabricated.FOLDER + name) for name in fabricated.files()}
        text = archive.read(f"{fabricated.FOLDER}manifest.json")
    changed = json.dumps({**json.loads(text), "resumes": []}, indent=1).encode()
    for what, is_taken in ((changed, True), (changed.replace(b'"checks": 1', b'"checks": 2'), False)):
        whole = runtime("loading.manifest").with_checksum(what)
        wheel = fabricated.wheel(tmp_path, bundle=files, text=whole, shard=True)
        shown = command("inspect", "--bytecode", "net", wheel)
        joined = command("merge", wheel, "--outdir", tmp_path / "out")
        if is_taken:
            assert shown.exit_code == 0
            assert "is damaged" not in joined.output
            continue
        for result in (shown, joined):
            refused(result, "it is not the one that net/frames/0.heads was built with")
        with pytest.raises(BuildError, match="it is not the one"):
            Earlier("", find(str(wheel))[0]).unpack("net", tmp_path / "unpacked")


@pytest.mark.parametrize(
    "heads",
    [
        CRASH,
        marshal.dumps([CRASH, SEAL], 2),
        marshal.dumps([marshal.dumps((CRASH, 1, 2, 3)), SEAL], 2),
        b"[\xff\xff\xff\x7f",
        b"",
        struct.pack("<cIcI", b"[", 1, b"s", 1 << 31),
        marshal.dumps([b"N"], 2) + b"more",
        marshal.dumps([], 2),
    ],
)
def test_marshalled_bytes_cannot_end_a_command(tmp_path: Path, heads: bytes) -> None:
    bundle = {**fabricated.files(), "net/frames/0.heads": heads}
    wheel = fabricated.wheel(tmp_path, bundle=bundle, shard=True)
    assert command("inspect", wheel).exit_code == 0
    result = command("inspect", "--bytecode", "net", wheel)
    refused(result, "net/frames/0.heads is damaged")
    joined = command("merge", wheel, "--outdir", tmp_path / "out")  # it unmarshals none of it
    assert isinstance(joined.exception, SystemExit | None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"later": ' + b"[" * 100_000, TOO_DEEP),
        (b'{"entrypoints": [{"home": ["p", ' + b"[" * 100_000, TOO_DEEP),
        (b'{"format": 3}', "has no built_with, variants"),
        (b'{"format": "2"}', "Expected `int"),
        (b"\xff", "malformed"),
        (b"{}" + b" " * (17 << 20), "at most"),
    ],
    ids=["deep", "deep where it is read", "empty", "of another type", "no text", "large"],
)
def test_what_is_no_manifest_is_said(tmp_path: Path, text: bytes, said: str) -> None:
    wheel = fabricated.wheel(tmp_path, text=text)
    result = merged(tmp_path, wheel)
    refused(result, "manifest.json")
    assert said.lower() in result.output.lower()
    assert command("inspect", wheel).exit_code in (0, 2)


def test_a_wheel_that_unpacks_to_too_much_is_not_unpacked(tmp_path: Path) -> None:
    wheel = fabricated.wheel(tmp_path, extra={"p/zeros": bytes(300 << 20)})
    for result in (merged(tmp_path, wheel), command("inspect", wheel)):
        refused(result, "would unpack to 315 MB; no wheel shrinks so much")


@pytest.mark.parametrize(
    "name", ["/etc/x", "../x", "p/../x", "p//x", "p/./x", "p\\x", "C:/x", "p/a\x1b[2Jb", "p/x\n", "p" * 2000]
)
def test_names_of_members_stay_in_the_wheel(tmp_path: Path, name: str) -> None:
    wheel = fabricated.wheel(tmp_path, extra={name: b""})
    for result in (merged(tmp_path, wheel), command("inspect", wheel)):
        refused(result, "leads out of the wheel")
        assert "\x1b" not in result.output


def test_a_file_that_is_a_folder_too_is_refused(tmp_path: Path) -> None:
    refused(merged(tmp_path, fabricated.wheel(tmp_path, extra={"p/a": b"", "p/a/b": b""})), "as a folder")


def test_a_name_may_hold_what_some_take_for_the_end_of_a_line(tmp_path: Path) -> None:
    wheel = fabricated.wheel(tmp_path, extra={"p/a\u2028b.txt": b"x", 'p/a "b",c.txt': b"x"}, record=None)
    with zipfile.ZipFile(wheel) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    rows = content["p-1.dist-info/RECORD"].decode().replace('p/a "b",c.txt', '"p/a ""b"",c.txt"')
    again = fabricated.wheel(
        tmp_path, extra={"p/a\u2028b.txt": b"x", 'p/a "b",c.txt': b"x"}, record=rows.encode()
    )
    result = command("merge", again, "--outdir", tmp_path / "out")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("record", [b'"', b"a,b\n", b"\xff", b'"' + b"x" * 200_000])
def test_a_record_that_is_none_is_said(tmp_path: Path, record: bytes) -> None:
    refused(merged(tmp_path, fabricated.wheel(tmp_path, record=record)), "damaged")


HOSTILE = "\x1b]0;TITLE\x07\x1b[2J\x9b2J[link=https://evil.invalid]x[/link][bold\u202e\ud800"


def test_nothing_of_a_wheel_is_for_the_terminal_to_carry_out(tmp_path: Path) -> None:
    def change(manifest: dict[str, Any]) -> None:
        hostile = HOSTILE.replace("\ud800", "")
        manifest["frames"][0]["qualname"] = hostile
        manifest["entrypoints"][0].update(target=hostile, skipped=[{"function": hostile, "reason": hostile}])
        manifest["built_with"]["platform"] = hostile

    bundle = {**fabricated.files(), "net/entries/0.guards.txt": b"\x1b[8m\x1b]52;c;ZXZpbA==\x07\xff"}
    shown = command("inspect", fabricated.wheel(tmp_path, change, bundle=bundle))
    assert shown.exit_code == 0
    guards = command("inspect", "--guards", "net", fabricated.wheel(tmp_path, bundle=bundle))
    tags = merged(tmp_path, fabricated.wheel(tmp_path, tag=HOSTILE.replace("\ud800", "")))
    for result in (shown, guards, tags):
        assert not set("\x1b\x07\x9b\u202e") & set(result.output), result.output
    assert "[link=https://evil.invalid]x[/link]" in shown.output
    assert "\\x1b[8m" in guards.output and "\\x1b[2J" in tags.output


def test_a_wheel_with_code_for_gpus_is_shown(tmp_path: Path) -> None:
    shown = command("inspect", fabricated.wheel_for_gpus(tmp_path))
    assert shown.exit_code == 0 and "cuda-sm90" in shown.output, shown.output


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m["variants"][1].update(device="<b>"), "has '<b>' for the device of cuda-sm90"),
        (lambda m: m["variants"][1].update(device="cpu"), "has 'cpu' for the device of cuda-sm90"),
        (lambda m: m["variants"][1].update(requires=[]), "requires [] of a GPU, and not one capability"),
        (lambda m: m["variants"][1].update(requires=["sm_80", "sm_90"]), "of a GPU, and not one capability"),
        (lambda m: m["variants"][1].update(requires=["avx2"]), "requires ['avx2'] of a GPU"),
        (lambda m: m["variants"][1].update(requires=["sm_"]), "requires ['sm_'] of a GPU"),
        (lambda m: m["variants"][0].update(run=True), "says of native, for CPUs, whether it was run"),
        (lambda m: m["built_with"].pop("cuda"), "has '' for the version of CUDA"),
        (lambda m: m["built_with"].update(cuda="<b>"), "has '<b>' for the version of CUDA"),
        (
            lambda m: _entry_for_gpus(m, graphs=[0]),
            "has 'net/graphs/0.txt' for 'net/cuda-sm90/entries/0.entry'",
        ),
        (lambda m: _entry(m, graphs=[1]), "has 'net/cuda-sm90/graphs/0.txt' for 'net/entries/0.entry'"),
        (lambda m: _entry_for_gpus(m, guards="net/guards.so"), "has 'net/guards.so' for"),
        (
            lambda m: _entry_for_gpus(m, gpu={"variant": "native", "pinned": False}),
            "for a variant that is not for GPUs",
        ),
        (lambda m: m["frames"][0]["entries"][1].pop("gpu"), "graphs for 'net/cuda-sm90/entries/0.entry'"),
        (
            lambda m: m["graphs"][1].update(autotuning={"native": "net/graphs/0.txt"}),
            "has kernels of 'net/cuda-sm90/graphs/0.txt' for no variant",
        ),
        (
            lambda m: m["graphs"][1].update(autotuning={"cuda-sm90": "../0.autotuning"}),
            "'../0.autotuning'",
        ),
    ],
)
def test_what_is_wrong_about_gpus_is_said(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    refused(merged(tmp_path, fabricated.wheel_for_gpus(tmp_path, change)), said)


def _entry_for_gpus(manifest: dict[str, Any], **changes: Any) -> None:
    manifest["frames"][0]["entries"][1].update(changes)


def test_the_json_of_a_wheel_is_its_manifest(tmp_path: Path) -> None:
    wheel = fabricated.wheel(tmp_path, lambda m: m.update({"of a later version": [1]}))
    shown = json.loads(command("inspect", "--json", wheel).output)["p"]
    assert shown["of a later version"] == [1]


def test_each_file_of_a_graph_gets_its_other_name() -> None:
    """Those that the check of a manifest looks for, which knows each kind."""
    files = {
        "libraries": {"v": "net/graphs/0-v.so"},
        "python": {"w": "net/graphs/0-w.py"},
        "kernels": {"w": ["net/graphs/0-w-0.so", "net/graphs/0-w-1.so"]},
        "weights": {"v": "net/graphs/0-v.weights"},
        "readable": "net/graphs/0.txt",
        "wrapping": "net/graphs/0.wrapping",
        "constants": [{"file": "net/graphs/0-constant-0.bin", "dtype": "float32", "size": [2]}],
    }
    given = {**files, "backward": json.loads(json.dumps(files).replace("/0", "/0-backward"))}
    graph = msgspec.convert(given, GraphRecord)
    text = msgspec.json.encode(graph).decode()
    own = graph.with_files(lambda end, stored: f"away{end}")
    assert msgspec.json.encode(own).decode() == text.replace("net/graphs/0", "away")
    assert text.count("net/graphs/0") == 16
