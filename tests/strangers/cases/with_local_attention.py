import torch
from local_attention import LocalAttention
from local_attention.transformer import LocalTransformer


def attention():
    return LocalAttention(dim=16, window_size=8, causal=True, look_backward=1)


def transformer():
    return LocalTransformer(
        num_tokens=50, max_seq_len=64, dim=32, depth=2, heads=2, dim_head=16, local_attn_window_size=8
    )


def samples():
    return [tuple(torch.randn(2, 2, 32, 16) for _ in range(3))]


def tokens():
    return [(torch.randint(0, 50, (2, 32)),)]
