"""Those that differentiate, map or recompute."""

from __future__ import annotations

from typing import Any

import torch
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap

from tests.tools.guest import Guest, tool


@tool("torch.func: vmap, grad, jacrev, jacfwd, hessian, jvp, vjp", suite=True)
def transforms(guest: Guest) -> None:
    model, x = guest.classifier(), guest.rows()
    with torch.no_grad():
        guest.note("output of vmap", vmap(model)(x))
        guest.note("output of vmap", vmap(guest.package.normalize, in_dims=1)(x))
        guest.note("output of vmap", vmap(guest.pictures())(guest.images()[:, None]))

    def loss(each: torch.Tensor) -> torch.Tensor:
        return model(each).square().sum()

    guest.note("gradient", grad(loss)(x))
    guest.note("gradient of each", vmap(grad(loss))(x))
    for transform in (jacrev, jacfwd):
        guest.note("jacobian", transform(model)(x))
    guest.note("hessian", hessian(loss)(x[0]))
    guest.note("jvp", jvp(model, (x,), (x + 1,)))
    guest.note("vjp", vjp(model, x)[1](torch.ones(4, 4)))
    guest.note("functionalized", torch.func.functionalize(model)(x))


@tool("torch.func: functional_call, stack_module_state", suite=True)
def functional(guest: Guest) -> None:
    model, x = guest.classifier(), guest.rows()
    doubled = {name: each.detach() * 2 for name, each in model.named_parameters()}
    with torch.no_grad():
        guest.note("output with other weights", functional_call(model, doubled, (x,)))
        guest.note("output", model(x))
    models = [guest.package.Classifier().eval() for _ in range(3)]
    parameters, buffers = stack_module_state(models)

    def one(parameters: Any, buffers: Any, x: torch.Tensor) -> Any:
        return functional_call(models[0], (parameters, buffers), (x,))

    guest.note("outputs of an ensemble", vmap(one, (0, 0, None))(parameters, buffers, x))
    weights = {name: each.detach() for name, each in model.named_parameters()}
    guest.note("gradients", grad(lambda w: functional_call(model, w, (x,)).sum())(weights))


@tool("forward-mode AD: dual numbers")
def dual(guest: Guest) -> None:
    from torch.autograd import forward_ad

    for model in (guest.classifier(), guest.package.normalize):
        with forward_ad.dual_level():
            given = forward_ad.make_dual(guest.rows(), guest.rows() + 1)
            primal, tangent = forward_ad.unpack_dual(model(given))
            guest.note("primal", primal)
            guest.note("tangent", tangent)


@tool("torch.autograd.functional: jacobian, hessian, vhp")
def autograd_functional(guest: Guest) -> None:
    from torch.autograd import functional

    model, x = guest.classifier(), guest.rows()
    guest.note("jacobian", functional.jacobian(model, x))
    guest.note("jacobian", functional.jacobian(model, x, vectorize=True, strategy="forward-mode"))
    guest.note("hessian", functional.hessian(lambda x: model(x).sum(), x[:1]))
    guest.note("vhp", functional.vhp(lambda x: model(x).sum(), x, x + 1))


@tool("gradcheck, gradgradcheck")
def gradcheck(guest: Guest) -> None:
    model = guest.classifier().double()
    x = guest.rows().double().requires_grad_()
    guest.attempt("verdict", lambda: torch.autograd.gradcheck(model, (x,)))
    guest.attempt("verdict", lambda: torch.autograd.gradgradcheck(model, (x,)))
    guest.attempt("verdict", lambda: torch.autograd.gradcheck(guest.package.normalize, (x,)))
    guest.attempt(
        "verdict of float32",
        lambda: torch.autograd.gradcheck(
            guest.classifier(), (guest.rows().requires_grad_(),), eps=1e-2, atol=1e-2
        ),
    )


@tool("gradients of gradients", known="compiled code has no second derivatives")
def double_backward(guest: Guest) -> None:
    model = guest.classifier()

    def twice() -> Any:
        weights = list(model.parameters())
        first = torch.autograd.grad(model(guest.rows()).square().sum(), weights, create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in first), weights)

    guest.attempt("second derivative", twice)


@tool("backward: retain_graph, a second one, of some inputs, hooks of tensors", suite=True)
def backward(guest: Guest) -> None:
    for x in (guest.rows(), guest.rows().requires_grad_()):
        model = guest.classifier()
        calls: list[str] = []
        _hooked(model, x, calls)
        output = model(x)
        output.register_hook(lambda gradient, calls=calls: calls.append("output"))
        loss = output.sum()
        loss.backward(retain_graph=True)
        loss.backward()
        guest.note("gradient of the input", x.grad)
        guest.note_gradients(model)
        try:
            loss.backward()
        except Exception as error:
            guest.note("exception type", type(error))
        guest.note("hook calls", calls)
        weights = [model.last.weight, model.norm.bias]
        guest.note("gradients", torch.autograd.grad(model(x)[:, 0].sum(), weights, allow_unused=True))
        guest.note("detached output", model(x).detach())
        with torch.autograd.graph.register_multi_grad_hook(
            weights, lambda gradients, calls=calls: calls.append(f"{len(gradients)} together")
        ):
            model(x).sum().backward(inputs=weights)
        guest.note("hook calls", calls)
        guest.note_gradients(model)


def _hooked(model: Any, x: torch.Tensor, calls: list[str]) -> None:
    if x.requires_grad:
        x.register_hook(lambda gradient: calls.append("input"))
    weight = model.first.weight
    weight.register_hook(lambda gradient: calls.append("weight"))
    weight.register_post_accumulate_grad_hook(lambda weight: calls.append("accumulated"))


@tool("names of grad_fn", known="one node for the whole call")
def grad_fn(guest: Guest) -> None:
    output = guest.classifier()(guest.rows())
    guest.note("requires_grad", output.requires_grad)
    guest.note("name", output.grad_fn.name())


@tool("torch.utils.checkpoint: both kinds, sequential", suite=True)
def checkpoint(guest: Guest) -> None:
    from torch.utils.checkpoint import checkpoint, checkpoint_sequential

    for reentrant in (False, True):
        model, x = guest.classifier(), guest.rows().requires_grad_(reentrant)
        output = checkpoint(model, x, use_reentrant=reentrant)
        guest.note("output", output)
        output.sum().backward()
        guest.note_gradients(model)
        guest.note("gradient of the input", x.grad)
        parts = torch.nn.Sequential(torch.nn.Linear(8, 8), guest.classifier(), torch.nn.Linear(4, 4))
        output = checkpoint_sequential(
            parts, 2, guest.rows().requires_grad_(reentrant), use_reentrant=reentrant
        )
        output.sum().backward()
        guest.note_gradients(parts)


@tool("saved_tensors_hooks, save_on_cpu", suite=True)
def saved_tensors(guest: Guest) -> None:
    packed: list[Any] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(list(tensor.shape))
        return tensor.clone()

    model = guest.classifier()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda each: each):
        loss = model(guest.rows()).sum()
    loss.backward()
    guest.note("hook calls", packed)
    guest.note_gradients(model)
    model = guest.classifier()
    with torch.autograd.graph.save_on_cpu():
        loss = model(guest.rows()).sum()
    loss.backward()
    guest.note_gradients(model)
    model = guest.classifier()
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        model(guest.rows()).sum().backward()
    guest.note_gradients(model)


@tool("anomaly mode", suite=True)
def anomaly(guest: Guest) -> None:
    model = guest.classifier()
    with torch.autograd.detect_anomaly(check_nan=True):
        model(guest.rows()).sum().backward()
        guest.note_gradients(model)
        try:
            (model(guest.rows()) * 0).sqrt().sum().backward()
        except Exception as error:
            guest.note("exception type", type(error))


@tool("a changed input or weight before the backward", suite=True)
def changed_between(guest: Guest) -> None:
    for name in ("weight", "output"):
        model = guest.classifier()
        output = model(guest.rows())
        with torch.no_grad():
            (model.last.weight if name == "weight" else output).add_(1)
        try:
            (output * 2).sum().backward()
            guest.note_gradients(model)
        except Exception as error:
            guest.note("exception type", type(error))
