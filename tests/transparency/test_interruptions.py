"""Signals, forks and the insides of operators: what comes from elsewhere, in the middle of a call."""

from __future__ import annotations

import os

import pytest

from tests.conftest import Site
from tests.transparency.test_identity import START

# More of each, for whoever wants to be sure.
TIMES = int(os.environ.get("INTERRUPTIONS", "1"))


class TestSignals:
    @pytest.mark.parametrize("error", ["KeyboardInterrupt", "Alarm", "AttributeError"])
    def test_no_exception_of_a_handler_is_lost(self, lab: Site, error: str) -> None:
        seen = lab.run(
            START
            + f"""
import signal
class Alarm(Exception): pass
raised = 0
def handler(number, frame):
    global raised
    raised += 1
    raise {error}("from the handler")
signal.signal(signal.SIGALRM, handler)
caught = 0
model = core.Table()
ids = torch.tensor([[1, 2, 3]])
core.scaled(x), model(ids)
while raised < {200 * TIMES}:
    before = raised
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0003)
        while raised == before:
            core.scaled(x)
            model(ids)
            core.outer(torch.ones(9))  # a miss
    except {error}:
        caught += 1
probe.result(raised=raised, caught=caught)
"""
        ).result
        assert seen["caught"] == seen["raised"] == 200 * TIMES

    def test_none_is_lost_while_entries_are_loaded(self, lab: Site) -> None:
        """Each in a process of its own, that has called nothing before."""
        seen = lab.run(
            START
            + f"""
import os, signal
class Alarm(Exception): pass
def handler(number, frame):
    os.write(writing, b"r")
    raise Alarm
reading, writing = os.pipe()
signal.signal(signal.SIGALRM, handler)
codes = []
for number in range({40 * TIMES}):
    child = os.fork()
    if child == 0:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0001 + 0.0002 * (number % 20))
            core.Table()(torch.tensor([[1, 2, 3]]))
            core.scaled(x)
            signal.setitimer(signal.ITIMER_REAL, 0)
            code = 0
        except Alarm:
            os.write(writing, b"c")
            code = 0
        except BaseException:
            code = 1
        os._exit(code)
    codes.append(os.waitpid(child, 0)[1])
os.close(writing)
told = os.read(reading, 10_000)
probe.result(codes=sum(codes), raised=told.count(b"r"), caught=told.count(b"c"))
"""
        ).result
        assert seen["codes"] == 0
        assert seen["caught"] == seen["raised"] > 0


class TestForks:
    def test_a_fork_while_another_thread_loads(self, lab: Site) -> None:
        """The fork is called for inside the loading: the child makes the same first call."""
        seen = lab.run(
            START
            + f"""
import os, threading, time
from lab._precompiled import bundle
inside = threading.Event()
own_read = bundle.Bundle.read
def slow_read(self, name):
    inside.set()
    time.sleep(0.01)
    return own_read(self, name)
bundle.Bundle.read = slow_read
outcomes = []
for _ in range({20 * TIMES}):
    fresh = os.fork()
    if fresh == 0:
        thread = threading.Thread(target=lambda: core.scaled(x))
        thread.start()
        inside.wait()
        child = os.fork()
        if child == 0:
            with torch.no_grad():
                os._exit(0 if core.scaled(x).tolist() == [0, 2, 4, 6] else 1)
        until = time.monotonic() + 20
        while True:
            ended, code = os.waitpid(child, os.WNOHANG)
            if ended or time.monotonic() > until:
                break
            time.sleep(0.002)
        if not ended:
            os.kill(child, 9)
        thread.join()
        os._exit(code if ended else 9)
    outcomes.append(os.waitpid(fresh, 0)[1])
probe.result(outcomes=outcomes)
"""
        ).result
        assert seen["outcomes"] == [0] * 20 * TIMES

    def test_a_module_imported_by_the_loading_may_call_the_entrypoint(self, lab: Site) -> None:
        seen = lab.run(
            START
            + """
from lab._precompiled import entries
own_import = entries._import
calls = []
def calling(module):
    if not calls:
        calls.append("begun")
        calls.append(core.scaled(x).tolist())
    own_import(module)
entries._import = calling
core.scaled(x)
probe.result(calls=calls, hits=probe.hits("scaled", "lab"))
"""
        ).result
        assert seen["calls"] == ["begun", [0, 2, 4, 6]]
        assert seen["hits"] >= 1


def test_a_first_call_inside_an_operator_leaves_later_ones_alone(lab: Site) -> None:
    seen = lab.run(
        START
        + """
@torch.library.custom_op("mine::inside", mutates_args=())
def inside(x: torch.Tensor) -> torch.Tensor:
    return core.scaled(x)
inside(x)
probe.result(served=probe.served("scaled", lambda: core.scaled(x), "lab"))
"""
    ).result
    assert seen == {"served": True}
