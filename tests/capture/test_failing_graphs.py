"""A graph that fails at the data of a call: the process lives, and an exception comes out of the library.

Without a guard in its kernels an index out of range ends the process (std::terminate), whatever its size.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import REPOSITORY, Site, made_once
from tests.support import failing
from tests.support.graphs import save_graph

SMALL, LARGE = 4, 20_000
START = """
import pathlib, torch
import failing, probe
from graphs import load_graph
place = pathlib.Path(probe.argument())

def tried(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except BaseException as error:
        rerun, instead = getattr(error, "rerun", None), getattr(error, "instead", None)
        return [type(error).__name__, str(error), rerun, instead and [type(instead).__name__, str(instead)]]
    return []
"""


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "failing", compile_graphs)


def compile_graphs(place: Path) -> None:
    for name, size, requires in (("small", SMALL, None), ("large", LARGE, None), ("scalar", LARGE, ())):
        inputs = failing.lookups_inputs(size)
        assert not save_graph(place / name, failing.lookups, inputs, requires=requires).why_python
    w, emb, row = (failing.lookups_inputs(LARGE)[name] for name in ("w", "emb", "row"))
    assert save_graph(place / "python", failing.in_python, {"w": w, "emb": emb, "row": row}).why_python
    total = torch.zeros(8)
    assert save_graph(
        place / "changing", failing.changing, {"w": w, "row": row, "total": total}
    ).changes_inputs
    numbers = torch.arange(LARGE) + 1
    save_graph(place / "divided", failing.divided, {"a": numbers, "b": numbers + 0})
    save_graph(place / "inverse", failing.inverse, {"x": torch.eye(3)})
    save_graph(place / "trained", failing.trained, {"w": w.requires_grad_(), "emb": emb}, grad=True)
    square = {"x": torch.rand(3, 3).requires_grad_(), "w": torch.rand(3, 3).requires_grad_()}
    save_graph(place / "smooth", failing.smooth, square, grad=True)
    save_graph(place / "operated", failing.operated, {"x": torch.zeros(3, 3)})


def run(graphs: Path, code: str, threads: int = 1) -> Any:
    site = Site(REPOSITORY)
    return site.run(START + code, stdin=str(graphs), OMP_NUM_THREADS=str(threads), HOME=os.devnull).result


@pytest.mark.parametrize("threads", [1, 2])
def test_an_index_out_of_range_in_every_kernel(graphs: Path, threads: int) -> None:
    """Of every size, with vectors and without, near and far, first and last: as eager code raises."""
    told = run(
        graphs,
        f"""
wrong, tries = [], 0
for name, size in (("small", {SMALL}), ("large", {LARGE}), ("scalar", {LARGE})):
    call, inputs = load_graph(place / name), failing.lookups_inputs(size)
    def agrees():
        return all(map(torch.allclose, call(**inputs), failing.lookups(**inputs)))
    assert agrees()
    for index in inputs.keys() - {{"w"}}:
        for bad in (2400, 10**6, 2**40, -2401, -(10**6), -(2**62)):
            for place_in_it in (0, size // 2, size - 1, slice(None)):
                there = inputs[index].clone()
                there[place_in_it] = bad
                tries += 1
                said = tried(call, **{{**inputs, index: there}})
                eager = tried(failing.lookups, **{{**inputs, index: there}})
                # It can be run again, and then raises what eager code does.
                if not eager or not said or [said[0], said[2]] != ["GraphFailed", True]:
                    wrong.append([name, index, bad, said, eager])
        assert agrees(), index
probe.result(tries=tries, wrong=wrong, threads=torch.get_num_threads())
""",
        threads,
    )
    assert told["wrong"] == []
    assert told["tries"] == 3 * 8 * 6 * 4
    assert told["threads"] == threads


@pytest.mark.parametrize("threads", [1, 2])
def test_so_with_kernels_that_python_calls(graphs: Path, threads: int) -> None:
    told = run(
        graphs,
        f"""
call, inputs = load_graph(place / "python"), failing.lookups_inputs({LARGE})
inputs = {{name: inputs[name] for name in ("w", "emb", "row")}}
said = []
for index in ("emb", "row"):
    there = inputs[index].clone()
    there[-1] = 10**6
    said.append(tried(call, **{{**inputs, index: there}}))
probe.result(said=said, fine=tried(call, **inputs))
""",
        threads,
    )
    failed = "index out of range in self: it is out of bounds for dimension with size 300"
    assert told["said"] == [["GraphFailed", failed, True, ["IndexError", failed]]] * 2
    assert told["fine"] == []


def test_a_graph_that_writes_to_its_inputs_cannot_be_run_again(graphs: Path) -> None:
    told = run(
        graphs,
        """
call, inputs = load_graph(place / "changing"), failing.lookups_inputs(20000)
inputs["row"][7] = 10**6
probe.result(said=tried(call, w=inputs["w"], row=inputs["row"], total=torch.zeros(8)))
""",
    )
    assert told["said"][0] == "GraphFailed"
    assert told["said"][2] is False
    assert told["said"][3][0] == "IndexError"


@pytest.mark.parametrize("threads", [1, 2])
def test_division_by_zero(graphs: Path, threads: int) -> None:
    told = run(
        graphs,
        """
import threading
call, numbers = load_graph(place / "divided"), torch.arange(20000) + 1
zeros, fine = numbers.clone(), numbers.clone()
zeros[17] = 0
said = []
# In other threads the same kernels divide by what is not zero.
done = threading.Event()
def divide():
    while not done.is_set():
        call(a=numbers, b=fine)
others = [threading.Thread(target=divide) for _ in range(2)]
for other in others: other.start()
try:
    for _ in range(50):
        said.append(tried(call, a=numbers, b=zeros))
        said.append(tried(call, a=numbers, b=fine))
finally:
    done.set()
    for other in others: other.join()
probe.result(said=[*map(list, set(map(str, said)))], eager=tried(failing.divided, a=numbers, b=zeros))
""",
        threads,
    )
    error = ["RuntimeError", "ZeroDivisionError"]
    assert told["eager"][:2] == error
    assert sorted("".join(each) for each in told["said"]) == sorted(
        ["[]", str(["GraphFailed", "ZeroDivisionError", True, error])]
    )


def test_what_torch_says_of_a_matrix(graphs: Path) -> None:
    told = run(
        graphs,
        """
x = torch.zeros(3, 3)
probe.result(said=tried(load_graph(place / "inverse"), x=x), eager=tried(failing.inverse, x=x))
""",
    )
    assert told["said"][3] == told["eager"][:2]
    assert "linalg.inv" in told["eager"][1]


def test_what_an_operator_implemented_in_python_raises(graphs: Path) -> None:
    """Comes out as it is, so that neither Ctrl-C nor a signal handler's exception is lost."""
    told = run(
        graphs,
        """
call = load_graph(place / "operated")
x = torch.zeros(3, 3)
agrees = all(map(torch.equal, call(x=x), failing.operated(x)))
said = [tried(call, x=torch.full((3, 3), float(kind))) for kind in range(1, 5)]
eager = [tried(failing.operated, torch.full((3, 3), float(kind))) for kind in range(1, 5)]
probe.result(said=said, eager=eager, agrees=agrees)
""",
    )
    assert told["agrees"]
    assert told["said"] == told["eager"]
    assert [each[0] for each in told["said"]] == ["ValueError", "KeyboardInterrupt", "_LinAlgError", "Alarm"]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_forward_that_computes_gradients(graphs: Path, threads: int) -> None:
    """Its backward takes the indices as checked, as eager code's does."""
    told = run(
        graphs,
        """
call, inputs = load_graph(place / "trained"), failing.lookups_inputs(20000)
w, emb = inputs["w"].requires_grad_(), inputs["emb"]
bad = emb.clone()
bad[-1] = 10**6
forward = tried(call, w=w, emb=bad)
probe.result(forward=forward)
""",
        threads,
    )
    assert told["forward"][0] == "GraphFailed"
    assert told["forward"][2] is True


SMOOTH = """
call = load_graph(place / "smooth")
def inputs():
    generator = torch.Generator().manual_seed(1)
    return {name: torch.rand(3, 3, generator=generator).requires_grad_() for name in "xw"}
"""


def test_a_backward_that_is_run_twice(graphs: Path) -> None:
    told = run(
        graphs,
        SMOOTH
        + """
ours, eager = inputs(), inputs()
for function, given in ((call, ours), (failing.smooth, eager)):
    _, loss = function(**given)
    for _ in range(3):
        loss.backward(retain_graph=True)
probe.result(same=[torch.allclose(ours[name].grad, eager[name].grad) for name in "xw"])
""",
    )
    assert told["same"] == [True, True]


def test_a_second_derivative_names_the_way_out(graphs: Path) -> None:
    told = run(
        graphs,
        SMOOTH
        + """
given = inputs()
_, loss = call(**given)
gradient, = torch.autograd.grad(loss, given["x"], create_graph=True)
probe.result(said=tried(gradient.sum().backward))
""",
    )
    assert told["said"][0] == "RuntimeError"
    assert 'torch.compiler.set_stance("force_eager")' in told["said"][1]
    assert "HATCH_PRECOMPILE=off" in told["said"][1]


def test_an_output_that_is_changed_before_the_backward(graphs: Path) -> None:
    """As under torch.compile, and in eager code."""
    told = run(
        graphs,
        SMOOTH
        + """
def step(function):
    output, loss = function(**inputs())
    with torch.no_grad():
        output.mul_(2)
    loss.backward()
compiled = torch.compile(failing.smooth, backend="aot_eager")
probe.result(said=[tried(step, function) for function in (call, compiled, failing.smooth)])
""",
    )
    assert [each[0] for each in told["said"]] == ["RuntimeError"] * 3
    assert all("modified by an inplace operation" in each[1] for each in told["said"])


def test_failures_leave_nothing_behind(graphs: Path) -> None:
    """Neither inputs nor what the graph computed before it failed."""
    told = run(
        graphs,
        """
import gc
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20

call, inputs = load_graph(place / "large"), failing.lookups_inputs(20000)
inputs["target"][5] = 10**6
operated, x = load_graph(place / "operated"), torch.ones(3, 3)
def fail(times):
    for _ in range(times):
        assert tried(call, **inputs)
        assert tried(operated, x=x)
fail(50)
before = resident()
fail(500)
probe.result(grown=resident() - before)
""",
    )
    assert told["grown"] < 20  # MB; a single output of 20,000 rows that stayed each time would be 320
