"""What a trace has not found comes; two objects become one; an order turns; tensors share memory.

Each change is made before the first call, between two calls, and after thirteen, when guards are native code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.truth.changes.registry import add

OfProgram = Callable[[Any], Any]
OfInputs = Callable[[list[Any]], list[Any]]


def _at_each_time(
    name: str, only: tuple[str, ...], change: OfProgram | None, inputs: OfInputs | None
) -> None:
    def before(run: Any) -> None:
        run.load()
        if change is not None:
            change(run)
        run.call(inputs)

    def after(calls: int) -> Callable[[Any], None]:
        def apply(run: Any) -> None:
            run.load()
            for number in range(calls):
                run.call(label=f"call {number}")
            if change is not None:
                change(run)
            run.call(inputs, label="then")
            run.call(label="at last")

        return apply

    add(f"{name}, before the first call", "asked", before, only=only)
    add(f"{name}, between two calls", "asked", after(1), only=only)
    add(f"{name}, after thirteen calls", "asked", after(13), only=only)


def _program(name: str, *only: str) -> Callable[[OfProgram], OfProgram]:
    def register(change: OfProgram) -> OfProgram:
        _at_each_time(name, only, change, None)
        return change

    return register


def _inputs(name: str, *only: str) -> Callable[[OfInputs], OfInputs]:
    def register(change: OfInputs) -> OfInputs:
        _at_each_time(name, only, None, change)
        return change

    return register


# -- what was not there ----------------------------------------------------------------------------


@_program("a global dict gets the key", "tries_a_global_key")
def _(run: Any) -> None:
    run.module.SETTINGS["gain"] = 5.0


@_program("a global dict gets another key", "tries_a_global_key")
def _(run: Any) -> None:
    run.module.SETTINGS["other"] = 5.0


@_inputs("the dict has the key", "tries_a_key", "tries_a_chain", "asks_a_dict_of_its_own")
def _(values: list[Any]) -> list[Any]:
    values[1]["gain"] = 5.0
    return values


@_inputs("the dict is another with the key", "tries_a_key")
def _(values: list[Any]) -> list[Any]:
    return [values[0], {"gain": 5.0, "a": 1.0}]


@_inputs("the second of a chain has the key", "tries_a_chain")
def _(values: list[Any]) -> list[Any]:
    values[1].maps[1]["gain"] = 5.0
    return values


@_inputs("the namespace has the name", "suppresses")
def _(values: list[Any]) -> list[Any]:
    values[1].gain = 5.0
    return values


@_program("the outside of a wrapper gets the name", "WrappingModule")
def _(run: Any) -> None:
    run.object.scale = 10.0


@_program("the class of a wrapper gets the name", "WrappingModule")
def _(run: Any) -> None:
    type(run.object).scale = 10.0


@_program("the inside of a wrapper gets another value", "WrappingModule")
def _(run: Any) -> None:
    run.object.model.scale = 10.0


for _name, _value in (("sub", nn.Identity()), ("gain", torch.ones(4)), ("offset", torch.ones(4))):

    def _shadowed(run: Any, name: str = _name, value: Any = _value) -> None:
        vars(run.object)[name] = value

    def _of_class(run: Any, name: str = _name, value: Any = _value) -> None:
        setattr(type(run.object), name, value)

    _program(f"__dict__ gets {_name}", "Registered")(_shadowed)
    _program(f"the class gets {_name}", "Registered")(_of_class)


@_program("the submodule's __dict__ gets its weight", "Registered")
def _(run: Any) -> None:
    vars(run.object.sub)["weight"] = torch.ones(4, 4)


@_program("a submodule comes", "Trying")
def _(run: Any) -> None:
    run.object.adapter = nn.Tanh()


@_program("a function of the class comes", "Trying")
def _(run: Any) -> None:
    type(run.object).adapter = staticmethod(torch.tanh)


@_program("a ModuleDict gets the key", "Trying")
def _(run: Any) -> None:
    run.object.parts["gain"] = nn.Tanh()


@_program("the model's dict gets the key", "Trying")
def _(run: Any) -> None:
    run.object.cfg["gain"] = 5.0


@_program("an instance gets what its class has", "ScaledByClass.run")
def _(run: Any) -> None:
    run.object.gain = 5.0


@_program("an instance gets a method that its class has", "ScaledByClass.run")
def _(run: Any) -> None:
    run.object.scaled = torch.tanh


# -- one object, an order, memory ------------------------------------------------------------------


@_inputs("both are one object", "writes_to_one", "lengthens_one", "compares_two")
def _(values: list[Any]) -> list[Any]:
    return [values[0], values[1], values[1]]


@_inputs("one has what the other has", "writes_to_one")
def _(values: list[Any]) -> list[Any]:
    return [values[0], values[1], dict(values[1])]


@_program("both are one submodule", "TwoCounting")
def _(run: Any) -> None:
    run.object.other = run.object.one


def _turned(called: Any, *args: Any, **kwargs: Any) -> Any:
    return called(*args, **dict(reversed(kwargs.items())))


_KEYWORDS = ("mixes", "hands_on", "copies_keywords", "partial_keywords", "names_keywords")


def _in_another_order(calls: int) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        for number in range(calls):
            run.call(label=f"call {number}")
        run.call(through=_turned, label="then")
        run.call(label="at last")

    return apply


for _calls in (0, 1, 13):
    add(f"keywords in another order after {_calls} calls", "asked", _in_another_order(_calls), only=_KEYWORDS)


@_inputs("both share memory", "writes_in_place")
def _(values: list[Any]) -> list[Any]:
    room = torch.arange(24.0)
    return [room[:12].view(3, 4), room[4:16].view(3, 4)]


@_inputs("both are the same memory", "writes_in_place")
def _(values: list[Any]) -> list[Any]:
    return [values[0], values[0][:]]


@_inputs("both lie in one piece of memory", "writes_in_place")
def _(values: list[Any]) -> list[Any]:
    room = torch.arange(24.0)
    return [room[:12].view(3, 4), room[12:].view(3, 4)]


@_program("a module is given its own state", "Stateful")
def _(run: Any) -> None:
    made, state = run.samples, run.object.state
    run.samples = lambda: [((state.detach(),), named) for _, named in made()]
