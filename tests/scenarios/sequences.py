"""Random sequences of what users do with a model (tests/weights/src), each call against eager code."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import random
from collections.abc import Callable
from typing import Any

import probe
import steady  # noqa: F401  # it installs the wheel
import torch
from steady.model import inputs, trained


def called(net: Any, _: list[Any]) -> Any:
    given = inputs(random.randrange(10**6))
    kind = net.first.weight.dtype
    given = tuple(each.to(kind) for each in given)
    with torch.no_grad():
        found, expected = net(*given), probe.eager(net)(*given)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=2e-5)
    return net


def stepped(net: Any, _: list[Any]) -> Any:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for parameter in net.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    return net


def stepped_in_one(net: Any, _: list[Any]) -> Any:
    """Without a new version of anything."""
    kind = random.choice([torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
    optimizer = kind(net.parameters(), lr=0.01, fused=True)
    for parameter in net.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    return net


def called_in_training(net: Any, _: list[Any]) -> Any:
    """The batch norm's statistics change, without a new version of them."""
    net.norm.train()(torch.randn(3, 16, 4, 4, dtype=net.norm.weight.dtype))
    net.norm.eval()
    return net


def loaded(net: Any, _: list[Any]) -> Any:
    net.load_state_dict(trained(random.randrange(10**6)).state_dict())
    return net


def assigned(net: Any, _: list[Any]) -> Any:
    net.load_state_dict(trained(random.randrange(10**6)).state_dict(), assign=True)
    return net


def replaced(net: Any, _: list[Any]) -> Any:
    owner, name = random.choice(
        [
            (net.first, "weight"),
            (net.second, "bias"),
            (net.picture, "weight"),
            (net.norm, "weight"),
            (net.closer, "weight"),
        ]
    )
    old = getattr(owner, name)
    setattr(owner, name, torch.nn.Parameter(torch.randn_like(old) / 10))
    return net


def moved(net: Any, _: list[Any]) -> Any:
    ways: list[Callable[[], Any]] = [
        lambda: net.to(torch.float64),
        lambda: net.to(torch.float32),
        lambda: net.half().float(),
        lambda: net.to(memory_format=torch.channels_last),
        lambda: net.to(memory_format=torch.contiguous_format),
    ]
    return random.choice(ways)()


def written(net: Any, _: list[Any]) -> Any:
    with torch.no_grad():
        random.choice(
            [net.second.weight, net.picture.weight, net.norm.bias, net.closer.weight, net.closer.bias]
        ).mul_(1.5)
        net.norm.running_mean.add_(0.1)
        net.norm.running_var.mul_(1.1)
    return net


def given_other_memory(net: Any, _: list[Any]) -> Any:
    net.first.weight.data = torch.randn(512, 128, dtype=net.first.weight.dtype) / 10
    return net


def copied(net: Any, _: list[Any]) -> Any:
    return copy.deepcopy(net)


def pickled(net: Any, _: list[Any]) -> Any:
    return pickle.loads(pickle.dumps(net))


def saved(net: Any, _: list[Any]) -> Any:
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def new(net: Any, nets: list[Any]) -> Any:
    nets.append(net)
    return trained(random.randrange(10**6))


def another(net: Any, nets: list[Any]) -> Any:
    nets.append(net)
    return nets.pop(random.randrange(len(nets)))


def deleted(net: Any, nets: list[Any]) -> Any:
    del net
    gc.collect()
    return nets.pop() if nets else trained(random.randrange(10**6))


ACTIONS = [
    *(stepped, stepped_in_one, called_in_training, loaded, assigned, replaced, moved, written),
    given_other_memory,
    *(copied, pickled, saved, new, another, deleted),
]


def run(sequences: int, seed: int) -> int:
    """Returns how many calls were made."""
    random.seed(seed)
    calls = 0
    for _ in range(sequences):
        nets: list[Any] = []
        net = trained(random.randrange(10**6))
        for _ in range(random.randrange(2, 8)):
            if random.random() < 0.5:
                net = called(net, nets)
                calls += 1
            else:
                net = random.choice(ACTIONS)(net, nets)
        for each in (net, *nets):
            called(each, nets)
            calls += 1
    return calls
