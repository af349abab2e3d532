"""Other sizes than the zoo's own wheel was compiled for."""

import torch


def mlp():
    return [(torch.randn(20, 8),)]


def vectors():
    return [(torch.randn(9),)]


def images():
    return [{"image": torch.randn(3, 3, 4, 5)}]


def sentences():
    ids = torch.arange(3 * 5).reshape(3, 5)
    return [((), {"input_ids": ids, "attention_mask": torch.ones_like(ids)})]
