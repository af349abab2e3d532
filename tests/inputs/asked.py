"""Programs that ask for what is not there, for another object, or for an order; each with changes to them.

A program is a function without arguments. It gives the callable, its arguments and keywords, and changes: a
name for each, and a function that makes it. That gets the callable, its arguments and keywords, and may give
other arguments. After each change eager code gives another answer.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import types
from typing import Any, ClassVar

import torch
from torch import nn

Program = tuple[Any, tuple[Any, ...], dict[str, Any], dict[str, Any]]

PROGRAMS: dict[str, Any] = {}


def program(make: Any) -> Any:
    PROGRAMS[make.__name__] = make
    return make


def rows() -> torch.Tensor:
    return torch.linspace(-1, 2, 12).reshape(3, 4)


# -- keys -------------------------------------------------------------------------------------------


def tries_key(x, cfg):
    try:
        return x * cfg["gain"]
    except KeyError:
        return x * 1.0


def _put(key, value):
    return lambda call, args, kwargs: args[1].__setitem__(key, value)


@program
def key_of_a_dict():
    return tries_key, (rows(), {"a": 1.0}), {}, {"set": _put("gain", 5.0)}


@program
def key_of_an_empty_dict():
    return tries_key, (rows(), {}), {}, {"set": _put("gain", 5.0)}


@program
def key_of_an_ordered_dict():
    return tries_key, (rows(), collections.OrderedDict(a=1.0)), {}, {"set": _put("gain", 5.0)}


class Config(dict):
    pass


@program
def key_of_a_class_derived_from_dict():
    return tries_key, (rows(), Config(a=1.0)), {}, {"set": _put("gain", 5.0)}


class Missing(dict):
    def __missing__(self, key):
        return 2.0


@program
def key_of_one_with_missing():
    return tries_key, (rows(), Missing(a=1.0)), {}, {"set": _put("gain", 5.0)}


@program
def key_of_a_counter():
    return tries_key, (rows(), collections.Counter(a=1)), {}, {"set": _put("gain", 5)}


@program
def key_of_a_chain_map():
    def deep(call, args, kwargs):
        args[1].maps[1]["gain"] = 5.0

    made = collections.ChainMap({"a": 1.0}, {"b": 1.0})
    return tries_key, (rows(), made), {}, {"first": _put("gain", 5.0), "second": deep}


def suppresses(x, cfg):
    gain = 1.0
    with contextlib.suppress(KeyError):
        gain = cfg["gain"]
    return x * gain


@program
def key_with_suppress():
    return suppresses, (rows(), {"a": 1.0}), {}, {"set": _put("gain", 5.0)}


def tries_lookup_error(x, cfg):
    try:
        return x * cfg["train"]["gain"]
    except LookupError:
        return x * 1.0


@program
def key_of_a_nested_dict():
    def inner(call, args, kwargs):
        args[1]["train"]["gain"] = 5.0

    return tries_lookup_error, (rows(), {"train": {"a": 1.0}}), {}, {"set": inner}


def pops(x, cfg):
    try:
        gain = cfg.pop("gain")
    except KeyError:
        gain = 1.0
    return x * gain


@program
def key_that_is_popped():
    return pops, (rows(), {"a": 1.0}), {}, {"set": _put("gain", 5.0)}


def deletes(x, cfg):
    try:
        del cfg["gain"]
    except KeyError:
        return x * 1.0
    return x * 2.0


@program
def key_that_is_deleted():
    return deletes, (rows(), {"a": 1.0}), {}, {"set": _put("gain", 5.0)}


def asks_by_number(x, cfg):
    try:
        return x * cfg[3]
    except KeyError:
        return x * 1.0


@program
def key_that_is_a_number():
    return asks_by_number, (rows(), {1: 1.0}), {}, {"set": _put(3, 5.0)}


def asks_by_tuple(x, cfg):
    try:
        return x * cfg["a", 3]
    except KeyError:
        return x * 1.0


@program
def key_that_is_a_tuple():
    return asks_by_tuple, (rows(), {("a", 1): 1.0}), {}, {"set": _put(("a", 3), 5.0)}


def takes_several(x, cfg):
    for name in ("scale", "gain", "rate"):
        try:
            x = x * cfg[name]
        except KeyError:
            x = x + 1.0
    return x


@program
def several_keys():
    changes = {name: _put(name, 5.0) for name in ("scale", "gain", "rate")}
    return takes_several, (rows(), {"a": 1.0}), {}, changes


SETTINGS: dict[str, Any] = {"a": 1.0}
NESTED: dict[str, Any] = {"a": {"b": 1.0}}


def tries_global(x):
    try:
        return x * SETTINGS["gain"]
    except KeyError:
        return x * 1.0


@program
def key_of_a_global_dict():
    return tries_global, (rows(),), {}, {"set": lambda *_: SETTINGS.__setitem__("gain", 5.0)}


def tries_nested_global(x):
    try:
        return x * NESTED["a"]["gain"]
    except KeyError:
        return x * 1.0


@program
def key_of_a_nested_global_dict():
    return tries_nested_global, (rows(),), {}, {"set": lambda *_: NESTED["a"].__setitem__("gain", 5.0)}


class WithConfig(nn.Module):
    def __init__(self, cfg=None):
        super().__init__()
        self.cfg = {"a": 1.0} if cfg is None else cfg

    def forward(self, x):
        try:
            gain = self.cfg["gain"]
        except KeyError:
            gain = 1.0
        return x * gain


def _on_model(make, *args):
    """A program that calls a model; changes get the model."""
    changes = make.changes
    model = make(*args).eval()
    wrapped = {
        name: functools.partial(lambda change, call, given, kwargs: change(call), change)
        for name, change in changes.items()
    }
    return model, (rows(),), {}, wrapped


WithConfig.changes = {"set": lambda model: model.cfg.__setitem__("gain", 5.0)}


@program
def key_of_an_attribute():
    return _on_model(WithConfig)


# -- names ------------------------------------------------------------------------------------------


def replaced(name, value):
    return lambda model: vars(model).__setitem__(name, value)


class TriesAttribute(nn.Module):
    def forward(self, x):
        try:
            y = x + self.adapter(x)
        except AttributeError:
            y = x * 1.0
        return y

    changes: ClassVar = {
        "submodule": lambda model: setattr(model, "adapter", nn.Identity()),
        "function": lambda model: setattr(model, "adapter", torch.sin),
        "in __dict__": replaced("adapter", nn.Identity()),
        "of the class": lambda model: setattr(type(model), "adapter", staticmethod(torch.sin)),
        "in _modules": lambda model: model._modules.__setitem__("adapter", nn.Identity()),
    }


@program
def attribute_of_a_module():
    return _on_model(TriesAttribute)


class TriesBuffer(nn.Module):
    def forward(self, x):
        try:
            return x * self.gain
        except AttributeError:
            return x * 1.0

    changes: ClassVar = {
        "buffer": lambda model: model.register_buffer("gain", torch.tensor(5.0)),
        "parameter": lambda model: model.register_parameter("gain", nn.Parameter(torch.tensor(5.0))),
        "number": lambda model: setattr(model, "gain", 5.0),
        "of the class": lambda model: setattr(type(model), "gain", 5.0),
        "of a base": lambda model: setattr(nn.Module, "gain", 5.0),
    }


@program
def buffer_of_a_module():
    return _on_model(TriesBuffer)


class TriesSubmodule(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Identity())

    def forward(self, x):
        try:
            return self.inner.extra(x)
        except AttributeError:
            return x * 2.0

    changes: ClassVar = {"added": lambda model: model.inner.add_module("extra", nn.Identity())}


@program
def attribute_of_a_submodule():
    return _on_model(TriesSubmodule)


class TriesModuleDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"a": nn.Identity()})

    def forward(self, x):
        try:
            return self.parts["extra"](x)
        except KeyError:
            return x * 2.0

    changes: ClassVar = {"added": lambda model: model.parts.update({"extra": nn.Identity()})}


@program
def key_of_a_module_dict():
    return _on_model(TriesModuleDict)


class TriesParameterDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ParameterDict({"a": nn.Parameter(torch.ones(4))})

    def forward(self, x):
        try:
            return x * self.parts["extra"]
        except AttributeError:
            return x * 2.0

    changes: ClassVar = {"added": lambda model: model.parts.update({"extra": nn.Parameter(torch.zeros(4))})}


@program
def key_of_a_parameter_dict():
    return _on_model(TriesParameterDict)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2.0

    def forward(self, x):
        return x + 1


class Wrapper(nn.Module):
    """Asks the model that it wraps for what it has not itself."""

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

    changes: ClassVar = {
        "set": lambda model: setattr(model, "scale", 10.0),
        "buffer": lambda model: model._buffers.__setitem__("scale", torch.tensor(10.0)),
        "of the class": lambda model: setattr(type(model), "scale", 10.0),
        "inner": lambda model: setattr(model.model, "scale", 10.0),
    }


@program
def wrapper_of_a_module():
    return _on_model(Wrapper)


class Proxy:
    """Not a module, and answers for what it wraps."""

    def __init__(self, wrapped):
        self._wrapped = wrapped

    def __getattr__(self, name):
        return getattr(self._wrapped, name)


class Plain:
    def __init__(self):
        self.scale = 2.0


def scales_by(x, settings):
    return x * settings.scale


def _set_argument(name, value):
    return lambda call, args, kwargs: vars(args[1]).__setitem__(name, value)


@program
def wrapper_of_an_object():
    return scales_by, (rows(), Proxy(Plain())), {}, {"set": _set_argument("scale", 10.0)}


class Defaults:
    scale = 2.0


@program
def attribute_of_the_class_alone():
    changes = {
        "set": _set_argument("scale", 10.0),
        "of the class": lambda call, args, kwargs: setattr(type(args[1]), "scale", 10.0),
    }
    return scales_by, (rows(), Defaults()), {}, changes


class FromBase(Defaults):
    pass


@program
def attribute_of_a_base_alone():
    changes = {
        "set": _set_argument("scale", 10.0),
        "of the class": lambda call, args, kwargs: setattr(FromBase, "scale", 10.0),
    }
    return scales_by, (rows(), FromBase()), {}, changes


def tries_plain(x, settings):
    try:
        return x * settings.gain
    except AttributeError:
        return x * 1.0


@program
def attribute_of_an_object():
    changes = {
        "set": _set_argument("gain", 5.0),
        "of the class": lambda call, args, kwargs: setattr(Plain, "gain", 5.0),
    }
    return tries_plain, (rows(), Plain()), {}, changes


@program
def attribute_of_a_namespace():
    return tries_plain, (rows(), types.SimpleNamespace(a=1.0)), {}, {"set": _set_argument("gain", 5.0)}


class Space:
    a = 1.0


def tries_class(x):
    try:
        return x * Space.gain
    except AttributeError:
        return x * 1.0


@program
def attribute_of_a_class():
    return tries_class, (rows(),), {}, {"set": lambda *_: setattr(Space, "gain", 5.0)}


def tries_module(x):
    try:
        return x * types.gain_of_a_test
    except AttributeError:
        return x * 1.0


@program
def attribute_of_a_python_module():
    return tries_module, (rows(),), {}, {"set": lambda *_: setattr(types, "gain_of_a_test", 5.0)}


def helper(x):
    return x


def tries_function(x):
    try:
        return x * helper.gain
    except AttributeError:
        return x * 1.0


@program
def attribute_of_a_function():
    return tries_function, (rows(),), {}, {"set": lambda *_: setattr(helper, "gain", 5.0)}


def rounds(x):
    return x * round(2.6)


@program
def builtin_that_a_global_hides():
    return rounds, (rows(),), {}, {"set": lambda *_: globals().__setitem__("round", float)}


def tries_tensor(x):
    try:
        return x * x.gain
    except AttributeError:
        return x * 1.0


@program
def attribute_of_a_tensor():
    return tries_tensor, (rows(),), {}, {"set": lambda call, args, kwargs: setattr(args[0], "gain", 5.0)}


class Method(nn.Module):
    def scaled(self, x):
        return x * 2.0

    def forward(self, x):
        return self.scaled(x)

    changes: ClassVar = {"in __dict__": replaced("scaled", torch.sin)}


@program
def method_of_a_module():
    return _on_model(Method)


class Sub(nn.Module):
    def __init__(self):
        super().__init__()
        self.sub = nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.sub(x) * self.weight + self.shift

    changes: ClassVar = {
        "submodule in __dict__": replaced("sub", nn.Identity()),
        "buffer in __dict__": replaced("shift", torch.zeros(4)),
        "parameter in __dict__": replaced("weight", torch.zeros(4)),
        "object.__setattr__": lambda model: object.__setattr__(model, "sub", nn.Identity()),
        "parameter among modules": lambda model: model._modules.__setitem__("weight", nn.Identity()),
        "in the submodule": lambda model: vars(model.sub).__setitem__("weight", torch.zeros(4, 4)),
        "of the class": lambda model: setattr(type(model), "sub", nn.Identity()),
    }
    del changes["parameter among modules"]  # torch looks among parameters first


@program
def registered_parts():
    return _on_model(Sub)


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return self.parts[1](x)

    changes: ClassVar = {
        "list in __dict__": replaced("parts", [nn.Identity(), nn.Identity()]),
        "in one of them": lambda model: vars(model.parts[1]).__setitem__("bias", torch.zeros(4)),
    }


@program
def parts_in_a_list():
    return _on_model(Listed)


# -- identity ---------------------------------------------------------------------------------------


def same(kind, first=1, second=2):
    """The object in one place put into another, too."""

    def change(call, args, kwargs):
        given = list(args)
        given[second] = given[first]
        return tuple(given), kwargs

    return change


def writes_a_dict(x, a, b):
    a["n"] = 5.0
    return x * b["n"]


@program
def two_dicts():
    return writes_a_dict, (rows(), {"n": 1.0}, {"n": 1.0}), {}, {"one": same(dict)}


def writes_a_list(x, a, b):
    a.append(3.0)
    return x * len(b)


@program
def two_lists():
    return writes_a_list, (rows(), [1.0], [1.0]), {}, {"one": same(list)}


def writes_an_object(x, a, b):
    a.scale = 5.0
    return x * b.scale


@program
def two_objects():
    return writes_an_object, (rows(), Plain(), Plain()), {}, {"one": same(Plain)}


def writes_a_set(x, a, b):
    a.add(7)
    return x * len(b)


@program
def two_sets():
    return writes_a_set, (rows(), {1}, {1}), {}, {"one": same(set)}


def compares(x, a, b):
    return x * 2.0 if a is b else x * 3.0


@program
def two_compared_dicts():
    return compares, (rows(), {"n": 1.0}, {"n": 1.0}), {}, {"one": same(dict)}


@program
def two_compared_lists():
    return compares, (rows(), [1.0], [1.0]), {}, {"one": same(list)}


@program
def two_compared_objects():
    return compares, (rows(), Plain(), Plain()), {}, {"one": same(Plain)}


def compares_by_equality(x, a, b):
    return x * 2.0 if a == b else x * 3.0


@program
def two_objects_that_are_not_equal():
    return compares_by_equality, (rows(), Plain(), Plain()), {}, {"one": same(Plain)}


def looks_into_a_list(x, a, b):
    return x * 2.0 if a in [b] else x * 3.0


@program
def one_object_in_a_list():
    return looks_into_a_list, (rows(), Plain(), Plain()), {}, {"one": same(Plain)}


class TwoConfigs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = {"n": 1.0}
        self.b = {"n": 1.0}

    def forward(self, x):
        self.a["n"] = 5.0
        return x * self.b["n"]

    changes: ClassVar = {"one": lambda model: setattr(model, "b", model.a)}


@program
def two_dicts_of_a_model():
    return _on_model(TwoConfigs)


class TwoParts(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)

    def forward(self, x):
        x = self.a(x)
        return x if self.a is self.b else self.b(x)

    changes: ClassVar = {"one": lambda model: setattr(model, "b", model.a)}


@program
def two_submodules():
    return _on_model(TwoParts)


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 1.0

    def forward(self, x):
        self.n = self.n + 1.0
        return x * self.n


class TwoCounts(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Counts()
        self.b = Counts()

    def forward(self, x):
        return self.b(self.a(x))

    changes: ClassVar = {"one": lambda model: setattr(model, "b", model.a)}


@program
def two_submodules_that_count():
    return _on_model(TwoCounts)


def writes_nested(x, a):
    a["one"]["n"] = 5.0
    return x * a["two"]["n"]


@program
def two_dicts_in_one():
    def one(call, args, kwargs):
        args[1]["two"] = args[1]["one"]

    return writes_nested, (rows(), {"one": {"n": 1.0}, "two": {"n": 1.0}}), {}, {"one": one}


# -- order ------------------------------------------------------------------------------------------


def mixes(**features):
    return torch.cat([value * 2 for value in features.values()], -1)


def hands_on(**features):
    return mixes(**features)


def _turned(call, args, kwargs):
    return args, dict(reversed(kwargs.items()))


def _features():
    return {"age": torch.ones(2, 1), "size": torch.zeros(2, 1)}


@program
def keywords_handed_on():
    return hands_on, (), _features(), {"turned": _turned}


@program
def keywords_gone_through():
    return mixes, (), _features(), {"turned": _turned}


def hands_on_twice(**features):
    return hands_on(**features)


@program
def keywords_handed_on_twice():
    return hands_on_twice, (), _features(), {"turned": _turned}


def copies(**features):
    return torch.cat(list(dict(**features).values()), -1)


@program
def keywords_copied():
    return copies, (), _features(), {"turned": _turned}


def spreads(**features):
    return torch.cat(list({**features}.values()), -1)


@program
def keywords_spread():
    return spreads, (), _features(), {"turned": _turned}


def lists_names(**features):
    return features["age"] * len(next(iter(list(features))))


@program
def names_of_keywords():
    return lists_names, (), _features(), {"turned": _turned}


def partially(**features):
    return functools.partial(mixes, **features)()


@program
def keywords_of_a_partial():
    return partially, (), _features(), {"turned": _turned}


def decorated(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


mixes_decorated = decorated(mixes)


@program
def keywords_through_a_decorator():
    return mixes_decorated, (), _features(), {"turned": _turned}


def gives_back(**features):
    return {**features, "sum": features["age"] + features["size"]}


@program
def keywords_given_back():
    return gives_back, (), _features(), {"turned": _turned}


def merges(**features):
    return torch.cat(list(({} | features).values()), -1)


@program
def keywords_merged():
    return merges, (), _features(), {"turned": _turned}


def counts_first(**features):
    return next(iter(features.values())) * 3.0


@program
def first_of_keywords():
    return counts_first, (), _features(), {"turned": _turned}


def pops_last(**features):
    return features.popitem()[1] * 3.0


@program
def last_of_keywords():
    return pops_last, (), _features(), {"turned": _turned}


def enumerates(**features):
    return sum(value * number for number, (_, value) in enumerate(features.items()))


@program
def keywords_counted():
    return enumerates, (), _features(), {"turned": _turned}


def chains(**features):
    return torch.cat([features[name] for name in itertools.chain(features)], -1)


@program
def keywords_chained():
    return chains, (), _features(), {"turned": _turned}


# -- what may change --------------------------------------------------------------------------------

HARMLESS: dict[str, Any] = {}


def harmless(make: Any) -> Any:
    HARMLESS[make.__name__] = make
    return make


def takes_two(age=None, size=None):
    return age * 2 + size


def hands_on_to_names(**features):
    return takes_two(**features)


@harmless
def keywords_that_are_named():
    return hands_on_to_names, (), _features(), {"turned": _turned}


def takes_by_key(**features):
    return features["age"] * 2 + features["size"]


@harmless
def keywords_taken_by_key():
    return takes_by_key, (), _features(), {"turned": _turned}


def takes_one_more(age=None, **more):
    return age * 2 + takes_by_key(age=age, **more)


def hands_on_all(**features):
    return takes_one_more(**features)


@harmless
def one_keyword_that_is_not_named():
    return hands_on_all, (), _features(), {"turned": _turned}


@harmless
def another_key():
    return tries_key, (rows(), {"a": 1.0}), {}, {"set": _put("other", 5.0)}


@harmless
def another_attribute():
    model, args, kwargs, _ = _on_model(Wrapper)
    return model, args, kwargs, {"set": lambda call, given, more: setattr(call, "other", 5.0)}


def reads_two(x, a, b):
    return x * a["n"] + b["n"]


@harmless
def one_dict_that_is_only_read():
    return reads_two, (rows(), {"n": 1.0}, {"n": 1.0}), {}, {"one": same(dict)}


def notes_in_one(x, notes, settings):
    notes["seen"] = True
    return x * settings["gain"]


@harmless
def a_key_that_was_not_read_of_a_dict_told_apart_from_one_written():
    args = (rows(), {"n": 1.0}, {"gain": 2.0, "path": "/one"})
    return notes_in_one, args, {}, {"other": lambda call, args, kwargs: args[2].update(path="/two")}


def notes_in_a_list(x, notes, settings):
    notes.append(1.0)
    return x * settings[0]


@harmless
def an_item_that_was_not_read_of_a_list_told_apart_from_one_written():
    args = (rows(), [1.0], [2.0, "/one"])
    return notes_in_a_list, args, {}, {"other": lambda call, args, kwargs: args[2].__setitem__(1, "/two")}
