"""GPT-2 small as transformers has it, without a cache."""

import torch
from torch import nn
from transformers import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2Model

__all__ = ["make"]


def make() -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = GPT2Model(GPT2Config(use_cache=False))
    return model.eval()
