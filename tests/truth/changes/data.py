"""Inputs that no sample had: other values, sizes, strides, types, and the wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.truth.changes.registry import add, change


class Plain(torch.Tensor):
    """A subclass that does nothing."""


class Doubling(torch.Tensor):
    """A subclass that answers differently."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        if func in (torch.Tensor.__mul__, torch.Tensor.mul, torch.Tensor.add, torch.Tensor.__add__):
            return result * 2 if func not in (torch.Tensor.__mul__, torch.Tensor.mul) else result + 1
        return result


def _filled(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change_one(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        other = tensor.clone()
        other.reshape(-1)[1:3] = value
        return other

    return change_one


def _misaligned(tensor: torch.Tensor) -> torch.Tensor:
    room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
    view = room[1:].view(tensor.shape)
    view.copy_(tensor)
    return view


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.t().contiguous().t() if tensor.dim() == 2 else tensor.flip(0)


def _every_second(tensor: torch.Tensor) -> torch.Tensor:
    room = torch.zeros(*tensor.shape, 2, dtype=tensor.dtype)
    room[..., 0] = tensor
    return room[..., 0]


def _out_of_range(by: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def change_one(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_floating_point():
            return tensor
        other = tensor.clone()
        other.reshape(-1)[-1] = by
        return other

    return change_one


def _with_attribute(tensor: torch.Tensor) -> torch.Tensor:
    tensor.note = "mine"  # type: ignore[attr-defined]
    return tensor


def _marked_dynamic(tensor: torch.Tensor) -> torch.Tensor:
    tensor._dynamo_dynamic_indices = {0}  # type: ignore[attr-defined]
    return tensor


def _floating(convert: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda tensor: convert(tensor) if tensor.is_floating_point() else tensor


def _in_inference(tensor: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return tensor.clone()


TENSORS: dict[str, tuple[Callable[[torch.Tensor], Any], bool]] = {
    "a copy": (lambda x: x.clone(), True),
    "other values": (_floating(lambda x: x * 0.5 + 0.125), True),
    "NaN": (_filled(float("nan")), False),
    "infinity": (_filled(float("inf")), False),
    "minus infinity": (_filled(float("-inf")), False),
    "zeros": (torch.zeros_like, False),
    "large values": (_floating(lambda x: x * 1e30), False),
    "denormal values": (_floating(lambda x: x * 1e-40), False),
    "no rows": (lambda x: x[:0], False),
    "one row": (lambda x: x[:1], False),
    "one row more": (lambda x: torch.cat([x, x[:1]]), False),
    "one column less": (lambda x: x[..., :-1], False),
    "many rows": (lambda x: torch.cat([x] * 50), False),
    "one dimension more": (lambda x: x[None], False),
    "one dimension less": (lambda x: x[0], False),
    "a scalar": (lambda x: x.reshape(-1)[0], False),
    "transposed strides": (_transposed, False),
    "every second element": (_every_second, False),
    "expanded": (lambda x: x[:1].expand(x.shape), False),
    "misaligned": (_misaligned, False),
    "a view of a larger one": (lambda x: torch.cat([x, x])[: x.shape[0]], False),
    "float64": (_floating(lambda x: x.double()), False),
    "float16": (_floating(lambda x: x.half()), False),
    "bfloat16": (_floating(lambda x: x.bfloat16()), False),
    "int64": (lambda x: x.long(), False),
    "int32": (lambda x: x.int(), False),
    "bool": (lambda x: x > 0, False),
    "complex64": (_floating(lambda x: x.to(torch.complex64)), False),
    "conjugated": (_floating(lambda x: torch.complex(x, x).conj()), False),
    "requires a gradient": (_floating(lambda x: x.requires_grad_()), False),
    "the result of something": (_floating(lambda x: x.requires_grad_() * 1.0), False),
    "a parameter": (_floating(nn.Parameter), False),
    "a subclass": (lambda x: x.as_subclass(Plain), False),
    "a subclass that answers": (lambda x: x.as_subclass(Doubling), False),
    "on the meta device": (lambda x: x.to("meta"), False),
    "an inference tensor": (_in_inference, False),
    "sparse": (_floating(lambda x: x.to_sparse()), False),
    "a list": (lambda x: x.tolist(), False),
    "an array of numpy": (lambda x: x.numpy(), False),
    "a number": (lambda x: 1.5, False),
    "None": (lambda x: None, False),
    "an attribute that nobody reads": (_with_attribute, True),
    "marked dynamic": (_marked_dynamic, False),
    "negative zero": (_filled(-0.0), False),
    "an index beyond": (_out_of_range(100), False),
    "an index far beyond": (_out_of_range(2**40), False),
    "the first index beyond": (_out_of_range(5), False),
    "a negative index": (_out_of_range(-1), False),
    "a negative index beyond": (_out_of_range(-100), False),
    "in shared memory": (lambda x: x.clone().share_memory_(), True),
    "a window on a file": (lambda x: torch.from_numpy(x.numpy().copy()), True),
}

_OF_INDICES = ("indexes", "gathers", "computes_a_loss", "Embedding")


def _every(change_one: Callable[[torch.Tensor], Any]) -> Callable[[list[Any]], list[Any]]:
    """All tensors change, in whatever way this is a change for them."""
    return lambda values: [change_one(v) if isinstance(v, torch.Tensor) else v for v in values]


def _first_call(change_one: Callable[[torch.Tensor], Any]) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        run.call(_every(change_one))
        run.call(label="then, a sample")

    return apply


def _later_call(change_one: Callable[[torch.Tensor], Any]) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        run.call()
        run.call(_every(change_one), label="changed")
        run.call(label="then, a sample")

    return apply


for _name, (_change, _harmless) in TENSORS.items():
    _only = _OF_INDICES if "index" in _name else ()
    # What reads a value out of a tensor is compiled for that value.
    _facts = {"harmless": _harmless, "only": _only, "reads": (".item()",) if "values" in _name else ()}
    add(f"inputs: {_name}, first", "data", _first_call(_change), **_facts)
    add(f"inputs: {_name}, later", "data", _later_call(_change), **_facts)


@change("inputs: an index beyond, under one thread", "data", only=_OF_INDICES)
def one_thread(run: Any) -> None:
    torch.set_num_threads(1)
    run.load()
    run.call()
    run.call(_every(_out_of_range(100)), label="beyond")
    run.call(label="then, a sample")


@change("inputs: all one and the same tensor", "data", only=("takes_anything", "indexes", "gathers"))
def one_tensor(run: Any) -> None:
    def same(values: list[Any]) -> list[Any]:
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        return [tensors[0] if isinstance(value, torch.Tensor) else value for value in values]

    run.load()
    run.call(same)
    run.call()
    run.call(same, label="again")


@change("inputs: views of one another", "data", only=("takes_anything",))
def views(run: Any) -> None:
    def overlapping(values: list[Any]) -> list[Any]:
        return [values[0], values[0][0], *values[2:]]

    run.load()
    run.call(overlapping)


@change("inputs: a parameter of the object itself", "data", only=("module",))
def own_parameter(run: Any) -> None:
    def parameters(values: list[Any]) -> list[Any]:
        fitting = [p for p in run.object.parameters() if p.dim() == 2 and p.shape[-1] == 4]
        return [fitting[0] if isinstance(v, torch.Tensor) and fitting else v for v in values]

    run.load()
    run.call()
    run.call(parameters, label="its own")


@change("one argument too many", "data")
def too_many(run: Any) -> None:
    run.load()
    run.call(through=lambda called, *args, **kwargs: called(*args, torch.ones(1), **kwargs))
    run.call(label="then, a sample")


@change("no argument", "data")
def none_at_all(run: Any) -> None:
    run.load()
    run.call(through=lambda called, *_, **__: called())
    run.call(label="then, a sample")


@change("an unknown keyword", "data")
def unknown_keyword(run: Any) -> None:
    run.load()
    run.call(through=lambda called, *args, **kwargs: called(*args, unknown=1.0, **kwargs))
    run.call(label="then, a sample")


@change("the first argument by its name", "data", only=("module", "function"))
def by_name(run: Any) -> None:
    import inspect

    run.load()
    function = run.object.forward if isinstance(run.object, nn.Module) else run.target
    name = next(iter(inspect.signature(function).parameters))
    run.call(through=lambda called, *args, **kwargs: called(*args[1:], **{name: args[0]}, **kwargs))


@change("the result of a call is the next one's input", "data")
def chained(run: Any) -> None:
    run.load()

    def twice(called: Any, *args: Any, **kwargs: Any) -> Any:
        first = called(*args, **kwargs)
        return called(first, *args[1:], **kwargs) if isinstance(first, torch.Tensor) else first

    run.call(through=twice)


@change("the same tensors are passed again and again", "data", harmless=True)
def passed_again(run: Any) -> None:
    run.load()
    held: list[Any] = []

    def same(values: list[Any]) -> list[Any]:
        held.append(values)
        return list(held[0])

    if len(run.samples()) == 1:
        for time in range(3):
            run.call(same, label=f"call {time}")
