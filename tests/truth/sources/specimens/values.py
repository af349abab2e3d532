"""Numbers without bounds, arrays of numpy, sets and equal values, warnings, what a call leaves behind."""

import warnings
from warnings import warn

import numpy
import torch
from torch import nn

CALLED = []
SEEN = {"rows": 0}


def rows():
    return [(torch.linspace(-1, 2, 12).reshape(3, 4),)]


def with_numbers():
    return [(torch.linspace(-1, 2, 12).reshape(3, 4), 5, 7, 2.5)]


def arrays():
    return [(numpy.linspace(-1, 2, 12, dtype=numpy.float32).reshape(3, 4), numpy.arange(4))]


def sets():
    return [(torch.arange(1, 5), {8, 1, 0}, frozenset({1, 2}))]


def tables():
    return [(torch.arange(1, 5), {1: 2.0, 0: 1}, (1, 0.0, True), {"a": (1, 2)})]


def returns_numbers(x, n, m, f):
    return x + 1, n**3, (n * m, {"less": -n}), [n << 2, n**3 // n**2]


def divides_numbers(x, n, m, f):
    return x + n % 5, 100 // n, n // m, n % m, n / 3, int(n / m)


def meets_tensors(x, n, m, f):
    return x.to(torch.uint8) * n, x * (n * m), x.half() * f, x.long() + n


def computes_fractions(x, n, m, f):
    return x * f, f * 2.5, f / 3


def rounds_fractions(x, n, m, f):
    return x * f, int(f), round(f)


def shifts_one(x, n, m, f):
    return x * 2, 1 << m


def counts_sizes(x, n, m, f):
    return x + 1, x.size(0) ** 5 * n, x.numel() - n


def computes_with_arrays(a, indexes):
    return a * 2 + 1, a[:, indexes].sum(axis=0)


def mixes_arrays(a, indexes):
    return torch.from_numpy(a) * 2, torch.as_tensor(indexes) + 1


class OfArrays(nn.Module):
    def __init__(self):
        super().__init__()
        self.row = numpy.arange(4, dtype=numpy.float32)

    def forward(self, x):
        return x * torch.from_numpy(self.row)


def walks_sets(x, numbers, kinds):
    for number in numbers:
        x = x * number + 1
    return x * len(kinds) if 1 in kinds else x


def walks_tables(x, table, sizes, pairs):
    for key, value in table.items():
        x = x + key * value
    return x + sizes[0] + sizes[1], pairs["a"][0] * x


class OfValues(nn.Module):
    def __init__(self):
        super().__init__()
        self.numbers, self.kinds = {8, 1, 0}, frozenset({1, 2})
        self.sizes, self.table, self.zero, self.one = (1, 0.0, True), {1: 2.0, 0: 1}, 0.0, 1

    def forward(self, x):
        for number in self.numbers:
            x = x * number + self.sizes[0]
        for key in self.table:
            x = x * key + self.zero
        return torch.atan2(x * self.zero, x) + self.one, x * len(self.kinds)


def helper(x):
    warnings.warn("specimen: of the helper", DeprecationWarning, stacklevel=2)
    return x + 1


def inner(x):
    y = x.sin()
    warn("specimen: of the caller's caller", stacklevel=3)
    return y


def outer(x):
    y = inner(x * 2)
    warnings.warn("specimen: of who calls it", stacklevel=2)
    return y


def gives_warnings(x):
    y = outer(helper(x * 3))
    warnings.warn("specimen: of itself", stacklevel=1)
    return y * 2


class Leaving(nn.Module):
    """Leaves something everywhere."""

    total = 0

    def __init__(self):
        super().__init__()
        self.calls, self.seen, self.last = 0, [], None
        self.inner = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.calls += 1
        self.seen.append(x.size(0))
        self.last = x * 2
        self.inner.note = "called"
        self.mean.mul_(0.5).add_(x.mean(0))
        CALLED.append(self.calls)
        SEEN["rows"] += x.size(0)
        return self.inner(x) + self.mean


PROGRAMS = [
    {"target": "returns_numbers", "samples": "with_numbers", "dynamic-numbers": ["n", "m", "f"]},
    {"target": "divides_numbers", "samples": "with_numbers", "dynamic-numbers": ["n", "m", "f"]},
    {"target": "meets_tensors", "samples": "with_numbers", "dynamic-numbers": ["n", "m", "f"]},
    {"target": "computes_fractions", "samples": "with_numbers", "dynamic-numbers": ["n", "m", "f"]},
    {"target": "rounds_fractions", "samples": "with_numbers", "dynamic-numbers": ["n", "m", "f"]},
    {"target": "shifts_one", "samples": "with_numbers", "dynamic-numbers": ["n", "m", "f"]},
    {"target": "counts_sizes", "samples": "with_numbers", "dynamic-numbers": ["n", "m", "f"]},
    {"target": "computes_with_arrays", "samples": "arrays"},
    {"target": "mixes_arrays", "samples": "arrays"},
    {"target": "OfArrays", "samples": "rows"},
    {"target": "walks_sets", "samples": "sets"},
    {"target": "walks_tables", "samples": "tables"},
    {"target": "OfValues", "samples": "rows"},
    {"target": "gives_warnings", "samples": "rows"},
    {"target": "Leaving", "samples": "rows"},
]
