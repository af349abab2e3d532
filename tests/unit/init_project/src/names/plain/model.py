"""In a folder without an __init__.py."""

import torch


class InAPlainFolder(torch.nn.Module):
    def forward(self, plain): ...
