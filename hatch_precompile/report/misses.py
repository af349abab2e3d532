"""Which calls to expect no hit for: the sizes, types and values that were fixed, and what frees them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hatch_precompile.config import Dimension, Entrypoint
from hatch_precompile.records import Capture, Conditions, TensorInput

__all__ = ["Advice", "Entry", "Misses", "Size", "expected_misses"]

MODES = {
    "no_grad": "Calls with gradients on, and calls in inference mode: the samples ran under torch.no_grad().",
    "inference": "Calls outside of torch.inference_mode(): the samples ran in it.",
    "train": "Calls under torch.no_grad() or in inference mode: the samples ran with gradients on.",
}


@dataclass(frozen=True)
class Size:
    """One dimension of an input. `text`: its size, or its name and range; `fixed`: no other is served."""

    text: str
    fixed: bool


@dataclass(frozen=True)
class Entry:
    """What one entry serves: inputs with their dtypes and sizes, and arguments that are no tensors."""

    sample: int
    inputs: list[tuple[str, str, list[Size]]]
    arguments: list[tuple[str, str]]
    sizes: list[str]


@dataclass(frozen=True)
class Advice:
    """Calls that will miss, and what would make them hit; empty where nothing would."""

    calls: str
    remedy: str = ""


@dataclass(frozen=True)
class Misses:
    """`attributes`: of the model, each with the value it must have and how many there are; `taken_from`: the
    earlier wheel that it all comes from, whose report has the rest."""

    entrypoint: str
    entries: list[Entry]
    advice: list[Advice]
    attributes: list[tuple[str, str, int]]
    taken_from: str = ""


def expected_misses(entrypoint: Entrypoint, captured: Capture) -> Misses:
    """Of the entrypoint's own frame, which is the one that was compiled first."""
    if captured.taken_from:
        return Misses(entrypoint.name, [], [], [], captured.taken_from)
    records = captured.frames[0].entries if captured.frames else []
    found = [(record.sample, captured.conditions.get(record.data, Conditions())) for record in records]
    return Misses(
        entrypoint.name,
        [_entry(entrypoint, sample, conditions) for sample, conditions in found],
        [*_skipped(captured), *_advice(entrypoint, [conditions for _, conditions in found])],
        _attributes([conditions for _, conditions in found]),
    )


def _entry(entrypoint: Entrypoint, sample: int, conditions: Conditions) -> Entry:
    return Entry(
        sample + 1,
        [
            (
                tensor.name,
                tensor.dtype,
                [_size(entrypoint, tensor, dimension) for dimension in range(len(tensor.size))],
            )
            for tensor in conditions.inputs
        ],
        [(value.name, value.value) for value in conditions.values if value.argument],
        conditions.sizes,
    )


def _size(entrypoint: Entrypoint, tensor: TensorInput, dimension: int) -> Size:
    if tensor.fixed[dimension]:
        return Size(str(tensor.size[dimension]), True)
    declared = _declared(entrypoint, tensor.name).get(dimension)
    if declared is None:  # one that dynamo derived from another
        return Size("any", False)
    return Size(f"{declared.name} {_range(declared)}", False)


def _declared(entrypoint: Entrypoint, name: str) -> dict[int, Dimension]:
    """What is declared of a tensor: by its argument, or the key where a wrapper takes `**kwargs`, and the way
    from there."""
    steps = re.findall(r"\w+", name)
    ways = [steps, steps[1:]] if re.match(r"\w+\['", name) else [steps]
    for declared, dimensions in entrypoint.dynamic_shapes.items():
        pattern = declared.split(".")
        if any(_matches(pattern, way) for way in ways):
            return dimensions
    return {}


def _matches(pattern: Sequence[str], steps: Sequence[str]) -> bool:
    return len(pattern) == len(steps) and all(
        wanted in ("*", step) for wanted, step in zip(pattern, steps, strict=True)
    )


def _range(dimension: Dimension) -> str:
    # Dynamo lets no dynamic size be 0 or 1.
    low = max(dimension.min or 0, 2)
    return f"{low} to {dimension.max}" if dimension.max is not None else f"{low} or more"


def _skipped(captured: Capture) -> Iterator[Advice]:
    for skipped in captured.skipped:
        yield Advice(
            f"{skipped.function} runs as Python in every call, and only what it calls is compiled "
            f"(on-skip): {skipped.reason}.",
            "Change the code so that torch.compile takes it whole.",
        )


def _advice(entrypoint: Entrypoint, entries: Sequence[Conditions]) -> Iterator[Advice]:
    for mode in entrypoint.modes:
        yield Advice(MODES[mode], 'Name several modes: mode = ["no_grad", "inference"].')
    names = dict.fromkeys(tensor.name for conditions in entries for tensor in conditions.inputs)
    for name in names:
        same = [tensor for conditions in entries for tensor in conditions.inputs if tensor.name == name]
        yield from _advice_on_tensor(entrypoint, name, same)
    arguments: dict[str, list[str]] = {}
    for conditions in entries:
        for value in conditions.values:
            if value.argument and value.value not in arguments.setdefault(value.name, []):
                arguments[value.name].append(value.value)
    for name, values in arguments.items():
        yield Advice(f"{name} is not {_either(values)}.", "Each value needs a sample of its own.")


def _advice_on_tensor(entrypoint: Entrypoint, name: str, same: Sequence[TensorInput]) -> Iterator[Advice]:
    dtypes = list(dict.fromkeys(tensor.dtype for tensor in same))
    ranks = sorted({len(tensor.size) for tensor in same})
    yield Advice(
        f"{name} has another dtype than {_either(dtypes)}, or not {_either(map(str, ranks))} "
        f"dimension{'' if ranks == [1] else 's'}.",
        "Give a sample with it.",
    )
    if max(ranks) and all(tensor.contiguous for tensor in same):
        part = f"{name}[{':, ' * (max(ranks) - 1)}:20]"
        yield Advice(
            f"{name} is not contiguous, as a slice {part} or a transposed tensor is not.",
            f"Pass {name}.contiguous(), or give a sample with such strides.",
        )
    declared = _declared(entrypoint, name)
    for dimension in range(max(ranks)):
        having = [tensor for tensor in same if len(tensor.size) > dimension]
        fixed = sorted({tensor.size[dimension] for tensor in having if tensor.fixed[dimension]})
        free = any(not tensor.fixed[dimension] for tensor in having)
        where = f"dimension {dimension} of {name}"
        if not free:
            if dimension in declared:
                remedy = (
                    "It is declared, but every sample has a size that stays fixed: 0, 1 or one outside of "
                    "the range. Give a sample with a size in the range."
                )
            else:
                remedy = f"Declare dynamic-shapes.{name}.{dimension}, or give a sample for each size."
            yield Advice(f"The size of {where} is not {_either(map(str, fixed))}.", remedy)
        elif dimension in declared:
            others = [size for size in fixed if size < 2]
            also = f", or {_either(map(str, others))}" if others else ""
            yield Advice(
                f"The size of {where} is not {_range(declared[dimension])}{also}.",
                _widening(declared[dimension], others),
            )


def _widening(declared: Dimension, others: Sequence[int]) -> str:
    """What to do about sizes outside of a range. others: those below 2 that have entries."""
    if 1 not in others:
        return "Widen its range in dynamic-shapes; with min = 1 a size of 1 has code of its own."
    bounded = declared.max is not None or (declared.min or 0) > 2
    return "Widen its range in dynamic-shapes." if bounded else ""


def _attributes(entries: Sequence[Conditions]) -> list[tuple[str, str, int]]:
    """Those of equal layers as one: `layer[*].p`. Each stands once, however many entries ask for it."""
    found = dict.fromkeys(
        (value.name, value.value)
        for conditions in entries
        for value in conditions.values
        if not value.argument
    )
    counts: dict[tuple[str, str], int] = {}
    for name, value in found:
        key = re.sub(r"\[\d+\]", "[*]", name), value
        counts[key] = counts.get(key, 0) + 1
    return [(name, value, count) for (name, value), count in counts.items()]


def _either(words: Sequence[str] | map[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
