import julius
import torch


def resample():
    return julius.ResampleFrac(3, 2)


def low_pass():
    return julius.LowPassFilter(0.2, fft=False)


def bands():
    return julius.SplitBands(8000, n_bands=3)


def samples():
    return [(torch.randn(2, 900),)]
