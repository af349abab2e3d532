"""What is used in a body is no model of its own, wherever its name is imported."""

import torch


class User(torch.nn.Module):
    def __init__(self):
        super().__init__()
        from .used import Used

        self.used = Used(1)

    def forward(self, x): ...
