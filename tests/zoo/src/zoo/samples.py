import torch


def mlp():
    return [(torch.randn(4, 8),)]


def vectors():
    return [(torch.randn(6),)]


def images():
    return [{"image": torch.randn(2, 3, 4, 5)}]
