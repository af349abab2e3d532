"""A module of this process raises where it is asked for anything, as speechbrain's lazy ones do."""

import sys
import types

import torch


class Lazy(types.ModuleType):
    def __getattr__(self, name):
        raise ImportError(f"an optional dependency of {self.__name__} is not installed")


sys.modules["lazy_module.optional"] = Lazy("lazy_module.optional")


def shifted(x):
    return x + 1


def samples():
    return [(torch.randn(4, 5, 6),)]
