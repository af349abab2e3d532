"""Networks whose weights torchao has quantized."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_


class Dynamic(nn.Module):
    """Activations are quantized at each call, too."""

    config = Int8DynamicActivationInt8WeightConfig()

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(128, 512), nn.Linear(512, 128)

    def forward(self, x):
        return self.second(F.gelu(self.first(x))) + x


class WeightOnly(nn.Module):
    config = Int8WeightOnlyConfig()

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(128, 512), nn.Linear(512, 128)

    def forward(self, x):
        return self.second(F.gelu(self.first(x))) + x


class Handing(WeightOnly):
    """Hands its weights out, which needs AOTAutograd's wrappers."""

    def forward(self, x):
        return self.second(F.gelu(self.first(x))) + x, self.first.weight.clone()


def made(cls, seed=0):
    torch.manual_seed(seed)
    network = cls().eval()
    quantize_(network, cls.config)
    return network


def dynamic():
    return made(Dynamic)


def weight_only():
    return made(WeightOnly)


def handing():
    return made(Handing)


def inputs(seed=0):
    return torch.randn(32, 128, generator=torch.Generator().manual_seed(seed))


def samples():
    return [(inputs(),)]
