"""The build's children: none outlives the build, however that ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hatch_precompile.processes import Finished, in_parallel, leave_reason, reason_left, run_module
from hatch_precompile.processes.parent import _Lines

# A build whose children last; a mark is in the command lines of all.
FOLDER = Path(__file__).parent / "processes"


def processes_with(mark: str) -> list[int]:
    """The processes that have `mark` in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def processes_in(folder: Path) -> list[int]:
    """The processes whose temporary files lie in a folder."""
    told = f"TMPDIR={folder}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if told in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def eventually(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """Whether it becomes true within some seconds."""
    for _ in range(int(seconds * 20)):
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_no_child_outlives_a_build_that_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    mark = f"mark-of-{tmp_path.name}-{os.getpid()}"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    front = subprocess.Popen(
        [sys.executable, FOLDER / "build.py", mark, FOLDER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    assert front.stdout is not None
    assert [front.stdout.readline() for _ in range(2)] == ["started\n"] * 2
    assert eventually(lambda: len(processes_with(mark)) == 1 + 2 * 2)
    front.send_signal(number)
    rest = front.communicate()[0]
    assert eventually(lambda: processes_with(mark) == [])
    assert rest == ("" if number == signal.SIGKILL else "cleaned up\n")
    if number in (signal.SIGTERM, signal.SIGHUP):
        assert front.returncode == 128 + number


def run(command: list[str], paths: list[Path], quiet_limit: float = 60) -> Finished:
    return run_module(
        command[0],
        command[1:],
        paths=paths,
        environment={},
        inherit=True,
        quiet_limit=quiet_limit,
        on_line=lambda line: None,
        on_message=lambda line: None,
    )


def sleep(seconds: int) -> Finished:
    return run(["timeit", "-n", "1", "-r", "1", f"import time; time.sleep({seconds})"], [])


def test_the_first_failure_ends_the_others() -> None:
    def work(seconds: int) -> Finished:
        if not seconds:
            raise ValueError("no")
        return sleep(seconds)

    started = time.monotonic()
    with pytest.raises(ValueError, match="no"):
        in_parallel(work, [0, 50, 50, 50], 2)
    assert time.monotonic() - started < 40


def test_a_failure_does_not_wait_for_those_before_it() -> None:
    def work(seconds: int) -> Finished:
        if not seconds:
            raise ValueError("no")
        return sleep(seconds)

    started = time.monotonic()
    with pytest.raises(ValueError, match="no"):
        in_parallel(work, [50, 50, 0], 3)
    assert time.monotonic() - started < 40


class TestEndings:
    """A child has ended when its process has, whoever holds its pipes."""

    def test_what_outlives_it_is_not_waited_for(self, tmp_path: Path) -> None:
        (tmp_path / "parent.py").write_text(
            "import subprocess, sys\n"
            "from hatch_precompile.processes import connect_to_parent\n"
            "connect_to_parent()\n"
            "sleep = [sys.executable, '-c', 'import time; time.sleep(50)']\n"
            "subprocess.Popen(sleep, start_new_session=True)\n"
            "print('the last line')\n"
        )
        started = time.monotonic()
        finished = run(["parent"], [tmp_path])
        assert finished == Finished(0, ["the last line"], False)
        assert time.monotonic() - started < 40

    def test_silence_is_ended_also_where_the_output_is_closed(self, tmp_path: Path) -> None:
        (tmp_path / "silent.py").write_text("import os, time\nos.closerange(1, 100)\ntime.sleep(50)\n")
        finished = run(["silent"], [tmp_path], quiet_limit=2)
        assert (finished.returncode, finished.timed_out) == (-signal.SIGKILL, True)

    def test_part_of_a_line_is_no_silence(self, tmp_path: Path) -> None:
        (tmp_path / "dots.py").write_text(
            "import time\nfor _ in range(8):\n print('.', end='', flush=True)\n time.sleep(0.5)\n"
        )
        assert run(["dots"], [tmp_path], quiet_limit=3) == Finished(0, ["." * 8], False)


def test_results_come_in_order() -> None:
    assert in_parallel(lambda number: number * 2, [3, 1, 2], 2) == [6, 2, 4]


class TestReasons:
    FINISHED = Finished(3, ["before", "the reason"], False)

    def test_one_is_left_in_a_file(self, tmp_path: Path) -> None:
        leave_reason(tmp_path / "error.txt", "a sentence")
        assert reason_left(tmp_path / "error.txt", self.FINISHED) == "a sentence"

    def test_where_none_can_be_written_it_is_said(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        leave_reason(tmp_path / "missing" / "error.txt", "a sentence")
        assert capsys.readouterr().out == "a sentence\n"
        assert reason_left(tmp_path / "missing" / "error.txt", self.FINISHED) == "before\nthe reason"

    def test_an_empty_file_is_none(self, tmp_path: Path) -> None:
        (tmp_path / "error.txt").touch()
        assert "the reason" in reason_left(tmp_path / "error.txt", self.FINISHED)


class TestLines:
    """What a child prints, as it comes."""

    def fed(self, *parts: bytes) -> tuple[list[str], list[bool]]:
        lines: list[str] = []
        stream = _Lines(lines.append)
        progress = [stream.feed(part) for part in parts]
        stream.feed(b"", final=True)
        return lines, progress

    def test_they_end_where_they_end(self) -> None:
        assert self.fed(b"a\nb", b"c\r", b"d\r\n", b"e") == (["a", "bc", "d", "e"], [True] * 4)

    def test_one_without_an_end_comes_in_pieces_and_is_no_progress_after_the_first(self) -> None:
        parts = [b"x" * 50_000] * 100
        lines, progress = self.fed(*parts, b"\ny")
        assert "".join(lines) == "x" * 5_000_000 + "y"
        assert max(map(len, lines)) <= 120_000
        assert progress == [True, *[False] * 99, True]


ABORTING = """
import os, signal, sys, threading
from hatch_precompile.processes import stopping_children
me, number = os.getpid(), int(sys.argv[1])
reading, writing = os.pipe()
if not os.fork():
    os.read(reading, 1)
    os.kill(me, number)
    os._exit(0)
def seen(frame, event, arg):
    if event == "c_call" and getattr(arg, "__name__", "") == "_c10d_init":
        sys.setprofile(None)
        os.write(writing, b"x")
sys.setprofile(seen)
with stopping_children():
    import torch
    os.write(1, b"imported\\n")  # in one piece: the signal may come as soon as torch is there
    threading.Event().wait(30)
print("not ended")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_torch_is_imported_waits_until_it_is(number: signal.Signals) -> None:
    """Torch's C++ code calls Python in its import; an exception that comes out of that ends the process."""
    done = subprocess.run(
        [sys.executable, "-c", ABORTING, str(int(number))], capture_output=True, text=True, check=False
    )
    assert done.stdout == "imported\n", done.stderr
    assert done.returncode == (143 if number == signal.SIGTERM else -signal.SIGINT), done.stderr


IN_THE_MIDDLE = """
import os, signal, subprocess, sys, tempfile, threading
from hatch_precompile.processes import preloaded, stopping_children
def signalled(owner, name):
    function = getattr(owner, name)
    def call(*args, **kwargs):
        made = function(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGTERM)
        return made
    setattr(owner, name, call)
with stopping_children():
    if sys.argv[1] == "folder":
        signalled(os, "mkdir")
        with tempfile.TemporaryDirectory():
            threading.Event().wait(30)
    signalled(subprocess.Popen, "_execute_child")
    with preloaded("runpy", "time", inherit=True):
        threading.Event().wait(30)
print("not ended")
"""


@pytest.mark.parametrize("what", ["folder", "server"])
def test_a_signal_while_something_is_made_waits_until_it_is_somebodys(tmp_path: Path, what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_THE_MIDDLE, what],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (143, ""), done.stderr
    assert list(tmp_path.iterdir()) == []
    assert processes_in(tmp_path) == []


def test_a_reason_may_have_half_a_character(tmp_path: Path) -> None:
    leave_reason(tmp_path / "error.txt", "it says \ud800")
    assert reason_left(tmp_path / "error.txt", Finished(3, [], False)) == "it says \\ud800"
