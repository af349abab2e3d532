"""Graphs that a wheel cannot hold: why not is found where they are compiled.

docs/limits.md lists the reasons, with the tests here. Nothing is compiled: what inductor returns is made up.
"""

from __future__ import annotations

import inspect
import operator
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.exc import InductorError

from hatch_precompile.capture.graphs import as_traced
from hatch_precompile.errors import BuildError, Unsupported
from hatch_precompile.inductor import CompiledGraph, compile_graph
from hatch_precompile.inductor.autograd import Wrappers
from hatch_precompile.lower.graphs import write_graph
from hatch_precompile.records import GraphRecord
from hatch_precompile.torch_versions import way
from tests.support.hardware import a_variant


def compiled(**facts: Any) -> Any:
    """What compile_fx_inner returns, as far as it is looked at."""
    default: dict[str, Any] = {
        "source_code": "",
        "constants": {},
        "inputs_to_check": [],
        "output_strides": [None],
        "torchbind_constants": {},
        "opaque_value_type_classes": {},
    }
    return types.SimpleNamespace(**{**default, **facts})


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CompiledGraph]:
    """What `compile_graph` makes of a graph where compile_fx_inner is `inner` and compile_fx `outer`."""

    def find(
        inner: Callable[..., Any],
        outer: Callable[..., Any] = lambda gm, inputs, inner_compile: inner_compile(gm, inputs),
        libraries: int = 1,
        variants: tuple[str, ...] = ("native",),
    ) -> CompiledGraph:
        from torch._inductor import compile_fx
        from torch._inductor.codecache import CppWrapperCodeCache
        from torch._inductor.virtualized import V

        written = types.SimpleNamespace(
            wrapper_code=types.SimpleNamespace(output_is_tensor={}), scheduler=types.SimpleNamespace(nodes=[])
        )

        def load(*args: Any, **kwargs: Any) -> Any:
            return types.SimpleNamespace(__self__=types.SimpleNamespace(__file__="/graph.so"))

        def compile_inner(*args: Any, **kwargs: Any) -> Any:
            for _ in range(libraries):
                with V.set_graph_handler(written):
                    CppWrapperCodeCache.load_pybinding(main_code="", num_outputs=1)
            return inner()

        monkeypatch.setattr(
            CppWrapperCodeCache.__mro__[1], "load_pybinding", classmethod(lambda cls, **_: load())
        )
        monkeypatch.setattr(compile_fx, "compile_fx_inner", compile_inner)
        monkeypatch.setattr(compile_fx, "compile_fx", outer)
        gm = torch.fx.symbolic_trace(lambda x: x + 1)
        targets = [a_variant(name, ()) for name in variants]
        return compile_graph(gm, [torch.ones(2)], targets, "operators")[1]

    return find


def test_what_is_supported_has_none(graph: Callable[..., CompiledGraph]) -> None:
    assert graph(compiled).obstacle == ""


def test_no_cpp_wrapper(graph: Callable[..., CompiledGraph]) -> None:
    assert graph(compiled, libraries=0).obstacle == "inductor did not use its C++ wrapper for it"


def test_several_parts(graph: Callable[..., CompiledGraph]) -> None:
    def split(gm: Any, inputs: Any, inner_compile: Callable[..., Any]) -> None:
        inner_compile(gm, inputs)
        inner_compile(gm, inputs)

    assert graph(compiled, split).obstacle == "inductor split it in several parts"


def test_not_one_library(graph: Callable[..., CompiledGraph]) -> None:
    assert graph(compiled, libraries=2).obstacle == "inductor made 2 libraries of it"


def test_other_strides(graph: Callable[..., CompiledGraph]) -> None:
    """What calls a graph was traced for the strides of one of its variants."""
    strides = iter([[("8", "1")], [("1", "8")]])
    made = graph(lambda: compiled(output_strides=next(strides)), variants=("x86-64-v2", "x86-64-v3"))
    assert made.obstacle == "the variant x86-64-v3 returns other strides"


def test_a_tensor_in_the_code_is_none_for_several_variants() -> None:
    """The graph is copied for each, where torch refuses to copy the tensor."""
    reached: list[str] = []

    def on_variant(name: str, seconds: float | None) -> None:
        reached.append(name)
        raise NotImplementedError("nothing need be compiled")

    def backend(gm: Any, inputs: Any) -> Any:
        return compile_graph(gm, inputs, [a_variant("one", ()), a_variant("other", ())], "x", on_variant)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([1.0, 2.0])

    torch._dynamo.reset()
    with torch.no_grad(), pytest.raises(Exception, match="nothing need be compiled"):
        torch.compile(function, backend=backend, fullgraph=True)(torch.ones(2))
    assert reached == ["one"]


def refused_at_first(**facts: Any) -> Callable[[], Any]:
    """The C++ wrapper refuses the graph, the Python one takes it."""
    attempts = []

    def inner() -> Any:
        attempts.append(1)
        if len(attempts) == 1:
            raise InductorError(NotImplementedError("no such thing in C++"), None)
        return compiled(source_code="def call(args):\n    return ()", **facts)

    return inner


def test_one_that_the_cpp_wrapper_refuses_has_a_python_wrapper(graph: Callable[..., CompiledGraph]) -> None:
    made = graph(refused_at_first())
    assert (made.obstacle, made.libraries, made.record.why_python) == ("", {}, "no such thing in C++")
    assert made.python["native"].source == "def call(args):\n    return ()"


def test_constants_that_are_no_tensors(graph: Callable[..., CompiledGraph]) -> None:
    made = graph(refused_at_first(torchbind_constants={"a": object()}))
    assert made.obstacle == "it has constants that are no tensors"


def test_one_that_both_refuse_raises_the_first_reason(graph: Callable[..., CompiledGraph]) -> None:
    def inner() -> Any:
        reasons.append(f"reason {len(reasons)}")
        raise InductorError(NotImplementedError(reasons[-1]), None)

    reasons: list[str] = []
    with pytest.raises(InductorError, match="reason 0"):
        graph(inner)
    assert len(reasons) == 2


def test_inputs_that_would_be_realigned(graph: Callable[..., CompiledGraph]) -> None:
    assert graph(lambda: compiled(inputs_to_check=[0])).obstacle == "its inputs would have to be realigned"


def test_a_backward_that_was_left_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._functorch._aot_autograd import runtime_wrappers

    one_by_one = way("what is put around a graph with gradients") == "arguments"
    names = ["maybe_subclass_meta", "num_symints_saved_for_bw", "backward_state_indices", "disable_amp"]
    names += ["indices_of_inps_to_detach", "fw_metadata", "aot_config"]
    given = {"lazy_backward_info": object(), **dict.fromkeys(names)}
    if one_by_one:
        given["num_symints_saved_for_bw_"] = given.pop("num_symints_saved_for_bw")

    def post_compile(*args: Any, **kwargs: Any) -> None: ...

    parameters = list(given) if one_by_one else ["spec"]
    post_compile.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in parameters]
    )
    monkeypatch.setattr(runtime_wrappers.AOTDispatchAutograd, "post_compile", staticmethod(post_compile))
    obstacles: list[str] = []
    wrappers = Wrappers(obstacles.append)
    with wrappers.watched():
        wrapper = runtime_wrappers.AOTDispatchAutograd
        wrapper.post_compile(**given) if one_by_one else wrapper.post_compile(types.SimpleNamespace(**given))
    wrappers.finish(has_backward=False)
    assert obstacles == ["its backward was not compiled"]


def test_wrappers_that_cannot_be_stored() -> None:
    obstacles: list[str] = []
    wrappers = Wrappers(obstacles.append)
    wrappers.record = GraphRecord(why_wrapped="it uses tensor subclasses")
    wrappers.config = types.SimpleNamespace(
        num_params_buffers=0, aot_id=0, keep_inference_input_mutations=True, dynamic_shapes=False
    )
    wrappers.steps.append(("AOTDispatchSubclassWrapper", {"meta": lambda: None}, None))
    wrappers.finish(has_backward=False)
    (obstacle,) = obstacles
    assert obstacle.startswith("it uses tensor subclasses, and Can't ")


def test_a_constant_that_is_not_in_main_memory(tmp_path: Path) -> None:
    graph = CompiledGraph(GraphRecord(), {}, {}, {"c": torch.empty(2, device="meta")}, {}, "")
    with pytest.raises(BuildError, match=r"^a constant of a graph is on meta, which no backend has$"):
        write_graph(graph, tmp_path, "0")


def test_a_graph_that_is_given_another_type_than_it_was_traced_for() -> None:
    gm = torch.fx.symbolic_trace(lambda x, drawn: x * drawn)
    gm.graph.find_nodes(op="call_function", target=operator.mul)[
        0
    ].stack_trace = '  File "model.py", line 3, in forward\n    return x * drawn'
    call = as_traced(gm, gm, [torch.ones(2), torch.tensor(0.5)])
    assert torch.equal(call(torch.ones(2), torch.tensor(0.25)), torch.full((2,), 0.25))
    with pytest.raises(Unsupported) as refused:
        call(torch.ones(2), torch.tensor(0.25, dtype=torch.float64))
    first, place, advice = str(refused.value).splitlines()
    assert first.endswith(" calls a graph with torch.float64 that it traced for torch.float32")
    assert place == "  at model.py:3 in forward"
    assert advice.startswith("  Draw random numbers outside of the target")
