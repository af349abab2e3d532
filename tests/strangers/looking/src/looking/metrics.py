import functools

import torch


class Metric(torch.nn.Module):
    """As those of torchmetrics: the constructor wraps the object's own method."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.count = 0
        self.update = self._counted(self.update)

    def _counted(self, update):
        @functools.wraps(update)
        def counted(*args, **kwargs):
            self.count += 1
            return update(*args, **kwargs)

        return counted

    def update(self, x, *, weight=1.0):
        self.total = self.total + x.sum() * weight


def workload():
    metric = Metric()
    for size in (3, 3):
        metric.update(torch.ones(size))
    return metric
