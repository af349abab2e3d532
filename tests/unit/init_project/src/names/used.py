import torch


class Used(torch.nn.Module):
    def forward(self, x): ...
