import torch
from vector_quantize_pytorch import FSQ, ResidualVQ


def residual():
    return ResidualVQ(dim=16, num_quantizers=3, codebook_size=32)


def fsq():
    return FSQ([8, 5, 5])


def samples():
    return [(torch.randn(2, 10, 16),)]


def codes():
    return [(torch.randn(2, 10, 3),)]
