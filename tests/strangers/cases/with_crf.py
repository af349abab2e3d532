import torch
from torchcrf import CRF


def crf():
    return CRF(5, batch_first=True)


def samples():
    return [(torch.randn(2, 6, 5), torch.randint(0, 5, (2, 6)))]


def masked():
    emissions, tags = samples()[0]
    return [(emissions, tags, torch.ones(2, 6, dtype=torch.bool))]
