"""What is before a graph break has shapes only, as in gpytorch."""

import torch


def made(x):
    size = torch.empty(3, 4).shape
    torch._dynamo.graph_break()
    return x + size[0]


def broadcast(x):
    shape = torch.broadcast_shapes(x.shape, (1,))
    torch._dynamo.graph_break()
    return x.expand(shape) * 2


def samples():
    return [(torch.randn(4, 5, 6),)]
