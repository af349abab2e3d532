import torch
from egnn_pytorch import EGNN


def layer():
    return EGNN(dim=16, m_dim=8, num_nearest_neighbors=3)


def samples():
    return [(torch.randn(1, 8, 16), torch.randn(1, 8, 3))]
