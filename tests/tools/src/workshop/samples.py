"""Instances and inputs for the build."""

import torch

from workshop import model


def classifier():
    return model.Classifier().eval()


def pictures():
    return model.Pictures().eval()


def rows():
    yield (torch.randn(4, 8),)


def images():
    yield (torch.randn(2, 3, 8, 8),)
