import auraloss
import torch


def loss():
    sizes = {"fft_sizes": [256, 128], "hop_sizes": [64, 32], "win_lengths": [200, 100]}
    return auraloss.freq.MultiResolutionSTFTLoss(**sizes)


def samples():
    return [(torch.randn(2, 1, 2000), torch.randn(2, 1, 2000))]
