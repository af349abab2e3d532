"""As in a runtime that has weights to pack: a model that imports it asks what the processor is fast with."""

import sys
from types import ModuleType

otherwise = False


def decide_otherwise(decided):
    global otherwise
    otherwise = decided


def onednn_is_fast():
    return not otherwise


class Sealed(ModuleType):
    """Nobody sets its attributes from outside."""

    def __setattr__(self, name, value):
        raise AssertionError(f"{name} was set from outside")


sys.modules[__name__].__class__ = Sealed
