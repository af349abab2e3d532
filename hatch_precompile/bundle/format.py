"""What the writer and the reader of a bundle agree on. See docs/bundle-format.md."""

from __future__ import annotations

from hatch_precompile.runtime import RUNTIME_PACKAGE
from hatch_precompile.validation.manifest_rules import FORMAT
from hatch_precompile.validation.manifests import INDEX_FORMAT

__all__ = ["BUNDLE", "FORMAT", "INDEX", "INDEX_FORMAT", "MANIFEST"]

BUNDLE = f"{RUNTIME_PACKAGE}/bundle/"
"""Below the folder of the package."""

MANIFEST = f"{BUNDLE}manifest.json"

INDEX = f"{BUNDLE}cells.json"
"""In the place of the manifest, where there are several cells."""
