"""Those that change a model: its weights, their types, its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.tools.guest import Guest, tool


def _changed(
    guest: Guest, change: Callable[[Any], Any], *, gradients: bool = True, given: Any = None
) -> None:
    """Each model changed before its first call and after two: outputs, names, gradients."""
    for calls in (0, 2):
        for make, inputs in ((guest.classifier, guest.rows()), (guest.pictures, guest.images())):
            model = make()
            with torch.no_grad():
                for _ in range(calls):
                    model(inputs)
                torch.manual_seed(3)
                model = change(model) or model
                changed = given(inputs) if given else inputs
                guest.note("output", model(changed))
                guest.note("output", model(changed))
            guest.note("names", list(model.state_dict()))
            if gradients:
                output = model(changed)
                guest.note("output", output)
                output.float().sum().backward()
                guest.note_gradients(model)


@tool("torch.ao.quantization.quantize_dynamic")
def quantize_dynamic(guest: Guest) -> None:
    import warnings

    warnings.simplefilter("ignore")
    kinds = {torch.nn.Linear}
    _changed(
        guest, lambda each: torch.ao.quantization.quantize_dynamic(each, kinds, torch.qint8), gradients=False
    )


@tool("torchao: int8 weights", "torchao")
def torchao(guest: Guest) -> None:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    _changed(guest, lambda each: quantize_(each, Int8WeightOnlyConfig()), gradients=False)


@tool("torch.nn.utils.prune", suite=True)
def prune(guest: Guest) -> None:
    from torch.nn.utils import prune

    def pruned(model: Any) -> None:
        prune.l1_unstructured(_layer(model), "weight", amount=0.3)
        prune.random_structured(_layer(model), "weight", amount=0.2, dim=0)

    def removed(model: Any) -> None:
        pruned(model)
        prune.remove(_layer(model), "weight")

    _changed(guest, pruned)
    _changed(guest, removed)


def _layer(model: Any) -> Any:
    return model.first if hasattr(model, "first") else model.conv1


@tool("parametrizations: weight_norm, spectral_norm, orthogonal, one's own", suite=True)
def parametrizations(guest: Guest) -> None:
    from torch.nn.utils import parametrizations, parametrize

    class Doubled(torch.nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return weight * 2

    _changed(guest, lambda each: parametrizations.weight_norm(_layer(each)) and None)
    _changed(guest, lambda each: parametrizations.spectral_norm(_layer(each)) and None)
    _changed(guest, lambda each: parametrizations.orthogonal(_layer(each)) and None)
    _changed(
        guest, lambda each: parametrize.register_parametrization(_layer(each), "weight", Doubled()) and None
    )

    def left(model: Any) -> None:
        parametrize.register_parametrization(_layer(model), "weight", Doubled())
        parametrize.remove_parametrizations(_layer(model), "weight")

    _changed(guest, left)


@tool("torch.nn.utils.weight_norm, spectral_norm: hooks")
def norms_by_hooks(guest: Guest) -> None:
    import warnings

    warnings.simplefilter("ignore")
    _changed(guest, lambda each: torch.nn.utils.weight_norm(_layer(each)) and None)
    _changed(guest, lambda each: torch.nn.utils.spectral_norm(_layer(each)) and None)


@tool("half, bfloat16, double", suite=True)
def dtypes(guest: Guest) -> None:
    for dtype in (torch.bfloat16, torch.float64, torch.float16):
        _changed(
            guest,
            lambda each, dtype=dtype: each.to(dtype),
            given=lambda inputs, dtype=dtype: inputs.to(dtype),
            gradients=dtype is torch.float64,
        )
        _changed(guest, lambda each, dtype=dtype: each.to(dtype).float())


@tool("to(meta), to_empty, torch.device(meta)", suite=True)
def meta(guest: Guest) -> None:
    for make, given in ((guest.classifier, guest.rows()), (guest.pictures, guest.images())):
        model = make()
        state = {name: value.clone() for name, value in model.state_dict().items()}
        with torch.no_grad():
            guest.note("output", model(given))
            model.to("meta")
            guest.note("output on meta", model(given.to("meta")))
            guest.attempt("output of mixed devices", lambda: model(given))  # noqa: B023
            model.to_empty(device="cpu")
            model.load_state_dict(state)
            guest.note("output", model(given))
    with torch.device("meta"), torch.no_grad():
        guest.note("output under a device", guest.package.Classifier().eval()(torch.randn(4, 8)))


@tool("memory_format, requires_grad_, apply, share of weights", suite=True)
def small_changes(guest: Guest) -> None:
    _changed(
        guest,
        lambda each: each.to(memory_format=torch.channels_last) and None,
        given=lambda x: x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x,
    )
    _changed(guest, lambda each: each.requires_grad_(False) and None, gradients=False)
    _changed(
        guest,
        lambda each: (
            each.apply(lambda part: part.weight.mul_(2) if hasattr(part, "weight") else None) and None
        ),
    )

    def halved(model: Any) -> None:
        for parameter in model.parameters():
            parameter.data = parameter.data / 2

    def of_one_memory(model: Any) -> None:
        vector = torch.nn.utils.parameters_to_vector(model.parameters())
        torch.nn.utils.vector_to_parameters(vector * 0.5, model.parameters())

    _changed(guest, halved)
    _changed(guest, of_one_memory)
    _changed(guest, lambda each: each.train() and None)


@tool("fuse_conv_bn_eval, torch.fx fuse")
def fuse(guest: Guest) -> None:
    from torch.fx.experimental.optimization import fuse
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    with torch.no_grad():
        model = guest.pictures()
        model(guest.images())
        model.conv1 = fuse_conv_bn_eval(model.conv1, model.norm)
        model.norm = torch.nn.Identity()
        guest.note("output", model(guest.images()))
        fused = fuse(guest.pictures())
        guest.note("code", fused.code)
        guest.note("output", fused(guest.images()))


@tool("parameters replaced, swapped, tied", suite=True)
def parameters(guest: Guest) -> None:
    def replaced(model: Any) -> None:
        for module in model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                setattr(module, name, torch.nn.Parameter(parameter.detach() * 0.5))

    def swapped(model: Any) -> None:
        weight = _layer(model).weight
        torch.utils.swap_tensors(weight, torch.nn.Parameter(weight.detach() + 1))

    def plain(model: Any) -> None:
        layer = _layer(model)
        weight = layer.weight.detach() * 3
        del layer.weight
        layer.weight = weight

    for change in (replaced, swapped):
        _changed(guest, change)
    _changed(guest, plain, gradients=False)
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        _changed(guest, lambda each: each.double().float())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
