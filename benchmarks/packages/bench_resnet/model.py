"""ResNet-50 as transformers has it."""

import torch
from torch import nn
from transformers import ResNetConfig
from transformers.models.resnet.modeling_resnet import ResNetModel

__all__ = ["make"]


def make() -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = ResNetModel(ResNetConfig())  # its defaults are ResNet-50's
    return model.eval()
