"""A matrix on a cluster of Dask: a real scheduler, two worker processes, on the loopback address."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hatch_precompile.cli import main
from hatch_precompile.cli.matrix_progress import MatrixBoard
from tests.support.hardware import HERE
from tests.unit.matrix.conftest import CELLS, PYPROJECT
from tests.unit.test_processes import eventually, processes_with

distributed = pytest.importorskip("distributed")
REPOSITORY = Path(__file__).parents[3]
LOWER, HIGHER = HERE.variants[1:3]


def cluster(**options: Any) -> Any:
    return distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None, **options
    )


@pytest.fixture
def address() -> Iterator[str]:
    with cluster(resources={HIGHER: 2}) as made:
        yield made.scheduler_address


@pytest.fixture
def project(project: Path) -> Path:
    """With two cells only, which need what the workers say they have."""
    text = PYPROJECT.replace("matrix =", f'variants = ["{LOWER}", "{HIGHER}"]\nmatrix =')
    (project / "pyproject.toml").write_text(text.replace('"3.11", ', ""))
    return project


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["build", "--matrix", *map(str, arguments)], env={"COLUMNS": "150"})


def wheel_of(*arguments: object) -> bytes:
    result = run("--json", *arguments)
    assert result.exit_code == 0, result.output
    return Path(json.loads(result.stdout)["wheel"]).read_bytes()


def test_it_is_the_wheel_that_is_built_here(project: Path, address: str) -> None:
    assert wheel_of("--dask", address, project) == wheel_of(project)


def test_a_terminal_shows_what_its_workers_do(
    project: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: set[tuple[str, str]] = set()
    monkeypatch.setattr(
        MatrixBoard, "apply", lambda _, cell, event: heard.add((cell.name, f"{event.phase} {event.step}"))
    )
    command = ["build", "--matrix", "--dask", address, str(project)]
    result = CliRunner().invoke(main, command, env={"FORCE_COLOR": "1", "COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    assert f"{CELLS[2]}  building" in result.stderr
    assert {(cell, f"capture {step}") for cell in CELLS[2:] for step in ("start", "end")} <= heard


def test_a_worker_that_is_killed_changes_nothing_but_the_time(
    project: Path, address: str, tmp_path: Path
) -> None:
    mark, started = f"mark-of-{tmp_path.name}-{os.getpid()}", tmp_path / "started"
    (project / f"linger-{CELLS[3]}").write_text(f"{mark} {started}")
    ended: list[bool] = []

    def kill() -> None:
        assert eventually(lambda: len(processes_with(mark)) == 1, 120)
        with distributed.Client(address, set_as_default=False) as client:
            workers = set(client.run(os.getpid).values())
        (busy,) = workers.intersection(ancestors(*processes_with(mark)))
        os.kill(busy, signal.SIGKILL)
        ended.append(eventually(lambda: processes_with(mark) == [], 30))

    thread = threading.Thread(target=kill)
    thread.start()
    there = wheel_of("--dask", address, project)
    thread.join()
    assert ended == [True]
    assert there == wheel_of(project)


def ancestors(pid: int) -> list[int]:
    found = [pid]
    while found[-1] > 1:
        found.append(int(Path(f"/proc/{found[-1]}/stat").read_text().rpartition(")")[2].split()[1]))
    return found


def test_workers_that_do_not_say_that_they_can_run_a_variant(project: Path) -> None:
    with cluster(resources={LOWER: 1}) as made:
        result = run("--dask", made.scheduler_address, project)
    assert result.exit_code == 1
    assert f"none of the 2 workers says that it can run {HIGHER}, which a variant asks" in result.stderr
    assert f'--resources "{HIGHER}=1"' in result.stderr


def test_no_scheduler(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatch_precompile.matrix.dask._CONNECTING", "1s")
    result = run("--dask", "tcp://127.0.0.1:9", project)
    assert result.exit_code == 1
    assert "Error: no scheduler of Dask answers at tcp://127.0.0.1:9: " in result.stderr


def test_without_dask_it_says_what_to_install(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = run("--dask", "tcp://127.0.0.1:9", project)
    assert result.exit_code == 1
    assert "run: pip install 'hatch-precompile[dask]'" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_that_is_ended_leaves_nothing_running(
    project: Path, address: str, tmp_path: Path, number: signal.Signals
) -> None:
    mark, started = f"mark-of-{tmp_path.name}-{os.getpid()}", tmp_path / "started"
    (project / f"linger-{CELLS[3]}").write_text(f"{mark} {started}")
    code = (
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from hatch_precompile.cli import main; main(prog_name='hatch-precompile')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "build", "--matrix", "--dask", address, project],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert eventually(lambda: len(processes_with(mark)) == 1 or process.poll() is not None, 120)
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait(60) == (1 if number == signal.SIGINT else 128 + number)
    finally:
        process.kill()
    assert eventually(lambda: processes_with(mark) == [], 30)
