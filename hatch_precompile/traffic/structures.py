"""Which recorded calls need a sample of their own, for an entrypoint as it is configured."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hatch_precompile.config import Dimension, Entrypoint
from hatch_precompile.traffic.reading import Call, tensors_in

__all__ = ["Structure", "Structures", "in_words", "structures_of"]


@dataclass(frozen=True)
class Structure:
    """Calls that one sample stands for. `call`: the one that tells its sizes apart best; `count`: of all."""

    call: Call
    count: int


@dataclass(frozen=True)
class Structures:
    """`left_out`: how many calls no sample can be made of, by the sentence that says why."""

    found: tuple[Structure, ...]
    left_out: Counter[str]


def structures_of(calls: Iterable[Call], entrypoint: Entrypoint) -> Structures:
    """The distinct structures among the calls, the most frequent first."""
    groups: dict[str, list[Call]] = {}
    left_out: Counter[str] = Counter()
    for call in calls:
        problem = _problem(call, entrypoint)
        if problem:
            left_out[problem] += call.count
        else:
            groups.setdefault(_key(call, entrypoint), []).append(call)
    found = [
        Structure(
            max(group, key=lambda call: (_distinctness(call, entrypoint), call.count)),
            sum(call.count for call in group),
        )
        for group in groups.values()
    ]
    return Structures(tuple(sorted(found, key=lambda each: -each.count)), left_out)


# -- what no sample can be made of -------------------------------------------------------------------


def _problem(call: Call, entrypoint: Entrypoint) -> str:
    """Why the configuration cannot serve a call, or an empty text."""
    content = call.content
    if content.get("too_large"):
        return "their arguments are too many to be recorded"
    if call.mode not in entrypoint.modes:
        return _of_mode(call.mode)
    if content.get("training") and "train" not in entrypoint.modes:
        return "the module is in training mode: call eval() on it"
    if "owner" in content:
        return f"they are calls of a subclass, {content['owner']}"
    for key, what in (
        ("autocast", "autocast is on"),
        ("default_dtype", "the default dtype is another one"),
        ("function_modes", "a torch function mode is active, such as a default device"),
    ):
        if key in content:
            return what
    arguments = [
        (name or f"argument {number}", value) for number, (name, value) in enumerate(content["args"], 1)
    ]
    for name, value in (*arguments, *content["kwargs"].items()):
        if problem := _of_value(value):
            return f"{name}: {problem}"
    return _of_dynamic(call, entrypoint)


def _of_mode(mode: str) -> str:
    if mode == "train":
        return 'gradients are on: call under torch.no_grad(), or give it an entrypoint with mode = "train"'
    manager = "torch.no_grad()" if mode == "no_grad" else "torch.inference_mode()"
    return f'they are made under {manager}, and mode has no "{mode}"'


def _of_value(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    if "type" in value:
        if value["type"] == "str":
            return "a string, which is data and not recorded"
        return f"a {value['type']}, of which no sample is made"
    if "tensor" in value:
        return _of_tensor(value)
    parts = [*value.get("list", ()), *value.get("tuple", ()), *value.get("dict", {}).values()]
    return next(filter(None, map(_of_value, parts)), "")


def _of_tensor(tensor: dict[str, Any]) -> str:
    if tensor.get("class", "torch.nn.parameter.Parameter") != "torch.nn.parameter.Parameter":
        return f"a {tensor['class']}, of which no sample is made"
    if "device" in tensor:
        return f"a tensor on {tensor['device']}; code is compiled for the CPU"
    if "layout" in tensor:
        return f"a tensor whose layout is {tensor['layout']}"
    if tensor["tensor"].startswith(("q", "bits")):
        return f"a tensor of the dtype {tensor['tensor']}"
    return ""


def _of_dynamic(call: Call, entrypoint: Entrypoint) -> str:
    named = call.named
    for name, dimensions in entrypoint.dynamic_shapes.items():
        value = _tensor(call, name)
        if name not in named or named[name] is None:
            continue
        if value is None:
            return f"{name}: no tensor, which dynamic-shapes.{name} asks for"
        if dimensions and max(dimensions) >= len(value["size"]):
            return f"{name}: a tensor of {len(value['size'])} dimensions, too few for dynamic-shapes.{name}"
    for name in entrypoint.dynamic_numbers:
        if name in named and type(named[name]) not in (int, float):
            return f"{name}: no number, which dynamic-numbers asks for"
    return ""


# -- what is the same --------------------------------------------------------------------------------


def _key(call: Call, entrypoint: Entrypoint) -> str:
    """A text that is equal for calls that the code of one sample serves."""
    content = copy.deepcopy(call.content)
    sizes: dict[str, set[int]] = {}
    for name, index, dimension, size in _dynamic(call, entrypoint):
        sizes.setdefault(dimension.name, set()).add(size)
        for tensor in _places(content, name):
            tensor["size"][index] = dimension.name
            if "stride" in tensor:
                tensor["stride"] = _order(_tensor(call, name) or tensor)
    # Code for dimensions of one size asks that they have one.
    torn = {name for name, found in sizes.items() if len(found) > 1}
    exact = [
        (name, index, size)
        for name, index, dimension, size in _dynamic(call, entrypoint)
        if dimension.name in torn
    ]
    for name in entrypoint.dynamic_numbers:
        _replace_number(content, name)
    return json.dumps([content, exact])


def _dynamic(call: Call, entrypoint: Entrypoint) -> Iterator[tuple[str, int, Dimension, int]]:
    """(argument, index, dimension, size) of each dimension of a call that may have another size."""
    for name, dimensions in entrypoint.dynamic_shapes.items():
        tensor = _tensor(call, name)
        if tensor is None or ("stride" in tensor and _order(tensor) is None):
            continue  # these strides belong to these sizes
        for index, dimension in dimensions.items():
            if index < len(tensor["size"]) and _is_inside(tensor["size"][index], dimension):
                yield name, index, dimension, tensor["size"][index]


def _order(tensor: dict[str, Any]) -> list[int] | None:
    """The dimensions as they follow each other in memory, the outermost first; None where it has gaps."""
    size, stride = tensor["size"], tensor["stride"]
    order = sorted(range(len(size)), key=lambda index: -stride[index])
    step = 1
    for index in reversed(order):
        if size[index] < 2 or stride[index] != step:
            return None
        step *= size[index]
    return order


def _is_inside(size: int, dimension: Dimension) -> bool:
    """0 and 1 have code of their own."""
    low, high = dimension.min, dimension.max
    return size >= max(2, low or 0) and (high is None or size <= high)


def _tensor(call: Call, name: str) -> dict[str, Any] | None:
    value = call.named.get(name)
    if isinstance(value, dict) and "same" in value:
        every = [tensor for each in _values(call.content) for _, tensor in tensors_in(each)]
        return every[value["same"]] if value["same"] < len(every) else None
    return value if isinstance(value, dict) and "tensor" in value else None


def _values(content: dict[str, Any]) -> list[Any]:
    return [*(value for _, value in content["args"]), *content["kwargs"].values()]


def _places(content: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    """Where an argument's own tensor stands in a call."""
    for found, value in (*content["args"], *content["kwargs"].items()):
        if found == name and isinstance(value, dict) and "tensor" in value:
            yield value


def _replace_number(content: dict[str, Any], name: str) -> None:
    """Have a number stand for all of its type; 0 and 1 are constants to torch.compile where they are int."""

    def kind(value: Any) -> Any:
        return value if type(value) is int and value in (0, 1) else {"number": type(value).__name__}

    for argument in content["args"]:
        if argument[0] == name:
            argument[1] = kind(argument[1])
    if name in content["kwargs"]:
        content["kwargs"][name] = kind(content["kwargs"][name])


def _distinctness(call: Call, entrypoint: Entrypoint) -> int:
    """How well a call tells its dynamic sizes and numbers apart: what is equal by chance in a sample is
    taken for equal by torch.compile."""
    sizes = {(dimension.name, size) for _, _, dimension, size in _dynamic(call, entrypoint)}
    numbers = [value for name in entrypoint.dynamic_numbers if type(value := call.named.get(name)) is int]
    values = [*(size for _, size in sizes), *numbers]
    return len(set(values)) - len(values)


# -- in words ----------------------------------------------------------------------------------------


def in_words(call: Call) -> str:
    """A call as a line for its reader."""
    positional = [
        (name or f"argument {number}", value) for number, (name, value) in enumerate(call.content["args"], 1)
    ]
    arguments = [f"{name} {_one(value)}" for name, value in (*positional, *call.content["kwargs"].items())]
    return f"{', '.join(arguments) or 'no arguments'} ({call.mode})"


def _one(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    if "tensor" in value:
        return f"{value['tensor']}{value.get('size', '')}"
    for kind in ("list", "tuple"):
        if kind in value:
            return f"{kind} of {len(value[kind])}"
    if "dict" in value:
        return f"dict of {', '.join(value['dict'])}"
    if "same" in value:
        return "a tensor that is passed twice"
    return str(next(iter(value.values())))
