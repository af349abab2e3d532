"""Where the runtime's modules wait to be copied into a wheel."""

from __future__ import annotations

from pathlib import Path

__all__ = ["runtime_directory"]


def runtime_directory() -> Path:
    """The folder that becomes `<package>/_precompiled`, less its bundle.

    The plugin's own wheel carries it as `_templates`; in a checkout it is `templates`, beside the plugin.
    """
    here = Path(__file__).resolve().parent
    installed = here / "_templates"
    return installed if installed.is_dir() else here.parent / "templates"
