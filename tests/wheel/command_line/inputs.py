"""Arguments for calls of the zoo's model (tests/zoo), most of which no entry fits."""

import torch
import zoo.models


def model(**changes):
    made = zoo.models.Mlp().eval()
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def hit():
    return model(), torch.randn(4, 8)


def as_keywords():
    return (model(),), {"x": torch.randn(4, 8)}


def dtype():
    return model(), torch.randn(4, 8, dtype=torch.float64)


def rank():
    return model(), torch.randn(8)


def size():
    return model(), torch.randn(17, 8)


def static_size():
    return model(), torch.randn(4, 9)


def device():
    return model(), torch.randn(4, 8, device="meta")


def flag():
    return model().train(), torch.randn(4, 8)


def another_class():
    return torch.nn.Linear(8, 8), torch.randn(4, 8)


def attribute():
    return model(scale=3.0), torch.randn(4, 8)


def more_arguments():
    return (model(), torch.randn(4, 8)), {"shift": torch.ones(8)}


def strides():
    return model(), torch.randn(8, 4).t()


def nonsense():
    return 5
