"""A model with a table, a mask, a flag, and a choice that is a string."""

from __future__ import annotations

import torch
from torch import nn


class Scorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(16, 8)
        self.head = nn.Linear(8, 4)

    def forward(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor | None = None,
        *,
        double: bool = False,
        pooling: str = "mean",
    ) -> torch.Tensor:
        found = self.table(ids)
        if mask is not None:
            found = found * mask.unsqueeze(-1)
        pooled = found.amax(1) if pooling == "max" else found.mean(1)
        scores = self.head(pooled)
        return scores * 2 if double else scores
