"""What two calls leave behind is compared: what one of them has done alone is said."""

from __future__ import annotations

import collections
import logging
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from hatch_precompile.verify.effects import Effects, differing, kept, roots_of


class Thing:
    total = 0

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.last: Any = None


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.register_buffer("steps", torch.zeros(2))
        self.large = nn.Parameter(torch.zeros(100_000), requires_grad=False)
        self.thing, self.names, self.table = Thing(), {"a", "b"}, {"n": 0}
        self.recent: Any = collections.deque([1, 2, 3], maxlen=3)
        self.again = self.thing


@pytest.fixture
def module() -> Iterator[Any]:
    """A module with globals of every kind, that can be imported."""
    made = types.ModuleType("left_behind")
    exec("calls = []\ncount = 0\nclass Owner: number = 1\ndef function(): pass\nfunction.n = 1\n", vars(made))
    made.logger = logging.Logger("left_behind", logging.INFO)  # type: ignore[attr-defined]
    sys.modules["left_behind"] = made
    yield made
    del sys.modules["left_behind"]


Call = Callable[[Any, Any], object]


def said(ours: Call, eager: Call, module: Any, starts: int = 0) -> list[str]:
    """What differs between a call that does the one, and a call of eager code that does the other."""
    found = []
    for effect in (ours, eager):
        model = Model()
        vars(module).pop("made", None)
        vars(module).update(calls=[0] * starts, count=starts)
        module.Owner.number = module.function.n = 1
        roots = roots_of(model, ([5], Thing()), {"key": 2}, ("left_behind",))
        before = kept(roots)
        with torch.no_grad():
            effect(model, module)
        found.append(Effects(before, kept(roots)))
    return [place.words for place in differing(*found, None)]


def nothing(model: Any, module: Any) -> None:
    pass


EFFECTS: dict[str, Call] = {
    "leaves self.table['n'] as 0, eager code as 1": lambda m, g: m.table.update(n=1),
    "leaves self.table['n'] as 0, eager code as 0.0": lambda m, g: m.table.update(n=0.0),
    "leaves self.table as a builtins.dict with 1, eager code as builtins.dict": lambda m, g: m.table.clear(),
    "leaves self.thing.seen as builtins.list, eager code as a builtins.list with 1": (
        lambda m, g: m.thing.seen.append(3)
    ),
    "leaves self.thing.last as None, eager code as 'x'": lambda m, g: setattr(m.thing, "last", "x"),
    "leaves self.new as nothing, eager code as 1": lambda m, g: setattr(m, "new", 1),
    "leaves self.training as True, eager code as False": lambda m, g: m.train(False),
    "leaves self.inner.training as True, eager code as False": lambda m, g: m.inner.train(False),
    "leaves self.names{'c'} as nothing, eager code as None": lambda m, g: m.names.add("c"),
    "leaves self.recent[0] as 1, eager code as 2": lambda m, g: m.recent.append(4),
    "leaves self.steps as float32[2] [0.0, 0.0], eager code as float32[2] [1.0, 1.0]": (
        lambda m, g: m.steps.add_(1)
    ),
    "does not write to self.large, eager code does": lambda m, g: m.large.add_(1),
    "leaves left_behind.calls as builtins.list, eager code as a builtins.list with 1": (
        lambda m, g: g.calls.append(1)
    ),
    "leaves left_behind.count as 0, eager code as 7": lambda m, g: setattr(g, "count", 7),
    "leaves left_behind.Owner.number as 1, eager code as 2": lambda m, g: setattr(g.Owner, "number", 2),
    "leaves left_behind.function.n as 1, eager code as 2": lambda m, g: setattr(g.function, "n", 2),
    "leaves left_behind.made as nothing, eager code as 1": lambda m, g: setattr(g, "made", 1),
}


@pytest.mark.parametrize("words", EFFECTS)
def test_what_eager_code_alone_does_is_said(words: str, module: Any) -> None:
    assert words in said(nothing, EFFECTS[words], module)
    assert said(EFFECTS[words], nothing, module) != []


@pytest.mark.parametrize("words", EFFECTS)
def test_what_both_do_is_not(words: str, module: Any) -> None:
    assert said(EFFECTS[words], EFFECTS[words], module) == []


HARMLESS: dict[str, tuple[Call, Call]] = {
    "rounding": (
        lambda m, g: setattr(m.thing, "last", torch.ones(3)),
        lambda m, g: setattr(m.thing, "last", torch.ones(3) * (1 + 1e-7)),
    ),
    "the same is written": (lambda m, g: m.steps.copy_(m.steps.clone()), nothing),
    "the same once more": (lambda m, g: setattr(m, "steps", torch.zeros(2)), nothing),
    "warnings that were given": (lambda m, g: setattr(g, "__warningregistry__", {}), nothing),
    "a logger was asked": (nothing, lambda m, g: g.logger.debug("no")),
    "a hook": (lambda m, g: m._forward_hooks.update({1: nothing}), nothing),
    "it holds itself": (
        lambda m, g: setattr(m.thing, "me", m.thing),
        lambda m, g: setattr(m.thing, "me", m.thing),
    ),
}


@pytest.mark.parametrize("what", HARMLESS)
def test_what_is_no_difference(what: str, module: Any) -> None:
    assert said(*HARMLESS[what], module) == []


def test_a_list_that_the_calls_before_have_made_longer_is_left_out(module: Any) -> None:
    """Eager code is called after the bundle, in the same process."""
    found = []
    for _ in range(2):
        before = kept(roots_of(len, (), {}, ("left_behind",)))
        module.calls.append(len(module.calls))
        module.count += 1
        found.append(Effects(before, kept(roots_of(len, (), {}, ("left_behind",)))))
    assert list(differing(*found, None)) == []


def test_no_code_of_what_is_looked_at_runs() -> None:
    class Touchy:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

        def __eq__(self, other: object) -> bool:
            raise AssertionError

        def __len__(self) -> int:
            raise AssertionError

        def __repr__(self) -> str:
            raise AssertionError

        __hash__ = None  # type: ignore[assignment]

    class Mapping(dict[str, Any]):
        def items(self) -> Any:
            raise AssertionError

    touchy: Any = object.__new__(Touchy)
    touchy.__dict__["of"] = {"touchy": Mapping(a=Touchy())}
    state = kept({"it": touchy, "set": {(), 1}})
    assert state["it.of['touchy']['a']"].name.endswith("Touchy")
    assert not list(Effects(state, kept({"it": touchy, "set": {(), 1}})).changed())


def test_tensors_of_every_kind_are_looked_at() -> None:
    with torch.inference_mode():
        made = torch.ones(2)
    tensors = [
        torch.ones(2).to_sparse(), torch.ones(2, device="meta"), torch.ones(3, dtype=torch.complex64).conj(),
        torch.ones(2, 3).t(), torch.ones(4).to(torch.float8_e5m2), torch.ones(0), torch.tensor(1), made,
    ]  # fmt: skip
    assert not list(Effects(kept({"it": tensors}), kept({"it": tensors})).changed())


class TestOneValueInTwoPlaces:
    """Compiled code may put one and the same where eager code makes one for each."""

    @pytest.mark.parametrize(
        "made",
        [
            lambda: torch.ones(1).device,
            lambda: torch.device("cpu"),
            lambda: tuple(range(2)),
            lambda: torch.Size([2, 3]),
            lambda: frozenset(range(2)),
        ],
    )
    def test_is_as_two_of_one_value(self, module: Any, made: Callable[[], Any]) -> None:
        def one(model: Any, module: Any) -> None:
            model.thing.last = module.made = made()

        def two(model: Any, module: Any) -> None:
            model.thing.last, module.made = made(), made()

        assert said(one, two, module) == []
        assert said(two, one, module) == []

    def test_another_value_is_told(self, module: Any) -> None:
        def on_meta(model: Any, module: Any) -> None:
            model.thing.last = torch.device("meta")

        def on_cpu(model: Any, module: Any) -> None:
            model.thing.last = torch.device("cpu")

        (told,) = said(on_meta, on_cpu, module)
        assert "meta" in told
        assert "cpu" in told
