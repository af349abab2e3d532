"""A build has a limit: its children are ended before the machine is, and say so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hatch_precompile.processes import (
    Finished,
    free_memory,
    memory,
    run_module,
    with_advice,
    within_memory,
)

GROWING = """
import subprocess, sys, time
from hatch_precompile.processes import connect_to_parent
connect_to_parent()
if "below" in sys.argv:
    subprocess.run([sys.executable, __file__, "alone"])
kept = []
while True:
    try:
        kept.append(bytearray(5_000_000))
    except MemoryError:
        pass
    time.sleep(0.01)
"""
AT_ONCE = """
from hatch_precompile.processes import connect_to_parent
connect_to_parent()
try:
    bytearray(2_000_000_000)
except MemoryError:
    print("MemoryError")
"""


def run(module: str, *arguments: str, paths: list[Path]) -> Finished:
    return run_module(
        module,
        arguments,
        paths=paths,
        environment={},
        inherit=True,
        quiet_limit=60,
        on_line=lambda line: None,
        on_message=lambda line: None,
    )


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    (tmp_path / "growing.py").write_text(
        GROWING.replace("\nconnect", "\nif 'alone' not in sys.argv: connect")
    )
    (tmp_path / "at_once.py").write_text(AT_ONCE)
    return tmp_path


class TestLimit:
    @pytest.mark.parametrize("where", ["itself", "below"])
    def test_a_child_that_takes_too_much_is_ended_with_what_it_started(
        self, modules: Path, where: str
    ) -> None:
        with within_memory(300_000_000):
            finished = run("growing", where, paths=[modules])
            ending = finished.ending()
        assert 250_000_000 < finished.taken < 900_000_000
        assert ending.startswith("was ended, because with the compilers it started it had ")
        assert ending.endswith(
            "the processes of this build may have 300 MB together; make the samples smaller, set jobs = 1, "
            "or set memory-limit"
        )

    def test_more_than_that_at_once_is_not_to_be_had(self, modules: Path) -> None:
        with within_memory(300_000_000):
            assert run("at_once", paths=[modules]) == Finished(0, ["MemoryError"], False)
            assert "may have 300 MB together" in with_advice("RuntimeError: can't allocate memory: you tried")
        assert with_advice("MemoryError") == "MemoryError"

    def test_without_a_limit_there_is_none(self, modules: Path) -> None:
        with within_memory(None):
            assert run("at_once", paths=[modules]).tail == []


class TestFree:
    """What there is to take, as files of the kernel say it."""

    @pytest.fixture
    def kernel(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(memory, "PROC", tmp_path / "proc")
        monkeypatch.setattr(memory, "CGROUPS", tmp_path / "groups")
        write(tmp_path / "proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
        return tmp_path

    def test_the_machines(self, kernel: Path) -> None:
        assert free_memory() == 8000 * 1024

    def test_that_of_a_group_above(self, kernel: Path) -> None:
        write(kernel / "proc/self/cgroup", "0::/a/b\n")
        write(kernel / "groups/a/b/memory.max", "max")
        write(kernel / "groups/a/b/memory.current", "5000")
        write(kernel / "groups/a/memory.max", "90000")
        write(kernel / "groups/a/memory.current", "50000")
        write(kernel / "groups/a/memory.stat", "anon 40000\ninactive_file 7000\n")
        assert free_memory() == 90000 - 50000 + 7000

    def test_that_of_a_container_under_the_first_version(self, kernel: Path) -> None:
        write(kernel / "proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/of/the/host\n0::/\n")
        write(kernel / "groups/memory/memory.limit_in_bytes", "70000")
        write(kernel / "groups/memory/memory.usage_in_bytes", "60000")
        write(kernel / "groups/memory/memory.stat", "total_inactive_file 1000\n")
        assert free_memory() == 11000

    def test_where_nothing_is_known(self, kernel: Path) -> None:
        (kernel / "proc/meminfo").unlink()
        assert free_memory() is None


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_session_has_the_memory_of_its_processes() -> None:
    session = os.getsid(0)
    assert memory.memory_of([session])[session] > 10_000_000
    assert memory.memory_of([2**30]) == {2**30: 0}
