"""Small changes to everything a guard may look at, each with the way back.

A mutation is a context manager over a frame's locals: inside it the change is in force. Kinds are the
words of the report.
"""

from __future__ import annotations

import contextlib
import re
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import nn

Locals = dict[str, Any]


@dataclass(frozen=True)
class Mutation:
    kind: str
    what: str
    apply: Callable[[Locals], AbstractContextManager[Locals]]
    honest: bool = False  # a variation that both must accept


def mutations_of(frame_locals: Locals, frame_globals: dict[str, Any]) -> Iterator[Mutation]:
    """Every mutation known for these locals and globals, and for torch's global state."""
    yield from _state()
    yield from _variations(frame_locals)
    for name, value in frame_locals.items():
        path = f"L[{name!r}]"
        yield Mutation("argument", f"{path} missing", _without(name))
        for replacement in _replacements(value):
            yield Mutation(_kind(value), f"{path} -> {_words(replacement)}", _with(name, replacement))
        if isinstance(value, torch.Tensor):
            yield from _tensor(path, name, value)
        elif isinstance(value, nn.Module):
            yield from _module(path, value)
        elif isinstance(value, (list, dict)):
            yield from _container(path, value)
        elif isinstance(value, tuple):
            yield from _tuple(path, name, value)
        elif isinstance(value, types.FunctionType):
            yield from _function(path, value)
        elif isinstance(value, numpy.ndarray):
            yield from _array(path, name, value)
        elif hasattr(value, "__dict__"):
            yield from _attributes(path, value)
        for other in _equals(value):
            yield Mutation("equal value", f"{path} -> {_words(other)}", _with(name, other))
    yield from _globals(frame_globals)


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "tensor argument"
    return "module" if isinstance(value, nn.Module) else "argument"


def _words(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)} {tuple(value.stride())} {value.device}"
    return repr(value)[:40]


@contextlib.contextmanager
def _set(owner: Any, name: str, value: Any, frame_locals: Locals) -> Iterator[Locals]:
    absent = object()
    before = vars(owner).get(name, absent)
    setattr(owner, name, value)
    try:
        yield frame_locals
    finally:
        if before is absent:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextlib.contextmanager
def _item(owner: Any, key: Any, value: Any, frame_locals: Locals) -> Iterator[Locals]:
    order = list(owner.items()) if isinstance(owner, dict) else list(owner)
    owner[key] = value
    try:
        yield frame_locals
    finally:
        owner.clear()
        owner.update(order) if isinstance(owner, dict) else owner.extend(order)


@contextlib.contextmanager
def _removed(owner: Any, key: Any, frame_locals: Locals) -> Iterator[Locals]:
    order = list(owner.items()) if isinstance(owner, dict) else list(owner)
    del owner[key]
    try:
        yield frame_locals
    finally:
        owner.clear()
        owner.update(order) if isinstance(owner, dict) else owner.extend(order)


def _with(name: str, value: Any) -> Callable[[Locals], AbstractContextManager[Locals]]:
    return lambda frame_locals: contextlib.nullcontext({**frame_locals, name: value})


def _without(name: str) -> Callable[[Locals], AbstractContextManager[Locals]]:
    return lambda frame_locals: contextlib.nullcontext({k: v for k, v in frame_locals.items() if k != name})


def _replacements(value: Any) -> list[Any]:
    """Other values of about the same kind, and some of quite another."""
    if isinstance(value, torch.Tensor):
        return [None, 3, [1], value.tolist() if value.numel() < 100 else "tensor"]
    common: list[Any] = [None, object(), "other", (), [], {}, 0, 1, -1, 2**40, 0.0, 1.5, True, False]
    if isinstance(value, bool):
        return [not value, int(value), *common]
    if isinstance(value, int):
        return [value + 1, value - 1, float(value), str(value), bool(value), *common]
    if isinstance(value, float):
        return [value + 0.5, -value, float("nan"), float("inf"), *common]
    if isinstance(value, str):
        return [value + "x", value.upper(), value.encode(), *common]
    return common


def _equals(value: Any) -> list[Any]:
    """Values that are equal to one and not the same: of other types, in another order."""
    if isinstance(value, bool):
        return [int(value), float(value)]
    if isinstance(value, int):
        return [float(value), complex(value), *([bool(value)] if value in (0, 1) else [])]
    if isinstance(value, float):
        return [
            numpy.float64(value),
            *([int(value)] if value.is_integer() else []),
            *([-value] * (not value)),
        ]
    if isinstance(value, str):
        return [_Text(value)]
    if isinstance(value, (set, frozenset)):
        backwards = {item for item in reversed(list(value))}  # noqa: C416 - a set has an order
        others = [{_first_equal(item) for item in value}, *([backwards] * (list(backwards) != list(value)))]
        return [type(value)(other) for other in others] + [
            other(value) for other in (set, frozenset) if other is not type(value)
        ]
    if isinstance(value, (tuple, list)):
        found = [(number, other) for number, item in enumerate(value) for other in _equals(item)]
        made = [[*value[:number], other, *value[number + 1 :]] for number, other in found]
        return [type(value)(other) for other in made if type(value) in (tuple, list)]
    if type(value) is dict:
        keys = {_first_equal(key): item for key, item in value.items()}
        values = [{**value, key: other} for key, item in value.items() for other in _equals(item)]
        return [keys, *values, dict(reversed(value.items()))]
    return []


class _Text(str):
    """Equal to a text, and no text."""


def _first_equal(value: Any) -> Any:
    return next(iter(_equals(value)), value)


class _Array(numpy.ndarray):
    """A subclass of the user's."""


def _array(path: str, name: str, value: numpy.ndarray) -> Iterator[Mutation]:
    readonly = value.copy()
    readonly.flags.writeable = False
    others: dict[str, Any] = {
        "as a tensor": torch.from_numpy(value.copy()),
        "as a list": value.tolist(),
        "masked": numpy.ma.masked_array(value, mask=value == value.flat[0]),
        "as a matrix": value.view(numpy.matrix),
        "of a subclass": value.view(_Array),
        "in records": value.view(numpy.recarray),
        "read-only": readonly,
        "with its bytes swapped": value.astype(value.dtype.newbyteorder()),
        "of objects": value.astype(object),
        "float64": value.astype(numpy.float64),
        "int16": value.astype(numpy.int16),
        "with a dimension more": value[None],
        "one longer": numpy.append(value, value[:1]),
        "backwards": value[::-1],
        "every second": numpy.repeat(value, 2)[::2],
        "of one repeated": numpy.broadcast_to(value[:1], value.shape),
        "a number of numpy's": value[0],
        "a number": float(value[0]),
    }
    for what, other in others.items():
        yield Mutation("array argument", f"{path} {what}", _with(name, other))
    yield Mutation("honest", f"{path} copied", _with(name, value.copy()), honest=True)


def _tensor(path: str, name: str, value: torch.Tensor) -> Iterator[Mutation]:
    def other(what: str, tensor: Any) -> Mutation:
        return Mutation("tensor argument", f"{path} {what}", _with(name, tensor))

    with torch.no_grad():
        for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.bool):
            if dtype is not value.dtype:
                yield other(f"as {dtype}", value.to(dtype))
        for dim in range(value.dim()):
            for size in {0, 1, 2, 3, 5, value.size(dim) - 1, value.size(dim) + 1, 64, 65, 300} - {
                value.size(dim)
            }:
                if size >= 0:
                    shape = list(value.shape)
                    shape[dim] = size
                    yield other(f"size({dim}) = {size}", torch.zeros(shape, dtype=value.dtype))
        yield other("with a dimension more", value.unsqueeze(0).clone())
        if value.dim() > 1:
            yield other("with a dimension less", value[0].clone())
            yield other("transposed in memory", value.transpose(0, -1).contiguous().transpose(0, -1))
            yield other(
                "strided",
                torch.zeros([2 * size for size in value.shape], dtype=value.dtype)[
                    tuple(slice(None, None, 2) for _ in value.shape)
                ],
            )
        yield other("on meta", value.to("meta"))
        yield other("as a Parameter", nn.Parameter(value.clone(), requires_grad=False))
        yield other("as a subclass", value.clone().as_subclass(type("Sub", (torch.Tensor,), {})))
        yield other("conjugate", value.to(torch.complex64).conj())
        if type(value) is torch.Tensor:
            yield other("sparse", value.to_sparse())
        else:
            with torch._C.DisableTorchFunctionSubclass():
                plain = value.as_subclass(torch.Tensor)
            yield other("as a plain tensor", plain)
    if value.is_floating_point():
        yield other("requires grad", value.detach().clone().requires_grad_(not value.requires_grad))
    with torch.inference_mode():
        yield other("an inference tensor", value.clone())
    for mark in ("_dynamo_dynamic_indices", "_dynamo_static_indices", "_dynamo_weak_dynamic_indices"):
        marked = value.detach().clone()
        setattr(marked, mark, {0})
        yield other(f"marked {mark}", marked)
    yield from _aliases(path, name, value)


def _aliases(path: str, name: str, value: torch.Tensor) -> Iterator[Mutation]:
    """The same object in another argument's place."""

    def apply(frame_locals: Locals) -> AbstractContextManager[Locals]:
        changed = dict(frame_locals)
        for key, other in frame_locals.items():
            if key != name and isinstance(other, torch.Tensor):
                changed[key] = value
        return contextlib.nullcontext(changed)

    yield Mutation("aliasing", f"{path} passed for every tensor", apply)


def _module(path: str, module: nn.Module) -> Iterator[Mutation]:
    for prefix, child in module.named_modules():
        where = f"{path}.{prefix}" if prefix else path
        yield from _one_module(where, child)


def _one_module(where: str, module: nn.Module) -> Iterator[Mutation]:
    yield from _attributes(where, module)
    yield Mutation(
        "module",
        f"{where}.training flipped",
        lambda held: _set(module, "training", not module.training, held),
    )
    yield Mutation(
        "module",
        f"{where}.forward on the instance",
        lambda held: _set(module, "forward", lambda *a, **k: None, held),
    )
    yield Mutation(
        "module",
        f"{where} of a subclass",
        lambda held: _reclass(module, type("Sub", (type(module),), {}), held),
    )
    cls = type(module)
    if "forward" in vars(cls) and cls.__module__ != "torch.nn.modules.module":
        yield Mutation(
            "monkeypatch",
            f"{cls.__qualname__}.forward",
            lambda held: _set(cls, "forward", lambda self, *a, **k: None, held),
        )
    for name, parameter in list(module._parameters.items()):
        if parameter is not None:
            yield from _parameter(f"{where}.{name}", module, name, parameter)
    for name, buffer in list(module._buffers.items()):
        if buffer is not None:
            yield from _buffer(f"{where}.{name}", module, name, buffer)
    for name in list(module._modules):
        yield Mutation(
            "module", f"{where}.{name} removed", lambda held, n=name: _removed(module._modules, n, held)
        )
        for other in (nn.Identity(), nn.ReLU(), nn.Linear(3, 3), None):
            yield Mutation(
                "module",
                f"{where}.{name} -> {type(other).__name__}",
                lambda held, n=name, o=other: _item(module._modules, n, o, held),
            )
    yield Mutation(
        "module",
        f"{where} with one more submodule",
        lambda held: _item(module._modules, "extra", nn.ReLU(), held),
    )


@contextlib.contextmanager
def _reclass(module: nn.Module, cls: type, frame_locals: Locals) -> Iterator[Locals]:
    before = module.__class__
    module.__class__ = cls
    try:
        yield frame_locals
    finally:
        module.__class__ = before


def _parameter(where: str, module: nn.Module, name: str, parameter: nn.Parameter) -> Iterator[Mutation]:
    data = parameter.detach()
    others = {
        "missing": None,
        "a plain tensor": data.clone(),
        "of another size": nn.Parameter(
            torch.zeros([size + 1 for size in data.shape]), parameter.requires_grad
        ),
        "float64": nn.Parameter(data.double(), parameter.requires_grad),
        "bfloat16": nn.Parameter(data.bfloat16(), parameter.requires_grad),
        "requires_grad flipped": nn.Parameter(data.clone(), not parameter.requires_grad),
        "on meta": nn.Parameter(data.to("meta"), parameter.requires_grad),
    }
    if data.dim() > 1 and not hasattr(data, "tensor_data_names"):  # torchao's cannot be transposed
        others["transposed in memory"] = nn.Parameter(data.t().contiguous().t(), parameter.requires_grad)
    for what, other in others.items():
        yield Mutation(
            "parameter", f"{where} {what}", lambda held, o=other: _item(module._parameters, name, o, held)
        )
    yield Mutation("parameter", f"{where} deleted", lambda held: _removed(module._parameters, name, held))
    if hasattr(parameter, "__tensor_flatten__"):
        yield from _attributes(where, parameter)
        cls = type(parameter)
        for listed in [name for name in vars(cls) if isinstance(getattr(cls, name), list)]:
            for other in (getattr(cls, listed)[1:], [*getattr(cls, listed), "shape"]):
                yield Mutation(
                    "monkeypatch",
                    f"{cls.__qualname__}.{listed} -> {other}",
                    lambda held, name=listed, o=other: _set(cls, name, o, held),
                )
                yield Mutation(
                    "attribute",
                    f"{where}.{listed} -> {other}",
                    lambda held, name=listed, o=other: _set(parameter, name, o, held),
                )
        for inner in parameter.__tensor_flatten__()[0]:
            yield Mutation(
                "parameter",
                f"{where}.{inner} as float64",
                lambda held, i=inner: _item(vars(parameter), i, getattr(parameter, i).double(), held),
            )


def _buffer(where: str, module: nn.Module, name: str, buffer: torch.Tensor) -> Iterator[Mutation]:
    others = {
        "missing": None,
        "float64": buffer.double(),
        "of another size": torch.zeros([size + 1 for size in buffer.shape], dtype=buffer.dtype),
        "on meta": buffer.to("meta"),
    }
    for what, other in others.items():
        yield Mutation(
            "buffer", f"{where} {what}", lambda held, o=other: _item(module._buffers, name, o, held)
        )


def _attributes(where: str, value: Any) -> Iterator[Mutation]:
    for name, before in list(vars(value).items()):
        if name in ("_parameters", "_buffers", "_modules"):
            continue
        for other in _replacements(before)[:8]:
            yield Mutation(
                "attribute",
                f"{where}.{name} -> {_words(other)}",
                lambda held, n=name, o=other: _item(vars(value), n, o, held),
            )
        yield Mutation(
            "attribute", f"{where}.{name} deleted", lambda held, n=name: _removed(vars(value), n, held)
        )
    for name in ("unheard_of", "forward_hook", "is_causal"):
        yield Mutation(
            "attribute", f"{where}.{name} added", lambda held, n=name: _item(vars(value), n, 1, held)
        )


def _container(path: str, value: Any) -> Iterator[Mutation]:
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        for other in _replacements(value[key])[:6]:
            yield Mutation(
                "container", f"{path}[{key!r}]", lambda held, k=key, o=other: _item(value, k, o, held)
            )
        yield Mutation("container", f"{path}[{key!r}] removed", lambda held, k=key: _removed(value, k, held))
    if isinstance(value, dict):
        yield Mutation(
            "container", f"{path} with one more key", lambda held: _item(value, "another", 1, held)
        )


def _tuple(path: str, name: str, value: tuple[Any, ...]) -> Iterator[Mutation]:
    yield Mutation("argument", f"{path} one longer", _with(name, (*value, 1)))
    yield Mutation("argument", f"{path} one shorter", _with(name, value[:-1]))
    yield Mutation("argument", f"{path} as a list", _with(name, list(value)))
    for index, item in enumerate(value):
        for other in _replacements(item)[:6]:
            yield Mutation(
                "argument", f"{path}[{index}]", _with(name, (*value[:index], other, *value[index + 1 :]))
            )
        if isinstance(item, torch.Tensor):
            for mutation in _tensor(f"{path}[{index}]", "_", item):
                yield Mutation(mutation.kind, mutation.what, _inside(name, value, index, mutation))


def _inside(
    name: str, value: tuple[Any, ...], index: int, mutation: Mutation
) -> Callable[[Locals], AbstractContextManager[Locals]]:
    @contextlib.contextmanager
    def apply(frame_locals: Locals) -> Iterator[Locals]:
        with mutation.apply({"_": value[index]}) as changed:
            yield {**frame_locals, name: (*value[:index], changed["_"], *value[index + 1 :])}

    return apply


def _function(path: str, function: types.FunctionType) -> Iterator[Mutation]:
    def another(*args: Any, **kwargs: Any) -> Any:
        return None

    @contextlib.contextmanager
    def code(frame_locals: Locals) -> Iterator[Locals]:
        before = function.__code__
        function.__code__ = before.replace(co_name="changed")
        try:
            yield frame_locals
        finally:
            function.__code__ = before

    @contextlib.contextmanager
    def defaults(frame_locals: Locals) -> Iterator[Locals]:
        before = function.__defaults__
        function.__defaults__ = tuple(object() for _ in before or ()) or (1,)
        try:
            yield frame_locals
        finally:
            function.__defaults__ = before

    yield Mutation("function", f"{path}.__code__", code)
    yield Mutation("function", f"{path}.__defaults__", defaults)


def _globals(frame_globals: dict[str, Any]) -> Iterator[Mutation]:
    for name, value in list(frame_globals.items()):
        # What dynamo put there itself is no part of the program; to us those names are constants.
        if name.startswith("__") or re.fullmatch(r"_+\w*\d+_c\d+", name):
            continue
        for other in _replacements(value)[:6]:
            yield Mutation("global", f"G[{name!r}] -> {_words(other)}", _global(frame_globals, name, other))
        yield Mutation(
            "global", f"G[{name!r}] deleted", lambda held, n=name: _removed_global(frame_globals, n, held)
        )
        if isinstance(value, types.FunctionType):
            yield from _function(f"G[{name!r}]", value)


def _global(
    frame_globals: dict[str, Any], name: str, other: Any
) -> Callable[[Locals], AbstractContextManager[Locals]]:
    @contextlib.contextmanager
    def apply(frame_locals: Locals) -> Iterator[Locals]:
        before = frame_globals[name]
        frame_globals[name] = other
        try:
            yield frame_locals
        finally:
            frame_globals[name] = before

    return apply


@contextlib.contextmanager
def _removed_global(frame_globals: dict[str, Any], name: str, frame_locals: Locals) -> Iterator[Locals]:
    before = frame_globals.pop(name)
    try:
        yield frame_locals
    finally:
        frame_globals[name] = before


def _under(
    manager: Callable[[], AbstractContextManager[Any]],
) -> Callable[[Locals], AbstractContextManager[Locals]]:
    @contextlib.contextmanager
    def apply(frame_locals: Locals) -> Iterator[Locals]:
        with manager():
            yield frame_locals

    return apply


@contextlib.contextmanager
def _restored(change: Callable[[Any], None], read: Callable[[], Any], value: Any) -> Iterator[None]:
    before = read()
    change(value)
    try:
        yield
    finally:
        change(before)


def _state() -> Iterator[Mutation]:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class FunctionMode(TorchFunctionMode):
        pass

    class DispatchMode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    managers: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "grad enabled": torch.enable_grad,
        "inference mode": torch.inference_mode,
        "autocast bfloat16": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        "default dtype": lambda: _restored(torch.set_default_dtype, torch.get_default_dtype, torch.float64),
        "deterministic": lambda: _restored(
            torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled, True
        ),
        "default device": lambda: torch.device("meta"),
        "function mode": FunctionMode,
        "dispatch mode": DispatchMode,
        "saved tensors hooks": lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
    }
    for what, manager in managers.items():
        yield Mutation("torch state", what, _under(manager))


def _variations(frame_locals: Locals) -> Iterator[Mutation]:
    """Honest ones: other values of the same kind."""

    def other_values(frame_locals: Locals) -> AbstractContextManager[Locals]:
        with torch.no_grad():
            changed = {
                name: value.detach().clone().requires_grad_(value.requires_grad)
                if type(value) is torch.Tensor
                else value
                for name, value in frame_locals.items()
            }
        return contextlib.nullcontext(changed)

    yield Mutation("honest", "unchanged", lambda held: contextlib.nullcontext(dict(held)), honest=True)
    yield Mutation("honest", "other tensors of the same kind", other_values, honest=True)
