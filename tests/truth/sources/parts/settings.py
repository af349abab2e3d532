"""Configuration as libraries have it."""

import enum
from dataclasses import dataclass, field


class Level(enum.IntEnum):
    LOW = 1
    MIDDLE = 2
    HIGH = 4


class Kind(enum.Enum):
    SINE = "sin"
    TANH = "tanh"


class Options(enum.Flag):
    NONE = 0
    SHIFT = enum.auto()
    SCALE = enum.auto()


@dataclass
class Config:
    width: int = 4
    factor: float = 2.0
    activation: str = "tanh"
    weights: tuple = field(default=(1.0, 0.5))


@dataclass(frozen=True)
class Frozen:
    low: float = -0.5
    high: float = 0.5

    @property
    def middle(self):
        return (self.low + self.high) / 2 + 0.1
