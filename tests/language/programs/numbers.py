"""`run(name, x, n, m, f)`: programs about numbers that differ from call to call, and have no bounds."""

import torch

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def run(name, x, n, m, f):
    return PROGRAMS[name](x, n, m, f)


def x():
    return torch.arange(-2.0, 4.0).reshape(2, 3)


def samples():
    return [(name, x(), 5, 7, 2.5) for name in PROGRAMS]


@program
def powers(x, n, m, f):
    return x + 1, n**3, {"more": (n * 2, -n)}, [n << 2, n**3 // n**2]


@program
def quotients(x, n, m, f):
    return x + n % 5, 100 // n, n // m, n % m, n / 3, int(n / m)


@program
def with_tensors(x, n, m, f):
    return x.to(torch.uint8) * n, x.half() * f, x * (n * m)


if torch.__version__ < (2, 15):  # which compiles a number that goes out, too, anew for each value

    @program
    def fractions(x, n, m, f):
        return x * f, f * 2.5, f / 3

    @program
    def rounded(x, n, m, f):
        return x * f, int(f), round(f)


if torch.__version__ >= (2, 13):  # 2.11 and 2.12 fail by themselves at what is shifted

    @program
    def shifted(x, n, m, f):
        return x + 1, 1 << m
