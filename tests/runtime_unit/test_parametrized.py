"""A class that parametrize made for one module is known again, and no other is taken for it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.names import Namer
from hatch_precompile.lower.parametrized import made_for_one_object, parametrized_class
from hatch_precompile.runtime import runtime

constants = runtime("values.constants")


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Other(nn.Linear):
    pass


def normed(cls: type[nn.Linear] = nn.Linear) -> nn.Module:
    return parametrizations.weight_norm(cls(4, 4))


def made_as(module: nn.Module) -> Any:
    """The runtime's knowledge of the module's class, through the data that a bundle holds."""
    return constants.decode(parametrized_class(type(module), Namer(globals()), ""))


def test_a_class_made_again_in_the_same_way_fits() -> None:
    known = made_as(normed())
    assert all(known.fits(type(normed())) for _ in range(3))
    assert repr(known) == "<a class made as ParametrizedLinear was>"


def test_so_does_a_copy_of_a_module() -> None:
    module = normed()
    assert made_as(module).fits(type(copy.deepcopy(normed())))
    copy.deepcopy(module)
    assert made_as(module).fits(type(normed()))


def parametrized_bias() -> nn.Module:
    module = nn.Linear(4, 4)
    parametrize.register_parametrization(module, "bias", Doubled())
    return module


def both() -> nn.Module:
    return parametrize.register_parametrization(normed(), "bias", Doubled())


def with_attribute() -> nn.Module:
    module = normed()
    type(module).extra = 1  # type: ignore[attr-defined]
    return module


def with_other_property() -> nn.Module:
    module = normed()
    type(module).weight = property(lambda self: torch.ones(4, 4))  # type: ignore[assignment]
    return module


def with_method() -> nn.Module:
    module = normed()
    type(module).__deepcopy__ = lambda self, memo: self  # type: ignore[attr-defined]
    return module


def derived() -> nn.Module:
    module = normed()
    module.__class__ = type("ParametrizedLinear", (type(module),), {})
    return module


@pytest.mark.parametrize(
    "make",
    [
        parametrized_bias,
        both,
        with_attribute,
        with_other_property,
        with_method,
        derived,
        lambda: normed(Other),
        lambda: nn.Linear(4, 4),
    ],
)
def test_a_class_made_of_anything_else_does_not(make: Callable[[], nn.Module]) -> None:
    known = made_as(normed())
    assert not known.fits(type(make()))
    assert known.fits(type(normed()))


def test_a_class_is_looked_at_once_as_dynamo_does() -> None:
    known, module = made_as(normed()), normed()
    assert known.fits(type(module))
    type(module).extra = 1  # type: ignore[attr-defined]
    assert known.fits(type(module))


def test_only_what_parametrize_made_is_known_so() -> None:
    assert made_for_one_object(type(normed()))
    assert not made_for_one_object(nn.Linear)
    assert not made_for_one_object(parametrize.ParametrizationList)


def test_a_class_that_was_changed_in_a_way_that_cannot_be_told_again_is_refused() -> None:
    module = normed()
    type(module).extra = object()  # type: ignore[attr-defined]
    with pytest.raises(Unsupported, match="has the attribute 'extra' of the type object, which cannot be"):
        made_as(module)
