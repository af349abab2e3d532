"""Tensors of other classes: one by name only, one that overrides operations, one that wraps tensors."""

import torch
from torch import nn


class Named(torch.Tensor):
    pass


class Tripling(torch.Tensor):
    """Who doubles it gets three times as much."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.Tensor.mul:
            args = (args[0], args[1] + 1)
        return super().__torch_function__(function, types, args, kwargs or {})


class Quantized(torch.Tensor):
    """Stands for `whole * scale`, whose `bits` are known."""

    @staticmethod
    def __new__(cls, whole, scale, bits):
        return torch.Tensor._make_wrapper_subclass(
            cls, whole.size(), strides=whole.stride(), dtype=scale.dtype, device=whole.device
        )

    def __init__(self, whole, scale, bits):
        self.whole, self.scale, self.bits = whole, scale, bits

    def __repr__(self):  # torch 2.11 writes it while it traces, and without one reads numbers
        return f"Quantized(bits={self.bits})"

    def __tensor_flatten__(self):
        return ["whole", "scale"], {"bits": self.bits}

    @classmethod
    def __tensor_unflatten__(cls, tensors, metadata, size, stride):
        return cls(**tensors, **metadata)

    @classmethod
    def __torch_dispatch__(cls, function, types, args, kwargs=None):
        keeping = torch.ops.aten.detach.default, torch.ops.aten.clone.default
        if function in keeping:
            (value, *_) = args
            return cls(function(value.whole), function(value.scale), value.bits)
        plain = [arg.whole * arg.scale if isinstance(arg, cls) else arg for arg in args]
        return function(*plain, **(kwargs or {}))


def quantized(bits=8):
    whole = torch.arange(-8, 8, dtype=torch.int8).reshape(4, 4)
    return Quantized(whole, torch.tensor(0.5), bits)


class Layer(nn.Module):
    def __init__(self, bits=8):
        super().__init__()
        self.weight = nn.Parameter(quantized(bits), requires_grad=False)

    def forward(self, x):
        return torch.relu(x @ self.weight)


class Keeping(Layer):
    """Returns one, which needs AOTAutograd's wrappers."""

    def forward(self, x):
        return torch.relu(x @ self.weight), self.weight.clone()


class Nested(nn.Module):
    """Of which one wraps another."""

    def __init__(self):
        super().__init__()
        inner = Quantized(torch.arange(16, dtype=torch.int8).reshape(4, 4), torch.tensor(0.25), 4)
        self.weight = nn.Parameter(Quantized(inner, torch.tensor(0.5), 8), requires_grad=False)

    def forward(self, x):
        return torch.relu(x @ self.weight)


def doubled(x):
    return x * 2


def inputs():
    return torch.linspace(-1, 2, 12).reshape(3, 4)


def samples():
    return [(inputs(),)]


def samples_of_subclasses():
    return [(inputs().as_subclass(cls),) for cls in (Named, Tripling)]
