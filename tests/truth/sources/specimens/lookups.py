"""What Python looks up by itself, and what it does not find: builtins, metaclasses, enumerations, marks."""

import parts.lookups
import torch
from parts.lookups import Planet, Role, Span, Weights

WEIGHTS = {"first_weight": 0.5, "second_weight": 1.5}


def rows():
    return [(torch.linspace(-1, 2, 12).reshape(3, 4),)]


def calls_builtins(x):
    return x * max(1.0, 2.0) + round(2.6)


def subscripts_a_class(x):
    return x * Weights["first"] + 1.0


def measures_a_class(x):
    return x * len(Weights)


def looks_members_up(x):
    return x * Planet("pluto").mass


def reads_annotations(x):
    return x * len(Span.shifted.__annotations__) + len(annotated.__annotations__)


def annotated(x, by: float):
    return x * by


def formats_members(x):
    return x * len(f"{Planet.MARS:!}")


def sorts_members(x):
    return x * sorted(Planet)[0].mass + max(Planet.EARTH, Planet.MARS).radius


def names_weights_by_role(x):
    return x * WEIGHTS[f"{Role.KEY}_weight"]


def asks_modules_for_names(x):
    if hasattr(parts.lookups, "SHIFT"):
        x = x + 1.0
    try:
        x = x * parts.lookups.FACTOR
    except AttributeError:
        x = x * 0.5
    return x * getattr(parts.lookups, "GAIN", 1.5)


def asks_functions_for_marks(x):
    if getattr(asks_modules_for_names, "doubles", False):
        x = x * 2.0
    return x + len(asks_modules_for_names.__dict__)


class Marked:
    """Is asked for what it has through its own dictionary."""

    def __init__(self):
        self.scale = 2.0

    def run(self, x):
        if "shift" not in self.__dict__:
            x = x * self.scale
        return x * vars(self).get("gain", 0.5)


def lists_names(x):
    return x * len([name for name in dir(Planet) if not name.startswith("_")])


PROGRAMS = [
    {"target": "calls_builtins", "samples": "rows"},
    {"target": "subscripts_a_class", "samples": "rows"},
    {"target": "measures_a_class", "samples": "rows"},
    {"target": "looks_members_up", "samples": "rows"},
    {"target": "reads_annotations", "samples": "rows"},
    {"target": "formats_members", "samples": "rows"},
    {"target": "sorts_members", "samples": "rows"},
    {"target": "names_weights_by_role", "samples": "rows"},
    {"target": "asks_modules_for_names", "samples": "rows"},
    {"target": "asks_functions_for_marks", "samples": "rows"},
    {"target": "Marked.run", "instance": "Marked", "samples": "rows"},
    {"target": "lists_names", "samples": "rows"},
]
