"""What of torch a capture imports sooner or later: three seconds. Seen in torch 2.13.0 to 2.15.0."""

# ruff: noqa: E402, F401

import os
import tempfile

# Importing the compiler makes torch's cache folder; here that is one that is there already.
_KEPT = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = _KEPT or tempfile.gettempdir()

import sympy.physics.units
import sympy.tensor.tensor
import torch._dynamo
import torch._inductor.compile_fx
import torch.distributed.tensor.experimental._func_map
import torch.utils.cpp_extension

if _KEPT is None:
    del os.environ["TORCHINDUCTOR_CACHE_DIR"]
