"""No entry serves a call that differs from its samples in anything the trace rested on.

Each line of the tables is one change to a call that is served without it, and served again after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Site

# Not served, and what eager does is what happens.
REFUSED = {
    "another dtype of everything": "model.double(); x = x.double()",
    "another dtype of the input": "x = x.double()",
    "another rank": "x = x[None]",
    "another device type": "model.to('meta'); x = x.to('meta')",
    "another stride order": "x = torch.randn(8, 4).t()",
    "strides with gaps": "x = torch.randn(4, 16)[:, ::2]",
    "an input that requires grad": "x.requires_grad_()",
    "a parameter that requires no grad": "model.first.weight.requires_grad_(False)",
    "grad mode": "within(torch.enable_grad())",
    "inference tensors": "within(torch.inference_mode()); x = torch.randn(4, 8)",
    "the training flag": "model.train()",
    "the training flag of a part": "model.block.dropout.train()",
    "a submodule of a derived class": (
        "model.block.linear = type('Other', (torch.nn.Linear,), {'forward': lambda self, x: x})(8, 8)"
    ),
    "a submodule of another class": "model.block.dropout = torch.nn.Identity()",
    "a derived class of the target's": "model = type('Other', (zoo.models.Mlp,), {'gain': 3.0})().eval()",
    "a changed attribute": "model.scale = 3.0",
    "an attribute of another type": "model.scale = 2",
    "an attribute that hides the class's": "model.gain = 2.5",
    "a changed class attribute": "patch(zoo.models.Mlp, 'gain', 2.5)",
    "a deleted attribute": "del model.scale",
    "a monkeypatched function, imported by name": "patch(zoo.models, 'squash', lambda x: x)",
    "a monkeypatched function, reached through its module": "patch(zoo.helpers, 'lift', lambda x: x)",
    "a function with other code": (
        "f = zoo.helpers.lift; undo(setattr, f, '__code__', f.__code__); f.__code__ = (lambda x: x).__code__"
    ),
    "a monkeypatched function of torch": "patch(torch, 'relu', torch.sigmoid)",
    "a method that an instance hides": "model.block.mix = lambda x: x",
    "a replaced module global": "patch(zoo.models, 'helpers', type('Other', (), {'lift': abs}))",
    "another forward": "patch(zoo.models.Mlp, 'forward', lambda self, x: x)",
    "a size above the range": "x = torch.randn(17, 8)",
    "a size below the range": "x = torch.randn(2, 8)",
    "a size of one": "x = torch.randn(1, 8)",
    "a size of zero": "x = torch.randn(0, 8)",
    "another size of a static dimension": "model = zoo.models.Mlp(9).eval(); x = torch.randn(4, 9)",
    "one argument more": "args = (torch.ones(8),)",
    "one keyword argument more": "kwargs = {'shift': torch.ones(8)}",
    "an argument that does not exist": "kwargs = {'missing': 1}",
    "too many arguments": "args = (None, None)",
    "another default dtype": (
        "torch.set_default_dtype(torch.float64); undo(torch.set_default_dtype, torch.float32)"
    ),
    "another default device": "within(torch.device('meta'))",
    "autocast": "within(torch.autocast('cpu', torch.bfloat16))",
    "deterministic algorithms": (
        "torch.use_deterministic_algorithms(True); undo(torch.use_deterministic_algorithms, False)"
    ),
    "a tensor subclass": "x = x.as_subclass(type('Other', (torch.Tensor,), {}))",
    "a tensor subclass with its own operators": (
        "T = torch.Tensor.__torch_function__.__func__;"
        "x = x.as_subclass(type('Other', (torch.Tensor,), {'__torch_function__': classmethod(T)}))"
    ),
    "a parameter as input": "x = torch.nn.Parameter(x, requires_grad=False)",
    "a buffer of another dtype": "model.block.offset = model.block.offset.double()",
    "a buffer of another shape": "model.block.offset = torch.zeros(4, 8)",
    "a buffer that became a parameter": (
        "del model.block.offset; model.block.offset = torch.nn.Parameter(torch.zeros(8))"
    ),
    "a weight with other strides": "model.first.weight = torch.nn.Parameter(torch.randn(8, 8).t())",
    "a weight that is gone": "model.first.bias = None",
    "a module shared by two names": "model.block.linear = model.first",
    "an input that is a parameter": "model = zoo.models.Mlp().eval(); x = model.first.weight",
}

# Dynamo 2.13 takes methods of a module's class for constants: it guards the class, not what is in it.
UNGUARDED = {
    "a monkeypatched method of a submodule's class": "patch(zoo.models.Block, 'mix', lambda self, x: x)",
    "a monkeypatched forward of a submodule's class": "patch(zoo.models.Block, 'forward', lambda self, x: x)",
}

# Somebody is watching the operators go by, and must see those of the eager model.
STEPPED_ASIDE = [
    "a_torch_function_mode",
    "a_dispatch_mode",
    "saved_tensors_hooks",
    "forward_mode_differentiation",
    "vmap",
    "a_functional_transform",
    "a_gradient_transform",
    "fake_tensors",
    "symbolic_tracing",
    "jit_trace",
    "make_fx",
    "export",
    "a_replica_that_data_parallel_makes",
    "export_to_onnx",
]


@pytest.fixture(scope="module")
def refused(zoo: Site) -> dict[str, Any]:
    changes: dict[str, Any] = zoo.play("changes.tried", changes=REFUSED | UNGUARDED)["changes"]
    return changes


@pytest.fixture(scope="module")
def stepped_aside(zoo: Site) -> dict[str, Any]:
    watched: dict[str, Any] = zoo.play("watching.each_watcher")
    assert list(watched) == STEPPED_ASIDE
    return watched


def expect_refusal(seen: dict[str, Any]) -> None:
    assert seen["plain"], "the call is not served without the change either"
    assert not seen["changed"], "an entry served the changed call"
    assert seen["got"] == seen["expected"]
    assert seen["again"], "the call is no longer served once the change is taken back"


@pytest.mark.parametrize("change", REFUSED)
def test_a_change_is_not_served(refused: dict[str, Any], change: str) -> None:
    expect_refusal(refused[change])


@pytest.mark.xfail(strict=True, reason="torch.compile serves these calls too")
@pytest.mark.parametrize("change", UNGUARDED)
def test_a_method_monkeypatched_after_a_hit_is_not_served(refused: dict[str, Any], change: str) -> None:
    expect_refusal(refused[change])


@pytest.mark.parametrize("watcher", STEPPED_ASIDE)
def test_a_watched_call_is_left_alone(stepped_aside: dict[str, Any], watcher: str) -> None:
    expect_refusal(stepped_aside[watcher])


def test_data_parallel_without_a_gpu_calls_the_module_itself(zoo: Site) -> None:
    assert zoo.play("refusals.data_parallel_without_a_gpu") == {"served": True, "same": True}


def test_code_that_asks_whether_it_is_compiled_hears_what_it_would_hear_without_us(zoo: Site) -> None:
    """In hits and misses, in hooks around the model, and in Python between the halves of a broken graph."""
    scenario = "refusals.answers_to_code_that_asks_whether_it_is_compiled"
    ours, without = zoo.play(scenario), zoo.play(scenario, environment={"HATCH_PRECOMPILE": "off"})
    assert (ours["hits"], without["hits"]) == ([1, 1], None)
    assert len(ours["answers"]) > 4
    assert ours["answers"] == without["answers"]
    assert not any(map(any, ours["answers"]))


def test_the_newer_export_to_onnx_sees_the_operations(zoo: Site) -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    seen = zoo.play("refusals.the_newer_export_to_onnx")
    assert seen["hits"] == 0
    assert {"Gemm", "MatMul"} & set(seen["operations"])


@pytest.mark.parametrize(
    "change",
    [
        "zoo.models.squash = torch.sigmoid",
        "zoo.helpers.lift = lambda x: x",
        "torch.relu = torch.sigmoid",
        "zoo.models.Block.mix = lambda self, x: x",
        "zoo.models.Block.forward = lambda self, x: x",
        "zoo.models.Mlp.forward = lambda self, x: x",
        "torch.nn.Linear.forward = lambda self, x: x",
    ],
)
def test_what_was_monkeypatched_before_the_first_call_is_not_served(zoo: Site, change: str) -> None:
    assert zoo.play("changes.before_the_first_call", change=change) == {"hits": 0, "same": True}


def test_channels_last_is_another_stride_order(zoo: Site) -> None:
    assert zoo.play("refusals.channels_last") == {"plain": True, "channels last": False}


def test_a_mode_is_served_in_that_mode_only(zoo: Site) -> None:
    served = zoo.play("refusals.calls_in_each_mode")
    assert served == {"inference": True, "no_grad": False, "grad": False}
