"""A wheel of several cells: its index, and the cell that is for this Python and this torch.

Loaded where the bundle has an index in the place of a manifest; hatch_precompile/merge/ writes it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

from ..errors import Unfit
from .manifest import cell_name, has_strings, public, read_json

__all__ = [
    "FORMAT",
    "INDEX",
    "check_index",
    "is_name",
    "manifest_of",
    "of_this_python",
    "of_this_torch",
    "read_index",
    "stored_as",
]

FORMAT = 1

INDEX = "cells.json"
"""In the folder of the bundle."""

_OF_VERSIONS = frozenset("0123456789abcdefghijklmnopqrstuvwxyz.!")


def is_name(name: str) -> bool:
    """Whether this may be the name of a cell, which becomes that of a file. A pattern would take longer."""
    interpreter, _, torch = name.partition("-torch")
    number = interpreter.removeprefix("cp")
    is_interpreter = interpreter != number and number.isascii() and number.isdigit()
    return is_interpreter and bool(torch) and _OF_VERSIONS.issuperset(torch)


def manifest_of(name: str) -> str:
    """Where the manifest of a cell lies, below the folder of the bundle."""
    return f"cells/{name}.json"


def stored_as(name: str, digest: str) -> str:
    """Where a file of a cell lies, below the folder of the bundle: once, whichever cells have it."""
    return f"files/{digest}{os.path.splitext(name)[1]}"


def read_index(directory: str) -> list[dict[str, Any]]:
    """The cells of a wheel. Raises Unfit, and Missing where there is no index."""
    path = os.path.join(directory, INDEX)
    return check_index(read_json(path), path)


def check_index(index: Any, path: str) -> list[dict[str, Any]]:
    """The cells that an index lists, if it is one that this runtime reads. Raises Unfit."""
    found = index.get("format") if isinstance(index, dict) else None
    if found != FORMAT:
        raise Unfit(f"{path} has format {found!r}, this runtime reads {FORMAT}; reinstall the package")
    cells: Any = index.get("cells")
    if (
        not isinstance(cells, list)
        or not cells
        or not all(has_strings(cell, "name", "magic", "python", "torch") for cell in cells)
        or not all(is_name(cell["name"]) and cell["name"] == cell_name(cell) for cell in cells)
    ):
        raise Unfit(f"{path} is damaged; reinstall the package")
    whole: list[dict[str, Any]] = cells
    return whole


def of_this_python(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cells of this Python. Raises Unfit if there is none."""
    here = importlib.util.MAGIC_NUMBER.hex()
    fitting = [cell for cell in cells if cell["magic"] == here]
    if not fitting:
        raise Unfit(_none_fits(cells, []))
    return fitting


def of_this_torch(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """The cell of this Python and of the torch that has been imported. Raises Unfit if there is none."""
    fitting = of_this_python(cells)
    here = public(sys.modules["torch"].__version__)
    for cell in fitting:
        if public(cell["torch"]) == here:
            return cell
    raise Unfit(_none_fits(cells, fitting))


def _none_fits(cells: list[dict[str, Any]], fitting: list[dict[str, Any]]) -> str:
    """What the wheel has, what is here, and what would help. fitting: the cells of this Python."""
    python, torch = f"{sys.version_info[0]}.{sys.version_info[1]}", _torch_here()
    here = f"Python {python} with torch {torch}" if torch else f"Python {python} without torch"
    has = f"it was built for {_listed(cells)}; this is {here}"
    if fitting:
        advice = " or ".join(f"torch=={version}" for version in _versions(fitting))
        return f"{has}; install {advice}, or a wheel built with this torch"
    same = [cell for cell in cells if public(cell["torch"]) == public(torch)]
    pythons = " or ".join(dict.fromkeys(cell["python"] for cell in same or cells))
    with_torch = "" if same else f" with torch {' or '.join(_versions(cells))}"
    return f"{has}; use Python {pythons}{with_torch}, or install a wheel built for this Python"


def _listed(cells: list[dict[str, Any]]) -> str:
    """`Python 3.11, 3.12 with torch 2.13.0, 2.14.1`: Pythons with the same torches stand together."""
    torches: dict[str, list[str]] = {}
    for cell in cells:
        torches.setdefault(cell["python"], []).append(public(cell["torch"]))
    pythons: dict[str, list[str]] = {}
    for python, versions in torches.items():
        pythons.setdefault(", ".join(versions), []).append(python)
    return " and ".join(f"Python {', '.join(group)} with torch {torch}" for torch, group in pythons.items())


def _versions(cells: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(public(cell["torch"]) for cell in cells))


def _torch_here() -> str:
    """The version of torch, which may not have been imported; empty where there is none."""
    imported = getattr(sys.modules.get("torch"), "__version__", None)
    if imported is not None:
        return str(imported)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


WHOLE = True
