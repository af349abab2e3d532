from __future__ import annotations

from collections.abc import Iterator

import torch


def few() -> Iterator[tuple[torch.Tensor]]:
    """What its author thought of: one text of four tokens."""
    yield (torch.ones(1, 4, dtype=torch.int64),)
