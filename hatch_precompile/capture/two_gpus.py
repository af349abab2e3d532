"""Whether what was traced on the first GPU of a process serves each: it is traced on a second one, too.

Two traces that differ in the number of the GPU alone are for whichever one tensors are on. While both are
made, the first GPU is the current one: what is made on that is told from what is made beside a tensor. A
trace that differs in anything else serves the first GPU, while that is the current one.
"""

from __future__ import annotations

import marshal
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from hatch_precompile.lower.bytecode import LoweredCode
from hatch_precompile.lower.dependencies.kinds import Dependency
from hatch_precompile.lower.guards.lowering import LoweredGuards
from hatch_precompile.records import MARSHAL
from hatch_precompile.tracing import constants_of_kernel

__all__ = ["Trace", "graph_as_text", "pinned"]


@dataclass(frozen=True)
class Trace:
    """An entry as it was traced on one GPU. device: `cuda:0`; parts: what it is made of, each by its name, as
    text; constants: those that it has of its own, beside what its tensors must look like"""

    device: str
    function: str
    parts: dict[str, str]
    constants: str

    @classmethod
    def of(
        cls,
        device: str,
        function: str,
        guards: LoweredGuards,
        code: LoweredCode,
        inputs: Iterable[Dependency],
        graphs: list[str],
    ) -> Trace:
        made_from = [each.encoded() for each in inputs]
        kept = repr((guards.constants, code.constants, code.globals, made_from))
        tensors = repr([group.encoded() for group in guards.tensors])
        parts = {
            "guards": guards.source,
            "tensors": tensors,
            "bytecode": repr(marshal.dumps(code.code, MARSHAL)),
            "constants": kept,
            "state of torch": guards.state,
            **{f"graph {number}": text for number, text in enumerate(graphs)},
        }
        return cls(device, function, parts, kept)

    def anywhere(self) -> dict[str, str]:
        """The parts, less the number of the GPU."""
        number = self.device.partition(":")[2]
        words = re.compile(rf"\bcuda:{number}\b|\bindex={number}(?=\))")
        return {name: words.sub(lambda found: found[0][:-1] + "*", text) for name, text in self.parts.items()}


def graph_as_text(gm: Any) -> str:
    """A graph of dynamo's, and the device of each value in it."""
    devices = (f"{node.name}: {_device(node.meta.get('example_value'))}" for node in gm.graph.nodes)
    text = re.sub(r"\bconstant_args_idx = (\d+)\b", _constants, gm.print_readable(print_output=False))
    return "\n".join([text, *devices])


def _constants(found: re.Match[str]) -> str:
    """What an author's kernel is compiled with: torch keeps that in a list, which each trace adds to."""
    return f"constant_args = {constants_of_kernel(int(found[1]))}"


def _device(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ", ".join(map(_device, value))
    return str(value.device) if isinstance(value, torch.Tensor) else ""


def pinned(first: list[Trace], second: list[Trace]) -> list[str]:
    """For each entry of the first trace what ties it to one GPU, in words; "" if it serves every GPU."""
    if len(first) != len(second):
        return [f"on another GPU there are {len(second)} entries, and not {len(first)}"] * len(first)
    return [next(_differences(one, other), "") for one, other in zip(first, second, strict=True)]


def _differences(one: Trace, other: Trace) -> Iterator[str]:
    if one.function != other.function:
        yield f"on another GPU {other.function} is compiled in its place"
    here, there = one.anywhere(), other.anywhere()
    for name in here:
        for line, counterpart in zip(here[name].splitlines(), there.get(name, "").splitlines(), strict=False):
            if line != counterpart:
                yield f"the {name}: {_short(line, counterpart)}"
        if here[name] != there.get(name):
            yield f"the {name}"
    if one.device in one.constants:
        yield f"a constant that is {one.device}"


def _short(line: str, other: str) -> str:
    """Two lines from where they begin to differ."""
    start = next((n for n, (a, b) in enumerate(zip(line, other, strict=False)) if a != b), 0)
    begin = max(0, start - 30)
    return f"{line[begin : start + 30].strip()!r} is {other[begin : start + 30].strip()!r} on another"
