"""Warnings, each about another frame than the one that gives it."""

import functools
import warnings
from warnings import warn

import torch


def helper(x):
    warnings.warn("of the helper", DeprecationWarning, stacklevel=2)
    return x + 1


def inner(x):
    y = x.sin()
    warn("of the caller's caller", stacklevel=3)
    warnings.warn(UserWarning("after a break"), stacklevel=2)
    return y


def outer(x):
    return inner(x * 2)


def deprecated(function):
    @functools.wraps(function)
    def wrapper(*args):
        warnings.warn("deprecated", FutureWarning, stacklevel=2)
        return function(*args)

    return wrapper


@deprecated
def old(x):
    return x.cos()


@torch.compiler.disable
def left_alone(x):
    warnings.warn("left alone", stacklevel=2)
    return x


def run(x):
    y = helper(x * 3)
    y = outer(y)
    warnings.warn("of run itself", stacklevel=1)
    y = old(y)
    y = left_alone(y)
    warnings.warn("of who calls run", stacklevel=2)
    warnings.warn("of nobody", stacklevel=99)
    return y * 2


def samples():
    return [(torch.ones(3),)]
