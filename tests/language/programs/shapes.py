"""`run(name, x, y)`: programs about sizes that differ from call to call."""

import torch

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def run(name, x, y):
    return PROGRAMS[name](x, y)


def samples():
    x, y = torch.ones(6, 4), torch.ones(12, 4)
    return [(name, x, x * 2 if name in SAME else y) for name in PROGRAMS]


@program
def of_equal_size(x, y):
    return x.sin() + y


@program
def of_twice_the_size(x, y):
    return torch.cat([x, x]).sin() * y


@program
def of_any_two_sizes(x, y):
    return torch.cat([x.sin(), y]).sum(0) * x.size(0)


@program
def of_a_size_that_is_branched_on(x, y):
    return x.sin() if x.size(0) > 3 else x.cos()


SAME = {"of_equal_size", "of_a_size_that_is_branched_on"}


def counted(x, factor, places):
    """Sizes and numbers that only the data tells."""
    chosen = x.nonzero()
    scaled = x.sum().item() * factor
    return chosen * 2, x * scaled + places


def counted_samples():
    # What a build may trace is set where only a build looks.
    torch._dynamo.config.capture_scalar_outputs = True
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    return [(torch.tensor([0.0, 1.0, 0.0, 3.0]), 2.5, 3)]


def counted_in_one_graph(x):
    chosen = x.nonzero()
    return chosen * 2, x * x.sum().item()


def in_one_graph_samples():
    return [(torch.tensor([0.0, 1.0, 0.0, 3.0]),)]


def bucket(kind, x):
    """One entry for each kind, all with the same graph."""
    return x * 2 + (kind - kind)


def buckets():
    return [(kind, torch.ones(4)) for kind in range(64)]
