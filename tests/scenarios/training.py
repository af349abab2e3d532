"""Training with compiled code (tests/language/programs/modules.py), where no side effect is allowed."""

from __future__ import annotations

from typing import Any

import probe
import torch
from observing import close, hits, inductor_is_imported, misses
from programs import modules
from torch.utils.checkpoint import checkpoint

DONE = probe.forbid_side_effects()


def _train(call: Any, model: Any, steps: int = 4, accumulate: int = 2) -> list[float]:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(accumulate):
            x = modules.inputs() + step + 0.5 * part
            loss = call(x).square().mean()
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
    return losses


def several_steps_with_accumulation() -> dict[str, Any]:
    """Whether losses and weights are those of eager code, the frozen weight's gradient, hits and misses."""
    ours, eager = modules.trained(), modules.trained()
    losses, expected = _train(ours, ours), _train(probe.eager(eager), eager)
    weights, others = ours.state_dict(), eager.state_dict()
    return {
        "losses": close(losses, expected),
        "weights": all(close(value.tolist(), others[name].tolist()) for name, value in weights.items()),
        "hits": hits("trained"),
        "misses": misses("trained"),
        "frozen without gradient": ours.frozen.grad is None,
    }


def a_second_backward() -> str:
    """What it raises."""
    loss = modules.trained()(modules.inputs()).sum()
    loss.backward()
    try:
        loss.backward()
    except RuntimeError as error:
        return str(error)
    return "no error"


def side_effects() -> dict[str, Any]:
    return {"done": DONE, "inductor": inductor_is_imported()}


def gradients_under_checkpoint() -> dict[str, Any]:
    """Of a model that drops numbers at random: whether the backward drops those that the forward did."""
    seen = {}
    for name, ways in {"no checkpoint": None, "reentrant": True, "not reentrant": False}.items():
        x, model, before = modules.inputs().requires_grad_(), modules.dropping(), hits("dropping")
        torch.manual_seed(1)
        y = model(x) if ways is None else checkpoint(model, x, use_reentrant=ways)
        y.sum().backward()
        expected = (y != 0).to(x.dtype).sum(0) * 2
        right = torch.allclose(model.layer.bias.grad, expected)
        seen[name] = {"right": right, "hits": hits("dropping") - before}
    return seen
