"""Functions: constants, defaults, closures, decorators, arguments of every kind, control flow."""

import functools

import torch
from parts.arithmetic import between, logged, powers, shifted, steps, tripled_sine, weighted

FACTOR = 2.0
LIMITS = (-0.75, 1.25)
NAMES = {"first": 1.0, "second": 0.5}
DTYPE = torch.float32
HELP = {"sin": torch.sin, "relu": torch.relu}


def rows():
    return [(torch.linspace(-1, 2, 12).reshape(3, 4),)]


def two_sizes():
    return [(torch.linspace(-1, 2, 12).reshape(3, 4),), (torch.linspace(-1, 2, 10).reshape(2, 5),)]


def pairs():
    return [((torch.linspace(-1, 2, 12).reshape(3, 4), torch.linspace(0, 1, 4)), {"scale": 3.0, "name": "b"})]


def keywords():
    return [{"x": torch.linspace(-1, 2, 12).reshape(3, 4), "upper": 1.0}]


def counts():
    return [(torch.linspace(-1, 2, 12).reshape(3, 4), 3), (torch.linspace(-1, 2, 12).reshape(3, 4), 4)]


def reads_constants(x):
    low, high = LIMITS
    return x.clamp(low, high) * FACTOR + NAMES["second"]


def has_defaults(x, factor=1.5, shift=0.25, name="first"):
    y = x * factor
    y = y + shift
    return y - NAMES[name]


def has_keyword_only(x, *, lower=-0.5, upper=0.5, keep=True):
    y = torch.clamp(x, lower, upper)
    if keep:
        y = y + x
    return y


def takes_anything(*tensors, scale=1.0, **others):
    total = tensors[0] * scale
    for tensor in tensors[1:]:
        total = total + tensor
    if others.get("name") == "b":
        total = total - 1.0
    return total, len(others)


def calls_a_dependency(x):
    return weighted(shifted(x)) + between(x)


def calls_a_decorated_dependency(x):
    return tripled_sine(x) + 1.0


def make_adder(amount, again=0.5):
    def adds(x):
        return (x + amount) * again

    return adds


adds_two = make_adder(2.0)


def calls_a_closure(x):
    return adds_two(x) * 3.0


power_of = functools.partial(torch.pow, exponent=2)
half = functools.partial(has_defaults, factor=0.5, shift=1.0)


def calls_partials(x):
    return power_of(x) + half(x)


@logged
def is_decorated(x):
    return x.cos() + 0.5


def has_attributes(x):
    return x * has_attributes.scale


has_attributes.scale = 2.5


def calls_by_name(x, name="sin"):
    return HELP[name](x) + HELP["relu"](x)


def recurses(x, depth=3):
    if depth == 0:
        return x
    return recurses(x * 1.5, depth - 1) + 0.25


def uses_generators(x):
    total = torch.zeros_like(x)
    for part in powers(x, 3):
        total = total + part
    return total


def uses_comprehensions(x):
    parts = [x * factor for factor in (1.0, 2.0, 3.0) if factor != 2.0]
    named = {name: value * x for name, value in NAMES.items()}
    return sum(parts) + named["first"] - named["second"]


def uses_a_cached_function(x):
    total = x
    for step in steps(3):
        total = total * step
    return total


def formats_strings(x):
    key = f"{'fir'}{'st'}"
    wide = "{:>6}".format("first").strip()
    return x * NAMES[key] + len(f"{x.shape[0]:03d}") + NAMES[wide]


def branches_on_numbers(x, count):
    if count > 3:
        return x.sin() * count
    if count == 3 and x.shape[0] >= 3:
        return x.cos() + count
    return x


def has_entries_of_two_sizes(x):
    y = x.sum(dim=0) / x.shape[0]
    return y * 2.0


def has_dynamic_sizes(x):
    return x * x.shape[0] - x.mean(dim=0, keepdim=True)


def uses_lambdas(x):
    twice = lambda y: y * 2.0  # noqa: E731
    chosen = sorted(NAMES, key=lambda name: NAMES[name])
    return twice(x) + NAMES[chosen[0]]


def makes_tensors(x):
    grid = torch.arange(x.shape[-1], dtype=DTYPE) * 0.5
    return x + grid + torch.full((x.shape[-1],), 1.5)


def tries_things(x):
    try:
        value = NAMES["third"]
    except KeyError:
        value = 0.75
    finally:
        x = x + 1.0
    return x * value


def compares_types(x):
    if isinstance(x, torch.Tensor) and x.dtype is DTYPE and not hasattr(x, "nothing"):
        return x * 1.5
    return x


def swaps(x):
    y = x * 2.0
    y = y + 1.0
    z = y.abs()
    z -= 0.5
    return y, z


PROGRAMS = [
    {"target": "reads_constants", "samples": "rows"},
    {"target": "has_defaults", "samples": "rows"},
    {"target": "has_keyword_only", "samples": "keywords"},
    {"target": "takes_anything", "samples": "pairs"},
    {"target": "calls_a_dependency", "samples": "rows"},
    {"target": "calls_a_decorated_dependency", "samples": "rows"},
    {"target": "calls_a_closure", "samples": "rows"},
    {"target": "calls_partials", "samples": "rows"},
    {"target": "is_decorated", "samples": "rows"},
    {"target": "has_attributes", "samples": "rows"},
    {"target": "calls_by_name", "samples": "rows"},
    {"target": "recurses", "samples": "rows"},
    {"target": "uses_generators", "samples": "rows"},
    {"target": "uses_comprehensions", "samples": "rows"},
    {"target": "uses_a_cached_function", "samples": "rows"},
    {"target": "formats_strings", "samples": "rows"},
    {"target": "branches_on_numbers", "samples": "counts"},
    {"target": "has_entries_of_two_sizes", "samples": "two_sizes"},
    {
        "target": "has_dynamic_sizes",
        "samples": "rows",
        "dynamic-shapes": {"x": {"0": {"name": "rows", "min": 2, "max": 16}}},
    },
    {"target": "uses_lambdas", "samples": "rows"},
    {"target": "makes_tensors", "samples": "rows"},
    {"target": "tries_things", "samples": "rows"},
    {"target": "compares_types", "samples": "rows"},
    {"target": "swaps", "samples": "rows"},
]
