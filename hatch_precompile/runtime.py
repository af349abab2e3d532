"""The runtime's modules, as the plugin uses them on the build machine.

Names and fingerprints must be read exactly as they are written, so both sides run the same code:
the runtime's. It is loaded under a name of its own, from where it waits to be copied into wheels; for mypy it
is the package `templates`, so that whoever calls it wrongly is told.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from templates import errors
    from templates.calling import prologue
    from templates.dependencies import call_checks, comparison, fingerprints
    from templates.graphs import callers, weights
    from templates.loading import cells, helpers, manifest
    from templates.torch_internals import torch_frames, torch_private
    from templates.values import parametrized, references, static_lookup

__all__ = [
    "RUNTIME_PACKAGE",
    "call_checks",
    "callers",
    "cells",
    "comparison",
    "errors",
    "fingerprints",
    "helpers",
    "manifest",
    "parametrized",
    "prologue",
    "references",
    "runtime",
    "runtime_directory",
    "static_lookup",
    "torch_frames",
    "torch_private",
    "weights",
]

RUNTIME_PACKAGE = "_precompiled"
"""The name of the runtime inside the package that carries it."""

_NAME = "hatch_precompile_runtime"

# Where the modules above are in the runtime.
_PLACES = {
    "callers": "graphs.callers",
    "call_checks": "dependencies.call_checks",
    "cells": "loading.cells",
    "comparison": "dependencies.comparison",
    "errors": "errors",
    "fingerprints": "dependencies.fingerprints",
    "helpers": "loading.helpers",
    "manifest": "loading.manifest",
    "parametrized": "values.parametrized",
    "prologue": "calling.prologue",
    "references": "values.references",
    "static_lookup": "values.static_lookup",
    "torch_frames": "torch_internals.torch_frames",
    "torch_private": "torch_internals.torch_private",
    "weights": "graphs.weights",
}


def runtime_directory() -> Path:
    """The folder that becomes `<package>/_precompiled`, less its bundle.

    The plugin's own wheel carries it as `_templates`; in a checkout it is `templates`, beside the plugin.
    """
    here = Path(__file__).resolve().parent
    installed = here / "_templates"
    return installed if installed.is_dir() else here.parent / "templates"


def runtime(module: str) -> ModuleType:
    """A module of the runtime by its name, such as `runtime("backends.aarch64")`. What is not a backend's,
    the plugin imports from here by the names above, and mypy follows it."""
    if _NAME not in sys.modules:
        directory = runtime_directory()
        spec = importlib.util.spec_from_file_location(
            _NAME, directory / "__init__.py", submodule_search_locations=[str(directory)]
        )
        assert spec is not None and spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules[_NAME] = package
        spec.loader.exec_module(package)
    return importlib.import_module(f"{_NAME}.{module}")


if not TYPE_CHECKING:  # which would take every name for one of the runtime's

    def __getattr__(name: str) -> ModuleType:
        """One of the modules, when it is first asked for: those of graphs import torch."""
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return runtime(_PLACES[name])
