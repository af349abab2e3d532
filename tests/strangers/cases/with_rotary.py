import torch
from rotary_embedding_torch import RotaryEmbedding


class Rotated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rotary = RotaryEmbedding(dim=16)

    def forward(self, q, k):
        return self.rotary.rotate_queries_with_cached_keys(q, k)


def samples():
    return [(torch.randn(1, 2, 4, 32), torch.randn(1, 2, 10, 32))]
