"""Finds the object that a reference of the configuration names, or says what may be meant."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hatch_precompile.errors import CaptureError
from hatch_precompile.looking import dict_of

__all__ = ["find_reference"]


def find_reference(reference: str, key: str) -> Any:
    """The object a "pkg.mod:qual.name" names. Raises CaptureError naming the key."""
    module_name, _, qualname = reference.partition(":")
    try:
        value: Any = importlib.import_module(module_name)
    except Exception as error:
        told = f'{key} = "{reference}": cannot import {module_name} ({_words(error)})'
        raise CaptureError(f"{told}{_hint(module_name, error)}") from error
    for part in qualname.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            meant = _meant(part, dict_of(value))
            raise CaptureError(f'{key} = "{reference}": {module_name} has no {qualname}{meant}') from None
    return value


def _words(error: Exception) -> str:
    """What an import raised. An ImportError says all in its text; others also where they come from."""
    if isinstance(error, ImportError):
        return str(error)
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}, at {error.filename}:{error.lineno}"
    frames = [each for each in traceback.extract_tb(error.__traceback__) if Path(each.filename).is_file()]
    at = f", at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {error}{at}"


def _hint(module: str, error: Exception) -> str:
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return ""
    if module != error.name and not module.startswith(f"{error.name}."):
        return f"; if {error.name} is what the package requires, name it in its dependencies"
    parent, _, name = error.name.rpartition(".")
    path = dict_of(sys.modules[parent]).get("__path__", ()) if parent else sys.path[:1]
    meant = _meant(
        name, [each.name for each in pkgutil.iter_modules(path)], prefix=f"{parent}." if parent else ""
    )
    return meant or "; the project has no such file where its package is, and only what is there can be named"


def _meant(name: str, names: Any, prefix: str = "") -> str:
    alike = {each.lower(): each for each in names if not each.startswith("__")}
    close = get_close_matches(name.lower(), alike, n=1, cutoff=0.7)
    return f"; did you mean {prefix}{alike[close[0]]}?" if close else ""
