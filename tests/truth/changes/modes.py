"""Modes and transforms around a call: those want to see the operations of the program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.truth.changes.registry import add, change


class CountingFunctions(TorchFunctionMode):
    """How often torch's Python functions are called is what it is about."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))


class ChangingFunctions(TorchFunctionMode):
    """Answers differently."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.is_floating_point():
            with torch._C.DisableTorchFunction():
                return result + 0.125
        return result


class ChangingOperators(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in (torch.ops.aten.mul.Tensor, torch.ops.aten.add.Tensor, torch.ops.aten.sin.default):
            return result + 0.125
        return result


class CountingOperators(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(str(func))
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _nested(*contexts: Any) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


CONTEXTS: dict[str, tuple[Callable[[], Any], bool]] = {
    "no_grad": (torch.no_grad, False),
    "enable_grad": (torch.enable_grad, False),
    "inference_mode": (torch.inference_mode, False),
    "inference_mode(False)": (lambda: torch.inference_mode(False), False),
    "autocast to bfloat16": (lambda: torch.autocast("cpu", dtype=torch.bfloat16), False),
    "autocast, not enabled": (lambda: torch.autocast("cpu", enabled=False), False),
    "autocast for cuda": (lambda: _nested(torch.autocast("cuda", enabled=False)), False),
    "device meta": (lambda: torch.device("meta"), False),
    "device cpu": (lambda: torch.device("cpu"), False),
    "saved_tensors_hooks": (
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x * 2, lambda x: x),
        False,
    ),
    "save_on_cpu": (torch.autograd.graph.save_on_cpu, False),
    "profiler": (torch.autograd.profiler.profile, True),
    "anomaly detection": (lambda: torch.autograd.detect_anomaly(check_nan=False), False),
    "a forward-mode level": (forward_ad.dual_level, False),
    "DisableTorchFunction": (torch._C.DisableTorchFunction, False),
    "DisableTorchFunctionSubclass": (torch._C.DisableTorchFunctionSubclass, False),
    "sdpa_kernel(MATH)": (
        lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        False,
    ),
    "parametrize.cached": (torch.nn.utils.parametrize.cached, False),
    "local random numbers": (lambda: torch.random.fork_rng(devices=[]), True),
    "mkldnn off": (lambda: torch.backends.mkldnn.flags(enabled=False), False),
    "a mode that changes functions": (ChangingFunctions, False),
    "a mode that changes operators": (ChangingOperators, False),
}


def _around_first(context: Callable[[], Any]) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        run.call(around=context)
        run.call(label="then, without")

    return apply


def _around_second(context: Callable[[], Any]) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        run.call()
        run.call(around=context, label="then, within")

    return apply


for _name, (_context, _harmless) in CONTEXTS.items():
    add(f"{_name} around the first call", "mode", _around_first(_context), harmless=_harmless)
    add(f"{_name} around a later call", "mode", _around_second(_context), harmless=_harmless)


@change("a mode that counts functions", "mode", compiler=True)
def counts_functions(run: Any) -> None:
    run.load()
    run.call()
    counting = CountingFunctions()
    run.call(around=lambda: counting, label="counted")
    run.note("functions", counting.calls)


@change("a mode that counts operators", "mode", compiler=True)
def counts_operators(run: Any) -> None:
    run.load()
    run.call()
    counting = CountingOperators()
    run.call(around=lambda: counting, label="counted")
    run.note("operators", sorted(set(counting.calls)))


@change("a mode that counts operators, around the first call", "mode")
def counts_operators_first(run: Any) -> None:
    run.load()
    counting = CountingOperators()
    run.call(around=lambda: counting, label="counted")
    run.note("operators", sorted(set(counting.calls)))


@change("other values in the process: all of a mode set by hand", "mode")
def set_by_hand(run: Any) -> None:
    run.load()
    torch._C._set_grad_enabled(True)
    run.call(mode=contextlib.nullcontext)


def _first_tensor(args: Any, kwargs: Any) -> tuple[Any, Callable[[Any], tuple[Any, Any]]]:
    """The first tensor of floats among the arguments, and how to put another in its place."""
    for number, value in enumerate(args):
        if isinstance(value, torch.Tensor):
            return value, lambda other, n=number: ((*args[:n], other, *args[n + 1 :]), kwargs)
    name = next(name for name, value in kwargs.items() if isinstance(value, torch.Tensor))
    return kwargs[name], lambda other: (args, {**kwargs, name: other})


def _through(transform: Callable[[Callable[[Any], Any], torch.Tensor], Any]) -> Callable[..., Any]:
    """A way to make a call under a transform of its first tensor."""

    def through(called: Any, *args: Any, **kwargs: Any) -> Any:
        tensor, placed = _first_tensor(args, kwargs)

        def function(other: Any) -> Any:
            args, kwargs = placed(other)
            return called(*args, **kwargs)

        return transform(function, tensor)

    return through


def _first_of(result: Any) -> Any:
    while not isinstance(result, torch.Tensor):
        result = next(iter(result.values())) if isinstance(result, dict) else result[0]
    return result


def _jvp(function: Any, x: torch.Tensor) -> Any:
    return torch.func.jvp(lambda y: _first_of(function(y)), (x,), (torch.ones_like(x),))


def _dual(function: Any, x: torch.Tensor) -> Any:
    with forward_ad.dual_level():
        result = _first_of(function(forward_ad.make_dual(x, torch.ones_like(x))))
        primal, tangent = forward_ad.unpack_dual(result)
        return primal.clone(), tangent if tangent is None else tangent.clone()


def _fake(function: Any, x: torch.Tensor) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        result = _first_of(function(mode.from_tensor(x)))
        return [type(result).__name__, list(result.shape), str(result.dtype)]


def _jit(function: Any, x: torch.Tensor) -> Any:
    traced = torch.jit.trace(lambda y: _first_of(function(y)), x, check_trace=False)
    return traced(x), traced(x * 2 if x.is_floating_point() else x)


def _make_fx(function: Any, x: torch.Tensor) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda y: _first_of(function(y)))(x)
    return graph(x), len(list(graph.graph.nodes)) > 1


def _checkpointed(function: Any, x: torch.Tensor) -> Any:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(function, x, use_reentrant=False)


TRANSFORMS: dict[str, Callable[[Callable[[Any], Any], torch.Tensor], Any]] = {
    "vmap": lambda f, x: torch.func.vmap(lambda y: _first_of(f(y)), randomness="same")(x.expand(2, *x.shape)),
    "grad": lambda f, x: torch.func.grad(lambda y: _first_of(f(y)).sum())(x),
    "jacfwd": lambda f, x: torch.func.jacfwd(lambda y: _first_of(f(y)))(x),
    "jvp": _jvp,
    "a dual number": _dual,
    "functionalize": lambda f, x: torch.func.functionalize(lambda y: _first_of(f(y)))(x),
    "FakeTensorMode": _fake,
    "torch.jit.trace": _jit,
    "make_fx": _make_fx,
    "checkpoint": _checkpointed,
    "linearize": lambda f, x: torch.func.vjp(lambda y: _first_of(f(y)), x)[0],
}


def _transformed_first(transform: Any) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        run.call(through=_through(transform), mode=contextlib.nullcontext)
        run.call(label="then, plainly")

    return apply


def _transformed_later(transform: Any) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        run.call()
        run.call(through=_through(transform), label="transformed")

    return apply


for _name, _transform in TRANSFORMS.items():
    add(f"{_name} around the first call", "transform", _transformed_first(_transform))
    add(f"{_name} around a later call", "transform", _transformed_later(_transform))
