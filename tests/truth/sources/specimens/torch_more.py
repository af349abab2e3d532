"""More of what torch has: control flow, checkpoints, waves, numpy; arguments of many kinds."""

import dataclasses
import math
from typing import NamedTuple

import numpy
import torch
from torch.utils.checkpoint import checkpoint

SCALE = 1.5


def rows():
    return [(torch.linspace(-1, 2, 12).reshape(3, 4),)]


def with_a_buffer():
    return [(torch.linspace(-1, 2, 12).reshape(3, 4), torch.zeros(3, 4))]


def with_a_mapping():
    x = torch.linspace(-1, 2, 12).reshape(3, 4)
    return [({"first": x, "second": x + 1.0}, 0.0)]


def pairs():
    return [(Pair(torch.linspace(-1, 2, 12).reshape(3, 4), 0.5),)]


def positive(x):
    return x * SCALE


def negative(x):
    return x - SCALE


def branches_in_the_graph(x):
    return torch.cond(x.sum() > 0.0, positive, negative, (x,)) + 0.5


def inner(x, weight):
    return (x * weight).sin() * SCALE


def recomputes(x):
    y = x * 2.0
    return checkpoint(inner, y, x + 1.0, use_reentrant=False)


def turns_into_waves(x):
    waves = torch.fft.rfft(x) * torch.complex(torch.tensor(0.5), torch.tensor(0.25))
    return torch.fft.irfft(waves, n=4), waves.abs()


def writes_out(x, out):
    torch.mul(x, SCALE, out=out)
    return out.sum() + x.mean()


def picks_what_is_positive(x):
    kept = x[x > 0.25]
    return kept * 2.0, kept.shape[0]


def merges_mappings(batch, shift):
    total = batch["first"] + batch["second"] * 2.0
    return {**batch, "total": total, "turned": total / math.copysign(2.0, shift)}


class Pair(NamedTuple):
    data: torch.Tensor
    weight: float = 2.0

    def weighted(self):
        return self.data * self.weight


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    scale: float = 0.25
    parts: tuple = ()


def takes_and_gives_structures(pair):
    y = pair.weighted()
    return Output(y, parts=(pair, [y + 1.0]))


def computes_with_numpy(x):
    y = x.numpy()
    return torch.from_numpy(numpy.maximum(y * SCALE, numpy.float32(0.25)).sum(axis=0))


PROGRAMS = [
    {"target": "branches_in_the_graph", "samples": "rows", "compiles": True},
    {"target": "recomputes", "samples": "rows", "signals": False},  # checkpoint is left half entered
    {"target": "turns_into_waves", "samples": "rows"},
    {"target": "writes_out", "samples": "with_a_buffer"},
    {"target": "picks_what_is_positive", "samples": "rows"},
    {"target": "merges_mappings", "samples": "with_a_mapping"},
    {"target": "takes_and_gives_structures", "samples": "pairs"},
    {"target": "computes_with_numpy", "samples": "rows"},
]
