"""Finds the object that a reference of the configuration names, or says what may be meant."""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hatch_precompile.errors import CaptureError
from hatch_precompile.static_lookup import dict_of

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
    parent, _, name = error.name.rpartition(".")
    if module != error.name and not module.startswith(f"{error.name}."):
        sibling = f"{module.rpartition('.')[0]}.{error.name}"
        if "." not in error.name and _is_there(sibling):
            return f"; did you mean {sibling}? A module of the same package is imported by its full name"
        if _is_of_the_package(module, parent):
            return (
                f"; {parent} has no such module; if something makes its file, that must run before the build"
            )
        return f"; if {error.name} is what the package requires, name it in its dependencies"
    package = sys.modules.get(parent)  # none where its __init__ has failed
    path = sys.path[:1] if not parent else dict_of(package).get("__path__", ()) if package is not None else ()
    if error.name == "src" and _is_there(within := module.removeprefix("src.")):
        return f"; did you mean {within}? The folder src is no part of a module's name"
    if hidden := _hidden(module.partition(".")[0]):
        return f"; {hidden} cannot be imported beside a module of the same name: call the package otherwise"
    meant = _meant(
        name, [each.name for each in pkgutil.iter_modules(path)], prefix=f"{parent}." if parent else ""
    )
    return meant or "; the project has no such file where its package is, and only what is there can be named"


def _hidden(name: str) -> str:
    """The folder of a package on the path, where another module of its name has been imported."""
    folders = (Path(each, name).absolute() for each in sys.path)
    folder = next((each for each in folders if (each / "__init__.py").is_file()), None)
    if folder is None or name not in sys.modules:
        return ""
    used = dict_of(sys.modules[name]).get("__file__")  # None: of a module that is built into Python
    return "" if used is not None and Path(used).is_relative_to(folder) else str(folder)


def _is_there(module: str) -> bool:
    """Whether a module would be found."""
    try:
        return importlib.util.find_spec(module) is not None
    except Exception:  # an __init__ may run again for it, the author's, which has failed
        return False


def _is_of_the_package(module: str, parent: str) -> bool:
    """Whether what is missing in `parent` would be the project's own, and not that of another distribution in
    the same namespace. A package whose `__init__` has failed is in `sys.modules` no more."""
    root = module.partition(".")[0]
    if parent in sys.modules:
        found = dict_of(sys.modules[parent]).get("__file__")
    else:
        spec = importlib.util.find_spec(root)
        found = spec.origin if spec is not None else None
    return parent.partition(".")[0] == root and found is not None


def _meant(name: str, names: Any, prefix: str = "") -> str:
    alike = {each.lower(): each for each in names if not each.startswith("__")}
    close = get_close_matches(name.lower(), alike, n=1, cutoff=0.7)
    return f"; did you mean {prefix}{alike[close[0]]}?" if close else ""
