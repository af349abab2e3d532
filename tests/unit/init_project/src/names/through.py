"""Bases that are reached through other modules."""

from typing import Generic, TypeVar

from . import Encoder, again, layers
from .again import Again, FromPackage, Twice

T = TypeVar("T")


class OfAnImportedName(Again):
    pass


class OfAModulesName(again.Again):
    pass


class OfTorchThroughTwo(Twice):
    def forward(self, through_two): ...


class OfTheirNn(layers.nn.Module):
    def forward(self, their_nn): ...


class OfAModulesNamesake(Encoder):
    pass


class OfItAgain(FromPackage):
    pass


class InOrder(layers.Left, layers.Right):
    """Python takes the forward of Right, before that of Root."""


class OfAGeneric(layers.Root, Generic[T]):
    pass


class OfItsSubscript(OfAGeneric[int]):
    pass


class Mixin:
    def forward(self, mixed_in): ...


class Mixed(Mixin, layers.Root):
    pass
