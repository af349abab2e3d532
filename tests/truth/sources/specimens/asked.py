"""Programs that look for what is not there, tell objects apart, see an order, or write to their inputs."""

import collections
import contextlib
import functools
import types

import torch
from torch import nn


def numbers():
    return torch.linspace(-1, 2, 12).reshape(3, 4)


def rows():
    return [(numbers(),)]


SETTINGS = {"a": 1.0}


def tries_a_global_key(x):
    try:
        return x * SETTINGS["gain"]
    except KeyError:
        return x * 1.5


def tries_a_key(x, cfg):
    try:
        return x * cfg["gain"]
    except KeyError:
        return x * 1.5


def with_a_dict():
    return [(numbers(), {"a": 1.0})]


def tries_a_chain(x, cfg):
    try:
        return x * cfg["gain"] + cfg["a"]
    except LookupError:
        return x * 1.5


def with_a_chain():
    return [(numbers(), collections.ChainMap({"a": 1.0}, {"b": 2.0}))]


class Defaults(dict):
    def __missing__(self, key):
        return 2.0


def asks_a_dict_of_its_own(x, cfg):
    return x * cfg["gain"]


def with_a_dict_of_its_own():
    return [(numbers(), Defaults(a=1.0))]


def suppresses(x, settings):
    gain = 1.5
    with contextlib.suppress(AttributeError):
        gain = settings.gain
    return x * gain


def with_a_namespace():
    return [(numbers(), types.SimpleNamespace(a=1.0))]


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2.0

    def forward(self, x):
        return x + 1


class WrappingModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Inner()

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.model, name)

    def forward(self, x):
        return self.model(x) * self.scale


class Registered(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.sub = nn.Linear(4, 4)
        self.register_buffer("gain", torch.full((4,), 1.5))
        self.offset = nn.Parameter(torch.full((4,), 0.5))

    def forward(self, x):
        return self.sub(x) * self.gain + self.offset


class Trying(nn.Module):
    def __init__(self):
        super().__init__()
        self.cfg = {"a": 1.0}
        self.parts = nn.ModuleDict({"a": nn.Identity()})

    def forward(self, x):
        try:
            x = self.adapter(x)
        except AttributeError:
            x = x * 1.5
        try:
            x = self.parts["gain"](x)
        except KeyError:
            x = x + 0.5
        try:
            return x * self.cfg["gain"]
        except KeyError:
            return x


class ScaledByClass:
    gain = 1.5

    def scaled(self, x):
        return x * self.gain

    def run(self, x):
        return self.scaled(x) + 1.0


def writes_to_one(x, one, other):
    one["gain"] = 5.0
    return x * other["gain"]


def with_two_dicts():
    return [(numbers(), {"gain": 1.5}, {"gain": 1.5})]


def lengthens_one(x, one, other):
    one.append(3.0)
    return x * len(other)


def with_two_lists():
    return [(numbers(), [1.0, 2.0], [1.0, 2.0])]


def compares_two(x, one, other):
    return x * 2.0 if one is other else x * 3.0


class Settings:
    def __init__(self):
        self.gain = 1.5


def with_two_objects():
    return [(numbers(), Settings(), Settings())]


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 1.0

    def forward(self, x):
        self.count = 3.0
        return x * self.count


class TwoCounting(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = Counting()
        self.other = Counting()

    def forward(self, x):
        other = self.other.count
        return self.one(x) * other


def mixes(**features):
    return torch.cat([value * 2 for value in features.values()], -1)


def hands_on(**features):
    return mixes(**features)


def copies_keywords(**features):
    return torch.cat(list({**features}.values()), -1)


def partial_keywords(**features):
    return functools.partial(mixes, **features)()


def names_keywords(**features):
    return adds(**features)


def adds(one=None, other=None):
    return one * 2 + other


def two_features():
    return [{"one": torch.ones(2, 1), "other": torch.zeros(2, 1)}]


def writes_in_place(x, y):
    x.mul_(2)
    return x + y


def two_tensors():
    return [(numbers(), numbers() + 1)]


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(3, 4))

    def forward(self, x):
        self.state.mul_(0.5).add_(1)
        return x + self.state


PROGRAMS = [
    {"target": "tries_a_global_key", "samples": "rows"},
    {"target": "tries_a_key", "samples": "with_a_dict"},
    {"target": "tries_a_chain", "samples": "with_a_chain"},
    {"target": "asks_a_dict_of_its_own", "samples": "with_a_dict_of_its_own"},
    {"target": "suppresses", "samples": "with_a_namespace"},
    {"target": "WrappingModule", "samples": "rows"},
    {"target": "Registered", "samples": "rows"},
    {"target": "Trying", "samples": "rows"},
    {"target": "ScaledByClass.run", "instance": "ScaledByClass", "samples": "rows"},
    {"target": "writes_to_one", "samples": "with_two_dicts"},
    {"target": "lengthens_one", "samples": "with_two_lists"},
    {"target": "compares_two", "samples": "with_two_objects"},
    {"target": "TwoCounting", "samples": "rows"},
    {"target": "mixes", "samples": "two_features"},
    {"target": "hands_on", "samples": "two_features"},
    {"target": "copies_keywords", "samples": "two_features"},
    {"target": "partial_keywords", "samples": "two_features"},
    {"target": "names_keywords", "samples": "two_features"},
    {"target": "writes_in_place", "samples": "two_tensors"},
    {"target": "Stateful", "samples": "rows"},
]
