import torch


def tint(x):
    return torch.sigmoid(x) * 2


def samples():
    return [(torch.randn(6),)]
