"""The versions of torch that are known, and what of torch's private parts has another name in some of them.

Whatever torch calls otherwise in one version than in another is asked for here, by our name for it. That all
of it is there is checked before a build traces anything.

Seen in torch 2.11.0, 2.12.1, 2.13.0, 2.14.1 and 2.15.0; with 2.12.1 parts of the test suite have been run.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from hatch_precompile.errors import BuildError

__all__ = ["KNOWN_TORCH", "require_torch_names", "torch_name", "way"]

KNOWN_TORCH = ("2.11", "2.12", "2.13", "2.14", "2.15")
"""The minor versions of torch whose private parts are known, the oldest first."""

_SHAPES = "torch.fx.experimental.symbolic_shapes"
_VARIABLES = "torch._dynamo.variables"
_BUILTIN = f"{_VARIABLES}.builtin:BuiltinVariable"
_OBJECT = f"{_VARIABLES}.user_defined:UserDefinedObjectVariable"
_CPP = "torch._inductor.codegen.cpp_wrapper_cpu:CppWrapperCpu"

# Our name -> "module:attribute" in torch, that of the newest version first.
NAMES = {
    "value of a size in the sample": (f"{_SHAPES}:optimization_hint", f"{_SHAPES}:size_hint"),
    "whether a size has such a value": (f"{_SHAPES}:has_guarding_hint", f"{_SHAPES}:has_hint"),
    "set": (f"{_VARIABLES}.sets:SetVariable", f"{_VARIABLES}.dicts:SetVariable"),
    "frozenset": (f"{_VARIABLES}.sets:FrozensetVariable", f"{_VARIABLES}.dicts:FrozensetVariable"),
    "what set and frozenset have in common": (
        f"{_VARIABLES}.sets:BaseSetVariable",
        f"{_VARIABLES}.sets:SetVariable",
        f"{_VARIABLES}.dicts:SetVariable",
    ),
    "key of a set or a dict": (
        f"{_VARIABLES}.hashable:HashableTracker",
        f"{_VARIABLES}.dicts:ConstDictVariable._HashableTracker",
    ),
    "the class dict": (f"{_VARIABLES}.builtin:DictBuiltinVariable", _BUILTIN),
    # Of one name in all of them
    "what is called when a frame is traced": (
        "torch._dynamo.output_graph:OutputGraph.run_compiler_collective",
    ),
    "what takes a NULL off the stack": ("torch._dynamo.codegen:PyCodegen.pop_null",),
    "whether a graph may be empty": ("torch._dynamo.config:allow_empty_graphs",),
    "what made a tensor, in words": ("torch._inductor.ir:ExternKernel.get_op_name",),
    "all steps of an LSTM layer": ("torch._decomp.decompositions:one_layer_lstm",),
    "all steps of another recurrent layer": ("torch._decomp.decompositions:one_layer_rnn",),
    "a step of a GRU": ("torch._decomp.decompositions:gru_cell",),
}

# What dynamo, AOTAutograd or inductor does in another way -> our name for each way, that of the newest
# version first, with all that it needs in torch, "module:function(argument)" included.
WAYS: dict[str, dict[str, tuple[str, ...]]] = {
    "getattr() and hasattr()": {
        "a class each": tuple(
            f"{_VARIABLES}.builtin:{name}" for name in ("GetAttrBuiltinVariable", "HasAttrBuiltinVariable")
        ),
        "a method each": (f"{_BUILTIN}.call_getattr", f"{_BUILTIN}.call_hasattr"),
    },
    "an attribute of most things": {
        "tp_getattro_impl": (f"{_VARIABLES}.base:VariableTracker.tp_getattro_impl",),
        "var_getattr": (f"{_VARIABLES}.base:VariableTracker.var_getattr",),
    },
    "an attribute of an object": {
        "generic_getattr": (f"{_OBJECT}.generic_getattr",),
        "var_getattr": (f"{_OBJECT}.var_getattr",),
    },
    "an object's __dict__": {
        "a dict": (f"{_VARIABLES}.dicts:DunderDictVariable",),
        "asked for keys": (f"{_OBJECT}.has_key_in_generic_dict",),
    },
    "elements of an object": {
        "the object's variable": (f"{_VARIABLES}.sets:BaseSetVariable",),
        "a variable of their own": (f"{_VARIABLES}.user_defined:UserDefinedDictVariable",),
    },
    "extend() and += of a list": {
        "list_extend": (f"{_VARIABLES}.lists:BaseListVariable.list_extend",),
        "call_method": (f"{_VARIABLES}.lists:ListVariable.call_method",),
    },
    "annotations of a function": {
        "guarded": (f"{_VARIABLES}.functions:BaseUserFunctionVariable.read_func_slot",),
        "without a guard": (f"{_VARIABLES}.functions:SkipGuardSource",),
    },
    "a guard on whether there is an attribute": {
        "on its owner": ("torch._dynamo.guards:GuardBuilder.HASATTR(attr)",),
        "on itself": ("torch._dynamo.guards:GuardBuilder.HASATTR",),
    },
    "a named tuple that is made": {
        "traced": (f"{_VARIABLES}.user_defined:NamedTupleVariable",),
        "by its fields": (f"{_VARIABLES}.lists:NamedTupleVariable",),
    },
    "handlers of builtin functions": {
        "kept": (f"{_BUILTIN}.call_function_handler_cache",),
        "made at each call": (f"{_BUILTIN}.call_function",),
    },
    "hash()": {
        "call_hash": (f"{_BUILTIN}.call_hash",),
        "a handler": (f"{_BUILTIN}._make_handler",),  # 2.11 has none, and breaks the graph
    },
    "id()": {
        "numbers of its own": (
            f"{_VARIABLES}.constant:FakeIdVariable",
            f"{_VARIABLES}.base:VariableTracker.get_id",
        ),
        "addresses": (f"{_BUILTIN}.call_id",),
    },
    "is": {
        "vt_identity_compare": (f"{_VARIABLES}.object_protocol:vt_identity_compare",),
        "a handler": (f"{_BUILTIN}._make_handler",),
    },
    "== of objects": {
        "tp_richcompare_impl": (f"{_OBJECT}.tp_richcompare_impl",),
        "richcompare_impl": (f"{_OBJECT}.richcompare_impl",),
        "call_method": (f"{_OBJECT}.call_method",),
    },
    "elements of a dict": {
        "tp_iter_impl": (f"{_VARIABLES}.dicts:ConstDictVariable.tp_iter_impl",),
        "call_method": (f"{_VARIABLES}.dicts:ConstDictVariable.debug_repr",),
    },
    "a resume function with free variables": {
        "a factory": ("torch._dynamo.output_graph:OutputGraph.install_resume_function_global",),
        "its code": (
            "torch._dynamo.output_graph:OutputGraph.install_global_unsafe",
            "torch._dynamo.codegen:PyCodegen.make_function_with_closure",
            "torch._dynamo.eval_frame:skip_code",
        ),
    },
    "why a frame is skipped": {
        "a reason": ("torch._dynamo.convert_frame:ConvertFrameReturn.skip_reason",),
        "an exception": ("torch._dynamo.exc:SkipFrame.__init__",),
    },
    "calls of operators that C++ has no function for": {
        "a method for them": (f"{_CPP}._generate_fallback_kernel_jit",),
        "a choice by types": (f"{_CPP}._compatible_with_stableivalue",),
    },
    "what is put around a graph with gradients": {
        "a specification": (
            "torch._functorch._aot_autograd.runtime_wrappers:AOTDispatchAutogradCompileSpec",
        ),
        "arguments": ("torch._functorch._aot_autograd.runtime_wrappers:AOTDispatchAutograd.post_compile",),
    },
    "sizes as nodes of a graph": {
        "a method": ("torch.fx.graph:Graph.materialize_symints",),
        "an interpreter of expressions": (
            "torch.utils._sympy.interp:sympy_interp",
            "torch.utils._sympy.reference:PythonReferenceAnalysis",
        ),
    },
    "the architecture that is compiled for": {
        "a setting": ("torch._inductor.config:cpp.march",),
        "the flags": ("torch._inductor.cpp_builder:_get_optimization_cflags",),
    },
}


_NOTHING = object()


def torch_name(name: str) -> Any:
    """What torch has for one of NAMES. Raises BuildError where this torch has none of what is known."""
    for place in NAMES[name]:
        found = _found(place)
        if found is not _NOTHING:
            return found
    raise _missing(name, NAMES[name][0])


def way(name: str) -> str:
    """The way in which torch does one of WAYS. Raises BuildError where it is none that is known."""
    for found, places in WAYS[name].items():
        if all(_found(place) is not _NOTHING for place in places):
            return found
    raise _missing(name, next(iter(WAYS[name].values()))[0])


def require_torch_names() -> None:
    """Raises BuildError, with the version and the name, for a torch in which something of this is missing."""
    for name in NAMES:
        torch_name(name)
    for name in WAYS:
        way(name)


def _found(place: str) -> Any:
    place, _, argument = place.removesuffix(")").partition("(")
    module, _, names = place.partition(":")
    try:
        value: Any = importlib.import_module(module)
    except ModuleNotFoundError:
        return _NOTHING
    for name in names.split("."):
        value = getattr(value, name, _NOTHING)
    if argument and (value is _NOTHING or argument not in inspect.signature(value).parameters):
        return _NOTHING
    return value


def _missing(name: str, place: str) -> BuildError:
    import torch

    return BuildError(
        f"torch {torch.__version__} has no {place.replace(':', '.')} ({name}), and nothing that is known to "
        f'stand in its place; build with another version of torch, as in "torch=={KNOWN_TORCH[2]}.0"'
    )
