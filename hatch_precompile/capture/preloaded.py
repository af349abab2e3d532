"""What every capture imports sooner or later, for the process they are forked from: three seconds each."""

# ruff: noqa: F401

import sympy.physics.units
import sympy.tensor.tensor
import torch._dynamo
import torch._inductor.compile_fx
import torch.distributed.tensor.experimental._func_map
import torch.utils.cpp_extension

import hatch_precompile.capture.session
