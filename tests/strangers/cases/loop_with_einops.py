"""Where the loop is skipped, einops itself is compiled: to load its entry calls it."""

import torch
from einops import rearrange


def columns(tensors):
    found = []
    for x in tensors:
        if x.sum() > 0:
            found.append(rearrange(x, "a b -> b a"))
    return found


def axes(x):
    return rearrange(x, "b (k h d) -> k b h d", k=3, h=2) * 2


def samples():
    return [(torch.randn(4, 24),)]


def lists():
    return [([torch.ones(3, 4), torch.ones(5, 6)],)]
