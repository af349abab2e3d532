"""ViT-B/16 as transformers has it."""

import torch
from torch import nn
from transformers import ViTConfig
from transformers.models.vit.modeling_vit import ViTModel

__all__ = ["make"]


def make() -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = ViTModel(ViTConfig())  # its defaults are ViT-B/16's
    return model.eval()
