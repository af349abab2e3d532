"""What a trace asked for and did not find, told apart, or took in an order: an entry is refused where that is
otherwise now (asked.py, absences.py, apart.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from tests.inputs import absences, apart, asked
from tests.inputs.capturing import Captured, captured


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """What changes of a global, a class or a module have left behind goes."""
    modules = (asked, absences, apart)
    places = [asked.SETTINGS, asked.NESTED["a"], vars(asked.types), vars(asked.helper), absences.GLOBALS]
    places += [vars(module) for module in modules]
    classes = [nn.Module]
    for module in modules:
        classes += [value for value in vars(module).values() if isinstance(value, type)]
    environment = dict(os.environ)
    before = [dict(place) for place in places]
    names = [dict(vars(cls)) for cls in classes]
    yield
    os.environ.clear()
    os.environ.update(environment)
    for place, content in zip(places, before, strict=True):
        for name in place.keys() - content.keys():
            del place[name]
    for cls, content in zip(classes, names, strict=True):
        for name, value in dict(vars(cls)).items():
            if name not in content:
                delattr(cls, name)
            elif content[name] is not value:
                setattr(cls, name, content[name])


def cases(programs: dict[str, Any]) -> list[Any]:
    return [
        pytest.param(make, change, id=f"{name}-{change}")
        for name, make in programs.items()
        for change in make()[3]
    ]


def capture(make: Any) -> tuple[Captured, Any, tuple[Any, ...], dict[str, Any]]:
    """The entry, and a call like the one that it was made of, with other objects."""
    call, args, kwargs, _ = make()
    if isinstance(call, nn.Module):
        args, call = (call, *args), type(call).forward
    one = captured(call, *args, **kwargs)
    model, args, kwargs, changes = make()
    return one, changes, (model, *args) if isinstance(model, nn.Module) else args, kwargs


def locals_of(one: Captured, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    given = dict(zip(one.frame_locals, args, strict=False))
    rest = [name for name in one.frame_locals if name not in given]
    return {**one.frame_locals, **given, **({rest[-1]: kwargs} if rest and kwargs else {})}


def asked_after(make: Any, change: str) -> str:
    """What the guard of a loaded entry says after a change, with arguments like those of the trace."""
    one, changes, args, kwargs = capture(make)
    again = one.loaded()
    one.frame_locals = locals_of(one, args, kwargs)
    assert again() == "", "refused without a change"
    call = args[0] if isinstance(args[0] if args else None, nn.Module) else None
    with torch.no_grad():
        given = changes[change](call, args, kwargs)
    if given is not None:
        args, kwargs = given
    one.frame_locals = locals_of(one, args, kwargs)
    return again()


@pytest.mark.parametrize(("make", "change"), cases(asked.PROGRAMS))
def test_it_is_not_served_where_it_is_there(make: Any, change: str) -> None:
    assert asked_after(make, change).startswith("refused")


@pytest.mark.parametrize(("make", "change"), cases(asked.HARMLESS))
def test_what_nobody_asked_for_may_come(make: Any, change: str) -> None:
    assert asked_after(make, change) == ""
