"""What the writer and the reader of a bundle agree on. See docs/bundle-format.md."""

from __future__ import annotations

__all__ = ["FORMAT", "MANIFEST", "RUNTIME_PACKAGE"]

FORMAT = 2
"""The runtime reads bundles of just this one (templates/installation.py has the same number)."""

RUNTIME_PACKAGE = "_precompiled"
"""The name of the runtime inside the package that carries it."""

MANIFEST = f"{RUNTIME_PACKAGE}/bundle/manifest.json"
"""Below the folder of the package."""
