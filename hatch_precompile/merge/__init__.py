"""Several wheels of one project, each built for one Python and one torch, as one wheel. None of it is run."""

from __future__ import annotations

from hatch_precompile.merge.merging import Merged, merge_wheels

__all__ = ["Merged", "merge_wheels"]
