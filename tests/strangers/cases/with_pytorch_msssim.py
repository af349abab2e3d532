import torch
from pytorch_msssim import MS_SSIM


def ms_ssim():
    return MS_SSIM(data_range=1.0, win_size=3)


def samples():
    return [(torch.rand(1, 3, 64, 64), torch.rand(1, 3, 64, 64))]


def with_range():
    return [((torch.rand(1, 3, 64, 64), torch.rand(1, 3, 64, 64)), {"data_range": 1.0})]
