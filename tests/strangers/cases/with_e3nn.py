import torch
from e3nn import o3


class Layer(torch.nn.Module):
    """A convolution's inside: spherical harmonics, a tensor product, an equivariant linear layer."""

    def __init__(self):
        super().__init__()
        self.product = o3.FullyConnectedTensorProduct("8x0e + 4x1o", "1x0e + 1x1o", "8x0e + 4x1o")
        self.linear = o3.Linear("8x0e + 4x1o", "4x0e + 2x1o")

    def forward(self, features, vectors):
        harmonics = o3.spherical_harmonics([0, 1], vectors, normalize=True)
        return self.linear(self.product(features, harmonics))


def samples():
    return [(torch.randn(16, 20), torch.randn(16, 3))]
