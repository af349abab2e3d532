"""The runtime's modules, as the plugin uses them on the build machine.

Names and fingerprints must be read exactly as they are written, so both sides run the same code:
the runtime's. It is loaded under a name of its own, from where it waits to be copied into wheels.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["RUNTIME_PACKAGE", "runtime", "runtime_directory"]

RUNTIME_PACKAGE = "_precompiled"
"""The name of the runtime inside the package that carries it."""

_NAME = "hatch_precompile_runtime"


def runtime_directory() -> Path:
    """The folder that becomes `<package>/_precompiled`, less its bundle.

    The plugin's own wheel carries it as `_templates`; in a checkout it is `templates`, beside the plugin.
    """
    here = Path(__file__).resolve().parent
    installed = here / "_templates"
    return installed if installed.is_dir() else here.parent / "templates"


def runtime(module: str) -> ModuleType:
    """A module of the runtime, such as `runtime("values.references")`."""
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
