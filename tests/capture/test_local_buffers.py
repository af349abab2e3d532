"""Rows that are computed several at a time, and kept for the loop that follows: torch.compile keeps one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.graphs import load_graph, save_graph


def normalized(a, b, c, d, e, w):  # type: ignore[no-untyped-def]
    """The sum has more terms than inductor computes twice; the first lies transposed in memory."""
    total = a.transpose(1, 2) + b + c + d + e
    return w * (total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-5))


@pytest.mark.parametrize("rows", [16, 8, 37])
def test_each_row_has_its_own(tmp_path: Path, rows: int) -> None:
    made = torch.Generator().manual_seed(0)
    inputs = {name: torch.randn(1, rows, 256, generator=made) for name in "bcde"}
    inputs["a"] = torch.randn(1, 256, rows, generator=made)
    inputs["w"] = torch.randn(256, generator=made)
    assert not save_graph(tmp_path, normalized, inputs).record.why_python
    (found,) = load_graph(tmp_path)(**inputs)
    torch.testing.assert_close(found, normalized(**inputs))
