"""What references lead to: see test_references.py."""

import functools


def plain(x):
    return x + 1


def decorate(f):
    @functools.wraps(f)
    def wrapper(*args):
        return f(*args)

    return wrapper


@decorate
def decorated(x):
    return x * 2


class Thing:
    table = {"a": [10, 20]}  # noqa: RUF012

    def method(self):
        return 1

    @staticmethod
    def static():
        return 2

    @classmethod
    def cls(cls):
        return 3

    class Inner:
        def method(self):
            return 4


def outer():
    def inner():
        return 5

    return inner
