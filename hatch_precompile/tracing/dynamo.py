"""What dynamo does while it traces: the frames it compiles or skips, and what builds their guards."""

from __future__ import annotations

import contextlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any
from unittest.mock import patch

import torch

from hatch_precompile.runtime import torch_frames
from hatch_precompile.torch_versions import way
from hatch_precompile.tracing.assumptions.calls import assumed_constants
from hatch_precompile.tracing.assumptions.notes import Assumed, assumed_in
from hatch_precompile.tracing.assumptions.patches import watching_assumptions
from hatch_precompile.tracing.numbers import conditions_on_numbers
from hatch_precompile.tracing.resume_functions import portable_breaks

__all__ = [
    "NO_OPERATIONS",
    "FrameTrace",
    "below_decorators",
    "changes_grad_mode",
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
    "tracing_frames",
    "wants_fullgraph",
]

NO_OPERATIONS = "No ops traced for the FX graph"
"""In dynamo's reason for giving up on a frame: there is nothing in it to compile."""

_TAKEN_WITH_FULLGRAPH = re.compile(
    r"Tensor\.item\(\) call with capture_scalar_outputs=False|Data dependent operator"
    r"|Dynamic shape operator(?! \(no meta kernel\))"
)


@dataclass
class FrameTrace:
    """One frame dynamo compiled: what went in, what came out, and what it rests on.

    code, new_code: the frame's bytecode before and after; frame_globals: the dict it runs in
    injected: names dynamo put into that dict, with their values; root: the RootGuardManager
    traced: every code object whose body was traced into the graph
    assumed: what else the trace took for constant
    numbers: what must be true of numbers that were traced for any value, as Python expressions over L
    dispatch: the dispatch keys that the thread adds and leaves out where the frame is called
    fixed_sizes: by its source, the line that made a constant of a size that was to be dynamic
    bare: whether it has no operation, so that dynamo would have skipped it; other calls of its code have some
    """

    code: CodeType
    new_code: CodeType
    frame_globals: dict[str, Any]
    injected: dict[str, Any]
    root: Any
    traced: list[CodeType]
    assumed: Assumed
    numbers: list[str]
    dispatch: tuple[int, int]
    fixed_sizes: dict[str, str] = field(default_factory=dict)
    bare: bool = False


def guard_manager_classes() -> tuple[type, ...]:
    """The pybind classes whose methods build dynamo's guard tree."""
    from torch._C._dynamo import guards

    return (guards.GuardManager, guards.RootGuardManager, guards.DictGuardManager)


def relational_guards() -> tuple[Any, tuple[str, ...]]:
    """The module dynamo calls relational guards through, and their names in it."""
    import torch._dynamo.guards as module

    return module, (
        "install_no_tensor_aliasing_guard",
        "install_object_aliasing_guard",
        "install_storage_overlapping_guard",
        "install_symbolic_shape_guard",
    )


def guard_builder() -> Any:
    """The class whose `add_python_lambda_leaf_guard_to_root` gets symbolic guards as Python text."""
    from torch._dynamo.guards import GuardBuilder

    return GuardBuilder


def pytree_registry() -> dict[type, Any]:
    """The classes that `torch.utils._pytree` takes for containers, with how to flatten each.

    Traced code that maps over nested values (vmap, while_loop, flex attention) looks classes up in it.
    """
    return torch.utils._pytree.SUPPORTED_NODES


def is_compiler(module: ModuleType) -> bool:
    """Whether a module belongs to what torch imports at the first compile only."""
    return module.__name__.startswith(("torch._dynamo", "torch._inductor"))


def is_compilers_error(error: BaseException) -> bool:
    """Whether an exception is the compiler's own; not so what an operator refuses while dynamo traces it."""
    cls = type(error)
    own = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch._subclasses", "torch.fx")
    return cls.__module__.startswith(own) and cls.__name__ != "TorchRuntimeError"


def dispatch_keys() -> tuple[int, int]:
    """The dispatch keys that this thread adds to those of a tensor, and those it leaves out."""
    included = torch._C._dispatch_tls_local_include_set()
    excluded = torch._C._dispatch_tls_local_exclude_set()
    return included.raw_repr(), excluded.raw_repr()


def inside_compile(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """What `torch.compile` was put around; None for a function that it was not put around."""
    if getattr(function, "_torchdynamo_disable", False):  # that was torch.compiler.disable
        return None
    return getattr(function, "_torchdynamo_orig_callable", None)


def is_torchs_own(function: Callable[..., Any]) -> bool:
    """Whether dynamo goes into a function only from a call of others, as into the layers of torch.nn.

    What torch's decorators have put around a function of others does not count.
    """
    from torch._dynamo import trace_rules

    function = inspect.unwrap(inside_compile(function) or function)
    return inspect.isfunction(function) and bool(trace_rules.check(function))


def _nameless(code: CodeType) -> CodeType:
    return code.replace(co_name="", co_qualname="")


# The code of what torch.no_grad() and its like, and autocast, put around a function. Dynamo has no frame for
# it, as it has for what contextlib's do. Since torch 2.15 it has the name of what it enters.
_ENTERING = {
    _nameless(decorate(inside_compile).__code__) for decorate in (torch.no_grad(), torch.autocast("cpu"))
}


def enters_a_context(function: Callable[..., Any]) -> bool:
    """Whether all that a function does is to call another one in a context manager that decorates it, such
    as `torch.no_grad()`. The other one is its `__wrapped__`."""
    code = getattr(function, "__code__", None)
    return type(code) is CodeType and _nameless(code) in _ENTERING and hasattr(function, "__wrapped__")


_GRAD_MODES = {"no_grad", "inference_mode", "set_grad_enabled"}


def changes_grad_mode(codes: Iterable[CodeType]) -> bool:
    """Whether code that was traced may have called another code in a grad mode of its own."""
    return any(_nameless(code) in _ENTERING or _GRAD_MODES & set(code.co_names) for code in codes)


def is_passed_over(function: Callable[..., Any]) -> bool:
    """Whether dynamo does not compile a function's own frame, but puts another one around it where it is the
    one that `torch.compile` is given."""
    from torch._dynamo import trace_rules

    return inspect.isfunction(function) and bool(trace_rules.check(function))


def below_decorators(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function for `torch.compile`, so that what is compiled is not the call of `call`, but what its
    decorators call, in the modes that these enter."""

    # By this name dynamo knows what is to be looked through (torch/_dynamo/eval_frame.py).
    def _call_impl(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    leave_untraced = torch_frames.leave_untraced
    leave_untraced(_call_impl, below=False)
    return _call_impl


def einops_was_prepared() -> bool:
    """Whether dynamo has called einops before it traced into it, which fills a cache that its guards look at.

    torch/_dynamo/decorators.py, `_allow_in_graph_einops`: torch 2.13 to 2.15, with einops 0.8.2 and later.
    """
    from torch._dynamo import decorators

    einops = sys.modules.get("einops")
    traces = getattr(decorators, "_einops_supports_dynamo_tracing", None)
    return einops is not None and traces is not None and bool(traces(einops))


def constants_of_kernel(index: int) -> dict[str, Any]:
    """What an author's Triton kernel is compiled with, by its parameters. index: of its call in a graph"""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    found: dict[str, Any] = kernel_side_table.get_constant_args(index)
    return found


def input_sources(graph_module: Any) -> list[str]:
    """Dynamo's names for what the inputs of a graph are, in the same words as those of its guards; "" for one
    that is no tensor."""
    arguments = [node.meta.get("grapharg") for node in graph_module.graph.nodes if node.op == "placeholder"]
    return [
        argument.source.name if argument is not None and argument.is_tensor else "" for argument in arguments
    ]


def graph_break_reasons() -> list[str]:
    """Dynamo's words for the graph breaks since the counters were last cleared, a line each."""
    from torch._dynamo.utils import counters

    reasons = list(counters["graph_break"]) + list(counters["unimplemented"])
    counters["graph_break"].clear()
    counters["unimplemented"].clear()
    return list(dict.fromkeys(map(_in_a_line, reasons)))


@contextlib.contextmanager
def tracing_frames(
    on_frame: Callable[[FrameTrace], None], on_skip: Callable[[CodeType, str], None]
) -> Iterator[None]:
    """Call `on_frame` for each frame dynamo compiles, and `on_skip` with the reason for each it skips."""
    from torch._dynamo import convert_frame
    from torch._dynamo.guards import CheckFunctionManager

    transformed: dict[CodeType, CodeType] = {}
    handle = convert_frame.register_bytecode_hook(transformed.__setitem__)
    build = CheckFunctionManager.__init__
    compile_frame = convert_frame._compile
    bare = False

    def build_guards(self: Any, f_code: CodeType, output_graph: Any, *args: Any, **kwargs: Any) -> None:
        injected = _injected_globals(output_graph)
        traced = list(output_graph.tracing_context.traced_code)
        frame_globals = output_graph.global_scope
        numbers = conditions_on_numbers(output_graph)
        build(self, f_code, output_graph, *args, **kwargs)
        root = self.guard_manager.root
        assumed = assumed_in(output_graph)
        code, keys = transformed[f_code], dispatch_keys()
        sizes = _fixed_sizes(output_graph.shape_env)
        on_frame(
            FrameTrace(
                f_code, code, frame_globals, injected, root, traced, assumed, numbers, keys, sizes, bare
            )
        )

    def compile_and_watch(code: CodeType, *args: Any, **kwargs: Any) -> Any:
        with _reasons_to_skip() as reasons:
            try:
                result = compile_frame(code, *args, **kwargs)
            except torch._dynamo.exc.Unsupported as error:
                on_skip(code, _in_a_line(str(error)))
                raise
        reason = getattr(result, "skip_reason", None) or next(reversed(reasons), None)
        if result.guarded_code is None and reason:
            entry = None
            if NO_OPERATIONS in str(reason) and code in transformed:
                entry = compile_bare(code, *args, **kwargs)
            if entry is not None:
                return entry
            on_skip(code, _in_a_line(str(reason)))
        return result

    def compile_bare(*args: Any, **kwargs: Any) -> Any:
        """An entry for a call without an operation of code of which other calls have some: without it the
        call is a miss."""
        nonlocal bare
        bare = True
        try:
            with torch._dynamo.config.patch(allow_empty_graphs=True):
                result = compile_frame(*args, **kwargs)
        except Exception:  # whatever it is: dynamo had no need of it
            graph_break_reasons()
            return None
        finally:
            bare = False
        return None if result.guarded_code is None else result

    try:
        with (
            patch.object(CheckFunctionManager, "__init__", build_guards),
            patch.object(convert_frame, "_compile", compile_and_watch),
            watching_assumptions(),
            portable_breaks(),
        ):
            yield
    finally:
        handle.remove()


@contextlib.contextmanager
def _reasons_to_skip() -> Iterator[list[str]]:
    """What dynamo says where it skips a frame while the block runs, in torch 2.11, which keeps no note of it;
    of a later one nothing."""
    reasons: list[str] = []
    if way("why a frame is skipped") == "a reason":
        yield reasons
        return
    skip = torch._dynamo.exc.SkipFrame
    own = skip.__init__

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        own(self, *args, **kwargs)
        reasons.append(f"Dynamo decided to skip the frame while tracing: {self}")

    with patch.object(skip, "__init__", noted):
        yield reasons


def compiling_with(backend: Callable[[Any, Any], Callable[..., Any]]) -> AbstractContextManager[Any]:
    """Let `backend` do what inductor would, wherever the package itself calls `torch.compile`."""

    def compile_with(_self: Any, graph: Any, inputs: Any, **_: Any) -> Callable[..., Any]:
        return backend(graph, inputs)

    return patch.object(torch._TorchCompileInductorWrapper, "__call__", compile_with)


def forget() -> None:
    """Let go of all that dynamo has compiled in this process."""
    torch._dynamo.reset()


def is_compiled(name: str) -> bool:
    """Whether a name that dynamo put into a frame's globals is that of a compiled graph."""
    return name.startswith("__compiled_fn")


def _in_a_line(reason: str) -> str:
    """What dynamo explains at length: what it met, the last of several first, and the user's line."""
    heads = [part.strip().partition("\n")[0] for part in re.split(r"\*\*\* While handling .*\*\*\*", reason)]
    words = "; ".join(dict.fromkeys(head for head in reversed(heads) if head)) or "no reason given"
    line = last_line(reason.partition("from user code:")[2])
    return f"{words}, at {line}" if line else words


def wants_fullgraph(reason: str) -> bool:
    """Whether dynamo gave up at a number or a size that only data tells, which fullgraph=True traces."""
    return _TAKEN_WITH_FULLGRAPH.search(reason) is not None


def last_line(stack: str) -> str:
    """The innermost line of a stack in text: `model.py:10 in forward`, or nothing."""
    lines = re.findall(r'File "([^"]*)", line (\d+), in (\S+)', stack)
    if not lines:
        return ""
    file, number, function = lines[-1]
    return f"{Path(file).name}:{number} in {function}"


def _fixed_sizes(shapes: Any) -> dict[str, str]:
    """Where the code decided on the one value of a size, by the source of the size."""
    stacks = shapes.specialization_stacks.items()
    return {source.name: last_line("".join(stack.format())) for source, stack in stacks}


def _injected_globals(output: Any) -> dict[str, Any]:
    names = set(output.installed_globals) | set(output.import_sources)
    if output.name_of_builtins_dict_key_in_fglobals:
        names.add(output.name_of_builtins_dict_key_in_fglobals)
    names.update(assumed_constants(output.global_scope))
    return {name: output.global_scope[name] for name in names if name in output.global_scope}


def compiled_graph(value: Any) -> tuple[Any, bool]:
    """What the backend returned, behind the wrappers that dynamo puts on it, and whether one of these keeps
    subclasses of tensors from overriding what is done to them."""
    plain = False
    while True:
        code = getattr(value, "__code__", None)
        if hasattr(value, "_torchdynamo_orig_callable"):
            value = value._torchdynamo_orig_callable
        elif code is not None and code.co_name == "_tf_disabled_wrapper":
            cells = dict(zip(code.co_freevars, value.__closure__, strict=True))
            value, plain = cells["real_compiled_fn"].cell_contents, True
        else:
            return value, plain


def random_calls(value: Any) -> list[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """The calls of Python's `random` that a compiled frame makes before its graph, in their order."""
    function, _ = compiled_graph(value)
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return list(cells["random_calls"].cell_contents)
