import torch
from torchmetrics.functional.classification import multiclass_accuracy
from torchmetrics.regression import MeanSquaredError

OPTIONS = {"num_classes": 5, "validate_args": False}


def samples():
    return [((torch.randn(20, 5), torch.randint(0, 5, (20,))), OPTIONS)]


def after_a_call():
    """Its first call in a process looks which packages are installed, which torch.compile cannot trace."""
    made = samples()
    ((predicted, target), options), *_ = made
    multiclass_accuracy(predicted, target, **options)
    return made


def mean_squared():
    torch.manual_seed(1)
    metric = MeanSquaredError()
    for _ in range(3):
        metric.update(torch.randn(10), torch.randn(10))
    return metric.compute()
