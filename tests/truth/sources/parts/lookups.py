"""Classes that say for themselves how they are subscripted, found, compared and written."""

import enum
from typing import NamedTuple


class Table(type):
    """A metaclass: the class is asked as if it were a mapping."""

    def __getitem__(cls, name):
        return cls.values[name] + 0.25

    def __len__(cls):
        return len(cls.values)


class Weights(metaclass=Table):
    values = {"first": 0.5, "second": 0.75}  # noqa: RUF012 - as authors write it


class Span(NamedTuple):
    start: float
    stop: float = 2.0

    def shifted(self, by=3.0):
        return self._replace(stop=self.stop + by)


class Planet(enum.Enum):
    EARTH = (5.0, 6.0)
    MARS = (3.0, 2.0)

    def __init__(self, mass, radius):
        self.mass = mass
        self.radius = radius

    @property
    def density(self):
        return self.mass / self.radius

    @classmethod
    def _missing_(cls, value):
        return cls.MARS

    def __lt__(self, other):
        return self.density < other.density

    def __format__(self, words):
        return f"planet {self.name}{words}"


class Role(str, enum.Enum):  # noqa: UP042 - as authors write it
    """Words, as configurations have them."""

    QUERY = "first"
    KEY = "second"

    def __str__(self):
        return self.value
