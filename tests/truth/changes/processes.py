"""Signals, forks, threads, deep stacks, errors within an operator."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from tests.truth.changes.registry import change

CALLS = 60


class Interrupted(Exception):
    """What a handler of ours raises."""


def _quietly(run: Any, mode: Callable[[], Any] | None = None) -> Callable[[], Any]:
    """One call with the first sample, for those that make many; made ready beforehand."""
    called = run.callable()
    mode = mode or run.mode

    def call() -> Any:
        args, kwargs = run.samples()[0]
        with contextlib.redirect_stdout(None), mode():
            return called(*args, **kwargs)

    return call


def _is_in_warnings(frame: Any) -> bool:
    """Whether the module `warnings` runs, which drops what is raised while it looks for a line of source."""
    while frame is not None:
        if frame.f_globals.get("__name__") in ("warnings", "_py_warnings"):
            return True
        frame = frame.f_back
    return False


def _interrupted(run: Any, number: int, before_each: Callable[[], None]) -> None:
    """Exceptions that a signal's handler raises during calls: each must arrive."""
    run.load()
    # The modes are entered once: a signal between two lines of torch's own context managers leaves them on.
    call = _quietly(run, contextlib.nullcontext)
    raised = caught = 0
    expected = False

    def handler(_: int, frame: Any) -> None:
        nonlocal raised, expected
        if not expected:
            return  # one is on its way, or has just arrived: on a busy machine two signals come at once
        if _is_in_warnings(frame):
            return
        expected = False
        raised += 1
        raise Interrupted

    left = CALLS
    with run.mode():
        signal.signal(number, handler)
        while left >= 0:
            try:
                while left > 0:
                    left -= 1
                    expected = True
                    before_each()
                    # Long enough for the signal to come, wherever in a call that is.
                    until = time.perf_counter() + 0.02
                    while time.perf_counter() < until:
                        call()
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(number, signal.SIG_IGN)
                left = -1
            except Interrupted:
                caught += 1
    run.note("lost", raised - caught)
    run.make()  # how many calls there were is another number each time, and some objects count them
    run.call(label="then")


@change("SIGALRM during calls", "signal")
def alarms(run: Any) -> None:
    chance = iter(range(10**6))

    def soon() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0005 + (next(chance) % 37) * 0.0001)

    _interrupted(run, signal.SIGALRM, soon)


@change("SIGINT during calls", "signal")
def interrupts(run: Any) -> None:
    chance = iter(range(10**6))
    # Kept: what is raised while Python code runs that a weak reference to a thread calls is nobody's.
    timers: list[threading.Timer] = []

    def soon() -> None:
        after = 0.0005 + (next(chance) % 41) * 0.0001
        timers.append(threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT)))
        timers[-1].start()

    _interrupted(run, signal.SIGINT, soon)


@change("a signal during the first call", "signal")
def alarm_in_the_first(run: Any) -> None:
    """At a moment that is another one for each program."""
    run.load()
    call = _quietly(run, contextlib.nullcontext)
    raised = caught = 0

    def handler(_: int, frame: Any) -> None:
        nonlocal raised
        if not _is_in_warnings(frame):
            raised += 1
            raise Interrupted

    signal.signal(signal.SIGALRM, handler)
    with run.mode():  # around it all: an exception within torch's `__enter__` would leave the mode on
        signal.setitimer(signal.ITIMER_REAL, 0.0002 + len(run.program["name"]) % 7 * 0.0004)
        try:
            until = time.perf_counter() + 0.05
            while time.perf_counter() < until:
                call()
        except Interrupted:
            caught += 1
    run.note("lost", raised - caught)
    run.make()
    run.call(label="then")


def _in_a_child(run: Any, action: Callable[[], Any], seconds: float = 20.0) -> None:
    """Fork, do it there, and note how that ended."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    waiting = os.pidfd_open(child)
    ended, _, _ = select.select([waiting], [], [], seconds)
    os.close(waiting)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    run.note("the child", os.waitstatus_to_exitcode(status) if ended else "hangs")


@change("a fork before the first call", "fork")
def forked_first(run: Any) -> None:
    run.load()
    call = _quietly(run)
    _in_a_child(run, call)
    run.call()


@change("a fork between two calls", "fork")
def forked_between(run: Any) -> None:
    run.load()
    run.call()
    call = _quietly(run)
    _in_a_child(run, call)
    run.call(label="then")


@change("a fork during the first call of another thread", "fork")
def forked_during(run: Any) -> None:
    """Again and again while another thread makes the first call."""
    run.load()
    call = _quietly(run)
    run.samples()  # torch sets up its kernels at the first operator; a child of that moment waits for ever
    thread = threading.Thread(target=call)
    thread.start()
    forks = 0
    while thread.is_alive() and forks < 4:
        _in_a_child(run, call, 10.0)
        forks += 1
    thread.join()
    # Of eager code's children one may wait for a lock of torch's for ever; none of the wheel's may.
    run.notes = [
        (label, value)
        for label, value in run.notes
        if label != "the child" or (run.role == "wheel" and value != 0)
    ]
    run.call(label="then")


@change("four threads make the first call together", "threads", harmless=True)
def threads_together(run: Any) -> None:
    run.load()
    if isinstance(run.object, torch.nn.Module) and list(run.object.buffers()):
        run.call()  # several threads in one object that changes: no two answers are alike
        return
    call = _quietly(run)
    answers: list[Any] = [None] * 4
    barrier = threading.Barrier(4)

    def work(number: int) -> None:
        barrier.wait()
        for _ in range(5):
            answers[number] = call()

    started = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if run.program["name"] != "drops_out":
        run.note("answers", answers)
    run.call()


@change("the first call is in a thread", "threads", harmless=True)
def in_a_thread(run: Any) -> None:
    run.load()
    thread = threading.Thread(target=run.call)
    thread.start()
    thread.join()
    run.call(label="then, here")


@change("a thread with one thread of torch's", "threads", harmless=True)
def with_own_number(run: Any) -> None:
    run.load()
    run.call()

    def work() -> None:
        torch.set_num_threads(1)
        run.call(label="in a thread")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    run.call(label="then, here")


def _below(depth: int, call: Callable[[], Any]) -> Any:
    return call() if depth == 0 else _below(depth - 1, call)


@change("a deep stack", "recursion")
def deep(run: Any) -> None:
    """At half of the recursion limit."""
    run.load()
    run.call(through=lambda called, *a, **k: _below(400, lambda: called(*a, **k)))
    run.call(label="then")


@change("a very deep stack, with the limit raised", "recursion")
def very_deep(run: Any) -> None:
    run.load()
    sys.setrecursionlimit(100_000)
    run.call(through=lambda called, *a, **k: _below(20_000, lambda: called(*a, **k)))
    run.call(label="then")


@change("a recursion of 20,000 calls", "recursion", only=("recurses",))
def deep_recursion(run: Any) -> None:
    run.load()
    sys.setrecursionlimit(200_000)

    def through(called: Any, *args: Any, **kwargs: Any) -> Any:
        return called(torch.zeros(1), 20_000)

    run.call(through=through)
    run.call(label="then")


@change("too deep for the recursion limit", "recursion")
def too_deep(run: Any) -> None:
    """As deep as eager can just go: in steps, until it raises."""
    run.load()
    run.call()
    call = _quietly(run)
    for depth in range(100, 900, 50):
        try:
            _below(depth, call)
        except RecursionError:
            break
    run.call(label="then")


@change("an operator raises", "error", only=("calls_a_custom_operator",))
def operator_raises(run: Any) -> None:
    run.load()
    run.call()

    def failing(x: Any, by: float = 2.0) -> Any:
        raise ValueError("no such thing")

    run.module.halve.register_kernel("cpu")(failing)
    run.call(label="raising")


@change("an operator raises at first", "error", only=("calls_a_custom_operator",))
def operator_raises_first(run: Any) -> None:
    run.load()
    left = [LookupError("not there"), ZeroDivisionError("by nothing")]

    def failing(x: Any, by: float = 2.0) -> Any:
        if left:
            raise left.pop()
        return x / by

    run.module.halve.register_kernel("cpu")(failing)
    for time_ in range(3):
        run.call(label=f"call {time_}")


@change("a first call within an operator", "error", only=("calls_a_custom_operator", "reads_constants"))
def within_an_operator(run: Any) -> None:
    run.load()
    results: list[Any] = []

    @torch.library.custom_op("specimens::outer", mutates_args=())
    def outer(x: torch.Tensor) -> torch.Tensor:
        with contextlib.redirect_stdout(None):
            results.append(run.callable()(x))
        return x * 2

    with run.mode():
        outer(run.samples()[0][0][0])
    run.note("within", results)
    run.call(label="then")


@change("a garbage collection at every turn", "memory", harmless=True)
def collected(run: Any) -> None:
    gc.set_threshold(1)
    run.load()
    run.call()
    run.call(label="again")


@change("results are kept, inputs are dropped", "memory", harmless=True)
def kept(run: Any) -> None:
    run.load()
    call = _quietly(run)
    if run.program["name"] == "drops_out":
        run.call()
        return
    held = [call() for _ in range(20)]
    gc.collect()
    run.note("held", held)
    run.call()
