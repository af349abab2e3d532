"""Workloads: each calls targets in its own way, or fails."""

import contextlib
import inspect

import torch
from used_model import Heir, Net, Plain, Special, Wrapping, double


def net():
    first, second = Net(2), Net()
    first(torch.zeros(2))
    second(torch.zeros(3), twice=True)
    Special()(torch.zeros(4))
    second.forward(torch.zeros(5))


def methods():
    one, heir = Plain(), Heir()
    one.method(torch.zeros(1))
    heir.method(torch.zeros(2))
    Plain.made(torch.zeros(3))
    Heir.made(torch.zeros(4))
    heir.loose(torch.zeros(5))


def wrapped():
    one = Wrapping()
    assert inspect.signature(one.method) == inspect.signature(Wrapping.method).replace(
        parameters=list(inspect.signature(Wrapping.method).parameters.values())[1:]
    )
    one.method(torch.zeros(1))
    one.method(torch.zeros(2), None, scale=2.0)
    one.method(torch.zeros(3), 1, 2, 3, other=4)
    return one


def trains():
    torch.nn.Linear(2, 2)(torch.ones(2)).sum().backward()
    double(torch.zeros(1))


def trains_and_says_so():
    with torch.enable_grad():
        torch.nn.Linear(2, 2)(torch.ones(2)).sum().backward()
    double(torch.zeros(1))


def function():
    double(torch.zeros(1))
    import used_later

    used_later.again()


def other_mode():
    with torch.enable_grad():
        double(torch.zeros(1))


def both_modes():
    other_mode()
    double(torch.zeros(2))


def nothing():
    pass


def failing():
    double(torch.zeros(1))
    raise LookupError("no data")


def stubborn():
    with torch.enable_grad():
        x = torch.ones(1, requires_grad=True) * 2
    double(x)


NUMBER = 5


def careless():
    with contextlib.suppress(Exception):
        double(torch.zeros(1))


def checked():
    assert double(torch.zeros(1)).is_inference()


def inferring():
    with torch.inference_mode():
        double(torch.zeros(1))
