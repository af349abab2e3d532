"""Objects of all the kinds that run code when they are looked at. Here it takes note, and raises."""

import sys
import types

RAN = []
"""What hatch-precompile and its runtime ran of the code below, but where torch does so through them."""


def run(self, *args, **kwargs):
    caller = sys._getframe(1).f_code.co_filename
    if "/torch/" in caller or caller.endswith(("/inspect.py", "/tracing/guardtree.py")):
        raise AttributeError("not for you")
    if "/_precompiled/" in caller or "/hatch_precompile/" in caller or "/templates/" in caller:
        RAN.append(f"{object.__getattribute__(self, 'kind')}, by {caller}: {args[:1]}")
    raise ImportError("nobody should have asked")


class Meta(type):
    """A class of classes that says of itself what is meant for its classes, as that of Cython's does."""

    __module__ = property(lambda cls: "looking.things")


class Hostile(metaclass=Meta):
    kind = "hostile"
    __getattr__ = __eq__ = __hash__ = __len__ = __bool__ = __iter__ = __repr__ = __str__ = __call__ = run
    __getitem__ = __contains__ = __instancecheck__ = __index__ = run
    __class__ = property(run)
    __dict__ = property(run)
    __wrapped__ = property(run)
    __code__ = property(run)
    shape = property(run)


class Optional(types.ModuleType):
    """As speechbrain's and transformers' lazy modules, where what they would import is not installed."""

    kind = "a module with __getattr__"
    __getattr__ = run


class Later(types.ModuleType):
    """As importlib.util.LazyLoader's and apipkg's: any question imports the module."""

    kind = "a module with __getattribute__"
    __getattribute__ = run


class Words(str):
    """Looks like plain text."""

    kind = "words"
    __eq__ = __repr__ = __len__ = run
    __hash__ = str.__hash__


class Pairs(tuple):
    """Looks like a tuple, and says otherwise of what it holds."""

    kind = "pairs"
    __iter__ = __len__ = __repr__ = __getitem__ = run
