"""What helps against errors that the author's code raises in a build, and where it raised them."""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import Path

import torch

import hatch_precompile
from hatch_precompile.runtime import runtime_directory

__all__ = ["about_gpus", "own_line"]

_NOT_THEIRS = tuple(
    f"{folder}{os.sep}"
    for folder in (Path(hatch_precompile.__file__).parent, runtime_directory(), Path(torch.__file__).parent)
)
_STANDARD_LIBRARY = sysconfig.get_path("stdlib")
_INSTALLED = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))


def about_gpus(error: BaseException, what: str) -> str:
    """The end of a sentence where something was put onto a GPU; else nothing. what: "models are", say."""
    # Torch's words for an operator that a backend has not got name all backends.
    is_one = not isinstance(error, NotImplementedError) and any(
        word in str(error) for word in ("CUDA", "NVIDIA")
    )
    return f"; {what} made on the CPU, for which the build compiles" if is_one else ""


def own_line(error: BaseException) -> str:
    """The last line of the author's that an exception came through, `/src/acme/model.py:10 in forward`, or
    nothing: no line of Python's, torch's or this package's."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        pythons = frame.filename.startswith(_STANDARD_LIBRARY) and not frame.filename.startswith(_INSTALLED)
        if not (pythons or frame.filename.startswith(("<", *_NOT_THEIRS))):
            return f"{frame.filename}:{frame.lineno} in {frame.name}"
    return ""
