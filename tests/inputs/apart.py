"""More programs for which two things are two, or come in an order: containers, and parts of models.

asked.py says what a program is.
"""

from __future__ import annotations

import collections
import types

import torch
from torch import nn

from tests.inputs.absences import of_model
from tests.inputs.asked import program, rows, same

ONE = same(None)


# -- identity ---------------------------------------------------------------------------------------


def compares(x, a, b):
    return x * 2.0 if a is not b else x * 3.0


@program
def two_tuples_of_lists():
    return compares, (rows(), ([1.0],), ([1.0],)), {}, {"one": ONE}


@program
def two_namespaces():
    made = (types.SimpleNamespace(n=1.0), types.SimpleNamespace(n=1.0))
    return compares, (rows(), *made), {}, {"one": ONE}


@program
def two_deques():
    return compares, (rows(), collections.deque([1.0]), collections.deque([1.0])), {}, {"one": ONE}


@program
def two_modules():
    return compares, (rows(), nn.ReLU(), nn.ReLU()), {}, {"one": ONE}


def compares_inside(x, a, b):
    return x * 2.0 if a[0] is b[0] else x * 3.0


@program
def two_first_items():
    def one(call, args, kwargs):
        args[2][0] = args[1][0]

    return compares_inside, (rows(), [{"n": 1.0}], [{"n": 1.0}]), {}, {"inside": one, "whole": ONE}


def compares_attributes(x, a, b):
    return x * 2.0 if a.n is b.n else x * 3.0


@program
def two_attributes():
    def one(call, args, kwargs):
        args[2].n = args[1].n

    made = (types.SimpleNamespace(n=[1.0]), types.SimpleNamespace(n=[1.0]))
    return compares_attributes, (rows(), *made), {}, {"inside": one, "whole": ONE}


def extends(x, a, b):
    a += b
    return x * len(b)


@program
def two_lists_one_extended():
    return extends, (rows(), [1.0], [2.0]), {}, {"one": ONE}


def updates(x, a, b):
    a.update(n=b["n"] + 1.0)
    return x * b["n"]


@program
def two_dicts_one_updated():
    return updates, (rows(), {"n": 1.0}, {"n": 1.0}), {}, {"one": ONE}


def clears(x, a, b):
    a.clear()
    return x * (len(b) + 1.0)


@program
def two_dicts_one_cleared():
    return clears, (rows(), {"n": 1.0}, {"n": 1.0}), {}, {"one": ONE}


def appends_left(x, a, b):
    a.appendleft(7.0)
    return x * b[0]


@program
def two_deques_one_written():
    return appends_left, (rows(), collections.deque([1.0]), collections.deque([2.0])), {}, {"one": ONE}


def sorts(x, a, b):
    a.sort()
    return x * b[0]


@program
def two_lists_one_sorted():
    return sorts, (rows(), [3.0, 1.0], [3.0, 1.0]), {}, {"one": ONE}


def deletes(x, a, b):
    del a["n"]
    return x * (3.0 if "n" in b else 2.0)


@program
def two_dicts_one_shortened():
    return deletes, (rows(), {"n": 1.0}, {"n": 1.0}), {}, {"one": ONE}


SHARED: dict[str, float] = {"n": 1.0}


def writes_a_global(x, a):
    SHARED["n"] = a["n"] + 3.0
    return x * a["n"]


@program
def a_dict_and_a_global():
    def one(call, args, kwargs):
        SHARED["n"] = 1.0
        return (args[0], SHARED), kwargs

    SHARED["n"] = 1.0
    return writes_a_global, (rows(), {"n": 1.0}), {}, {"one": one}


class Configured(nn.Module):
    def __init__(self):
        super().__init__()
        self.cfg = {"n": 1.0}

    def forward(self, x, cfg):
        cfg["n"] = 5.0
        return x * self.cfg["n"]


@program
def a_dict_and_a_models():
    def one(model, args, kwargs):
        return (args[0], args[1], model.cfg) if isinstance(args[0], nn.Module) else (
            args[0],
            model.cfg,
        ), kwargs

    return Configured().eval(), (rows(), {"n": 1.0}), {}, {"one": one}


class Chained(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x):
        first, second = self.parts
        return first(x) if first is second else second(first(x))


@program
def two_parts_of_a_list():
    def one(model):
        model.parts[1] = model.parts[0]

    return of_model(Chained, one=one)


# -- order ------------------------------------------------------------------------------------------


def joins(x, parts):
    return torch.cat([x * value for value in parts.values()], -1)


def turned(call, args, kwargs):
    return (args[0], type(args[1])(reversed(args[1].items()))), kwargs


@program
def order_of_a_dict():
    return joins, (rows(), {"a": 1.0, "b": 2.0}), {}, {"turned": turned}


@program
def order_of_an_ordered_dict():
    return joins, (rows(), collections.OrderedDict(a=1.0, b=2.0)), {}, {"turned": turned}


def joins_names(x, parts):
    return x * next(map(len, parts))


@program
def order_of_keys():
    return joins_names, (rows(), {"a": 1.0, "long": 2.0}), {}, {"turned": turned}


def hands_on(x, parts):
    return takes(x, **parts)


def takes(x, **parts):
    return torch.cat([x * value for value in parts.values()], -1)


@program
def order_of_a_dict_handed_on():
    return hands_on, (rows(), {"a": 1.0, "b": 2.0}), {}, {"turned": turned}


def turned_keywords(call, args, kwargs):
    return args, dict(reversed(kwargs.items()))


def before_long(words):
    return len(words.partition("long")[0])


def shows_by_repr(x, **parts):
    return x * before_long(repr(parts))


def shows_by_str(x, **parts):
    return x * before_long(str(parts))


def shows_in_a_string(x, **parts):
    return x * before_long(f"{parts}")


def shows_by_format(x, **parts):
    return x * before_long("{}".format(parts))  # noqa: UP032


def shows_by_operator(x, **parts):
    return x * before_long("%s" % (parts,))  # noqa: UP031


def shows_a_list(x, **parts):
    return x * before_long(repr([parts]))


def in_words(call):
    def make():
        return call, (rows(),), {"a": 1.0, "long": 2.0}, {"turned": turned_keywords}

    make.__name__ = f"{call.__name__}_what_has_an_order"
    return program(make)


for _call in (
    *(shows_by_repr, shows_by_str, shows_in_a_string),
    *(shows_by_format, shows_by_operator, shows_a_list),
):
    in_words(_call)


class Described:
    """Its text has what is read for it; str() and repr() are said by `__repr__` alone."""

    def __init__(self):
        self.kind = "first"

    def __repr__(self):
        return "Described " + self.kind


class Told(nn.Module):
    def __init__(self, tell):
        super().__init__()
        self.described, self.tell = Described(), tell

    def forward(self, x):
        return x * 2.0 if self.tell(self.described) == "Described first" else x * 3.0


def of_described(tell):
    def rename(model):
        model.described.kind = "second"

    return of_model(lambda: Told(tell), renamed=rename)


@program
def str_without_its_own():
    return of_described(str)


@program
def repr_of_its_own():
    return of_described(repr)


class Worded(nn.Module):
    def __init__(self, make, word):
        super().__init__()
        self.parts, self.word, self.words = make(), word, word(make())

    def forward(self, x):
        return x * 2.0 if self.word(self.parts) == self.words else x * 3.0


def in_words_of(kind, word):
    return of_model(lambda: Worded(lambda: kind(a=1), word), more=lambda model: model.parts.update(b=2))


@program
def str_of_an_ordered_dict():
    return in_words_of(collections.OrderedDict, str)


@program
def repr_of_an_ordered_dict():
    return in_words_of(collections.OrderedDict, repr)


@program
def repr_of_a_counter():
    return in_words_of(collections.Counter, repr)


def moves(x, parts):
    parts.move_to_end(next(iter(parts)))
    return x * next(iter(parts.values()))


@program
def order_that_is_changed():
    return moves, (rows(), collections.OrderedDict(a=1.0, b=2.0)), {}, {"turned": turned}


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Softmax(-1)})

    def forward(self, x):
        for part in self.parts.values():
            x = part(x)
        return x * 1.0


@program
def order_of_a_module_dict():
    def turn(model):
        model.parts["a"] = model.parts.pop("a")

    return of_model(Named, turned=turn)


class Children(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Softmax(-1)

    def forward(self, x):
        for part in self.children():
            x = part(x)
        return x * 1.0


@program
def order_of_children():
    def turn(model):
        model._modules["a"] = model._modules.pop("a")

    return of_model(Children, turned=turn)
