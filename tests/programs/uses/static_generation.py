"""`generate` of a decoder with a static cache."""

from uses.generation import generate, make

__all__ = ["make"]


def _static(model, length, new):
    return generate(model, length, new, cache_implementation="static", max_cache_len=48, disable_compile=True)


def use(model):
    for length, new in ((5, 4), (12, 9), (30, 15)):
        yield _static(model, length, new)


def workload():
    model = make()
    _static(model, 7, 4)
