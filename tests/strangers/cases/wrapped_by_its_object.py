"""The constructor wraps the object's own method, as torchmetrics does; a part is a torch.fx.GraphModule."""

import functools

import torch


class Metric(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.update = self._counted(self.update)

    def _counted(self, update):
        @functools.wraps(update)
        def counted(*args):
            self.count = getattr(self, "count", 0) + 1
            return update(*args)

        return counted

    def update(self, x):
        self.total = self.total + x.sum()


def workload():
    metric = Metric()
    for size in (3, 3, 5):
        metric.update(torch.ones(size))
    return metric.total


class Body(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 6)
        self.second = torch.nn.Linear(6, 2)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Features(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = torch.fx.symbolic_trace(Body())

    def forward(self, x):
        return self.graph(x) + 1


def samples():
    return [(torch.randn(4, 6),)]
