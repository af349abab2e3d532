"""Sizes that reach compiled code through code that is not: nobody has declared them."""

import torch
from torch import nn

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def run(name, x):
    return given_what_it_is_fixed_to(x) if name == "fixed" else PROGRAMS[name](x)


def given_what_it_is_fixed_to(x):
    y = left_alone(x * 2)
    return y * torch.tensor([[2.0] * 4] * len(y))


def samples():
    return [(name, torch.linspace(0.1, 1, 32).reshape(8, 4)) for name in [*PROGRAMS, "fixed"]]


@torch.compiler.disable
def left_alone(x):
    return x + 1


@program
def given_a_tensor(x):
    return left_alone(x * 2).sin() * 3


@program
def given_a_tensor_of_twice_the_rows(x):
    y = left_alone(torch.cat([x, x]))
    return y[: x.shape[0]] + x


@program
def given_a_number(x):
    rows = len(left_alone(x))
    return torch.arange(rows) * rows


@program
def given_two_numbers(x):
    rows, more = len(left_alone(x)), left_alone(x).shape[0] * 3
    return x.sum() * (more - rows)


@program
def given_a_list(x):
    first, second = left_alone_in_halves(x)
    return first.cos(), second * 2


@torch.compiler.disable
def left_alone_in_halves(x):
    return [x[: len(x) // 2] + 1, x[len(x) // 2 :] + 1]


class Skipped(nn.Module):
    """A graph breaks in its loop, so that what it calls alone is compiled."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def half(self, x):
        return self.layer(x).relu()

    def forward(self, x):
        for _ in range(2):
            torch._dynamo.graph_break()
            x = self.half(left_alone(x))
        return x


def skipped():
    return Skipped().eval()


def inputs():
    return [(torch.linspace(0.1, 1, 32).reshape(8, 4),)]
