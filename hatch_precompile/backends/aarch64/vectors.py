"""Which vectors of a 64-bit Arm processor inductor writes for, and which compilers can compile that."""

from __future__ import annotations

import copy
import os
import re
import subprocess
from collections.abc import Collection
from functools import cache
from typing import Any

__all__ = ["compiler_that_fails", "vectors_of"]

_OLDEST_GCC = 13


def vectors_of(requires: Collection[str]) -> Any:
    """Those of inductor for a variant: of SVE where it has them, which are 256 bits wide, else those that
    every processor has."""
    return _vectors("CPU_CAPABILITY_SVE256" if "sve256" in requires else "CPU_CAPABILITY_NEON")


@cache
def _vectors(macro: str) -> Any:
    """Inductor's own for a macro of torch's headers, known to work: it would compile something
    in each process to see that. Of flags only the length: the others are what a level has (levels.py).
    """
    from torch._inductor import cpu_vec_isa

    flags = "-msve-vector-bits=256" if macro == "CPU_CAPABILITY_SVE256" else ""
    (found,) = [each for each in cpu_vec_isa.supported_vec_isa_list if macro in each.build_macro()]
    cls = type(found)
    methods = {
        "__bool__": lambda self: True,
        "__hash__": cls.__hash__,
        "build_arch_flags": lambda self: flags,
    }
    vectors = copy.copy(found)
    vectors.__class__ = type(cls.__name__, (cls,), methods)
    return vectors


def compiler_that_fails(requires: Collection[str]) -> str:
    """What the C++ compiler is, in words, where it is one that fails at SVE; else an empty text.

    GCC 10 to 12 end with internal errors at torch's headers for SVE (pytorch issues 137775 and 162422; 12.2
    at those of torch 2.13.0). What GCC 12 makes wrong of argmin and argmax (137597), those headers go around.
    """
    if "sve" not in requires:
        return ""
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-E", "-dM", "-x", "c++", os.devnull]
    try:
        macros = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""  # the build says that there is none
    version = re.search(r"^#define __GNUC__ (\d+)$", macros, re.MULTILINE)
    if version is None or "#define __clang__ " in macros or int(version[1]) >= _OLDEST_GCC:
        return ""
    return f"{compiler} is GCC {version[1]}, which fails at code for SVE; install GCC {_OLDEST_GCC} or newer"
