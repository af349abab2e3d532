"""A test adds `body` here, and what else misbehaves."""

import os  # noqa: F401
import sys  # noqa: F401

import numpy as np  # noqa: F401
import torch

from misbehaving import _precompiled
from misbehaving._precompiled.errors import PrecompileError  # noqa: F401

calls = []


def compiled():
    return _precompiled.errors.mode == "on"


def samples():
    return [(torch.ones(2),), (torch.ones(3),)]


def target(x):
    if compiled():
        _precompiled.hits += 1
    calls.append(x)
    return body(x)  # noqa: F821
