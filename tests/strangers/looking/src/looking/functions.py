import sys

import torch
from einops import rearrange
from numpy.random import bit_generator

from .things import Hostile, Pairs, Words

hostile = Hostile()
words = Words("words")
pairs = Pairs((1, hostile))
made_by_cython = bit_generator._int_to_uint32_array
optional = sys.modules["looking.optional"]


def columns(pictures):
    """Skipped, so that `rearrange` is compiled, which the loading of what was compiled of it calls."""
    found = []
    for picture in pictures:
        if picture.sum() > 0:
            found.append(rearrange(picture, "a b -> b a"))
    return found


def pictures():
    yield ([torch.ones(3, 4)],)


def mentioning(x):
    from .late import factor

    if words is None or optional is None or made_by_cython is None:
        return x
    if isinstance(samples.__qualname__, bytes):  # to dynamo it is what functions have in common
        return x
    return x * factor


def samples():
    yield (torch.ones(4, 8),)
