"""Signals, forks and operators in the middle of a call of the lab (tests/transparency/lab)."""

from __future__ import annotations

import importlib.machinery
import json
import os
import platform
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import probe
import torch
from lab import core

torch.set_grad_enabled(False)

X = torch.arange(4.0)
IDS = torch.tensor([[1, 2, 3]])


_NEEDED = (
    *(
        "explaining",
        "explaining.overview",
        "loading.variants",
        f"backends.{platform.machine()}",
        "calling.serving",
    ),
    *("loading.entries", "loading.guards", "dependencies", "graphs", "graphs.callers"),
    *("explaining.explanation", "explaining.advice", "calling.misses"),
)


class Alarm(Exception):
    pass


ERRORS: dict[str, type[BaseException]] = {
    "KeyboardInterrupt": KeyboardInterrupt,
    "Alarm": Alarm,
    "AttributeError": AttributeError,
}


def exceptions_of_a_handler(name: str, times: int) -> dict[str, int]:
    """How many exceptions a handler raised in the middle of calls, and how many came out of them."""
    error = ERRORS[name]
    raised = caught = 0

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal raised
        raised += 1
        raise error("from the handler")

    def calls() -> None:
        """Until the handler has run. Not in the block that catches: in CPython 3.13 what is raised where a
        `while` goes back is not caught by a `try` that ends with the loop."""
        before = raised
        while raised == before:
            core.scaled(X)
            model(IDS)
            core.outer(torch.ones(9))

    signal.signal(signal.SIGALRM, handler)
    model = core.Table()
    core.scaled(X)
    model(IDS)
    # The first miss imports, and so does the tenth: Python's import system drops an AttributeError itself.
    for _ in range(10):
        core.outer(torch.ones(9))
    while raised < times:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0003)
            calls()
        except error:
            caught += 1
    return {"raised": raised, "caught": caught}


def exceptions_while_entries_are_loaded(times: int) -> dict[str, int]:
    """The same in first calls, each in a child of its own. "dropped": those that came while Python's import
    system forgot a lock, in a callback of a weak reference, from where none comes out."""
    reading, writing = os.pipe()

    def handler(number: int, frame: FrameType | None) -> None:
        os.write(writing, b"r")
        raise Alarm

    signal.signal(signal.SIGALRM, handler)
    codes = []
    for turn in range(times):
        child = os.fork()
        if child == 0:
            os._exit(_interrupted_first_call(writing, 0.0001 + 0.0002 * (turn % 20)))
        codes.append(os.waitpid(child, 0)[1])
    os.close(writing)
    told = os.read(reading, 10_000)
    counted = {name: told.count(name[:1].encode()) for name in ("raised", "caught", "dropped")}
    return {"codes": sum(codes), **counted}


def _interrupted_first_call(writing: int, after: float) -> int:
    def hook(ignored: sys.UnraisableHookArgs) -> None:
        trace = ignored.exc_traceback
        if trace is not None and trace.tb_frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            os.write(writing, b"d")

    sys.unraisablehook = hook
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        core.Table()(IDS)
        core.scaled(X)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Alarm:
        os.write(writing, b"c")
    except BaseException:
        return 1
    return 0


def exceptions_while_installing() -> dict[str, Any]:
    """What a handler raises when the signal comes in the middle of it, and hits after another try."""
    from lab import _precompiled
    from lab._precompiled import installation

    def handler(number: int, frame: FrameType | None) -> None:
        raise Alarm

    signal.signal(signal.SIGALRM, handler)
    _precompiled.uninstall()
    caught = {}
    for name in ("start", "_activate"):
        kept = getattr(installation.Installation, name)
        setattr(installation.Installation, name, lambda *_: signal.raise_signal(signal.SIGALRM))
        try:
            _precompiled.install()
        except Alarm:
            caught[name] = _precompiled.status()["installed"]
        setattr(installation.Installation, name, kept)
    _precompiled.install()
    core.scaled(X)
    return {"caught": caught, "hits": probe.hits("scaled", "lab")}


def forks_inside_the_loading(times: int) -> list[int]:
    """Exit codes of children, forked while a thread of their parent was loading; each makes a first call."""
    from lab._precompiled.loading import bundle

    inside = threading.Event()
    own_read = bundle.Bundle.read

    def slow_read(self: Any, name: str) -> Any:
        inside.set()
        time.sleep(0.01)
        return own_read(self, name)

    bundle.Bundle.read = slow_read
    return [_in_a_process(lambda: _fork_inside(inside, scaled)) for _ in range(times)]


def forks_inside_the_import_of_an_explanation(times: int) -> list[int]:
    """The same of children that explain a call, forked while a thread of their parent was about to."""
    inside = threading.Event()

    class Slow:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> None:
            if name == "lab._precompiled.explaining.explanation":
                inside.set()
                time.sleep(0.01)

    finder: Any = Slow
    sys.meta_path.insert(0, finder)
    core.scaled(X)
    return [_in_a_process(lambda: _fork_inside(inside, explained)) for _ in range(times)]


def scaled() -> bool:
    return bool(core.scaled(X).tolist() == [0, 2, 4, 6])


def explained() -> bool:
    from lab import _precompiled

    return any(each["hit"] for each in _precompiled.explain("scaled", X))


def handlers_in_the_middle_of_imports() -> dict[str, list[Any]]:
    """For each module of the runtime's that a first status, call, explanation or miss brings in: what came of
    these in a handler that runs in the middle of its import, and of the interrupted ones after it."""
    found = {}
    for name in _NEEDED:
        reading, writing = os.pipe()
        code = _in_a_process(lambda name=name, to=writing: _ask_in_the_middle(name, to))  # type: ignore[misc]
        os.close(writing)
        found[name] = [code, *json.loads(os.read(reading, 10_000) or "[]")]
    return found


def _ask_in_the_middle(name: str, writing: int) -> int:
    inside: list[Any] = []
    signals = iter([signal.SIGUSR1])

    class Loader:
        """Runs a module's code after a signal."""

        def __init__(self, loader: Any) -> None:
            self._loader = loader

        def __getattr__(self, attribute: str) -> Any:
            return getattr(self._loader, attribute)

        def exec_module(self, module: Any) -> None:
            for number in signals:
                signal.raise_signal(number)
            self._loader.exec_module(module)

    class Finder:
        @staticmethod
        def find_spec(wanted: str, path: Any = None, target: Any = None) -> Any:
            if wanted != f"lab._precompiled.{name}":
                return None
            spec: Any = importlib.machinery.PathFinder.find_spec(wanted, path)
            spec.loader = Loader(spec.loader)
            return spec

    finder: Any = Finder
    sys.meta_path.insert(0, finder)
    signal.signal(signal.SIGUSR1, lambda *_: inside.extend(_ask()))
    warnings.simplefilter("error")
    answers = _ask()
    left_out = core_status()["entrypoints"]["scaled"]["left_out"]
    os.write(writing, json.dumps([inside, answers, left_out, _ask()]).encode())
    return 0


def core_status() -> Any:
    from lab import _precompiled

    return _precompiled.status()


def _ask() -> list[Any]:
    """A status, a call, a miss, and why a call is not served."""
    from lab import _precompiled

    answers: list[Any] = [
        core_status()["installed"],
        core.scaled(X).tolist(),
        core.scaled(X.double()).tolist(),
    ]
    try:
        answers.append(_precompiled.explain("scaled", X)[0]["hit"])
    except RuntimeError as error:
        answers.append(str(error))
    return answers


def _in_a_process(job: Callable[[], int]) -> int:
    """The exit code of a forked process that does this, which returns it."""
    child = os.fork()
    if child == 0:
        os._exit(job())
    return os.waitpid(child, 0)[1]


def _fork_inside(inside: threading.Event, call: Callable[[], bool]) -> int:
    thread = threading.Thread(target=call)
    thread.start()
    inside.wait()
    child = os.fork()
    if child == 0:
        with torch.no_grad():
            os._exit(0 if call() else 1)
    code = _exit_code(child, within=20)
    thread.join()
    return code


def _exit_code(child: int, within: float) -> int:
    until = time.monotonic() + within
    while time.monotonic() < until:
        ended, code = os.waitpid(child, os.WNOHANG)
        if ended:
            return code
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return 9


def a_module_that_calls_while_it_is_imported() -> dict[str, Any]:
    """A module that the loading imports calls the entrypoint that is being loaded."""
    from lab._precompiled.loading import entries

    own_import = entries._import
    calls: list[Any] = []

    def calling(module: str) -> None:
        if not calls:
            calls.append("begun")
            calls.append(core.scaled(X).tolist())
        own_import(module)

    entries._import = calling
    core.scaled(X)
    return {"calls": calls, "hits": probe.hits("scaled", "lab")}


def a_first_call_inside_an_operator() -> bool:
    """Whether a call is served after the first one was made in a custom operator's implementation."""

    @torch.library.custom_op("mine::inside", mutates_args=())
    def inside(x: torch.Tensor) -> torch.Tensor:
        return core.scaled(x)

    inside(X)
    return probe.served("scaled", lambda: core.scaled(X), "lab")
