"""EfficientNet-B0 as transformers has it."""

import torch
from torch import nn
from transformers import EfficientNetConfig
from transformers.models.efficientnet.modeling_efficientnet import EfficientNetModel

__all__ = ["make"]


def make() -> nn.Module:
    torch.manual_seed(0)
    config = EfficientNetConfig(image_size=224, width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280)
    model: nn.Module = EfficientNetModel(config)
    return model.eval()
