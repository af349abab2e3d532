"""What a tool is given: the package it is tried on, and a place to write down what it found."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tests.truth.observed import described

__all__ = ["TOOLS", "Guest", "Tool", "tool"]

PACKAGE = "workshop"


class Guest:
    """The package in this process, as it is installed ("wheel") or with HATCH_PRECOMPILE=off ("eager")."""

    def __init__(self) -> None:
        self.package = importlib.import_module(f"{PACKAGE}.model")
        self.notes: list[tuple[str, Any]] = []

    def classifier(self, **kwargs: Any) -> Any:
        """The model with entries for no_grad, inference and train, in evaluation mode."""
        torch.manual_seed(0)
        return self.package.Classifier(**kwargs).eval()

    def pictures(self) -> Any:
        """The model with fixed weights; its batch norm has seen something."""
        torch.manual_seed(0)
        model = self.package.Pictures()
        with torch.no_grad():
            model.norm.running_mean.normal_()
            model.norm.running_var.uniform_(0.5, 2.0)
        return model.eval()

    @staticmethod
    def rows(count: int = 4) -> torch.Tensor:
        """Inputs of the classifier and of the functions."""
        return torch.randn(count, 8, generator=torch.Generator().manual_seed(1))

    @staticmethod
    def images(count: int = 2) -> torch.Tensor:
        return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(1))

    def note(self, label: str, value: Any) -> None:
        """Something to compare; described now, because it may change."""
        self.notes.append((label, described(value)))

    def note_gradients(self, model: torch.nn.Module) -> None:
        self.note("gradients", {name: each.grad for name, each in model.named_parameters()})

    def attempt(self, label: str, call: Callable[[], Any]) -> None:
        """What a call gives, or the exception it raises."""
        try:
            self.note(label, call())
        except Exception as error:
            self.note(label, error)

    def plain_calls(self, rows: int = 4) -> None:
        """Calls of everything, in each mode that there are entries for."""
        model, x = self.classifier(), self.rows(rows)
        with torch.no_grad():
            outputs = [
                model(x),
                self.pictures()(self.images()),
                self.package.normalize(self.rows()),
                self.package.summarize(self.rows()),
            ]
        with torch.inference_mode():
            outputs.append(model(x))
        model(x).sum().backward()
        gradients = [each.grad for each in model.parameters()]
        self.note("ordinary calls", [outputs, gradients])

    @staticmethod
    def hits() -> int:
        """Of all entrypoints; 0 where nothing is installed. Those of one target count the same calls."""
        found = sys.modules[f"{PACKAGE}._precompiled"].status()["entrypoints"].values()
        return sum({entrypoint["target"]: entrypoint["hits"] for entrypoint in found}.values())


@dataclass(frozen=True)
class Tool:
    """One row of the table.

    needs: modules that have to be there. suite: part of the test suite, too, where no other test of it
    has the tool. known: what differs of a wheel's model, in the words of docs/users.md.
    """

    name: str
    use: Callable[[Guest], None]
    needs: tuple[str, ...] = ()
    suite: bool = False
    known: str = ""


TOOLS: dict[str, Tool] = {}


def tool(
    name: str, *needs: str, suite: bool = False, known: str = ""
) -> Callable[[Callable[[Guest], None]], Callable[[Guest], None]]:
    """Put a function into the table."""

    def put(use: Callable[[Guest], None]) -> Callable[[Guest], None]:
        assert name not in TOOLS, name
        TOOLS[name] = Tool(name, use, needs, suite, known)
        return use

    return put
