"""What torch's own tests of its compile packages are about, each as an entrypoint."""

import torch


def plus_one(x):
    return x + 1


def plus_rows(x):
    return x + x.shape[0]


def search(x, low, high):
    """Binary search by recursion, with a graph break at every comparison."""
    if low > high:
        return x.sum()
    middle = (low + high) // 2
    if x.sum() == middle:
        return x.sum()
    if x.sum() < middle:
        return search(x, low, middle)
    return search(x, middle + 1, high)


SIZE = 3


def searches():
    return [(torch.tensor(number), 0, SIZE - 1) for number in range(SIZE)]


def samples():
    return [(torch.ones(3, 2),)]
