"""Memory of a call's own: what a graph writes to must lie where no other tensor that it takes lies."""

from __future__ import annotations

import pytest
import torch

from hatch_precompile.runtime import runtime

apart_in_memory = runtime("torch_internals.torch_private").apart_in_memory
BASE = torch.arange(24.0)


def rows(start: int, stop: int) -> torch.Tensor:
    return BASE[start:stop].view(-1, 4)


@pytest.mark.parametrize(
    ("written", "others"),
    [
        ([rows(0, 12)], [rows(4, 16)]),
        ([rows(0, 12)], [BASE[:]]),
        ([rows(0, 12)], [BASE.detach()]),
        ([BASE[3:4]], [BASE.view(4, 6).t()]),
        ([BASE[::2]], [BASE[4:9]]),
        ([rows(0, 8), rows(8, 16), rows(4, 12)], []),
        ([torch.zeros(3), rows(0, 8)], [torch.zeros(3), rows(20, 24), rows(4, 8), torch.zeros(3)]),
        ([torch.from_numpy(BASE.numpy())], [BASE]),
        ([torch.nn.Parameter(BASE)], [BASE]),
        ([BASE[:1].expand(5)], [BASE]),
    ],
)
def test_what_shares_memory_with_what_is_written_is_refused(
    written: list[torch.Tensor], others: list[torch.Tensor]
) -> None:
    assert not apart_in_memory(tuple(written), tuple(others))


@pytest.mark.parametrize(
    ("written", "others"),
    [
        ([rows(0, 12)], [rows(12, 24)]),
        ([torch.zeros(3)], [rows(0, 12), rows(4, 16), BASE]),  # these share it, and are only read
        ([BASE[:0]], [BASE]),
        ([torch.zeros(3), torch.zeros(3)], [torch.zeros(3).expand(2, 3)]),
        ([], [BASE, BASE[1:]]),
    ],
)
def test_all_else_is_served(written: list[torch.Tensor], others: list[torch.Tensor]) -> None:
    assert apart_in_memory(tuple(written), tuple(others))
