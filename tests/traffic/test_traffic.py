"""Recorded calls, from a server to the wheel that serves them all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hatch_precompile.cli import main
from tests.conftest import Site, build, made_once

DESK = Path(__file__).parent / "desk"


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The package as its author built it: for one text of four tokens."""
    place = made_once(tmp_path_factory, "desk", lambda place: build(DESK, DESK, place / "work"))
    return Site(place / "work" / "installed")


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def recorded(file: Path) -> list[Any]:
    """The calls of a record that are written whole."""
    return [line["call"] for line in lines_of(file) if "call" in line]


def test_a_wheel_rebuilt_from_its_traffic_serves_all_of_it(
    desk: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "record.jsonl"
    before = desk.play("traffic.a_served_model", environment={"HATCH_PRECOMPILE": f"record-all:{record}"})
    assert before == {"hits": 2, "misses": 46, "right": True, "calls": 48}

    project = tmp_path / "desk"
    shutil.copytree(DESK, project, ignore=shutil.ignore_patterns("__pycache__"))
    suggested = CliRunner().invoke(
        main, ["suggest", str(project), str(record), "--write", str(project / "traffic.jsonl")]
    )
    assert suggested.exit_code == 0, suggested.output
    assert suggested.stdout.startswith(
        "# scorer: 48 calls recorded, 2 of them hits; this serves 48 (100.0 %)\n"
    )
    pyproject = project / "pyproject.toml"
    kept = pyproject.read_text().partition("[[tool.hatch")[0]
    pyproject.write_text(kept + suggested.stdout)
    said: list[str] = []
    rebuilt = build(project, project, tmp_path / "work", said.append)
    assert "scorer: 8 samples of traffic.jsonl, which stand for 48 of 48 recorded calls" in said
    after = rebuilt.play("traffic.a_served_model")
    assert after == {"hits": 48, "misses": 0, "right": True, "calls": 48}

    # The wheel makes its samples again without the record.
    monkeypatch.syspath_prepend(str(rebuilt.directory))
    verified = CliRunner().invoke(main, ["verify", "desk", "--json"])
    assert verified.exit_code == 0, verified.output
    (report,) = json.loads(verified.stdout)
    assert [each["hit"] for each in report["samples"]] == [True] * 8


class TestTheFile:
    def test_misses_alone_unless_all_are_asked_for(self, desk: Site, tmp_path: Path) -> None:
        files = {kind: tmp_path / kind for kind in ("record", "record-all")}
        for kind, file in files.items():
            imported = desk.play("traffic.few_calls", environment={"HATCH_PRECOMPILE": f"{kind}:{file}"})
            assert imported == ["recorder", "described"]
        sizes = {
            kind: [call["kwargs"]["ids"]["size"] for call in recorded(file)] for kind, file in files.items()
        }
        assert sizes == {"record": [[1, 5]], "record-all": [[1, 4], [1, 5]]}
        assert [line["count"] for line in lines_of(files["record"])] == [1, 1]

    @pytest.mark.parametrize("value", ["", "log"])
    def test_nothing_is_loaded_for_it_otherwise(self, desk: Site, value: str) -> None:
        assert desk.play("traffic.few_calls", environment={"HATCH_PRECOMPILE": value}) == []

    def test_no_line_of_many_processes_and_threads_is_torn_or_lost(self, desk: Site, tmp_path: Path) -> None:
        from concurrent.futures import ThreadPoolExecutor

        file = tmp_path / "record"
        environment = {"HATCH_PRECOMPILE": f"record:{file}"}
        with ThreadPoolExecutor(2) as pool:
            made = pool.map(
                lambda _: desk.play(
                    "traffic.crowd", environment=environment, threads=3, children=2, calls=40
                ),
                range(2),
            )
            calls = sum(made)
        assert calls == 2 * 400
        assert sum(line["count"] for line in lines_of(file)) == calls

    def test_it_ends_with_a_line_that_says_so(self, desk: Site, tmp_path: Path) -> None:
        file = tmp_path / "record"
        environment = {"HATCH_PRECOMPILE": f"record:{file}"}
        warnings = 0
        for _ in range(2):
            finished = desk.process("traffic.endless_variety", environment=environment, size=5000)
            assert finished.result == 5000
            warnings += finished.stderr.count("is full; no more calls are recorded")
        assert warnings == 1
        lines = lines_of(file)
        assert [number for number, line in enumerate(lines) if "stopped" in line] == [len(lines) - 1]
        assert lines[-1] == {"stopped": "the record is full"}

    def test_no_data_is_in_it(self, desk: Site, tmp_path: Path) -> None:
        file = tmp_path / "record"
        desk.play("traffic.private_calls", environment={"HATCH_PRECOMPILE": f"record-all:{file}"})
        text = file.read_text()
        assert not [
            secret for secret in ("1234567", "13", "hunter2", "Ozymandias") if secret in _without_ids(text)
        ]
        # But what the model's own code spells out is.
        assert [call["kwargs"].get("pooling") for call in recorded(file)] == [
            None,
            {"type": "str"},
            {"string": "max"},
        ]

    def test_no_tensor_is_kept(self, desk: Site, tmp_path: Path) -> None:
        environment = {"HATCH_PRECOMPILE": f"record-all:{tmp_path / 'record'}"}
        assert desk.play("traffic.a_tensor_that_was_passed", environment=environment) is True

    @pytest.mark.parametrize(
        ("path", "why"),
        [
            ("", "names no file"),
            ("no-such-folder/record", "No such file or directory"),
            (".", "Is a directory"),
            ("/dev/null", "it is not a regular file"),
        ],
    )
    def test_a_path_that_cannot_be_written_is_one_warning(self, desk: Site, path: str, why: str) -> None:
        finished = desk.process("traffic.few_calls", environment={"HATCH_PRECOMPILE": f"record:{path}"})
        assert finished.stderr.count("PrecompileWarning") == 1
        assert "cannot be written" in finished.stderr
        assert why in finished.stderr

    def test_it_has_what_decides_who_serves_a_call(self, desk: Site, tmp_path: Path) -> None:
        file = tmp_path / "record"
        desk.play("traffic.ways_of_calling", environment={"HATCH_PRECOMPILE": f"record-all:{file}"})
        ids = {"tensor": "int64", "size": [3, 2]}
        turned = {"tensor": "int64", "size": [2, 3], "stride": [1, 2]}
        inference = {"tensor": "int64", "inference": True, "size": [2, 2]}
        state: list[tuple[Any, dict[str, Any]]] = [
            ({"ids": ids, "mask": {"same": 0}}, {"mode": "no_grad"}),
            ({"ids": turned}, {"mode": "no_grad"}),
            ({"ids": ids}, {"mode": "no_grad", "autocast": "bfloat16"}),
            ({"ids": ids}, {"mode": "no_grad", "function_modes": 1}),
            ({"ids": ids}, {"mode": "no_grad", "owner": "traffic.Louder"}),
            ({"ids": ids}, {"mode": "no_grad", "training": True}),
            ({"ids": ids}, {"mode": "grad"}),
            ({"ids": inference}, {"mode": "inference"}),
        ]
        assert recorded(file) == [
            {"args": [], "kwargs": {**arguments, "double": False}, **more} for arguments, more in state
        ]


def _without_ids(text: str) -> str:
    """Sums of what is in a line; a few digits may be any."""
    lines = [json.loads(line) for line in text.splitlines()]
    return json.dumps(
        [{key: value for key, value in line.items() if key not in ("id", "again")} for line in lines]
    )
