"""GRU layers as one operator of ours, from the trace on to where the steps are made (recurrent.py).

torch knows no such operator: it traces step by step, for one number of steps, and the graph has a dozen
operations for each. This one is traced for any number of steps. What gets gradients or is in a transform of
torch.func, and all but float32 on a CPU, is traced as torch does.
Seen in torch 2.11.0 to 2.15.0 (`one_layer_rnn` and `gru_cell` in torch/_decomp/decompositions.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import is_fake

__all__ = ["GRU_LAYER", "gru_layers_whole"]

_OPERATORS = torch.library.Library("hatch_precompile", "DEF")
_OPERATORS.define(
    "gru_layer(Tensor x, Tensor w_inputs, Tensor w_state, Tensor? b_inputs, Tensor? b_state, Tensor hx, "
    "bool reverse) -> (Tensor, Tensor)"
)

GRU_LAYER = torch.ops.hatch_precompile.gru_layer.default
"""One layer in one direction: its output, (steps, batch, size), and the last state, (1, batch, size).

x: (steps, batch, columns); w_inputs: (3 * size, columns); w_state: (3 * size, size); b_inputs, b_state: (3 *
size), or none of both; hx: (1, batch, size), the first state; reverse: from the last step on. It is in graphs
alone, where it gives shapes: nothing calls it.
"""


def _shapes(x: Any, w_inputs: Any, w_state: Any, b_inputs: Any, b_state: Any, hx: Any, reverse: bool) -> Any:
    steps, batch, _ = x.shape
    return x.new_empty(steps, batch, w_state.shape[1]), torch.empty_like(hx)


_OPERATORS.impl("gru_layer", _shapes, "Meta")


@contextlib.contextmanager
def gru_layers_whole() -> Iterator[None]:
    """While the block traces, a layer of a GRU is one node, where it can be."""
    from torch._decomp import decompositions

    by_steps = decompositions.one_layer_rnn

    def one_layer_rnn(
        x: Any, hidden: Any, weights: Sequence[Any], has_biases: bool, hidden_fn: Any, reverse: bool = False
    ) -> Any:
        if hidden_fn is not decompositions.gru_cell or not _can_be_whole(x, hidden, weights):
            return by_steps(x, hidden, weights, has_biases, hidden_fn, reverse)
        biases = weights[2:4] if has_biases else (None, None)
        made, last = GRU_LAYER(x, *weights[:2], *biases, hidden.unsqueeze(0).contiguous(), reverse)
        return made, last.squeeze(0)

    with patch.object(decompositions, "one_layer_rnn", one_layer_rnn):
        yield


def _can_be_whole(x: Any, hidden: Any, weights: Sequence[Any]) -> bool:
    tensors = [x, hidden, *weights]
    if not is_fake(x):  # eager code under forward-mode gradients comes here, too
        return False
    if any(each.dtype != torch.float32 or each.device.type != "cpu" for each in tensors):
        return False
    if torch.is_autocast_enabled("cpu") or any(map(torch._C._functorch.is_functorch_wrapped_tensor, tensors)):
        return False
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
        return False
    known = all(isinstance(size, int) and size for each in weights for size in each.shape)
    return known and x.dim() == 3 and x.shape[0] != 0
