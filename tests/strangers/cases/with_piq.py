import torch


def samples():
    return [(torch.rand(2, 3, 64, 64), torch.rand(2, 3, 64, 64))]
