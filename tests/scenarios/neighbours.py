"""Two wheels over the same classes and functions: the zoo's (tests/zoo) and the annex's (tests/neighbours).

They are imported before torch is, so that both wait for the same modules.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import probe

if TYPE_CHECKING:
    import torch

# What a call of so many rows gives, and what eager code gives.
Call: TypeAlias = "Callable[[Any], tuple[torch.Tensor, torch.Tensor]]"


class Wheels:
    """The wheels that were imported, in this order, and then the targets."""

    def __init__(self, *order: str) -> None:
        self.wheels = [importlib.import_module(name) for name in order]
        import torch
        import zoo.functions
        import zoo.models

        torch.set_grad_enabled(False)
        self.zoo, self.torch = zoo, torch
        self.mlp, self.chatty = zoo.models.Mlp().eval(), zoo.models.Chatty()

    def import_another(self, name: str) -> None:
        self.wheels.append(importlib.import_module(name))

    def calls(self) -> dict[str, Call]:
        """For each name that both wheels have for an entrypoint."""
        return {"mlp": self._mlp, "chatty": self._chatty, "whiten": self._whiten}

    def _mlp(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.torch.randn(rows, 8)
        return self.mlp(x), probe.eager(self.mlp)(x)

    def _chatty(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.torch.randn(size)
        return self.chatty(x), self.torch.cos(self.torch.sin(x)) + 1

    def _whiten(self, images: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.torch.randn(images, 3, 4, 5)
        return self.zoo.functions.whiten(x), (x - x.mean((2, 3), keepdim=True)) * 0.5

    def served(self) -> dict[str, list[str]]:
        """For each entrypoint and size, which wheels served the call: "zoo", "annex" or ""."""
        return {name: self.who(name, call) for name, call in self.calls().items()}

    # One that only the zoo's wheel serves, one that only the annex's does, one that none does.
    SIZES: dict[str, Sequence[Any]] = {  # noqa: RUF012
        "mlp": (4, 20, 2),
        "chatty": (6, 9, 7),
        "whiten": (2, 3, 4),
        "bert": ((2, 7), (3, 5), (2, 6)),
    }

    def who(self, name: str, call: Call) -> list[str]:
        seen = []
        for size in self.SIZES[name]:
            before = self._hits(name)
            got, expected = call(size)
            self.torch.testing.assert_close(got, expected)
            after = self._hits(name)
            names = [
                wheel.__name__
                for wheel, earlier, later in zip(self.wheels, before, after, strict=True)
                if later > earlier
            ]
            seen.append(" ".join(names))
        return seen

    def _hits(self, name: str) -> list[int]:
        entrypoints = [wheel._precompiled.status()["entrypoints"] for wheel in self.wheels]
        return [each.get(name, {}).get("hits", 0) for each in entrypoints]


def both(order: list[str]) -> dict[str, Any]:
    """Who serves what, what was left out, and the prefixes of names in a module after each first call."""
    wheels = Wheels(*order)
    prefixes = []
    for rows in (4, 20):
        wheels.calls()["mlp"](rows)
        found = [re.match("__precompiled_[0-9a-f]{8}(?=_)", name) for name in vars(wheels.zoo.models)]
        prefixes.append(len({match[0] for match in found if match}))
    served = wheels.served()
    left_out = [
        probe.status(name, wheel.__name__)["left_out"] for wheel in wheels.wheels for name in wheels.calls()
    ]
    return {"served": served, "left out": left_out, "prefixes": prefixes}


def one_without_the_other(order: list[str]) -> dict[str, Any]:
    """Whichever goes first, before and after a first call: who serves what, and what is as it was before."""
    wheels = Wheels(*order)
    models, functions = wheels.zoo.models, wheels.zoo.functions
    wheels.zoo.also_here = functions.whiten

    def restored() -> list[bool]:
        """Whether each place an entrypoint is put at has what it had before."""
        places = (models.Mlp.forward, functions.whiten, wheels.zoo.also_here)
        return [not probe.activated(place) for place in places]

    seen, none = {}, []
    for used_before in (False, True):
        for gone, stays in (wheels.wheels, wheels.wheels[::-1]):
            for wheel in wheels.wheels:
                wheel._precompiled.uninstall()
            for wheel in wheels.wheels:
                wheel._precompiled.install()
            if used_before:
                wheels.served()
            gone._precompiled.uninstall()
            case = f"{gone.__name__} {'after' if used_before else 'before'} a call"
            seen[case] = {"served": wheels.served(), "restored": restored()}
            stays._precompiled.uninstall()
            none.append({"served": wheels.served(), "restored": restored()})
    return {"without": seen, "none": none}


def a_name_imported_before_the_second_wheel() -> dict[str, Any]:
    """Who serves calls by two such names: with both wheels, and with one."""
    wheels = Wheels("zoo")
    zoo = wheels.zoo
    kept = zoo.also_here = zoo.functions.whiten
    wheels.import_another("annex")

    def who(function: Any) -> list[str]:
        def call(images: int) -> tuple[torch.Tensor, torch.Tensor]:
            x = wheels.torch.randn(images, 3, 4, 5)
            return function(x), probe.eager(kept)(x)

        return wheels.who("whiten", call)

    both = [who(kept), who(zoo.also_here)]
    zoo._precompiled.uninstall()
    return {"both": both, "one": [who(kept), who(zoo.also_here)]}


def models_over_one_class_of_a_library() -> dict[str, list[str]]:
    """Who serves them: with both wheels, and with one."""
    wheels = Wheels("annex", "zoo")
    import zoo.bert

    model = zoo.bert.small().eval()

    def call(shape: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        ids = wheels.torch.arange(shape[0] * shape[1]).reshape(*shape)
        inputs = {"input_ids": ids, "attention_mask": wheels.torch.ones_like(ids)}
        return model(**inputs)[0], probe.eager(model)(**inputs)[0]

    both = wheels.who("bert", call)
    zoo._precompiled.uninstall()
    return {"both": both, "one": wheels.who("bert", call)}


def the_annex_alone() -> dict[str, Any]:
    """What it serves, and the warnings there were."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        served = Wheels("annex").served()
    return {"served": served, "said": [str(warning.message) for warning in said]}
