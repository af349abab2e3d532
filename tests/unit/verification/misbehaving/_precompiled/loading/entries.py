"""As in a runtime: how many calls an entry serves before its guard is native code."""

import sys
from types import ModuleType


def native_after(calls):
    pass


class Sealed(ModuleType):
    """Nobody sets its attributes from outside."""

    def __setattr__(self, name, value):
        raise AssertionError(f"{name} was set from outside")


sys.modules[__name__].__class__ = Sealed
