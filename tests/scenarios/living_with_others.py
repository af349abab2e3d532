"""What else a program does with a package that has compiled code: the zoo (tests/zoo)."""

from __future__ import annotations

import copy
import functools
import importlib
import io
import multiprocessing
import os
import pickle
import threading
from typing import Any

import probe
import torch
import zoo
import zoo.functions
import zoo.models
import zoo.tools

torch.set_grad_enabled(False)

X = torch.randn(4, 8)
FEW = X[:2]  # no entry takes a batch of two
IMAGE = torch.randn(2, 3, 4, 5)


def served(model: Any) -> bool:
    return probe.served("mlp", lambda: model(X))


def mlp() -> Any:
    return zoo.models.Mlp().eval()


def close(got: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(got, expected, atol=1e-6)


# Controls of torch.compile.


def under_force_eager() -> dict[str, Any]:
    """Which of a call, a call of what is compiled and a miss are served, and what is said of the first."""
    model = mlp()
    call = torch.compile(model, backend=probe.Backend())
    with torch.compiler.set_stance("force_eager"):
        seen = [served(model), served(call), probe.served("mlp", lambda: model(FEW))]
        (report,) = zoo._precompiled.explain("mlp", model, X)
    return {"served": seen, "reason": report["reason"], "misses": probe.misses("mlp")}


def under_other_stances() -> dict[str, Any]:
    """For each: is a call served, is one of what is compiled, and what becomes of a miss."""
    model, backend = mlp(), probe.Backend()
    call = torch.compile(model, backend=backend)
    stances = {}
    for stance in ("fail_on_recompile", "eager_on_recompile", "eager_then_compile"):
        with torch.compiler.set_stance(stance):
            miss = probe.outcome(lambda: call(FEW))
            stances[stance] = {"served": [served(model), served(call)], "miss": miss}
    compiled = backend.compiled
    call(FEW)
    return {"stances": stances, "compiled": compiled, "then": [backend.compiled, served(model)]}


def after_each_reset() -> dict[str, Any]:
    """Whether a call, one of what is compiled and one of a new model are served; and the hits."""
    model = mlp()
    call = torch.compile(model, backend=probe.Backend())
    resets = {
        "torch._dynamo.reset": torch._dynamo.reset,
        "torch.compiler.reset": torch.compiler.reset,
        "torch._dynamo.reset_code_caches": torch._dynamo.reset_code_caches,
    }
    seen = {}
    for name, reset in resets.items():
        call(FEW)
        probe.eager(model)(X)
        before = probe.hits("mlp")
        reset()
        seen[name] = [served(model), served(call), served(mlp()), probe.hits("mlp") - before]
    return seen


def a_function_after_a_reset() -> list[bool]:
    """Whether the next two calls of a function are served."""
    whiten = zoo.functions.whiten
    torch.compile(whiten, backend=probe.Backend())(IMAGE[:1])
    torch._dynamo.reset_code_caches()
    return [probe.served("whiten", lambda: whiten(IMAGE)) for _ in range(2)]


def what_the_user_compiled_after_a_reset() -> dict[str, Any]:
    """How often the backend was called before and after it, for one size, and whether the answer is right."""
    model, backend = mlp(), probe.Backend()
    call = torch.compile(model, backend=backend)
    call(FEW)
    before = backend.compiled
    torch._dynamo.reset_code_caches()
    right = torch.equal(call(FEW), probe.eager(model)(FEW))
    return {"compiled": [before, backend.compiled], "right": right}


# Somebody else's wrapper.


def a_wrapper_around_a_target() -> dict[str, Any]:
    """What runs when it is called, compiled, and called by what is compiled; and what is served."""
    whiten = zoo.functions.whiten
    whiten.note = "mine"

    @functools.wraps(whiten)
    def brighter(image: torch.Tensor) -> torch.Tensor:
        return whiten(image) + 1

    def larger(image: torch.Tensor) -> torch.Tensor:
        return zoo.functions.whiten(image) * 2

    plain = (IMAGE - IMAGE.mean((2, 3), keepdim=True)) * 0.5
    whiten(IMAGE)  # loaded now: its source is compared with what stands at its name then
    zoo.functions.whiten = brighter
    backend = probe.Backend()
    return {
        "called": close(brighter(IMAGE), plain + 1),
        "hits": probe.hits("whiten"),
        "compiled": close(torch.compile(brighter, backend=backend)(IMAGE), plain + 1),
        "inlined": close(torch.compile(larger, backend=backend)(IMAGE), (plain + 1) * 2),
        "note": vars(brighter)["note"],
    }


# Reloading.


def reloading() -> dict[str, list[bool]]:
    """Of the package, then of the module of a target; what is served, right and installed at each step."""
    model = mlp()

    def right(model: Any) -> bool:
        return close(model(X), probe.eager(model)(X))

    package = [served(model)]
    importlib.reload(zoo)
    package.append(served(model))
    importlib.reload(zoo.models)
    new = mlp()
    module = [right(model), right(new), type(new) is not type(model)]
    zoo._precompiled.uninstall()
    zoo._precompiled.install()
    again = [served(new), right(new), right(model)]
    zoo._precompiled.uninstall()
    left = [probe.activated(kind.forward) for kind in (type(new), type(model))]
    return {"package": package, "module": module, "again": again, "left": left}


# Copying and saving.


def _saved(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=not isinstance(value, torch.nn.Module))


def _filled(model: Any) -> Any:
    other = mlp()
    other.load_state_dict(_saved(model.state_dict()))
    return other


COPIES = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "module": _saved,
    "state dict": _filled,
}


def copies_of_a_model() -> dict[str, dict[str, bool]]:
    """Of each: does it answer as the model does, is it served, has it the same attributes."""
    model = mlp()
    expected = model(X)
    seen = {}
    for name, make in COPIES.items():
        other = make(model)
        before = probe.hits("mlp")
        seen[name] = {
            "same answer": torch.equal(other(X), expected),
            "served": probe.hits("mlp") > before,
            "same attributes": sorted(vars(other)) == sorted(vars(model)),
        }
    return seen


def copies_of_functions() -> dict[str, Any]:
    """Whether functions and methods are pickled by name, and whether a function's copy is the function."""
    tool = zoo.tools.Tool
    things = [zoo.functions.whiten, tool.halve, tool.shifted, tool().apply]
    by_name = [pickle.loads(pickle.dumps(thing)).__name__ == thing.__name__ for thing in things]
    function = things[0]
    return {
        "by name": by_name,
        "the function": pickle.loads(pickle.dumps(function)) is function is copy.deepcopy(function),
    }


def save_a_model(path: str) -> None:
    torch.save(mlp(), path)


# Processes.


def _forked(model: Any) -> list[Any]:
    """What a child says of its call, and how it ended."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, b"served" if served(model) else b"not served")
        os._exit(0)
    return [os.read(read, 99).decode(), os.waitpid(child, 0)[1]]


def forks() -> dict[str, Any]:
    """Before anything is loaded, while another thread holds the lock for that; and afterwards."""
    # One thread before the fork: the OpenMP runtime's threads do not survive one (docs/users.md).
    torch.set_num_threads(1)
    model = mlp()
    lock = zoo._precompiled._installation.lock
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    before = _forked(model)
    done.set()
    thread.join()
    return {"before": before, "parent": served(model), "after": _forked(model)}


def _work(model: Any) -> tuple[bool, list[int]]:
    return served(model), list(model(X).shape)


def a_spawned_child() -> tuple[bool, list[int]]:
    """Whether its call of the model that it is given is served, and the shape of the answer."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_work, (mlp(),))
