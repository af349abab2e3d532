"""Calls of the zoo's model (tests/zoo) while somebody watches the operators go by."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import probe
import torch
import torch.autograd.forward_ad
import zoo.models

torch.set_grad_enabled(False)

Call = Callable[[torch.Tensor], torch.Tensor]


# Each makes a call of the model, or of its eager code.


def a_torch_function_mode(call: Call, x: torch.Tensor) -> Any:
    from torch.overrides import BaseTorchFunctionMode

    with BaseTorchFunctionMode():
        return call(x)


def a_dispatch_mode(call: Call, x: torch.Tensor) -> Any:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False):
        return call(x)


def saved_tensors_hooks(call: Call, x: torch.Tensor) -> Any:
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        return call(x)


def forward_mode_differentiation(call: Call, x: torch.Tensor) -> Any:
    with torch.autograd.forward_ad.dual_level():
        return call(torch.autograd.forward_ad.make_dual(x, x + 1))


def vmap(call: Call, x: torch.Tensor) -> Any:
    return torch.vmap(call)(x)


def a_functional_transform(call: Call, x: torch.Tensor) -> Any:
    return torch.func.jvp(call, (x,), (x,))[1]


def a_gradient_transform(call: Call, x: torch.Tensor) -> Any:
    return torch.func.grad(lambda y: call(y).sum())(x)


def fake_tensors(call: Call, x: torch.Tensor) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    return torch.tensor(call(mode.from_tensor(x)).shape)


# Each makes something of a module, and calls that; eager code is only called.


def symbolic_tracing(model: Any, x: torch.Tensor) -> Any:
    return torch.fx.symbolic_trace(torch.nn.Sequential(model))(x)


def jit_trace(model: Any, x: torch.Tensor) -> Any:
    return torch.jit.trace(model, x + 1, check_trace=False)(x)


def make_fx(model: Any, x: torch.Tensor) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    def call(y: torch.Tensor) -> Any:
        return model(y)

    return make_fx(call)(x + 1)(x)


def export(model: Any, x: torch.Tensor) -> Any:
    return torch.export.export(model, (x,)).module()(x)


def a_replica_that_data_parallel_makes(model: Any, x: torch.Tensor) -> Any:
    return probe.replica(model)(x)


def export_to_onnx(model: Any, x: torch.Tensor) -> Any:
    """The size of what it writes."""
    file = io.BytesIO()
    torch.onnx.export(model, (x,), file, dynamo=False)
    return torch.tensor(len(file.getvalue()))


WITH_CALLS = (
    a_torch_function_mode,
    a_dispatch_mode,
    saved_tensors_hooks,
    forward_mode_differentiation,
    vmap,
    a_functional_transform,
    a_gradient_transform,
    fake_tensors,
)
WITH_MODULES = (symbolic_tracing, jit_trace, make_fx, export, a_replica_that_data_parallel_makes)


def each_watcher() -> dict[str, Any]:
    """Is the call served before, while it is watched, and after; and what it gives, beside eager code."""
    watched = {
        **{watch.__name__: _watched(watch, watch) for watch in WITH_CALLS},
        **{watch.__name__: _watched(watch, lambda eager, x: eager(x)) for watch in WITH_MODULES},
    }
    export_again = _watched(export_to_onnx, lambda eager, x: export_to_onnx(_model(), x))
    return {**watched, "export_to_onnx": export_again}


def _model() -> Any:
    torch.manual_seed(0)
    return zoo.models.Mlp().eval()


def _watched(ours: Callable[..., Any], eagerly: Callable[..., Any]) -> dict[str, Any]:
    model = _model()
    x = torch.randn(4, 8)
    plain = probe.served("mlp", lambda: model(x))
    before = probe.hits("mlp")
    got = probe.outcome(lambda: ours(model, x))
    changed = probe.hits("mlp") > before
    expected = probe.outcome(lambda: eagerly(probe.eager(model), x))
    other = _model()
    return {
        "plain": plain,
        "changed": changed,
        "again": probe.served("mlp", lambda: other(x)),
        "got": got,
        "expected": expected,
    }
