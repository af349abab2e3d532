"""Observing dynamo: what it traces, its guard tree, what it took for constant.

Every private name of torch that this needs stands here, behind names that say what it is for.

Seen in torch 2.11.0 and 2.13.0 to 2.15.0; what has another name in one of them is in torch_versions.py.
tests/torch_internals fails first when one of them changes.
The runtime's own are templates/torch_internals/torch_private.py and templates/graphs/callers.py.
"""

from __future__ import annotations

from hatch_precompile.tracing.assumptions.keys import Asked
from hatch_precompile.tracing.assumptions.notes import Assumed, Call, Obstacle, closure_of
from hatch_precompile.tracing.dynamo import (
    NO_OPERATIONS,
    FrameTrace,
    below_decorators,
    changes_grad_mode,
    compiled_graph,
    compiling_with,
    constants_of_kernel,
    dispatch_keys,
    einops_was_prepared,
    enters_a_context,
    forget,
    graph_break_reasons,
    guard_builder,
    guard_manager_classes,
    input_sources,
    inside_compile,
    is_compiled,
    is_compiler,
    is_compilers_error,
    is_passed_over,
    is_torchs_own,
    last_line,
    pytree_registry,
    random_calls,
    relational_guards,
    tracing_frames,
    wants_fullgraph,
)
from hatch_precompile.tracing.resume_functions import RESUME_FUNCTIONS, resume_function

__all__ = [
    "NO_OPERATIONS",
    "RESUME_FUNCTIONS",
    "Asked",
    "Call",
    "Assumed",
    "FrameTrace",
    "Obstacle",
    "below_decorators",
    "changes_grad_mode",
    "closure_of",
    "compiled_graph",
    "compiling_with",
    "constants_of_kernel",
    "dispatch_keys",
    "einops_was_prepared",
    "enters_a_context",
    "forget",
    "graph_break_reasons",
    "guard_builder",
    "guard_manager_classes",
    "input_sources",
    "inside_compile",
    "is_compiled",
    "is_compiler",
    "is_compilers_error",
    "is_passed_over",
    "is_torchs_own",
    "last_line",
    "pytree_registry",
    "random_calls",
    "relational_guards",
    "resume_function",
    "tracing_frames",
    "wants_fullgraph",
]
