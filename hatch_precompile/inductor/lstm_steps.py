"""Which LSTM layers are traced step by step, and the last states of those.

torch.compile breaks the graph at recurrent layers: it does not come to what is mended here. oneDNN has a
function for most layers, and torch traces the others step by step: those with projections, and those whose
input gets gradients. Where only weights do, it takes oneDNN's, and then stops at something that is saved for
the backward and is no tensor. Torch 2.11 gives the last states of the steps a dimension too many. Seen in
torch 2.11.0, 2.13.0 and 2.14.1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import chain
from typing import Any
from unittest.mock import patch

import torch

__all__ = ["lstm_steps"]


@contextlib.contextmanager
def lstm_steps() -> Iterator[None]:
    """While the block traces, an LSTM is traced step by step where anything of it gets gradients, and its
    last states, hidden and cell, are of shape (batch, units) for each layer and direction."""
    from torch._decomp import decompositions

    steps, choose = decompositions.one_layer_lstm, decompositions.select_one_layer_lstm_function

    def one_layer_lstm(*arguments: Any, **keywords: Any) -> Any:
        out, states = steps(*arguments, **keywords)
        return out, tuple(map(_of_two_dimensions, states))

    def choose_for_gradients(x: Any, states: Any, weights: Any) -> Any:
        tensors = chain([x], states, *weights)
        with_gradients = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
        return one_layer_lstm if with_gradients else choose(x, states, weights)

    with (
        patch.object(decompositions, "one_layer_lstm", one_layer_lstm),
        patch.object(decompositions, "select_one_layer_lstm_function", choose_for_gradients),
    ):
        yield


def _of_two_dimensions(state: torch.Tensor) -> torch.Tensor:
    return state.squeeze(0) if state.dim() == 3 else state
