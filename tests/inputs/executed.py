"""Functions whose trace rests on code of the program's that dynamo runs, and on names that are not there."""

from __future__ import annotations

import builtins
import copy
import enum
import functools
import gc
import math
import os
import types
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from einops import rearrange

from tests.inputs import absent, settings

Tensor = torch.Tensor


# -- code that dynamo runs instead of looking into it ---------------------------------------------


class Planet(enum.Enum):
    EARTH = 1.0
    MARS = 0.5

    @classmethod
    def _missing_(cls, value: object) -> Planet:
        return cls.MARS

    def __lt__(self, other: Planet) -> bool:
        return self.value < other.value

    def __format__(self, how: str) -> str:
        return self.name + how

    def __bool__(self) -> bool:
        return self is not Planet.MARS


def looks_a_planet_up(x: Tensor) -> Tensor:
    return x * Planet("pluto").value


def compares_planets(x: Tensor) -> Tensor:
    return x * max(Planet.MARS, Planet.EARTH).value


def formats_a_planet(x: Tensor) -> Tensor:
    return x * len(f"{Planet.MARS:ab}")


def asks_for_the_truth(x: Tensor) -> Tensor:
    return x * 2 if Planet.EARTH else x * 3


FACTOR = 2.0


class Table(type):
    values: ClassVar = {"one": 1.0, "two": 2.0}
    offset = 0.25

    def __getitem__(cls, key: str) -> float:
        return cls.values[key] * FACTOR + cls.offset


class Weights(metaclass=Table):
    pass


def subscripts_a_class(x: Tensor) -> Any:
    return x * Weights["two"]


def measures_a_class(x: Tensor) -> Tensor:
    return x * 2 if isinstance(Weights, Table) else x * 3


class Meters(float):
    def __mul__(self, other: Any) -> Any:
        return other * 3.0


METERS = Meters(2.0)


def multiplies_meters(x: Tensor) -> Any:
    return METERS * 2.0 * x


SCALE = 2.0
SCALES = {"a": 2.0}


@torch.compiler.allow_in_graph
def reads_globals(x: Tensor) -> Tensor:
    return x * SCALE


def calls_what_reads_globals(x: Tensor) -> Tensor:
    return reads_globals(x)


@torch.compiler.allow_in_graph
def reads_the_environment(x: Tensor) -> Tensor:
    return x * float(os.environ.get("EXECUTED_SCALE", "2"))


def calls_what_reads_the_environment(x: Tensor) -> Tensor:
    return reads_the_environment(x)


@torch.compiler.allow_in_graph
def goes_through_the_environment(x: Tensor) -> Tensor:
    return x * len([name for name in os.environ if name.startswith("EXECUTED")])


def calls_what_goes_through_the_environment(x: Tensor) -> Tensor:
    return goes_through_the_environment(x)


@torch.compiler.allow_in_graph
def reads_a_module(x: Tensor) -> Tensor:
    return x * settings.SCALE


def calls_what_reads_a_module(x: Tensor) -> Tensor:
    return reads_a_module(x)


SPACE = types.SimpleNamespace(inner=types.SimpleNamespace(scale=2.0))


@torch.compiler.allow_in_graph
def reads_an_object(x: Tensor) -> Tensor:
    return x * SPACE.inner.scale


def calls_what_reads_an_object(x: Tensor) -> Tensor:
    return reads_an_object(x)


def scaling(scale: float) -> Callable[[Tensor], Tensor]:
    known: dict[float, float] = {}

    @torch.compiler.allow_in_graph
    def scales(x: Tensor) -> Tensor:
        return x * known.setdefault(scale, scale)

    return scales


BY_TWO, BY_THREE = scaling(2.0), scaling(3.0)
WITHOUT_NAME = {scaling(4.0)}


def calls_what_was_made(x: Tensor) -> Tensor:
    return BY_TWO(x) + BY_THREE(x)


@torch.compiler.allow_in_graph
def calls_each(x: Tensor) -> Tensor:
    for scales in WITHOUT_NAME:
        x = scales(x)
    return x


def calls_what_has_no_name(x: Tensor) -> Tensor:
    return calls_each(x)


class Slotted:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 2.0


class Scaling:
    """Its method reads what only the method mentions."""

    held = types.SimpleNamespace(shift=1.0)
    made = 0

    def __new__(cls) -> Scaling:
        cls.made += 1
        return super().__new__(cls)

    def __init__(self) -> None:
        self.factor = 2.0
        self.calls = 0

    def of(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * self.factor + Scaling.held.shift


OF_SLOTS, OF_METHOD = Slotted(), Scaling()
IN_CLOSURE, BY_DEFAULT = types.SimpleNamespace(scale=2.0), types.SimpleNamespace(scale=2.0)
COUNTED = False


def _around(held: Any) -> Callable[[Tensor], Tensor]:
    count = 0

    def around(x: Tensor, other: Any = BY_DEFAULT) -> Tensor:
        nonlocal count
        count += 1
        return x * held.scale + other.scale

    return around


AROUND = _around(IN_CLOSURE)


@functools.lru_cache
def kept() -> float:
    return float(os.environ.get("EXECUTED_KEPT", "2"))


kept()


@torch.compiler.allow_in_graph
def reads_in_every_way(x: Tensor) -> Tensor:
    global COUNTED
    COUNTED = True
    x = OF_METHOD.of(x) * OF_SLOTS.scale + AROUND(x) * kept()
    x = x * Scaling().factor  # what a constructor stores is no change
    return x * getattr(settings, "BY_WORD", 1.0)


def calls_what_reads_in_every_way(x: Tensor) -> Tensor:
    return reads_in_every_way(x)


@torch.library.custom_op("executed::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    return x * 2


@doubled.register_fake
def doubled_shape(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def twice(gradient: Tensor) -> Tensor:
    return gradient * settings.TWICE


class Gradients:
    @staticmethod
    def once(gradient: Tensor) -> Tensor:
        return gradient * float(os.environ.get("EXECUTED_GRADIENT", "1"))


def gradient_of_doubled(ctx: Any, gradient: Tensor) -> Tensor:
    return Gradients.once(twice(gradient))


doubled.register_autograd(gradient_of_doubled)


def calls_with_a_gradient(x: Tensor) -> Any:
    return doubled(x).sum()


# -- what is not there ----------------------------------------------------------------------------


def rounds(x: Tensor) -> Tensor:
    return x * round(2.4)


def asks_whether_there_is(x: Tensor) -> Tensor:
    return x * 2 if hasattr(absent, "SHIFT") else x * 3


def takes_what_there_is(x: Tensor) -> Tensor:
    return x * getattr(absent, "FACTOR", 3.0)


def tries_what_there_is(x: Tensor) -> Tensor:
    try:
        return x * absent.GAIN  # type: ignore[attr-defined, no-any-return]
    except AttributeError:
        return x * 3


def looks_for_a_builtin(x: Tensor) -> Tensor:
    return x * 2 if hasattr(builtins, "scaled") else x * 3


# -- what functions and classes say of themselves -------------------------------------------------


def annotated(x: Tensor, by: float = 2.0) -> Tensor:
    """Words."""
    return x * by


def reads_annotations(x: Tensor) -> Tensor:
    return x * len(annotated.__annotations__)


def reads_words(x: Tensor) -> Tensor:
    return x * len(annotated.__doc__ or "")


class Listed:
    """A class with words."""

    one: int
    first = 1.0


def lists_names(x: Tensor) -> Tensor:
    return x * len(dir(Listed))


def reads_words_of_a_class(x: Tensor) -> Tensor:
    return x * len(Listed.__doc__ or "")


def reads_annotations_of_a_class(x: Tensor) -> Tensor:
    return x * len(Listed.__annotations__)


# -- values that are equal and not the same -------------------------------------------------------


def divides(x: Tensor, by: float) -> Tensor:
    return x * math.copysign(1.0, by)


def lists_keys(x: Tensor, table: dict[str, Tensor]) -> Any:
    return {**table, "x": x * 2}


def adds_by_key(x: Tensor, table: dict[str, Tensor]) -> Tensor:
    return x + table["a"] - table["b"]


def takes_keywords(x: Tensor, **tables: Tensor) -> Tensor:
    return adds_by_key(x, {"a": tables["a"], "b": tables["b"]})


class Marked:
    """An object whose own dict is looked at."""


def asks_the_dict_of_an_object(x: Tensor, marked: Marked) -> Tensor:
    return x * 2 if "flag" in marked.__dict__ else x * 3


def takes_from_the_dict_of_an_object(x: Tensor, marked: Marked) -> Tensor:
    return x * marked.__dict__.get("flag", 3.0)


def counts_the_dict_of_an_object(x: Tensor, marked: Marked) -> Tensor:
    return x * (1 + len(vars(marked)))


def sets_and_asks(x: Tensor, marked: Marked) -> Tensor:
    marked.set_here = True  # type: ignore[attr-defined]
    return x * 2 if "set_here" in marked.__dict__ else x * 3


def asks_a_function(x: Tensor) -> Tensor:
    return x * 2 if hasattr(annotated, "flag") else x * 3


def takes_from_a_function(x: Tensor) -> Tensor:
    return x * getattr(annotated, "flag", 3.0)


def tries_a_function(x: Tensor) -> Tensor:
    try:
        return x * annotated.flag  # type: ignore[attr-defined, no-any-return]
    except AttributeError:
        return x * 3


def takes_from_the_dict_of_a_function(x: Tensor) -> Tensor:
    return x * annotated.__dict__.get("flag", 3.0)


# -- objects that are copied ----------------------------------------------------------------------


class Options:
    """What a configuration is: values, and objects of its own."""

    def __init__(self) -> None:
        self.scale, self.name = 2.0, "one"
        self.lists = [[1.0], [2.0]]


OPTIONS = Options()


def reduced(value: object) -> tuple[type, tuple[()]]:
    """What programs hand to copyreg.pickle."""
    return type(value), ()


def copies_options(x: Tensor, options: Options) -> Tensor:
    own = copy.deepcopy(options)
    own.lists[0].append(3.0)
    return x * own.scale + len(own.lists[1])


def copies_its_options(x: Tensor) -> Tensor:
    return copies_options(x, OPTIONS)


# -- code that runs beside ------------------------------------------------------------------------

COLLECTED = 0


def collects(phase: str, info: dict[str, int]) -> None:
    """What programs hand to gc.callbacks."""
    global COLLECTED
    COLLECTED += 1


class Awake(enum.Enum):
    ONE = 1.0

    def __format__(self, how: str) -> str:
        gc.collect()
        return how


def collects_while_traced(x: Tensor) -> Tensor:
    return x * len(f"{Awake.ONE:abc}")


# -- a gradient of its own, through which torch goes with a progress bar ---------------------------


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3


def doubles(x: Tensor) -> Tensor:
    return Doubled.apply(x * 3)  # type: ignore[no-any-return, no-untyped-call]


# -- an operator with a default value --------------------------------------------------------------


@torch.library.custom_op("executed::scaled", mutates_args=())
def scaled(x: Tensor, by: float = 2.0) -> Tensor:
    return x * by


@scaled.register_fake
def _(x: Tensor, by: float = 2.0) -> Tensor:
    return torch.empty_like(x)


def calls_scaled(x: Tensor) -> Tensor:
    return scaled(x) + torch.relu(x)


# -- a library with a cache that fills as it is used -----------------------------------------------


def rearranges(x: Tensor) -> Tensor:
    return rearrange(x, "a (b c) -> b (a c)", b=2)


FOUND: list[str] = []


class Finder:
    """Looks for installed packages, after the manner of `sys.meta_path`."""

    def find_spec(self, *_: Any) -> None:
        return None

    def find_distributions(self, context: Any = None) -> list[Any]:
        FOUND.append(context.name)
        return []
