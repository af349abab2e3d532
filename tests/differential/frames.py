"""Frames to hold side by side: small programs, each leaning on another part of the guard vocabulary."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, IntxWeightOnlyConfig, quantize_

from differential.harness import HeldFrame, hold

SCALE = 2.0
OFFSETS = {"a": 1.0, "b": 2.0}
TABLE = torch.arange(8.0)


def helper(x: torch.Tensor, factor: float = 3.0) -> torch.Tensor:
    return x * factor


class Linear2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(functional.gelu(self.first(x)))


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.dropout = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(8)
        self.flag = True
        self.names = ["one", "two"]

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        x = self.norm(self.dropout(self.linear(x)))
        if self.flag and len(self.names) == 2:
            x = helper(x) * SCALE
        return x * scale


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.named = nn.ModuleDict({"relu": nn.ReLU(), "gelu": nn.GELU()})

    def forward(self, x: torch.Tensor, which: str = "relu") -> torch.Tensor:
        for layer in self.layers:
            x = self.named[which](layer(x))
        return x


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Embedding(16, 8)
        self.outer = nn.Linear(8, 16, bias=False)
        self.outer.weight = self.inner.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.outer(self.inner(ids))


class Marked(torch.Tensor):
    pass


class Scaled(torch.Tensor):
    """Wraps a tensor, and a number that is no part of the graph."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor, by: int) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device=inner.device
        )

    def __init__(self, inner: torch.Tensor, by: int) -> None:
        self.inner, self.by = inner, by

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["inner"], {"by": self.by}

    @classmethod
    def __tensor_unflatten__(cls, tensors: Any, metadata: Any, size: Any, stride: Any) -> Any:
        return cls(**tensors, **metadata)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.detach.default:
            return cls(args[0].inner.detach(), args[0].by)
        plain = [arg.inner * arg.by if isinstance(arg, cls) else arg for arg in args]
        return function(*plain, **(kwargs or {}))


class Quantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(Scaled(torch.ones(8, 8), 2), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class OfIntegers(nn.Module):
    """Quantized by torchao, whose tensors say what they are by attributes: some of one class may be missing,
    none of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.other = nn.Linear(8, 8), nn.Linear(8, 32)
        quantize_(self.linear, Int8DynamicActivationInt8WeightConfig())
        quantize_(self.other, IntxWeightOnlyConfig())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other(self.linear(x))


def of_a_subclass(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def with_globals(x: torch.Tensor) -> torch.Tensor:
    return helper(x) * SCALE + OFFSETS["b"] + TABLE


def with_containers(xs: list[torch.Tensor], options: dict[str, Any], *rest: torch.Tensor) -> torch.Tensor:
    total = xs[0] + xs[1]
    if options["double"]:
        total = total * options["by"]
    return total + rest[0]


def keywords_only(x: torch.Tensor, *, y: torch.Tensor, mode: str = "sum") -> torch.Tensor:
    return (x + y).sum(0) if mode == "sum" else x * y


def decorated(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(function)
    def wrapper(x: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        return function(x.relu(), **kwargs) + 1

    return wrapper


@decorated
def wrapped(x: torch.Tensor, times: int = 2) -> torch.Tensor:
    return helper(x) * times


class Config:
    hidden = 8

    def __init__(self) -> None:
        self.activation = "gelu"
        self.eps = 1e-5
        self.heads = 2


class Configured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = Config()
        self.weight = nn.Parameter(torch.ones(8))
        self.register_buffer("shift", torch.zeros(8))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        x = functional.layer_norm(x, (self.config.hidden,), self.weight, None, self.config.eps)
        if self.config.activation == "gelu":
            x = functional.gelu(x)
        if mask is not None:
            x = x.masked_fill(mask, 0.0)
        return x.view(-1, self.config.heads, 4) if hasattr(self.config, "heads") else x + self.shift


def mapped(x: torch.Tensor) -> torch.Tensor:
    return torch.vmap(helper)(x)


class Feature(enum.Flag):
    FIRST = enum.auto()
    SECOND = enum.auto()
    THIRD = enum.auto()


ARRAY = numpy.arange(8, dtype=numpy.float32)


class Numbers(set[int]):
    """Its elements are guarded one by one, in their order."""


def with_numpy_and_flags(x: torch.Tensor, row: Any, features: Feature, numbers: Numbers) -> torch.Tensor:
    if torch.__version__ < (2, 0):
        return x
    for number in numbers:
        x = x + number
    x = x + torch.from_numpy(ARRAY) + torch.as_tensor(row)
    return x * 2 if features & Feature.THIRD else x


def with_sets_and_equals(
    x: torch.Tensor, numbers: set[int], kinds: frozenset[Any], table: dict[int, float], sizes: tuple[Any, ...]
) -> torch.Tensor:
    """All of these are walked through, and each element counts with its type."""
    for number in numbers:
        x = x * number + 1
    for key, value in table.items():
        x = x + key * value
    return (x * len(kinds) if "double" in kinds else x) + sizes[0] + sizes[1] + sizes[2]


class OfValues(nn.Module):
    """The same as attributes, which dynamo compares as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.kinds = {8, 1, 0}, frozenset({"double", 1, (1, 2)})
        self.sizes, self.table = (1, 0.0, True), {1: 2.0, 0: 1}
        self.row = numpy.ones(8, dtype=numpy.float32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number in self.numbers:
            x = x * number + self.sizes[1]
        return x * len(self.kinds) + self.table[1] + torch.from_numpy(self.row)


def small_bert() -> tuple[Any, torch.Tensor]:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        num_hidden_layers=1, hidden_size=32, num_attention_heads=2, intermediate_size=64, vocab_size=100
    )
    return BertModel(config).eval(), torch.randint(0, 100, (1, 16))


def held_frames() -> Iterator[tuple[HeldFrame, dict[str, Any]]]:
    """Each frame, with locals that both sides accept."""
    torch.manual_seed(0)
    x = torch.randn(4, 8)
    with torch.no_grad():
        yield _module(Linear2().eval(), x)
        yield _module(Dropping().eval(), x)
        yield _module(Dropping().train(), x)
        yield _module(Listed().eval(), x)
        yield _module(Listed().eval(), x, "gelu")
        yield _module(Tied().eval(), torch.randint(0, 16, (3, 5)))
        yield _module(Configured().eval(), x)
        yield _module(Configured().eval(), x, torch.zeros(4, 8, dtype=torch.bool))
        yield _function(with_globals, x)
        yield _function(with_containers, [x, x + 1], {"double": True, "by": 2.0}, x + 2)
        yield _function(keywords_only, x, y=x + 1)
        yield _dynamic()
        yield _wrapper(wrapped, x, times=3)
        yield _function(of_a_subclass, x.as_subclass(Marked))
        yield _module(Quantized().eval(), x)
        yield _module(OfIntegers().eval(), x)
        row = numpy.ones(8, dtype=numpy.float32)
        features = Feature.FIRST | Feature.THIRD
        yield _function(with_numpy_and_flags, x, row, features, Numbers([3, 5]))
        values = {8, 1, 0}, frozenset({"double", 1}), {1: 2.0, 0: 1}, (1, 0.0, True)
        yield _function(with_sets_and_equals, x, *values)
        yield _module(OfValues(), x)
        model, ids = small_bert()
        yield _wrapper(type(model).forward, model, ids, call=model)
        # Last: transformers adds to pytree's registry, which this one's guards want as it is.
        yield _function(mapped, x)
    with torch.inference_mode():
        yield _module(Linear2().eval(), torch.randn(4, 8))


def _module(model: nn.Module, *args: Any) -> tuple[HeldFrame, dict[str, Any]]:
    return hold(model, *args)[0], _bound(type(model).forward, model, *args)


def _function(function: Any, *args: Any, **kwargs: Any) -> tuple[HeldFrame, dict[str, Any]]:
    return hold(function, *args, **kwargs)[0], _bound(function, *args, **kwargs)


def _wrapper(function: Any, *args: Any, call: Any = None, **kwargs: Any) -> tuple[HeldFrame, dict[str, Any]]:
    frames = hold(call, *args[1:], **kwargs) if call is not None else hold(function, *args, **kwargs)
    frame_locals = _bound(function, *args, **kwargs)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return frames[0], {**frame_locals, **{name: cell.cell_contents for name, cell in cells}}


def _dynamic() -> tuple[HeldFrame, dict[str, Any]]:
    model = Linear2().eval()
    sample = torch.randn(4, 8)
    torch._dynamo.mark_dynamic(sample, 0, min=2, max=64)
    return hold(model, sample)[0], {"self": model, "x": torch.randn(5, 8)}


def _bound(function: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    import inspect

    bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)
