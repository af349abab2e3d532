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
    "LISTED",
    "check_index",
    "is_name",
    "manifest_of",
    "nearest",
    "of_this_python",
    "of_this_torch",
    "read_index",
    "stored_as",
]

FORMAT = 1

LISTED = ("magic", "python", "torch", "cuda")
"""What the index says of a cell beside its name; the last where the cell has code for GPUs."""

INDEX = "cells.json"
"""In the folder of the bundle."""

_OF_VERSIONS = frozenset("0123456789abcdefghijklmnopqrstuvwxyz.!")


def is_name(name: str) -> bool:
    """Whether this may be the name of a cell, which becomes that of a file. A pattern would take longer."""
    interpreter, _, torch = name.partition("-torch")
    torch, has_cuda, cuda = torch.partition("-cu")
    number = interpreter.removeprefix("cp")
    are_numbers = all(each.isascii() and each.isdigit() for each in (number, *([cuda] if has_cuda else [])))
    return interpreter != number and are_numbers and bool(torch) and _OF_VERSIONS.issuperset(torch)


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
        or not all(isinstance(cell.get("cuda", ""), str) for cell in cells)
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
    of_python = of_this_python(cells)
    torch: Any = sys.modules["torch"]
    fitting = [cell for cell in of_python if public(cell["torch"]) == public(torch.__version__)]
    if not fitting:
        raise Unfit(_none_fits(cells, of_python))
    if len(fitting) == 1:
        return fitting[0]
    return fitting[nearest([cell.get("cuda") for cell in fitting], torch.version.cuda)]


def nearest(cudas: list[str | None], here: str | None) -> int:
    """Of cells with the same torch, built for these CUDAs or None, the place of that for a torch which is
    built for `here`. Where there is none, any serves on the CPU."""
    for wanted in (here, None):
        if wanted in cudas:
            return cudas.index(wanted)
    return 0


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
        versions = torches.setdefault(cell["python"], [])
        if public(cell["torch"]) not in versions:
            versions.append(public(cell["torch"]))
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
