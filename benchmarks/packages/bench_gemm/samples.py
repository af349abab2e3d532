from collections.abc import Iterator

import torch

from bench_gemm import model


def of(layer: type[torch.nn.Linear]) -> Iterator[tuple[torch.Tensor]]:
    for each in model.inputs(layer()):
        yield (each,)


def square() -> Iterator[tuple[torch.Tensor]]:
    return of(model.Square)


def up() -> Iterator[tuple[torch.Tensor]]:
    return of(model.Up)


def down() -> Iterator[tuple[torch.Tensor]]:
    return of(model.Down)


def square_bfloat16() -> Iterator[tuple[torch.Tensor]]:
    return of(model.SquareBfloat16)


def up_bfloat16() -> Iterator[tuple[torch.Tensor]]:
    return of(model.UpBfloat16)


def down_bfloat16() -> Iterator[tuple[torch.Tensor]]:
    return of(model.DownBfloat16)
