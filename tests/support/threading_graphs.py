"""What tests/capture/test_threads.py compiles, in several processes."""

from __future__ import annotations

# Rows: too few for two threads, and enough.
FEW, MANY = 30, 4000


def several(x):
    """Loops of several lengths, of which some go together into one kernel."""
    rows = (x.sin() * 2).softmax(-1)
    return rows + rows.sum() + x.cos().sum(0) + x[:1].exp()
