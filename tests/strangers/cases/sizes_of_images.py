"""Height and width as declared, on both sides of where oneDNN is asked otherwise."""

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.second = torch.nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def samples():
    return [(torch.randn(1, 3, 32, 40),)]


def calls():
    return [(torch.randn(1, 3, *size),) for size in ((32, 40), (8, 8), (33, 40), (64, 64), (256, 300))]
