"""Functions and constants that the specimens import."""

import functools

OFFSET = 0.25
WEIGHTS = (1.0, 0.5, 0.25)
TABLE = {"low": 0.1, "high": 10.0}


def shifted(x, by=OFFSET):
    return x + by


def weighted(x, *, weights=WEIGHTS):
    total = x * 0.0
    for power, weight in enumerate(weights):
        total = total + weight * x**power
    return total


def between(x, low="low", high="high"):
    return x.abs().clamp(TABLE[low], TABLE[high])


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 1.5

    return wrapper


def scaled_by(factor):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(x):
            return function(x) * factor

        return wrapper

    return decorate


@scaled_by(3.0)
def tripled_sine(x):
    return x.sin()


@functools.lru_cache(maxsize=8)
def steps(count):
    return tuple(0.5 * step + 1.0 for step in range(count))


def powers(x, count):
    for power in range(1, count + 1):
        yield x**power
