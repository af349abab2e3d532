"""The last states of an LSTM that is traced step by step: torch 2.11 gives them a dimension too many.

That is one that gets gradients, or has projections; oneDNN has a function for the others. Dynamo breaks the
graph at recurrent layers, so that torch.compile does not come there. Later ones give the right shape.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import torch

__all__ = ["states_of_two_dimensions"]


def states_of_two_dimensions() -> AbstractContextManager[Any]:
    """While the block traces, an LSTM's last states, hidden and cell, are of shape (batch, units) for each
    layer and direction."""
    from torch._decomp import decompositions

    steps = decompositions.one_layer_lstm

    def one_layer_lstm(*arguments: Any, **keywords: Any) -> Any:
        out, states = steps(*arguments, **keywords)
        return out, tuple(map(_of_two_dimensions, states))

    return patch.object(decompositions, "one_layer_lstm", one_layer_lstm)


def _of_two_dimensions(state: torch.Tensor) -> torch.Tensor:
    return state.squeeze(0) if state.dim() == 3 else state
