"""Where the headers of CUDA are: in the packages that torch's GPU build requires. No toolkit is needed, and
none that may be there is used, so that every machine compiles the same."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from hatch_precompile.errors import BuildError

__all__ = ["include_folders"]

# Of the runtime's headers, by NVIDIA's package for CUDA 13 and for 12; some of what they include is in
# Triton's alone.
_RUNTIME = ("cu13/include", "cuda_runtime/include")
_TRITON = "backends/nvidia/include"


def include_folders() -> list[Path]:
    """In the order in which they are searched. Raises BuildError where a package is not installed."""
    runtime = [folder / below for folder in _folders("nvidia") for below in _RUNTIME]
    triton = [folder / _TRITON for folder in _folders("triton")]
    found = [
        next((each for each in places if (each / "cuda.h").is_file()), None) for places in (runtime, triton)
    ]
    if None in found:
        missing = "nvidia-cuda-runtime" if found[0] is None else "triton"
        raise BuildError(
            f"the headers of CUDA are in the package {missing}, which is not installed; "
            "a torch built for CUDA requires it"
        )
    return [each for each in found if each is not None]


def _folders(package: str) -> list[Path]:
    spec = find_spec(package)
    return [Path(each) for each in (spec and spec.submodule_search_locations) or ()]
