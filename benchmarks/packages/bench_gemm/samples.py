from collections.abc import Iterator

import torch

from bench_gemm import model

Samples = Iterator[tuple[torch.Tensor]]


def _of(made: model.Layer) -> Samples:
    for each in model.inputs(made.layer):
        yield (each,)


def square() -> Samples:
    return _of(model.square())


def up() -> Samples:
    return _of(model.up())


def down() -> Samples:
    return _of(model.down())


def square_bfloat16() -> Samples:
    return _of(model.square_bfloat16())


def up_bfloat16() -> Samples:
    return _of(model.up_bfloat16())


def down_bfloat16() -> Samples:
    return _of(model.down_bfloat16())
