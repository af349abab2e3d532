"""Names and classes that are made on a condition."""

import sys
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from torch.nn import Module
else:
    Module = sys.modules["torch"].nn.Module

try:
    from .layers import Root
except ImportError:
    Root = object

try:
    from lightning import LightningModule
except ImportError:
    from pytorch_lightning import LightningModule


class OfATypesImport(Module):
    def forward(self, for_types): ...


class OfATry(Root):
    pass


class OfLightning(LightningModule):
    def forward(self, lightning): ...


class Overloaded(Root):
    @overload
    def forward(self, x: int): ...
    @overload
    def forward(self, x: str): ...
    def forward(self, x, y=(1, 2), /, *, z: int = 3): ...


if sys.version_info >= (3, 11):

    class InAnIf(Root):
        def forward(self, in_an_if): ...
