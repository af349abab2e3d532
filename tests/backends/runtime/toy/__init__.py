"""What the toy has, where a wheel is used: the test says it."""

import os

HARDWARE = "toy"


def here():
    return set(os.environ.get("TOY", "wheels wings wire").split())


WHOLE = True
