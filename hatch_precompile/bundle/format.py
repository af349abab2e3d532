"""What the writer and the reader of a bundle agree on. See docs/bundle-format.md."""

from __future__ import annotations

from hatch_precompile.runtime import RUNTIME_PACKAGE

__all__ = ["FORMAT", "MANIFEST"]

FORMAT = 2
"""The runtime reads bundles of just this one (templates/manifest.py has the same number)."""

MANIFEST = f"{RUNTIME_PACKAGE}/bundle/manifest.json"
"""Below the folder of the package."""
