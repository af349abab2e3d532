"""Calls of the lab (tests/transparency/lab) that no entry fits, or that somebody else has a say in."""

from __future__ import annotations

import bdb
import functools
import sys
import trace
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import lab
import probe
import torch
from lab import core

torch.set_grad_enabled(False)

X = torch.arange(4.0)
NINE = torch.ones(9)


class Running:
    """A backend of torch.compile that counts how often what it compiled runs."""

    def __init__(self) -> None:
        self.ran = 0

    def __call__(self, graph: Any, inputs: object) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            self.ran += 1
            return graph.forward(*args)

        return run


def a_miss_of_what_somebody_else_compiled(compiled: str) -> dict[str, Any]:
    """How often their code ran in it, and whether the answer is right."""
    backend = Running()
    torch.compile(getattr(core, compiled), backend=backend)(NINE)
    before = backend.ran
    answer = core.outer(NINE)
    return {"ran": backend.ran - before, "right": torch.equal(answer, torch.sin(NINE) * 2)}


def their_own_calls_of_what_they_compiled() -> dict[str, int]:
    """Two misses and a hit: how often their code ran, and the hits."""
    backend = Running()
    theirs = torch.compile(core.outer, backend=backend)
    for x in (NINE, NINE, X):
        theirs(x)
    return {"ran": backend.ran, "hits": probe.hits("outer", "lab")}


class Debugger(bdb.Bdb):
    """Goes on at each breakpoint that it meets, and keeps where it was."""

    def __init__(self) -> None:
        super().__init__()
        self.met: list[str] = []

    def user_line(self, frame: Any) -> None:
        if self.break_here(frame):
            self.met.append(frame.f_code.co_name)
        self.set_continue()


def called_in_a_debugger() -> dict[str, Any]:
    """Where a debugger stopped, and the hits while it was there and after it."""
    debugger = Debugger()
    code = core.inner.__code__
    debugger.set_break(code.co_filename, code.co_firstlineno + 1)
    explained: list[Any] = []
    debugger.runcall(core.outer, X)
    debugger.runcall(lambda: explained.append(lab._precompiled.explain("outer", X)[0]))
    hits = [probe.hits("outer", "lab")]
    core.outer(X)
    hits.append(probe.hits("outer", "lab"))
    return {"met": debugger.met, "hits": hits, "explained": explained[0]["reason"]}


def explained_to_a_monitoring_debugger() -> str:
    """Of CPython 3.12 and later: one that uses sys.monitoring, and sets no trace function."""
    monitoring: Any = vars(sys)["monitoring"]  # mypy looks at Python 3.11
    monitoring.use_tool_id(monitoring.DEBUGGER_ID, "a debugger")
    reason: str = lab._precompiled.explain("outer", X)[0]["reason"]
    return reason


def lines_that_are_counted() -> list[int]:
    """By `trace`, which does what coverage does."""
    counting = trace.Trace(trace=0)
    counting.runfunc(core.outer, X)
    counts = counting.results().counts
    return sorted(line for file, line in counts if file == core.__file__)


def deep_recursion(depth: int) -> dict[str, Any]:
    """The answer, and how many calls were misses."""
    sys.setrecursionlimit(200_000)
    answer = core.down(torch.zeros(1), depth)
    return {"answer": answer.item(), "misses": probe.misses("down", "lab")}


def deepest_recursion() -> int:
    """That the ordinary limit allows."""
    low, high = 1, 1000
    while high - low > 1:
        middle = (low + high) // 2
        try:
            core.down(torch.zeros(1), middle)
            low = middle
        except RecursionError:
            high = middle
    return low


def traceback_of_an_error() -> dict[str, Any]:
    """Its lines below this function, the error, and what it was raised in the handling of."""
    try:
        core.keywords(X, "not a number")
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[1:]
        lines = [(frame.name, frame.lineno, frame.line) for frame in frames]
        return {"lines": lines, "error": repr(error), "context": repr(error.__context__)}
    raise AssertionError("no error")


def a_miss_that_is_an_error() -> None:
    """After a hit."""
    core.Strict()(X)
    core.Strict()(torch.ones(5))


def misses_that_are_compiled(*, by_default: bool = False) -> dict[str, Any]:
    """A hit and two misses: how often compiled code ran, the hits, and warnings.

    by_default: torch is told that the backend, which needs no compiler, is its default one
    """
    backend = Running()
    if by_default:
        torch.compiler.set_default_backend(backend)
    else:
        torch.compile = functools.partial(torch.compile, backend=backend)
    model = core.Jitted()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for x in (X, torch.ones(5), torch.ones(5)):
            model(x)
    texts = [str(each.message) for each in said if "lab: " in str(each.message)]
    return {"ran": backend.ran, "hits": probe.hits("jitted", "lab"), "said": texts}


def _with_a_disabled_function_around_it() -> None:
    def around() -> None:
        core.scaled(X)

    torch.compiler.disable(around)()


def _with_dynamo_disabled() -> None:
    import torch._dynamo.config

    torch._dynamo.config.disable = True
    core.scaled(X)


WAYS: dict[str, Callable[[], Any]] = {
    "disable": lambda: torch.compiler.disable(core.scaled)(X),
    "disable of a module": lambda: torch.compiler.disable(core.Base())(X),
    "disable around it": _with_a_disabled_function_around_it,
    "stance": lambda: torch.compiler.set_stance("force_eager")(core.scaled)(X),
    "config": _with_dynamo_disabled,
}


def told_to_keep_out(way: str) -> list[int]:
    """Hits of a call of a function or of a module."""
    WAYS[way]()
    return [probe.hits(name, "lab") for name in ("scaled", "base")]


def status_after_a_call() -> Any:
    core.scaled(X)
    return lab._precompiled.status()


def hits_in_a_function_of_torch_that_keeps_itself_out() -> int:
    torch._disable_dynamo(core.scaled)(X)
    return probe.hits("scaled", "lab")


def calls_whose_graph_fails() -> dict[str, Any]:
    """What calls raise with an index out of range, of which that one target has its function from the other;
    and a miss after them."""
    seen: dict[str, Any] = {}
    for cls in (core.Table, core.LongTable):
        try:
            cls()(torch.tensor([[1, 2, 300]]))
        except Exception as error:
            seen[cls.__name__] = [type(error).__name__, str(error)]
    try:
        core.LongTable()(torch.tensor([[1, 2, 3, 4, 5]]))
    except Exception as error:
        seen["another size"] = [type(error).__name__, "no entry of longtable fits" in str(error)]
    entrypoints = lab._precompiled.status()["entrypoints"]
    seen["misses"] = [entrypoints[name]["misses"] for name in ("table", "longtable")]
    return seen
