import torch
from accelerate import cpu_offload


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.second = torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def offloaded():
    return cpu_offload(Net(), execution_device=torch.device("cpu"))


def samples():
    return [(torch.randn(4, 6),)]
