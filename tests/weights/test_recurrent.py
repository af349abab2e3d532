"""LSTM and GRU layers whose steps are ours: any sizes, directions, states and threads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from hatch_precompile.backends.x86_64.compiler import X86Compiler
from hatch_precompile.backends.x86_64.layers import recurrent
from hatch_precompile.inductor import compile_graph, compiling
from hatch_precompile.runtime import runtime
from tests.support.graphs import OPERATORS
from tests.support.hardware import about_x86
from tests.support.headers import settings_of_a_build
from tests.support.layers import compiled, multiplied_by_onednn, variant

pytestmark = [
    pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN"),
    about_x86("recurrent layers"),
]

FUNCTIONS = {"lstm": b"aoti_torch_cpu_precompiled_lstm", "gru": b"aoti_torch_cpu_precompiled_gru"}
BOTH = pytest.mark.parametrize("layer", ["lstm", "gru"])


class Layers(nn.Module):
    """LSTM layers of some kinds, and what is returned beside their output: the last states."""

    def __init__(self, inner: int, size: int, **kinds: Any) -> None:
        super().__init__()
        self.layers: nn.RNNBase = nn.LSTM(inner, size, **kinds)

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> list[torch.Tensor]:
        y, (h, c) = self.layers(x, (states[0], states[1]) if states else None)
        return [y, h, c]


class GRULayers(nn.Module):
    """The same of GRU layers, which have one state."""

    def __init__(self, inner: int, size: int, **kinds: Any) -> None:
        super().__init__()
        self.layers: nn.RNNBase = nn.GRU(inner, size, **kinds)

    def forward(self, x: torch.Tensor, *states: torch.Tensor) -> list[torch.Tensor]:
        return list(self.layers(x, *states))


class TheFirst(nn.Module):
    def forward(self, several: list[torch.Tensor]) -> torch.Tensor:
        return several[0]


KINDS: dict[str, type[nn.Module]] = {"lstm": Layers, "gru": GRULayers}


@pytest.fixture(autouse=True)
def traced_as_in_a_build() -> Iterator[None]:
    with X86Compiler().tracing(variant("native")):
        yield


def error(answers: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    pairs = zip(answers, exact, strict=True)
    return max((one.double() - other).abs().max().item() for one, other in pairs)


def exactly(model: nn.Module, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """In float64; the model is float32 again afterwards."""
    with torch.no_grad():
        answers = model.double()(*(each.double() for each in inputs))
    model.float()
    return list(answers)


def gradients(model: nn.Module, answers: list[torch.Tensor]) -> list[torch.Tensor]:
    return list(torch.autograd.grad([each.sum() for each in answers], list(model.parameters())))


# Sizes that fill no vector, rows that fill no block of registers, and enough of both for several threads.
@BOTH
@pytest.mark.parametrize(
    ("name", "inner", "size", "rows", "kinds", "fixed"),
    [
        ("x86-64-v3", 7, 5, (4, 1), {"num_layers": 2}, True),
        ("x86-64-v3", 16, 37, (3, 9), {"bidirectional": True, "batch_first": True}, True),
        ("native", 7, 5, (4, 1), {"num_layers": 2}, True),
        ("native", 16, 37, (3, 9), {"bidirectional": True, "batch_first": True}, False),
        ("native", 20, 160, (5, 8), {"bias": False}, True),
        ("x86-64", 7, 37, (4, 3), {"bidirectional": True}, False),
    ],
)
def test_they_agree_with_eager_code(
    layer: str, name: str, inner: int, size: int, rows: tuple[int, int], kinds: dict[str, Any], fixed: bool
) -> None:
    torch.manual_seed(0)
    model, x = KINDS[layer](inner, size, **kinds), torch.randn(*rows, inner)
    of = variant(name)
    threads, answers = torch.get_num_threads(), []
    call, graph, steps = compiled(model, of, x, fixed=fixed)
    # Without AVX2, an LSTM is oneDNN's, and there is no other GRU.
    assert (FUNCTIONS[layer] in graph.libraries[of.name].read_bytes()) is (layer == "gru" or name != "x86-64")
    assert ("aten.clone.default" in steps) is fixed  # the weights of states
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            answers.append(list(call()))
    finally:
        torch.set_num_threads(threads)
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other)  # the inputs' product may be a library's
    with torch.no_grad():
        eager = list(model(x))
    assert [each.shape for each in answers[0]] == [each.shape for each in eager]
    assert [each.stride() for each in answers[0]] == [each.stride() for each in eager]
    exact = exactly(model, x)
    assert error(answers[0], exact) <= 2 * error(eager, exact) + 1e-7


@BOTH
def test_states_that_are_given(layer: str, capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, x = KINDS[layer](8, 24, bidirectional=True), torch.randn(6, 2, 8)
    states = [torch.randn(2, 2, 24) for _ in range(2 if layer == "lstm" else 1)]
    call, _, _ = compiled(model, variant("native"), x, *states)
    answers, ran = multiplied_by_onednn(call, "rnn", capfd)
    assert ran == []
    with torch.no_grad():
        torch.testing.assert_close(list(answers), list(model(x, *states)))
        # No answer lies in the memory of another, nor in that of the states.
        memory = [each.untyped_storage().data_ptr() for each in (*answers, *states)]
        assert len(set(memory)) == len(answers) + len(states)


@BOTH
def test_what_is_not_finite_comes_out_as_in_eager_code(layer: str) -> None:
    torch.manual_seed(0)
    model, x = KINDS[layer](8, 24), torch.randn(6, 3, 8)
    call, _, _ = compiled(model, variant("native"), x)
    for value in (torch.nan, torch.inf, -torch.inf):
        with torch.no_grad():
            x[2, 1, 3] = value
            answers = list(call())
        # Not float32: oneDNN, which has that in eager code, may multiply what it has left of another call.
        exact = [each.float() for each in exactly(model, x)]
        torch.testing.assert_close(answers, exact, equal_nan=True)
        with torch.no_grad():
            x[2, 1, 3] = 0
            model.layers.bias_hh_l0[5] = value
            model.layers.bias_hh_l0[50] = value  # of the cell, or a GRU's new gate
            answers = list(call())
        exact = [each.float() for each in exactly(model, x)]
        torch.testing.assert_close(answers, exact, equal_nan=True)
        with torch.no_grad():
            model.layers.bias_hh_l0[5] = model.layers.bias_hh_l0[50] = 0


@BOTH
def test_any_number_of_steps_and_sequences(layer: str) -> None:
    torch.manual_seed(0)
    model, x = KINDS[layer](8, 24, batch_first=True), torch.randn(3, 5, 8)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_dynamic(x, 1)
    graphs = []

    def backend(gm: Any, inputs: Any) -> Any:
        call, graph = compile_graph(gm, inputs, [variant("native")], OPERATORS, fixed_weights=True)
        graphs.append(graph)
        return call

    sys.modules[OPERATORS] = runtime("graphs.callers")
    torch._dynamo.reset()
    with torch.no_grad(), settings_of_a_build():
        call = torch.compile(model, backend=backend, fullgraph=True)
        torch.testing.assert_close(call(x), model(x))
        for sizes in ((2, 2), (7, 2), (2, 19)):
            other = torch.randn(*sizes, 8)
            torch.testing.assert_close(call(other), model(other))
    # Torch 2.15 compiles as many sequences as steps for themselves: `x.size()[1] != x.size()[0]` is a guard.
    assert len(graphs) == (1 if torch.__version__ < (2, 15) else 2)
    for graph in graphs:
        (library,) = graph.libraries.values()
        assert FUNCTIONS[layer] in library.read_bytes()


@pytest.mark.parametrize("kind", ["bfloat16", "projected"])
def test_others_stay_torchs(kind: str) -> None:
    torch.manual_seed(0)
    model, x = Layers(8, 24, proj_size=6 if kind == "projected" else 0), torch.randn(6, 3, 8)
    if kind == "bfloat16":
        model, x = model.bfloat16(), x.bfloat16()
    of = variant("native")
    call, graph, steps = compiled(model, of, x)
    assert kind == "projected" or steps == []
    assert FUNCTIONS["lstm"] not in graph.libraries[of.name].read_bytes()
    with torch.no_grad():
        torch.testing.assert_close(list(call()), list(model(x)), atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("of_input", [True, False])
@pytest.mark.parametrize(
    ("layer", "kinds"),
    [
        ("lstm", {}),
        ("lstm", {"proj_size": 6}),
        ("lstm", {"num_layers": 2, "bidirectional": True}),
        ("gru", {"num_layers": 2, "bidirectional": True}),
    ],
)
def test_what_gets_gradients_is_traced_step_by_step(
    layer: str, kinds: dict[str, Any], of_input: bool, batch: int
) -> None:
    torch.manual_seed(0)
    model, x = KINDS[layer](8, 24, **kinds), torch.randn(6, batch, 8, requires_grad=of_input)
    torch._dynamo.reset()
    with settings_of_a_build():
        answers = torch.compile(model, backend="aot_eager", fullgraph=True)(x)
    found, expected = ([*each, *gradients(model, each)] for each in (answers, model(x)))
    torch.testing.assert_close(found, expected)


def test_a_gru_of_fixed_weights_among_layers_that_are_trained() -> None:
    torch.manual_seed(0)
    gru, linear, x = GRULayers(8, 24).requires_grad_(False), nn.Linear(24, 3), torch.randn(6, 2, 8)
    model = nn.Sequential(gru, TheFirst(), linear)
    graphs = []

    def backend(gm: Any, inputs: Any) -> Any:
        call, graph = compile_graph(gm, inputs, [variant("native")], OPERATORS)
        graphs.append(graph)
        return call

    sys.modules[OPERATORS] = runtime("graphs.callers")
    torch._dynamo.reset()
    with settings_of_a_build():
        answer = torch.compile(model, backend=backend, fullgraph=True)(x)
    found, expected = (
        [each, *torch.autograd.grad(each.sum(), list(linear.parameters()))] for each in (answer, model(x))
    )
    torch.testing.assert_close(found, expected)
    (graph,) = graphs
    assert all(FUNCTIONS["gru"] in library.read_bytes() for library in graph.libraries.values())


def test_a_gru_in_a_transform_of_torch_func_is_traced_step_by_step() -> None:
    torch.manual_seed(0)
    gru, x = nn.GRU(8, 24).requires_grad_(False), torch.randn(6, 3, 8)

    def both(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        gradient = torch.func.grad(lambda x: gru(x)[0].sum())(x)
        return gradient, torch.func.jvp(lambda x: gru(x)[0], (x,), (torch.ones_like(x),))

    torch._dynamo.reset()
    with settings_of_a_build():
        found = torch.compile(both, backend="aot_eager", fullgraph=True)(x)
    torch.testing.assert_close(found, both(x))


@pytest.mark.parametrize("kind", ["bfloat16", "autocast", "float64"])
def test_other_grus_are_traced_step_by_step(kind: str) -> None:
    torch.manual_seed(0)
    dtype = torch.float32 if kind == "autocast" else getattr(torch, kind)
    model, x = GRULayers(8, 24).to(dtype), torch.randn(6, 3, 8, dtype=dtype)
    of = variant("native")
    with torch.autocast("cpu", enabled=kind == "autocast"):
        call, graph, _ = compiled(model, of, x, fixed=False)
        assert FUNCTIONS["gru"] not in graph.libraries[of.name].read_bytes()
        with torch.no_grad():
            torch.testing.assert_close(list(call()), list(model(x)), atol=2e-2, rtol=2e-2, check_dtype=False)


@BOTH
@pytest.mark.parametrize("bias", [True, False])
def test_a_graph_that_gets_a_python_wrapper_agrees(
    layer: str, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(gm: Any) -> None:
        raise compiling._NoHandle("no C++")

    monkeypatch.setattr(compiling, "_require_handles", refuse)
    torch.manual_seed(0)
    model, x = KINDS[layer](8, 21, bidirectional=True, bias=bias), torch.randn(6, 3, 8)
    call, graph, _ = compiled(model, variant("native"), x)
    assert graph.record.why_python == "no C++"
    with torch.no_grad():
        torch.testing.assert_close(list(call()), list(model(x)))
        x[2, 1, 3] = torch.inf
        torch.testing.assert_close(list(call()), list(model(x)), equal_nan=True)


def test_blocks_are_as_large_as_the_function_has_them() -> None:
    assert f"constexpr int64_t UNITS = {recurrent._UNITS};" in recurrent._FUNCTION
    gates = {"lstm": recurrent._OF_LSTM, "gru": recurrent._OF_GRU}
    assert all(f"advance<{count}>(" in recurrent._FUNCTION for count in gates.values())
