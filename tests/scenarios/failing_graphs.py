"""Calls of single graphs (tests/support/failing.py) that fail at their data; `place`: where they are."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import failing
import torch
from failing import LARGE, SMALL
from graphs import load_graph

# Type and text of what a call raises; whether it may be run again; the type and text of what it stands for.
# Nothing where it raises nothing.
Failure = list[Any]


def _load(place: str, name: str) -> Callable[..., Any]:
    return load_graph(Path(place, name))


def _tried(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Failure:
    try:
        call(*args, **kwargs)
    except BaseException as error:
        rerun, instead = getattr(error, "rerun", None), getattr(error, "instead", None)
        return [type(error).__name__, str(error), rerun, instead and [type(instead).__name__, str(instead)]]
    return []


def an_index_out_of_range_in_every_kernel(place: str) -> dict[str, Any]:
    """Near and far, first and last: how many were tried, and those that are not as in eager code."""
    wrong, tries = [], 0
    for name, size in (("small", SMALL), ("large", LARGE), ("scalar", LARGE)):
        call, inputs = _load(place, name), failing.lookups_inputs(size)
        assert _agrees(call, inputs)
        for index in inputs.keys() - {"w"}:
            for bad in (2400, 10**6, 2**40, -2401, -(10**6), -(2**62)):
                for where in (0, size // 2, size - 1, slice(None)):
                    there = inputs[index].clone()
                    there[where] = bad
                    tries += 1
                    said = _tried(call, **{**inputs, index: there})
                    eager = _tried(failing.lookups, **{**inputs, index: there})
                    # It can be run again, and then raises what eager code does.
                    if not eager or not said or [said[0], said[2]] != ["GraphFailed", True]:
                        wrong.append([name, index, bad, said, eager])
            assert _agrees(call, inputs), index
    return {"tries": tries, "wrong": wrong, "threads": torch.get_num_threads()}


def _agrees(call: Callable[..., Any], inputs: dict[str, Any]) -> bool:
    return all(map(torch.allclose, call(**inputs), failing.lookups(**inputs)))


def an_index_out_of_range_in_kernels_that_python_calls(place: str) -> dict[str, list[Failure]]:
    """What two of them raise, and what a call raises with every index in range."""
    call, inputs = _load(place, "python"), failing.lookups_inputs(LARGE)
    inputs = {name: inputs[name] for name in ("w", "emb", "row")}
    out_of_range = []
    for index in ("emb", "row"):
        there = inputs[index].clone()
        there[-1] = 10**6
        out_of_range.append(_tried(call, **{**inputs, index: there}))
    return {"out of range": out_of_range, "in range": [_tried(call, **inputs)]}


def a_graph_that_writes_to_its_inputs(place: str) -> Failure:
    call, inputs = _load(place, "changing"), failing.lookups_inputs(LARGE)
    inputs["row"][7] = 10**6
    return _tried(call, w=inputs["w"], row=inputs["row"], total=torch.zeros(8))


def divisions_by_zero(place: str) -> dict[str, Any]:
    """What 50 of them raise, and 50 others in between, while other threads divide; and eager code."""
    call, numbers = _load(place, "divided"), torch.arange(LARGE) + 1
    zeros, fine = numbers.clone(), numbers.clone()
    zeros[17] = 0
    done = threading.Event()

    def divide() -> None:
        while not done.is_set():
            call(a=numbers, b=fine)

    others = [threading.Thread(target=divide) for _ in range(2)]
    for other in others:
        other.start()
    by_zero, by_others = [], []
    try:
        for _ in range(50):
            by_zero.append(_tried(call, a=numbers, b=zeros))
            by_others.append(_tried(call, a=numbers, b=fine))
    finally:
        done.set()
        for other in others:
            other.join()
    return {
        "by zero": by_zero,
        "by others": by_others,
        "eager": _tried(failing.divided, a=numbers, b=zeros),
    }


def a_matrix_without_an_inverse(place: str) -> dict[str, Failure]:
    x = torch.zeros(3, 3)
    return {"ours": _tried(_load(place, "inverse"), x=x), "eager": _tried(failing.inverse, x=x)}


def an_operator_implemented_in_python(place: str) -> dict[str, Any]:
    """Whether it agrees with eager code where nothing fails, and each way of failing."""
    call, x = _load(place, "operated"), torch.zeros(3, 3)
    agrees = all(map(torch.equal, call(x=x), failing.operated(x)))
    failures = [torch.full((3, 3), float(kind)) for kind in range(1, 5)]
    return {
        "agrees": agrees,
        "ours": [_tried(call, x=each) for each in failures],
        "eager": [_tried(failing.operated, each) for each in failures],
    }


def a_forward_that_computes_gradients(place: str) -> Failure:
    call, inputs = _load(place, "trained"), failing.lookups_inputs(LARGE)
    inputs["emb"][-1] = 10**6
    return _tried(call, w=inputs["w"].requires_grad_(), emb=inputs["emb"])


def _smooth_inputs() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.rand(3, 3, generator=generator).requires_grad_() for name in "xw"}


def a_backward_that_is_run_thrice(place: str) -> list[bool]:
    """Whether each gradient is that of eager code."""
    ours, eager = _smooth_inputs(), _smooth_inputs()
    for function, given in ((_load(place, "smooth"), ours), (failing.smooth, eager)):
        _, loss = function(**given)
        for _ in range(3):
            loss.backward(retain_graph=True)
    return [torch.allclose(ours[name].grad, eager[name].grad) for name in "xw"]


def a_second_derivative(place: str) -> Failure:
    given = _smooth_inputs()
    _, loss = _load(place, "smooth")(**given)
    (gradient,) = torch.autograd.grad(loss, given["x"], create_graph=True)
    return _tried(gradient.sum().backward)


def an_output_that_is_changed_before_the_backward(place: str) -> dict[str, Failure]:

    def step(function: Callable[..., Any]) -> None:
        output, loss = function(**_smooth_inputs())
        with torch.no_grad():
            output.mul_(2)
        loss.backward()

    compiled = torch.compile(failing.smooth, backend="aot_eager")
    return {
        "ours": _tried(step, _load(place, "smooth")),
        "compiled": _tried(step, compiled),
        "eager": _tried(step, failing.smooth),
    }


def _resident() -> float:
    """Memory, in MB."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def memory_that_500_failures_leave(place: str) -> float:
    """In MB."""
    call, inputs = _load(place, "large"), failing.lookups_inputs(LARGE)
    inputs["target"][5] = 10**6
    operated, x = _load(place, "operated"), torch.ones(3, 3)

    def fail(times: int) -> None:
        for _ in range(times):
            assert _tried(call, **inputs)
            assert _tried(operated, x=x)

    fail(50)
    before = _resident()
    fail(500)
    return _resident() - before
