"""More programs that ask for what is not there: an index, an item, a slot, a child, a variable.

asked.py says what a program is.
"""

from __future__ import annotations

import collections
import operator
import os
import types
from typing import Any, ClassVar

import torch
from torch import nn

from tests.inputs.asked import Program, program, rows

GLOBALS: dict[str, Any] = {}


def put(place: int, key: Any, value: Any) -> Any:
    return lambda call, args, kwargs: operator.setitem(args[place], key, value)


def name(place: int, key: str, value: Any) -> Any:
    return lambda call, args, kwargs: setattr(args[place], key, value)


def of_model(make: Any, **changes: Any) -> Program:
    changed = {
        key: lambda model, args, kwargs, change=change: change(model) for key, change in changes.items()
    }
    return make().eval(), (rows(),), {}, changed


# -- in containers ----------------------------------------------------------------------------------


def tries_an_index(x, numbers):
    try:
        return x * numbers[2]
    except IndexError:
        return x * 1.0


@program
def index_of_a_list():
    return tries_an_index, (rows(), [2.0, 3.0]), {}, {"more": lambda call, args, kwargs: args[1].append(5.0)}


@program
def index_of_a_tuple():
    more = {"more": lambda call, args, kwargs: ((args[0], (2.0, 3.0, 5.0)), kwargs)}
    return tries_an_index, (rows(), (2.0, 3.0)), {}, more


@program
def index_of_a_deque():
    more = {"more": lambda call, args, kwargs: args[1].append(5.0)}
    return tries_an_index, (rows(), collections.deque([2.0, 3.0])), {}, more


def takes_the_next(x, numbers):
    return x * next(iter(numbers), 7.0)


@program
def first_of_an_empty_list():
    return takes_the_next, (rows(), []), {}, {"one": lambda call, args, kwargs: args[1].append(5.0)}


@program
def first_of_an_empty_dict():
    return takes_the_next, (rows(), {}), {}, {"one": put(1, 3, 1.0)}


def stops(x, numbers):
    each = iter(numbers)
    try:
        next(each)
        return x * next(each)
    except StopIteration:
        return x * 1.0


@program
def second_of_a_list_of_one():
    return stops, (rows(), [2.0]), {}, {"two": lambda call, args, kwargs: args[1].append(5.0)}


def finds(x, numbers):
    try:
        return x * (numbers.index(5) + 3.0)
    except ValueError:
        return x * 1.0


@program
def item_of_a_list():
    return finds, (rows(), [2, 3]), {}, {"there": lambda call, args, kwargs: args[1].append(5)}


def removes(x, numbers):
    try:
        numbers.remove(5)
    except (KeyError, ValueError):
        return x * 1.0
    return x * 3.0


@program
def item_removed_from_a_list():
    return removes, (rows(), [2, 3]), {}, {"there": lambda call, args, kwargs: args[1].append(5)}


@program
def item_removed_from_a_set():
    return removes, (rows(), {2, 3}), {}, {"there": lambda call, args, kwargs: args[1].add(5)}


def pops(x, cfg):
    try:
        return x * cfg.popitem()[1]
    except KeyError:
        return x * 1.0


@program
def any_item_of_a_dict():
    return pops, (rows(), {}), {}, {"one": put(1, "gain", 5.0)}


def pops_a_list(x, numbers):
    try:
        return x * numbers.pop()
    except IndexError:
        return x * 1.0


@program
def any_item_of_a_list():
    return pops_a_list, (rows(), []), {}, {"one": lambda call, args, kwargs: args[1].append(5.0)}


def sets_by_default(x, cfg):
    return x * cfg.setdefault("gain", 2.0)


@program
def key_with_a_default():
    return sets_by_default, (rows(), {"a": 1.0}), {}, {"set": put(1, "gain", 5.0)}


def reads_a_key(x, cfg):
    return x * cfg["gain"]


@program
def key_of_a_defaultdict():
    made = collections.defaultdict(float, a=1.0)
    return reads_a_key, (rows(), made), {}, {"set": put(1, "gain", 5.0)}


def tries_a_key(x, cfg):
    try:
        return x * cfg["gain"]
    except KeyError:
        return x * 1.0


@program
def key_of_a_view():
    inner = {"a": 1.0}
    change = {
        "set": lambda call, args, kwargs: ((args[0], types.MappingProxyType({"a": 1.0, "gain": 5.0})), kwargs)
    }
    return tries_a_key, (rows(), types.MappingProxyType(inner)), {}, change


def looks_for_some(x, cfg):
    return x * 2.0 if any(key.startswith("lora") for key in cfg) else x * 1.0


@program
def key_that_begins_so():
    return looks_for_some, (rows(), {"a": 1.0}), {}, {"set": put(1, "lora_a", 5.0)}


def picks(x, cfg):
    try:
        return x * operator.itemgetter("gain")(cfg)
    except KeyError:
        return x * 1.0


@program
def key_that_is_picked():
    return picks, (rows(), {"a": 1.0}), {}, {"set": put(1, "gain", 5.0)}


# -- of objects -------------------------------------------------------------------------------------


class Slotted:
    __slots__ = ("base", "scale")

    def __init__(self):
        self.base = 1.0


def tries_a_name(x, item):
    try:
        return x * item.scale
    except AttributeError:
        return x * 1.0


@program
def slot_that_is_empty():
    return tries_a_name, (rows(), Slotted()), {}, {"set": name(1, "scale", 5.0)}


class Plain:
    base = 1.0


def reads_vars(x, item):
    return x * vars(item).get("scale", 2.0)


def looks_in_vars(x, item):
    return x * (5.0 if "scale" in vars(item) else 2.0)


@program
def name_looked_for_in_vars():
    return looks_in_vars, (rows(), Plain()), {}, {"set": name(1, "scale", 5.0)}


@program
def name_found_in_vars():
    item = Plain()
    item.scale = 3.0
    return looks_in_vars, (rows(), item), {}, {"removed": lambda call, args, _: delattr(args[1], "scale")}


@program
def name_in_vars():
    return reads_vars, (rows(), Plain()), {}, {"set": name(1, "scale", 5.0)}


def reads_dict(x, item):
    try:
        return x * item.__dict__["scale"]
    except KeyError:
        return x * 1.0


@program
def name_in_dict():
    return reads_dict, (rows(), Plain()), {}, {"set": name(1, "scale", 5.0)}


def gets(x, item):
    return x * getattr(item, "scale", 2.0)


@program
def name_with_a_default():
    return gets, (rows(), Plain()), {}, {"set": name(1, "scale", 5.0)}


def asks_the_class(x, item):
    return x * 3.0 if hasattr(type(item), "scale") else x * 1.0


@program
def name_of_the_class():
    return (
        asks_the_class,
        (rows(), Plain()),
        {},
        {"set": lambda call, args, kwargs: setattr(Plain, "scale", 5.0)},
    )


# -- of models --------------------------------------------------------------------------------------


class WithExtra(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        try:
            return self.get_submodule("linear.extra")(x)
        except AttributeError:
            return self.linear(x)


@program
def submodule_by_its_path():
    return of_model(WithExtra, added=lambda model: model.linear.add_module("extra", nn.Identity()))


class WithDropout(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        scaling = next((each for each in self.children() if isinstance(each, nn.Identity)), None)
        return self.linear(x) if scaling is None else self.linear(x) * 3.0


@program
def child_of_a_kind():
    return of_model(WithDropout, added=lambda model: model.add_module("more", nn.Identity()))


class WithHooked(nn.Module):
    after: ClassVar = None

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        x = self.linear(x)
        return x if self.after is None else self.after(x)


@program
def callable_over_one_of_the_class():
    return of_model(WithHooked, set=lambda model: setattr(model, "after", torch.neg))


class WithNamed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        shift = dict(self.named_buffers()).get("shift")
        return self.linear(x) if shift is None else self.linear(x) + shift


@program
def buffer_by_its_name():
    return of_model(WithNamed, set=lambda model: model.register_buffer("shift", torch.ones(4)))


class WithModules(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x) * 3.0 if "more" in self._modules else self.linear(x)


@program
def name_among_modules():
    return of_model(WithModules, set=lambda model: model.add_module("more", nn.Identity()))


# -- of the process ---------------------------------------------------------------------------------


def reads_a_global(x):
    try:
        return x * GLOBALS["a"]["gain"]
    except KeyError:
        return x * 1.0


@program
def key_of_a_global():
    return (
        reads_a_global,
        (rows(),),
        {},
        {"set": lambda call, args, kwargs: GLOBALS.__setitem__("a", {"gain": 5.0})},
    )


def reads_the_environment(x):
    try:
        return x * float(os.environ["GAIN_OF_A_TEST"] + "0")
    except KeyError:
        return x * 1.0


@program
def variable_of_the_environment():
    return (
        reads_the_environment,
        (rows(),),
        {},
        {"set": lambda call, args, kwargs: os.environ.__setitem__("GAIN_OF_A_TEST", "5.")},
    )
