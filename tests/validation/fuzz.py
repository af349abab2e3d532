"""What comes from outside, changed at random: `python tests/validation/fuzz.py --seconds 600`.

Each target takes a change and asserts that what reads it ends in a result or in a sentence: no traceback, no
crash, nothing written elsewhere, less than ten seconds. What it finds becomes a test of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import marshal
import os
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(REPOSITORY))

from click.testing import CliRunner  # noqa: E402
from hypothesis import HealthCheck, given, seed, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from hatch_precompile.cli import main as command_line  # noqa: E402
from hatch_precompile.config import load  # noqa: E402
from hatch_precompile.errors import BuildError, ConfigError  # noqa: E402
from hatch_precompile.validation.code import disassembled  # noqa: E402
from tests.validation import fabricated  # noqa: E402

SECONDS = 10.0
"""Of one example."""

MEGABYTES = 500
"""Of a process."""

EXAMPLES = 60
"""That a process tries."""

# -- what things are changed to ----------------------------------------------------------------------

TEXTS = st.text(max_size=12) | st.sampled_from(
    [
        "/etc/passwd",
        "../x",
        "net/../../x",
        "net/graphs/0.txt",
        "manifest.json",
        "\x1b[2J",
        "a\nb = 1",
        "\0",
        "x" * 5000,
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([1 << 62, 10**40, -1]) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """To each value in what a JSON file holds."""
    if path:
        yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths(value[key], (*path, key))


@st.composite
def changed_values(draw: st.DrawFn, whole: Any) -> Any:
    """A few values of it are others, gone, or there twice."""
    result = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(list(paths(result)) or [("x",)]))
        place = result
        for key in way:
            place = place[key]
        what = draw(st.sampled_from(["another", "gone", "twice"]))
        if what == "gone" and last in (place if isinstance(place, dict) else range(len(place))):
            del place[last]
        elif what == "twice" and isinstance(place, list):
            place.append(copy.deepcopy(place[last]))
        else:
            place[last] = draw(VALUES)
    return result


@st.composite
def changed_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    result = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(result)))
        end = draw(st.integers(start, min(len(result), start + 32)))
        result[start:end] = draw(st.binary(max_size=32))
    return bytes(result)


# -- what reads them ---------------------------------------------------------------------------------


def fine(*arguments: object) -> str:
    """Run a command; its output."""
    result = CliRunner().invoke(command_line, [str(each) for each in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2)
    assert not set("\x1b\x07\x9b\0") & set(result.output), result.output
    return result.stdout


def read_wheel(folder: Path, wheel: Path) -> None:
    before = {path for path in folder.rglob("*") if "out" not in path.relative_to(folder).parts}
    fine("inspect", wheel)
    fine("inspect", wheel, "--json")
    for option in ("--guards", "--graph"):
        fine("inspect", wheel, option, "net")
    fine("merge", wheel, "--outdir", folder / "out")
    assert {path for path in folder.rglob("*") if "out" not in path.relative_to(folder).parts} == before


def in_a_folder(read: Callable[[Path, Any], None]) -> Callable[[Any], None]:
    def reading(value: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            read(Path(folder), value)
            assert time.monotonic() - started < SECONDS

    return reading


def _manifest(folder: Path, manifest: Any) -> None:
    text = json.dumps(manifest).encode("utf-8", "surrogatepass")
    read_wheel(folder, fabricated.wheel(folder, text=text))


def _files(folder: Path, changed: tuple[str, bytes]) -> None:
    bundle = {**fabricated.files(), changed[0]: changed[1]}
    read_wheel(folder, fabricated.wheel(folder, bundle=bundle, shard=True))


def _archive(folder: Path, content: bytes) -> None:
    wheel = folder / f"p-1-{fabricated.HERE}.whl"
    wheel.write_bytes(content)
    read_wheel(folder, wheel)


def _record(folder: Path, content: bytes) -> None:
    (folder / "pyproject.toml").write_text(fabricated.PROJECT)
    record = folder / "record.jsonl"
    record.write_bytes(fabricated.GOOD.encode() + b"\n" + content)
    fine("suggest", folder, record, "--json")
    proposed = fine("suggest", folder, record, "--write", folder / "written.jsonl")
    if proposed:
        hooks = tomllib.loads(proposed)["tool"]["hatch"]["build"]["hooks"]
        (entrypoint,) = hooks["precompile"]["entrypoints"]
        assert entrypoint["target"] == "p.model:Net"
        assert entrypoint["samples"] in ("recorded:written.jsonl", "recorded:record.jsonl")


def _configuration(folder: Path, table: Any) -> None:
    with contextlib.suppress(ConfigError):
        load(table, default_package="p")


def _project(folder: Path, changed: tuple[bytes, bytes]) -> None:
    (folder / "pyproject.toml").write_bytes(changed[0])
    (folder / "p").mkdir()
    (folder / "p" / "__init__.py").write_bytes(changed[1])
    fine("init", folder)
    fine("plan", folder)


def _code(folder: Path, head: bytes) -> None:
    with contextlib.suppress(BuildError):
        disassembled([head], "it")


def _whole_archive() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return fabricated.wheel(Path(folder), shard=True).read_bytes()


CALL = {
    "args": [
        ["x", {"tensor": "float32", "size": [4, 8], "stride": [8, 1]}],
        [None, {"list": [1, {"same": 0}]}],
    ],
    "kwargs": {"y": {"dict": {"a": {"string": "x"}}}, "z": 2.5},
    "mode": "no_grad",
}
LINE = {"package": "p", "entrypoint": "net", "of": "all", "served": True, "call": CALL, "id": "a", "count": 3}
TABLE = {
    "package": "p",
    "variants": ["native"],
    "matrix": {"python": ["3.11"], "torch": ["2.13.0"]},
    "entrypoints": [
        {
            "target": "p.model:Net",
            "name": "net",
            "samples": "p.samples:net",
            "mode": ["no_grad"],
            "dynamic-shapes": {"x": {"0": {"name": "batch", "min": 2, "max": 8}}},
            "options": {"x": 1},
        }
    ],
}
SOURCE = b"from torch import nn\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return x\n"


def _whole_manifest() -> Any:
    return {**fabricated.manifest(fabricated.files()), "part": {"shard": 1, "of": 1, "entrypoints": ["net"]}}


TARGETS: dict[str, tuple[Callable[[Path, Any], None], st.SearchStrategy[Any]]] = {
    "manifest": (_manifest, changed_values(_whole_manifest())),
    "files": (
        _files,
        st.sampled_from(sorted(fabricated.files().items())).flatmap(
            lambda file: st.tuples(st.just(file[0]), changed_bytes(file[1]))
        ),
    ),
    "archive": (_archive, changed_bytes(_whole_archive())),
    "record": (
        _record,
        changed_values(LINE).map(lambda line: json.dumps(line).encode())
        | changed_bytes(json.dumps(LINE).encode()),
    ),
    "configuration": (_configuration, changed_values(TABLE)),
    "project": (
        _project,
        st.tuples(changed_bytes(fabricated.PLAIN.encode()), st.just(SOURCE))
        | st.tuples(st.just(fabricated.PLAIN.encode()), changed_bytes(SOURCE)),
    ),
    "code": (_code, changed_bytes(marshal.loads(fabricated.files()["net/frames/0.heads"])[0])),
}


def examine(name: str, examples: int, number: int) -> None:
    """So many examples of a target, which depend on the number alone. Raises what a target raises."""
    read, strategy = TARGETS[name]
    checks = list(HealthCheck)
    run = settings(max_examples=examples, deadline=None, database=None, suppress_health_check=checks)
    seed(number)(run(given(strategy)(in_a_folder(read))))()


# -- for as long as is wanted -------------------------------------------------------------------------


def _child(name: str, number: int) -> None:
    examine(name, EXAMPLES, number)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert peak < MEGABYTES, f"{peak:.0f} MB"


def run() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--child", nargs=2)
    asked = parser.parse_args()
    if asked.child:
        _child(asked.child[0], int(asked.child[1]))
        return 0
    until, number, failed, tried = time.monotonic() + asked.seconds, int(time.time()), 0, 0
    while time.monotonic() < until:
        for name in asked.targets.split(","):
            command = [sys.executable, "-X", "faulthandler", __file__, "--child", name, str(number)]
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ}, check=False)
            tried += 1
            if done.returncode:
                failed += 1
                print(f"{name}, {number}: ended with {done.returncode}\n{done.stderr[-3000:]}", flush=True)
        number += 1
    print(f"{tried} processes of {EXAMPLES} changes, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run())
