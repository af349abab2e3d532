"""How a library is called: what it gets, what is kept, what its failure becomes."""

from __future__ import annotations

import warnings
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hatch_precompile.runtime import runtime

graphs = runtime("graphs.callers")


def tensors_of(handles: list[Any]) -> list[torch.Tensor]:
    stolen: list[torch.Tensor] = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs(handles)
    return stolen


def handles_of(tensors: list[torch.Tensor]) -> list[Any]:
    handles: list[Any] = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors(tensors)
    return handles


def caller_of(kind: str, library: Any) -> Any:
    if kind == "library":
        return graphs.library_caller(lambda handles: handles_of(library(tensors_of(handles))), {}, [])
    source = "def call(args):\n    inputs = list(args)\n    args.clear()\n    return run(inputs)"
    return graphs.python_caller(compile(source, "graph.py", "exec"), {"run": library}, {})


@pytest.mark.parametrize("kind", ["library", "python"])
def test_an_input_in_a_box_is_the_librarys_to_free(kind: str) -> None:
    """Saved activations are such inputs of a backward: kept until it ends they would add up."""
    freed = []

    def library(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        result = tensors[0] + 1
        tensors.clear()
        freed.append(remembered() is None)
        return [result]

    x = torch.ones(2)
    remembered = weakref.ref(x)
    box: list[Any] = [x]
    del x
    (result,) = caller_of(kind, library).boxed(box)
    assert box == []
    assert freed == [True]
    assert result.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("text", "kind", "instead"),
    [
        (
            "cpp_fused_0, graph.cpp:21, index out of bounds: 0 <= tmp4 < 30522L",
            IndexError,
            "index out of range in self: it is out of bounds for dimension with size 30522",
        ),
        (
            "index out of bounds: 0 <= tmp4 < ks0\nException raised from cpp_fused at graph.cpp:3 (",
            IndexError,
            "index out of range in self: it is out of bounds for dimension",
        ),
        ("inductor_cpu_note, graph.cpp:821, ZeroDivisionError", RuntimeError, "ZeroDivisionError"),
        ("linalg.inv: singular", torch.linalg.LinAlgError, "linalg.inv: singular"),
        ("something else", RuntimeError, "something else"),
    ],
)
def test_what_a_library_says_is_translated(text: str, kind: type, instead: str) -> None:
    translated = graphs._as_eager(RuntimeError(text))
    assert type(translated) is kind
    assert str(translated) == instead


def test_an_error_of_python_code_is_its_own() -> None:
    """A handler of signals, or an operator, may raise anything: only torch's C++ code fails as a graph."""

    class Fake:
        def __call__(self, handles: list[Any]) -> Any:
            raise RuntimeError("index out of bounds: 0 <= tmp4 < 3L")

    call = graphs.library_caller(Fake(), {}, [])
    for function, inputs in ((call, (torch.ones(1),)), (call.boxed, ([torch.ones(1)],))):
        with pytest.raises(RuntimeError) as raised:
            function(*inputs)
        assert type(raised.value) is RuntimeError


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("boxed", [False, True])
def test_an_error_of_the_library_is_the_graphs(changes: bool, boxed: bool) -> None:
    record = {"changes_inputs": True} if changes else {}
    # A builtin that raises in the caller's own frame, as a library does.
    call = graphs.library_caller(torch._C._nn.linear, record, [])
    with pytest.raises(graphs.GraphFailed) as raised:
        call.boxed([torch.ones(1)]) if boxed else call(torch.ones(1))
    assert raised.value.rerun is not changes
    assert isinstance(raised.value, RuntimeError)
    assert isinstance(raised.value.__cause__, TypeError)
    assert raised.value.instead is raised.value.__cause__


def slice_of(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(96.0).to(dtype).reshape(4, 6, 4)[1:, ::2]


@pytest.mark.parametrize(
    ("base", "make"),
    [
        (slice_of(torch.float64), lambda x: x.view(torch.int16)),
        (slice_of(torch.float32), lambda x: x.view(torch.float64)),
        (slice_of(torch.int32), lambda x: x.view(torch.float32).transpose(0, 1)),
        (slice_of(torch.float32), lambda x: torch.view_as_complex(x.unflatten(-1, (2, 2)))[:, 1:]),
        (slice_of(torch.complex64), lambda x: torch.view_as_real(x)[..., 1]),
        (torch.nn.Parameter(slice_of(torch.float32)), lambda x: x.view(torch.int16)[1]),
        (torch.arange(5.0)[1:], lambda x: x.view(torch.int8)),
        (torch.empty(0, 4), lambda x: x.view(torch.int16)),
    ],
)
def test_a_view_of_another_dtype_is_made_anew(base: torch.Tensor, make: Any) -> None:
    """From an input and what the library returned, which shares its memory and nothing else."""
    with torch.no_grad():
        expected = make(base)
        again = graphs._view_like(base, expected.detach())
    assert again.dtype == expected.dtype
    assert again.stride() == expected.stride()
    assert torch.equal(again, expected)
    with torch.no_grad():
        again.fill_(1)
        assert torch.equal(make(base), again)
    assert again._version == base._version


def test_a_backward_raises_what_eager_code_would() -> None:
    """Nothing can be run in its place, so nobody is asked to."""
    cause, instead = RuntimeError("index out of bounds: 0 <= tmp4 < 3L"), IndexError("index out of range")

    class Failing:
        def boxed(self, inputs: list[Any]) -> Any:
            raise graphs.GraphFailed(instead, rerun=True) from cause

    boxed = runtime("graphs.autograd")._boxed
    with pytest.raises(IndexError) as raised:
        boxed(Failing(), backward=True)([])
    assert raised.value is instead
    assert raised.value.__cause__ is cause
    with pytest.raises(graphs.GraphFailed):
        boxed(Failing())([])


def test_an_operator_that_returns_nothing_for_a_tensor_is_an_error() -> None:
    """The library would read the tensor that is not there."""
    with torch.library._scoped_library("of_these_tests", "DEF") as library:
        library.define("forgets(Tensor x) -> Tensor")
        library.impl("forgets", lambda x: None, "CPU")
        library.define("looks(Tensor x) -> ()")
        library.impl("looks", lambda x: None, "CPU")
        handle = torch._C._aoti.unsafe_alloc_void_ptr_from_tensor
        with pytest.raises(TypeError, match=r"forgets\.default returned None"):
            graphs.custom_op_wrapper("torch.ops.of_these_tests.forgets.default", handle(torch.ones(2)))
        assert (
            graphs.custom_op_wrapper("torch.ops.of_these_tests.looks.default", handle(torch.ones(2))) is None
        )


def test_of_subclasses_in_subclasses_each_is_named_once() -> None:
    inner = SimpleNamespace(data="data", scale="scale")
    outer = SimpleNamespace(weight=inner, bias="bias")
    ways = {"1": [["weight", "data"], ["weight", "scale"], ["bias"]]}
    tensors, wrapping = graphs.taking_apart(ways)(["x", outer, "y"])
    assert tensors == ["x", "data", "scale", "bias", "y"]
    assert [id(each) for each in wrapping] == [id(outer), id(inner)]


@pytest.mark.parametrize("at", ["moving", "calling"])
def test_constants_that_a_gpu_does_not_take_are_a_graph_that_failed(at: str) -> None:
    """Nothing of the call has happened yet, so that eager code can answer it."""

    class Full:
        def to(self, device: str) -> Any:
            if at == "moving":
                raise RuntimeError(f"{device}: out of memory")
            return torch.zeros(2)

    def caller(constants: list[Any]) -> Any:
        raise RuntimeError("cuda:0: out of memory")

    call = graphs.on_each_gpu(caller, [Full()], {"constants": [{"device": "cuda"}], "changes_inputs": True})
    on_a_gpu = type("OnAGpu", (torch.Tensor,), {"get_device": lambda self: 0})
    given = torch.zeros(2).as_subclass(on_a_gpu)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for way in (lambda: call(given), lambda: call.boxed([given])):
            with pytest.raises(graphs.GraphFailed, match="cuda:0: out of memory") as told:
                way()
            assert told.value.rerun and type(told.value.instead) is RuntimeError
    (once,) = warned
    assert "a graph runs as eager code on cuda:0" in str(once.message)
