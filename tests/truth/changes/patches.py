"""Patches: of torch, of the program (see places.py), and hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tests.truth import places
from tests.truth.changes.registry import add, change

_CALLED: list[str] = []


@change("a place of the program is patched before the first call", "patch", listed=False)
def place_first(run: Any) -> None:
    run.load()
    places.patch(run, run.parameter)
    run.call()


@change("a place of the program is patched between two calls", "patch", listed=False)
def place_between(run: Any) -> None:
    run.load()
    run.call()
    places.patch(run, run.parameter)
    run.call(label="patched")


@change("a place of the program is patched, then put back", "patch", listed=False)
def place_put_back(run: Any) -> None:
    run.load()
    run.call()
    undo = places.patch(run, run.parameter)
    run.call(label="patched")
    undo()
    run.call(label="put back")


@change("which places there are", "exploration", listed=False)
def explore(run: Any) -> None:
    run.load()
    run.note("places", places.places_of(run))


def _halved(function: Any) -> Any:
    def patched(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return result * 0.5 if isinstance(result, torch.Tensor) and result.is_floating_point() else result

    return patched


TORCH: dict[str, tuple[Any, str]] = {
    "torch.sin": (torch, "sin"),
    "torch.relu": (torch, "relu"),
    "torch.tanh": (torch, "tanh"),
    "torch.clamp": (torch, "clamp"),
    "torch.pow": (torch, "pow"),
    "torch.zeros_like": (torch, "zeros_like"),
    "torch.arange": (torch, "arange"),
    "Tensor.sum": (torch.Tensor, "sum"),
    "Tensor.__mul__": (torch.Tensor, "__mul__"),
    "Tensor.__add__": (torch.Tensor, "__add__"),
    "Tensor.clamp": (torch.Tensor, "clamp"),
    "functional.linear": (nn.functional, "linear"),
    "functional.layer_norm": (nn.functional, "layer_norm"),
    "functional.gelu": (nn.functional, "gelu"),
    "functional.embedding": (nn.functional, "embedding"),
    "functional.dropout": (nn.functional, "dropout"),
    "Linear.forward": (nn.Linear, "forward"),
    "LayerNorm.forward": (nn.LayerNorm, "forward"),
    "Module.__call__": (nn.Module, "__call__"),
    "Module._call_impl": (nn.Module, "_call_impl"),
    "Sequential.forward": (nn.Sequential, "forward"),
    "ModuleList.__iter__": (nn.ModuleList, "__iter__"),
    "Module.__getattr__": (nn.Module, "__getattr__"),
}

_OF_MODULES = ("functional.linear", "functional.layer_norm", "functional.gelu", "functional.embedding")


# Halved while a layer is made it would leave the layer's memory as it was found.
_LATER_ONLY = ("Module.__getattr__",)


def _patched_first(owner: Any, name: str) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        setattr(owner, name, _halved(getattr(owner, name)))
        run.load()
        run.call()

    return apply


def _patched_before_call(owner: Any, name: str) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        setattr(owner, name, _halved(getattr(owner, name)))
        run.call()

    return apply


def _patched_between(owner: Any, name: str) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        run.call()
        setattr(owner, name, _halved(getattr(owner, name)))
        run.call(label="patched")

    return apply


for _name, (_owner, _attribute) in TORCH.items():
    _only = ("module",) if isinstance(_owner, type) and issubclass(_owner, nn.Module) else ()
    if _name in _OF_MODULES:
        _only = ("module", "calls_functional", "indexes")
    if _name not in _LATER_ONLY:
        add(f"{_name} is patched before the import", "patch", _patched_first(_owner, _attribute), only=_only)
    add(
        f"{_name} is patched before the first call",
        "patch",
        _patched_before_call(_owner, _attribute),
        only=_only,
    )
    add(f"{_name} is patched between two calls", "patch", _patched_between(_owner, _attribute), only=_only)


def _noted(*_: Any) -> None:
    _CALLED.append("hook")


def _scaling(_module: Any, _inputs: Any, output: Any) -> Any:
    _CALLED.append("scaling")
    return output * 3.0 if isinstance(output, torch.Tensor) else None


def _own_submodule(run: Any) -> Any:
    return list(run.object.modules())[-1]


HOOKS: dict[str, Callable[[Any], Any]] = {
    "a forward hook": lambda run: run.object.register_forward_hook(_noted),
    "a forward hook that answers": lambda run: run.object.register_forward_hook(_scaling),
    "a forward hook of a submodule": lambda run: _own_submodule(run).register_forward_hook(_noted),
    "a forward hook of a submodule, that answers": lambda run: _own_submodule(run).register_forward_hook(
        _scaling
    ),
    "a forward pre-hook": lambda run: run.object.register_forward_pre_hook(_noted),
    "a forward pre-hook of a submodule": lambda run: _own_submodule(run).register_forward_pre_hook(_noted),
    "a backward hook": lambda run: run.object.register_full_backward_hook(_noted),
    "a backward hook of a submodule": lambda run: _own_submodule(run).register_full_backward_hook(_noted),
    "a global forward hook": lambda run: nn.modules.module.register_module_forward_hook(_noted),
    "a global forward hook that answers": lambda run: nn.modules.module.register_module_forward_hook(
        _scaling
    ),
    "a global forward pre-hook": lambda run: nn.modules.module.register_module_forward_pre_hook(_noted),
    "a global backward hook": lambda run: nn.modules.module.register_module_full_backward_hook(_noted),
}


def _hooked_first(register: Callable[[Any], Any]) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        register(run)
        run.call()
        run.note("hooks called", list(_CALLED))

    return apply


def _hooked_between(register: Callable[[Any], Any]) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        run.call()
        handle = register(run)
        run.call(label="hooked")
        run.note("hooks called", list(_CALLED))
        handle.remove()
        run.call(label="hook removed")
        run.note("hooks called in the end", list(_CALLED))

    return apply


for _name, _register in HOOKS.items():
    add(f"{_name}, before the first call", "hook", _hooked_first(_register), only=("module",))
    add(f"{_name}, between two calls", "hook", _hooked_between(_register), only=("module",))


@change("a hook that is removed before the first call", "hook", harmless=True, only=("module",))
def hook_removed(run: Any) -> None:
    run.load()
    run.object.register_forward_hook(_noted).remove()
    run.call()


def _on_object(action: Callable[[Any], Any]) -> tuple[Callable[[Any], None], Callable[[Any], None]]:
    def first(run: Any) -> None:
        run.load()
        run.object = action(run.object)
        run.call()

    def between(run: Any) -> None:
        run.load()
        run.call()
        run.object = action(run.object)
        run.call(label="then")

    return first, between


def _replaced_parameters(module: nn.Module) -> nn.Module:
    for owner in list(module.modules()):
        for name, parameter in list(owner._parameters.items()):
            if parameter is not None:
                setattr(owner, name, nn.Parameter(parameter.detach() * 2, parameter.requires_grad))
    return module


def _changed_values(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(1.5)
    return module


def _with_one(value: float) -> Callable[[nn.Module], nn.Module]:
    def spoiled(module: nn.Module) -> nn.Module:
        """The first number of each parameter that is more than a row."""
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.dim() > 1:
                    parameter.view(-1)[0] = value
        return module

    return spoiled


def _written_by_numpy(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        parameter.detach().numpy()[...] *= 1.5
    return module


def _swapped(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        other = nn.Parameter(parameter.detach() * 1.5, parameter.requires_grad)
        torch.utils.swap_tensors(parameter, other)
    return module


def _norms_called_in_training(module: nn.Module) -> nn.Module:
    """Which changes their statistics, without a version of these."""
    for norm in module.modules():
        if isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d)):
            size = (2,) * (2 if isinstance(norm, nn.BatchNorm2d) else 0)
            was, rows = norm.training, torch.linspace(0, 9, 5).view(-1, *([1] * (1 + len(size))))
            norm.train()(rows.expand(5, norm.num_features, *size))
            norm.train(was)
    return module


def _all_tied(module: nn.Module) -> nn.Module:
    """Parameters of one shape become one."""
    held: dict[Any, Any] = {}
    for owner in module.modules():
        for name, parameter in list(owner._parameters.items()):
            if parameter is not None:
                owner._parameters[name] = held.setdefault(parameter.shape, parameter)
    return module


def _untied(module: nn.Module) -> nn.Module:
    for owner in list(module.modules()):
        for name, parameter in list(owner._parameters.items()):
            if parameter is not None:
                owner._parameters[name] = nn.Parameter(parameter.detach().clone(), parameter.requires_grad)
    return module


def _unpickled(module: Any) -> Any:
    import pickle

    return pickle.loads(pickle.dumps(module))


def _saved_and_loaded(module: Any) -> Any:
    import io

    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def _as_instance_of_a_subclass(module: Any) -> Any:
    class Sub(type(module)):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return _scaling(None, None, super().forward(*args, **kwargs))

    module.__class__ = Sub
    return module


def _with_own_forward(module: Any) -> Any:
    before = module.forward
    module.forward = lambda *args, **kwargs: _scaling(None, None, before(*args, **kwargs))
    return module


def _without_a_submodule(module: Any) -> Any:
    for name in list(module._modules)[-1:]:
        module._modules[name] = nn.Identity()
    return module


OBJECTS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "train()": (lambda module: module.train(), False),
    "eval()": (lambda module: module.eval(), False),
    "double()": (lambda module: module.double(), False),
    "to(bfloat16)": (lambda module: module.to(torch.bfloat16), False),
    "requires_grad_(False)": (lambda module: module.requires_grad_(False), False),
    "to('meta')": (lambda module: module.to("meta"), False),
    "share_memory()": (lambda module: module.share_memory(), True),
    "other values in the parameters": (_changed_values, True),
    "other parameters of the same kind": (_replaced_parameters, True),
    "parameters with NaN": (_with_one(float("nan")), True),
    "parameters with infinity": (_with_one(float("inf")), True),
    "parameters written by numpy": (_written_by_numpy, True),
    "parameters swapped": (_swapped, True),
    "norms called in training": (_norms_called_in_training, True),
    "parameters tied": (_all_tied, False),
    "parameters untied": (_untied, False),
    "deepcopy": (lambda module: __import__("copy").deepcopy(module), True),
    "pickled and unpickled": (_unpickled, True),
    "saved and loaded": (_saved_and_loaded, True),
    "load_state_dict": (lambda module: (module.load_state_dict(module.state_dict()), module)[1], True),
    "another class": (_as_instance_of_a_subclass, False),
    "a forward of its own": (_with_own_forward, False),
    "its last submodule replaced": (_without_a_submodule, False),
    "its buffers in float64": (
        lambda module: module._apply(lambda t: t.double() if t.is_floating_point() else t),
        False,
    ),
    "an attribute that nobody reads": (lambda module: (setattr(module, "note", 1), module)[1], True),
    "channels_last": (lambda module: module.to(memory_format=torch.channels_last), False),
    "weight_norm on a submodule": (
        lambda module: (
            nn.utils.parametrizations.weight_norm(
                next(m for m in module.modules() if isinstance(m, nn.Linear))
            ),
            module,
        )[1],
        False,
    ),
}

for _name, (_action, _harmless) in OBJECTS.items():
    _first, _between = _on_object(_action)
    add(f"{_name}, before the first call", "object", _first, only=("module",), harmless=_harmless)
    add(f"{_name}, between two calls", "object", _between, only=("module",), harmless=_harmless)


@change("another instance", "object", only=("module", "method"), harmless=True)
def another_instance(run: Any) -> None:
    run.load()
    run.call()
    run.make()
    run.call(label="another")


@change("twenty instances that come and go", "object", only=("module", "method"), harmless=True)
def many_instances(run: Any) -> None:
    run.load()
    for number in range(20):
        run.make()
        run.call(label=f"instance {number}")
