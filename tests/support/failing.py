"""Functions that fail at some data; for tests/capture/test_failing_graphs.py, in several processes."""

from __future__ import annotations

import os
import signal

import torch
import torch.nn.functional as F  # noqa: N812

ROWS = 300
# How many lookups.
SMALL, LARGE = 4, 20_000


def lookups(w, emb, row, take, gather, scatter, add, put, target):
    """Each way to look something up, with an index of its own."""
    written = w * 2
    written[put] = 1.0
    column = w[:, 0] * 0
    chosen = w[row].argmax(-1)  # what a failing loop did not compute is an index in a later one
    return (
        F.embedding(emb, w) * 2,
        w[0][chosen],
        torch.take(w, take) + 1,
        w.gather(0, gather[:, None]) + 1,
        column.scatter(0, scatter, 1.0) + 1,
        column.scatter_add(0, add, w[:1, 0].expand(add.shape[0])) * 2,
        written + 1,
        F.nll_loss(F.log_softmax(w[:1].expand(target.shape[0], -1), 1), target),
    )


def lookups_inputs(size):
    generator = torch.Generator().manual_seed(0)
    names = ("emb", "row", "take", "gather", "scatter", "add", "put", "target")
    indices = {name: torch.randint(0, 8, (size,), generator=generator) for name in names}
    return {"w": torch.rand(ROWS, 8, generator=generator), **indices}


@torch.compiler.nested_compile_region
def region(w, emb, row):
    return F.embedding(emb, w) * 2, w[row] + 1


def in_python(w, emb, row):
    """A graph that inductor's C++ wrapper refuses."""
    return region(region(w, emb, row)[0][:ROWS].clone(), emb, row)


def divided(a, b):
    return a // b, a % b + 1


def changing(w, row, total):
    """Writes to an input."""
    total.add_(1)
    return w[row] + total


def inverse(x):
    return torch.linalg.inv(x * 1) + 1


def trained(w, emb):
    return (F.embedding(emb, w) * w[:1]).sum()


def smooth(x, w):
    """Its first output is saved for the backward."""
    y = (x @ w).exp()
    return y, (y * w[0]).sum()


class Alarm(Exception):
    pass


def ring(*_):
    raise Alarm("rang")


@torch.library.custom_op("failing_graphs::fussy", mutates_args=())
def fussy(x: torch.Tensor, said: str, scale: float, twice: bool, more: int) -> torch.Tensor:
    kind = int(x.flatten()[0])
    if kind == 1:
        raise ValueError(f"fussy: {said}")
    if kind == 2:
        raise KeyboardInterrupt(said)
    if kind == 3:
        torch.linalg.inv(torch.zeros(3, 3))
    if kind == 4:
        signal.signal(signal.SIGALRM, ring)
        os.kill(os.getpid(), signal.SIGALRM)
    return x * scale * (2 if twice else 1) + more


@fussy.register_fake
def _(x, said, scale, twice, more):
    return torch.empty_like(x)


SAID = 'a "quoted"\n\\n \u00fc%s'


def operated(x):
    """Calls an operator that is implemented in Python, on something that is used again."""
    y = x * 1
    return fussy(y, SAID, 2.5, True, 3) + 1, y + fussy(y, "", 1.0, False, 0)
