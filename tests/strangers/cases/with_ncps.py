import torch
from ncps.torch import LTC, CfC
from ncps.wirings import AutoNCP


def cfc():
    return CfC(4, 8)


def ltc():
    return LTC(4, AutoNCP(8, 2), ode_unfolds=2)


def samples():
    return [(torch.randn(2, 5, 4),)]
