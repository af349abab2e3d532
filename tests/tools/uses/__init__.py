"""The tools, by what they do. A function uses one on the guest's models, and notes what there is to see."""

from tests.tools.guest import TOOLS
from tests.tools.uses import (
    changing,
    distributed,
    exporting,
    keeping,
    looking,
    training,
    transforming,
    watching,
)

__all__ = [
    "TOOLS",
    "changing",
    "distributed",
    "exporting",
    "keeping",
    "looking",
    "training",
    "transforming",
    "watching",
]
