"""What the writer and the reader of a bundle agree on. See docs/bundle-format.md."""

from __future__ import annotations

from hatch_precompile.runtime import RUNTIME_PACKAGE

__all__ = ["BUNDLE", "FORMAT", "INDEX", "INDEX_FORMAT", "MANIFEST"]

FORMAT = 2
"""The runtime reads bundles of just this one (templates/manifest.py has the same number)."""

INDEX_FORMAT = 1
"""The same of the index of a merged wheel (templates/cells.py)."""

BUNDLE = f"{RUNTIME_PACKAGE}/bundle/"
"""Below the folder of the package."""

MANIFEST = f"{BUNDLE}manifest.json"

INDEX = f"{BUNDLE}cells.json"
"""In the place of the manifest, where there are several cells."""
