"""A function of Cython's is called in the target."""

import torch
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads


def threaded(x):
    y = x * 2
    return y + _openmp_effective_n_threads(1)


def shifted(x):
    return x + 1


def samples():
    return [(torch.randn(4, 5, 6),)]
