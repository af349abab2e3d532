import torch
from spandrel.architectures.ESRGAN import ESRGAN


def esrgan():
    return ESRGAN(num_filters=16, num_blocks=1, scale=2)


def samples():
    return [(torch.rand(1, 3, 32, 48),)]


def calls():
    return [(torch.rand(1, 3, *size),) for size in ((32, 48), (8, 9), (33, 48), (200, 256))]
