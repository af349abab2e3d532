"""Two layers of Llama 3.2 1B as transformers has them, in their true sizes, and a cache of fixed length."""

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, StaticCache
from transformers.models.llama.modeling_llama import LlamaModel

__all__ = ["HEADS", "LAYERS", "LENGTH", "SIZE", "Step", "make"]

LAYERS, HEADS, LENGTH, SIZE = 2, 8, 256, 64
"""Of the cache: layers, heads of keys and values, tokens, numbers of a head."""


class Step(nn.Module):
    """One token: int64 [batch, 1], its place: int64 [], keys and values: float32 [LAYERS, batch, HEADS,
    LENGTH, SIZE], which are written in place. Gives float32 [batch, 1, width]."""

    def __init__(self) -> None:
        super().__init__()
        self.config = LlamaConfig(
            hidden_size=2048,
            intermediate_size=8192,
            num_hidden_layers=LAYERS,
            num_attention_heads=32,
            num_key_value_heads=HEADS,
            head_dim=SIZE,
            vocab_size=1024,
        )
        self.model = LlamaModel(self.config)

    def forward(self, token: Tensor, place: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        cache = StaticCache(config=self.config, max_cache_len=LENGTH)
        for layer, own_keys, own_values in zip(cache.layers, keys, values, strict=True):
            layer.keys, layer.values, layer.device, layer.is_initialized = (
                own_keys,
                own_values,
                keys.device,
                True,
            )
            layer.cumulative_length = place.clone()  # the layer counts on
        output = self.model(input_ids=token, past_key_values=cache, position_ids=place.view(1, 1))
        hidden: Tensor = output.last_hidden_state
        return hidden


def make() -> Step:
    torch.manual_seed(0)
    return Step().eval()
