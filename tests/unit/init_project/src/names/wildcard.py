from .public import *


class OfAWildcard(Root):
    pass


class OfTorchByWildcard(Renamed):
    def forward(self, renamed): ...


class OfTheirTorch(torch.nn.Module):
    def forward(self, their_torch): ...


class OfALayer(nn.Linear):
    pass
