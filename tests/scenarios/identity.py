"""What there is to see of targets of the lab (tests/transparency/lab), and of calls of them."""

from __future__ import annotations

import functools
import inspect
import io
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

import cloudpickle
import lab
import probe
import torch
from lab import core

torch.set_grad_enabled(False)

X = torch.arange(4.0)


def keywords() -> torch.Tensor:
    return core.keywords(X, 1.0, scale=3.0, more=2.0)


def copy_of(
    function: types.FunctionType,
    module_globals: dict[str, Any],
    closure: tuple[types.CellType, ...] = (),
    consts: Callable[[Any], Any] = lambda each: each,
) -> types.FunctionType:
    code = function.__code__
    given = tuple(map(consts, code.co_consts))
    code = code if given == code.co_consts else code.replace(co_consts=given)
    return types.FunctionType(code, module_globals, closure=closure or None)


def by_value(module: types.ModuleType, value: Any) -> bytes:
    """A pickle for processes that do not have the module."""
    cloudpickle.register_pickle_by_value(module)
    try:
        content: bytes = cloudpickle.dumps(value)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    return content


def answers_of_expressions(expressions: dict[str, str]) -> dict[str, Any]:
    """After some calls."""
    modules = {module.__name__: module for module in (functools, inspect, io, pickle, sys, torch, types, lab)}
    names = {**modules, "core": core, "x": X, "copy_of": copy_of, "by_value": by_value}
    core.scaled(X)
    core.outer(X)
    core.Base()(X)
    keywords()
    return {name: eval(expression, names) for name, expression in expressions.items()}


def compiled_by_the_user() -> dict[str, Any]:
    """Calls under torch.compile: one that an entry serves, and one that none does."""
    graphs = 0

    def backend(graph: Any, inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return graph.forward

    functions: dict[str, tuple[str, Any, Callable[[torch.Tensor], tuple[Any, ...]]]] = {
        "a closure": ("shifted", core.shifted, lambda x: ((x,), {})),
        "keywords": ("keywords", core.keywords, lambda x: ((x, 1.0), {"scale": 3.0, "more": 2.0})),
    }
    seen: dict[str, Any] = {name: [] for name in functions}
    for name, (entrypoint, function, given) in functions.items():
        for x in (X, X.double()):
            torch._dynamo.reset()
            graphs = 0
            args, kwargs = given(x)
            before = probe.hits(entrypoint, "lab")
            found = torch.compile(function, fullgraph=True, backend=backend)(*args, **kwargs)
            hits = probe.hits(entrypoint, "lab") - before
            right = torch.equal(found, probe.eager(function)(*args, **kwargs))
            seen[name].append({"right": right, "hits": hits, "graphs": graphs})
    return seen


def calls_of_each_target() -> dict[str, dict[str, Any]]:
    """Whether its entrypoint serves it, and the compilers imported by then."""
    calls: dict[str, tuple[str, Callable[[], Any]]] = {
        "a function": ("scaled", lambda: core.scaled(X)),
        "a function made in another": ("shifted", lambda: core.shifted(X)),
        "a decorated function": ("decorated", lambda: core.decorated(X)),
        "with keywords": ("keywords", keywords),
        "a module": ("base", lambda: core.Base()(X)),
        "a derived module": ("derived", lambda: core.Derived()(X)),
        "a static method": ("static", lambda: core.Tools.static(X)),
        "a class method": ("of_class", lambda: core.Tools.of_class(X)),
        "an inherited method": ("method", lambda: core.Inheriting().method(X)),
        "recursion": ("down", lambda: core.down(X, 2)),
        "a table": ("table", lambda: core.Table()(torch.tensor([[1, 2, 3]]))),
        "a miss is an error": ("strict", lambda: core.Strict()(X)),
        "a miss is compiled": ("jitted", lambda: core.Jitted()(X)),
        "exported lazily": ("lazily", lambda: lab.lazily(X)),
        "a graph break": ("broken", lambda: core.broken(X)),
        "forward itself": ("base", lambda: core.Base().forward(X)),
    }
    return {
        kind: {"served": probe.served(name, call, "lab"), "imported": probe.compilers()}
        for kind, (name, call) in calls.items()
    }


def modules_imported_by_asking_for_targets() -> list[str]:
    return probe.loaded("lab.later")


def a_functions_own_attribute() -> dict[str, Any]:
    """Answers before and after it is changed, and the hits of both."""
    before = core.scaled(X).tolist()
    core.scaled.scale = 7.0
    after = core.scaled(X).tolist()
    return {"before": before, "after": after, "hits": probe.hits("scaled", "lab")}


def an_attribute_set_before_the_first_call() -> list[float]:
    core.scaled.scale = 7.0
    return core.scaled(X).tolist()


def uninstalled_after_calls() -> dict[str, Any]:
    """Which functions are activated before and after it, and an answer."""
    core.scaled(X)
    core.broken(X)
    functions = core.scaled, core.keywords, core.Base.forward, core.Tools.of_class, core.talking
    before = [probe.activated(function) for function in functions]
    lab._precompiled.uninstall()
    after = [probe.activated(function) for function in functions]
    return {"before": before, "after": after, "answer": core.scaled(X).tolist()}
