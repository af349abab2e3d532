"""Classes that are no modules: methods, properties, descriptors, inheritance, generated methods."""

import collections
import enum
import re
from dataclasses import dataclass
from typing import ClassVar

import torch
from parts.layers import Base, Clamped, Scaling
from parts.settings import Config, Frozen, Kind, Level, Options

PATTERN = re.compile(r"l(\d)_(\w+)")
NUMBERED = "l2_scale"


def rows():
    return [(torch.linspace(-1, 2, 12).reshape(3, 4),)]


class Scaled:
    factor = 1.5
    table: ClassVar = {"a": 0.5, "b": 2.0}

    def __init__(self, amount=3.0):
        self.amount = amount

    def run(self, x):
        return x * self.factor + self.amount * self.table["b"]

    @classmethod
    def of_class(cls, x):
        return x * cls.factor - cls.table["a"]

    @staticmethod
    def static(x, by=0.75):
        return x.sin() + by


class WithProperties:
    top = Clamped()

    def __init__(self):
        self.top = 4.0
        self._half = 0.5

    @property
    def half(self):
        return self._half * 1.5

    def run(self, x):
        return x * self.half + self.top


class Answering:
    """What it does not have, it makes up."""

    own = 2.0

    def __getattr__(self, name):
        if name.startswith("by_"):
            return float(len(name)) * 0.5
        raise AttributeError(name)

    def run(self, x):
        return x * self.by_ten + self.own


class Calling:
    def __init__(self):
        self.bias = 0.25

    def __call__(self, x):
        return x.tanh() + self.bias

    def run(self, x):
        return self(x) * 2.0


class Child(Base):
    bias = 0.5

    def prepare(self, x):
        return super().prepare(x) * 1.5


class Mixed(Scaling, Base):
    def run(self, x):
        return super().run(x) + 0.125


@dataclass
class Plain:
    scale: float = 2.0
    shift: float = 0.5
    name: str = "plain"


@dataclass(frozen=True)
class Still:
    scale: float = 1.5
    power: int = 2


@dataclass(slots=True)
class Slotted:
    scale: float = 0.75
    shift: float = -1.0


class Slots:
    __slots__ = ("_scale", "shift")

    def __init__(self, scale=1.25, shift=0.5):
        self._scale = scale
        self.shift = shift

    @property
    def scale(self):
        return self._scale * 2.0


class Colour(enum.Enum):
    RED = 1.5
    BLUE = 2.5


class Point(collections.namedtuple("Point", ("x", "y"), defaults=(0.5,))):
    __slots__ = ()

    def norm(self):
        return self.x * self.x + self.y


class Vector:
    def __init__(self, data, weight=2.0):
        self.data = data
        self.weight = weight

    def __add__(self, other):
        return Vector(self.data + other.data * self.weight)

    def __getitem__(self, index):
        return self.data[index]

    def __len__(self):
        return 3


def makes_dataclasses(x):
    plain = Plain()
    return x * plain.scale + plain.shift


def makes_frozen_dataclasses(x):
    still = Still(power=3)
    return x**still.power * still.scale


def makes_slotted_dataclasses(x):
    slotted = Slotted(shift=0.25)
    return x * slotted.scale + slotted.shift


def makes_slots(x):
    slots = Slots()
    return x * slots.scale + slots.shift


def reads_dependency_settings(x):
    config, frozen = Config(factor=1.5), Frozen()
    y = getattr(torch, config.activation)(x) * config.factor
    return y.clamp(frozen.low, frozen.high) + frozen.middle * config.weights[1]


def reads_enums(x):
    y = x * Colour.BLUE.value
    if Kind("sin") is Kind.SINE:
        y = getattr(torch, Kind.SINE.value)(y)
    return y


def reads_integer_enums(x):
    level = Level.MIDDLE
    if level < Level.HIGH:
        x = x * level
    return x + Level.HIGH


def reads_flags(x):
    wanted = Options.SHIFT | Options.SCALE
    if Options.SHIFT in wanted:
        x = x + 1.0
    if wanted & Options.SCALE:
        x = x * 2.0
    return x * len(wanted)


def makes_named_tuples(x):
    point = Point(2.0)
    return x * point.norm() + point.y, Point(x, 1.0)


def matches_patterns(x):
    found = PATTERN.match(NUMBERED)
    if found is None:
        return x
    return x * int(found.group(1)) + len(found.group(2))


def iterates_dictionaries(x):
    table = collections.OrderedDict(one=1.0, two=2.0, three=3.0)
    table.move_to_end("one")
    total = x
    for name, value in table.items():
        total = total * 0.5 + value * len(name)
    return total


def overloads_operators(x):
    both = Vector(x) + Vector(x * 2.0)
    return both[0] + len(both)


scaled = Scaled()
held = {"config": Config(), "kinds": [Kind.TANH, Kind.SINE]}


def reads_held_objects(x):
    y = x * held["config"].factor + scaled.amount
    for kind in held["kinds"]:
        y = getattr(torch, kind.value)(y)
    return y


def with_properties():
    return WithProperties()


PROGRAMS = [
    {"target": "Scaled.run", "instance": "Scaled", "samples": "rows"},
    {"target": "Scaled.of_class", "instance": "Scaled", "samples": "rows"},
    {"target": "Scaled.static", "instance": "Scaled", "samples": "rows"},
    {"target": "WithProperties.run", "instance": "with_properties", "samples": "rows"},
    {"target": "Answering.run", "instance": "Answering", "samples": "rows"},
    {"target": "Calling.run", "instance": "Calling", "samples": "rows"},
    {"target": "Child.prepare", "instance": "Child", "samples": "rows"},
    {"target": "Mixed.run", "instance": "Mixed", "samples": "rows"},
    {"target": "makes_dataclasses", "samples": "rows"},
    {"target": "makes_frozen_dataclasses", "samples": "rows"},
    {"target": "makes_slotted_dataclasses", "samples": "rows"},
    {"target": "makes_slots", "samples": "rows"},
    {"target": "reads_dependency_settings", "samples": "rows"},
    {"target": "reads_enums", "samples": "rows"},
    {"target": "reads_integer_enums", "samples": "rows"},
    {"target": "reads_flags", "samples": "rows"},
    {"target": "makes_named_tuples", "samples": "rows"},
    {"target": "matches_patterns", "samples": "rows"},
    {"target": "iterates_dictionaries", "samples": "rows"},
    {"target": "overloads_operators", "samples": "rows"},
    {"target": "reads_held_objects", "samples": "rows"},
]
