"""A network with what can be computed of weights alone: packed layers and filters, a folded norm, a table."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = nn.Embedding(16, 128)
        self.register_buffer("order", torch.arange(16))
        self.first = nn.Linear(128, 512)
        self.second = nn.Linear(512, 128)
        self.picture = nn.Conv2d(4, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.closer = nn.Conv2d(16, 16, 3, padding=1)
        self.tiny = nn.Linear(128, 3)

    def forward(self, x, image):
        hidden = x + self.places(self.order)
        hidden = self.second(F.gelu(self.first(hidden))) + hidden
        seen = self.closer(self.norm(self.picture(image)).relu()).relu().mean((2, 3))
        return self.tiny(hidden), seen


def trained(seed=0):
    """A network whose batch norm has seen something."""
    torch.manual_seed(seed)
    net = Net().eval()
    net.norm.running_mean.normal_()
    net.norm.running_var.uniform_(0.5, 2)
    return net


class Maps(nn.Module):
    """What a network sees, pixel by pixel, and a norm of many channels."""

    def __init__(self):
        super().__init__()
        self.picture = nn.Conv2d(4, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.closer = nn.Conv2d(16, 16, 3, padding=1)
        self.wide = nn.BatchNorm1d(9000)

    def forward(self, x, image):
        first = self.norm(self.picture(image)).relu()
        return first, self.closer(first).relu(), self.wide(x.flatten(1).repeat(1, 5)[:, :9000])


def maps(seed=0):
    torch.manual_seed(seed)
    return Maps().eval()


class Unversioned(Net):
    """Made under inference_mode: nobody can see its weights change."""

    def forward(self, x, image):
        return super().forward(x, image)


def unversioned():
    torch.manual_seed(0)
    with torch.inference_mode():
        return Unversioned().eval()


class Narrow(Net):
    """Whose layers multiply in bfloat16, where the processor does."""

    def forward(self, x, image):
        return super().forward(x, image)


def narrow():
    torch.manual_seed(0)
    return Narrow().eval()


def inputs(seed=0):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(2, 16, 128, generator=made), torch.randn(2, 4, 8, 8, generator=made)


def samples():
    return [inputs()]
