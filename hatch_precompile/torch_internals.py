"""Every private torch API the plugin uses, behind names that say what it is for.

Seen in torch 2.13.0. tests/unit/test_torch_internals.py fails first when one of them changes.
The runtime's own list is templates/torch_private.py.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import pickle
import platform
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from torch.utils._sympy.numbers import int_oo

from hatch_precompile.lower.python_wrapper import NotPortable, portable_wrapper
from hatch_precompile.variants import Variant

__all__ = [
    "NO_LIMIT",
    "NO_OPERATIONS",
    "CompiledGraph",
    "FrameTrace",
    "capture_settings",
    "compile_graph",
    "graph_break_reasons",
    "guard_builder",
    "resume_function",
    "guard_manager_classes",
    "relational_guards",
    "tracing_frames",
]


NO_OPERATIONS = "No ops traced for the FX graph"
"""In dynamo's reason for giving up on a frame: there is nothing in it to compile."""

NO_LIMIT = int_oo
"""The upper end of a dimension's range where it has none."""


@dataclass
class FrameTrace:
    """One frame dynamo compiled: what went in, what came out, and what it rests on.

    code, new_code: the frame's bytecode before and after; frame_globals: the dict it runs in
    injected: names dynamo put into that dict, with their values; root: the RootGuardManager
    traced: every code object whose body was traced into the graph
    """

    code: CodeType
    new_code: CodeType
    frame_globals: dict[str, Any]
    injected: dict[str, Any]
    root: Any
    traced: list[CodeType]


@dataclass
class CompiledGraph:
    """What inductor made of one graph, for each variant, and what must run around it.

    libraries: variant -> shared library; constants: tensors the library wants after its inputs
    python, kernels: instead of a library, variant -> source of a Python wrapper and the libraries of its
    kernels, in order (see lower/python_wrapper.py); constant_names: what it calls its constants
    why_python: why inductor's C++ wrapper refused the graph
    scalar_outputs: outputs that are numbers; input_outputs: output -> the input it is
    view_outputs: output -> the input it is a view of
    written_inputs: inputs changed in place whose autograd version has to be bumped
    copied_inputs: inputs whose new values come as the first outputs, to be copied into them
    backward: the graph of the gradients; wrapping: AOTAutograd's own wrappers, pickled, where the
    library cannot be called directly; why_wrapped: the reason; obstacle: why the graph cannot be
    carried at all, or ""; place: the source line of its first operation
    """

    inputs: int = 0
    outputs: int = 0
    libraries: dict[str, Path] = field(default_factory=dict)
    python: dict[str, str] = field(default_factory=dict)
    kernels: dict[str, list[Path]] = field(default_factory=dict)
    why_python: str = ""
    constants: list[torch.Tensor] = field(default_factory=list)
    constant_names: list[str] = field(default_factory=list)
    scalar_outputs: list[int] = field(default_factory=list)
    input_outputs: dict[int, int] = field(default_factory=dict)
    view_outputs: dict[int, int] = field(default_factory=dict)
    written_inputs: list[int] = field(default_factory=list)
    copied_inputs: list[int] = field(default_factory=list)
    disable_autocast: bool = False
    disable_grad: bool = False
    backward: CompiledGraph | None = None
    wrapping: bytes = b""
    why_wrapped: str = ""
    readable: str = ""
    obstacle: str = ""
    place: str = ""


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


def graph_break_reasons() -> list[str]:
    """Dynamo's words for the graph breaks since the counters were last cleared."""
    from torch._dynamo.utils import counters

    reasons = list(counters["graph_break"]) + list(counters["unimplemented"])
    counters["graph_break"].clear()
    counters["unimplemented"].clear()
    return reasons


@contextlib.contextmanager
def capture_settings(
    options: dict[str, Any], graphs_expected: int, numbers: Sequence[str] = ()
) -> Iterator[None]:
    """Dynamo, AOTAutograd and inductor set so that what they build can leave this process.

    Static unless declared dynamic, as the arguments called `numbers` are; no recompile limit; one library
    per graph with a C++ wrapper, for any number of threads; nothing read from or left in the caches of this
    machine.
    """
    import torch._dynamo.config as dynamo_config
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config

    with (
        dynamo_config.patch(
            enable_cpp_symbolic_shape_guards=False,
            record_runtime_overhead=False,
            automatic_dynamic_shapes=False,
            assume_static_by_default=True,
            recompile_limit=10**6,
            accumulated_recompile_limit=10**6,
            fail_on_recompile_limit_hit=True,
            suppress_errors=False,
            caching_precompile=False,
            # Left alone, dynamo gives up on every function that calls a recurrent layer.
            allow_rnn=True,
        ),
        functorch_config.patch(enable_autograd_cache=False),
        inductor_config.patch(
            {
                "cpp_wrapper": True,
                "cpp.dynamic_threads": True,
                # The calling code at -O1: it is most of what a large graph costs to compile.
                "cpp_wrapper_build_separate": True,
                "fx_graph_cache": False,
                "fx_graph_remote_cache": False,
                # Precompiling torch's headers costs as much as it saves on about three graphs.
                "cpp_cache_precompile_headers": graphs_expected > 3,
                **options,
            }
        ),
        _without_paths(),
        _side_by_side(),
        _symbolic(numbers),
    ):
        yield


@contextlib.contextmanager
def _symbolic(numbers: Sequence[str]) -> Iterator[None]:
    """Have dynamo trace these arguments, int or float, for any value, as if it had seen several."""
    import torch.compiler.config as compiler_config
    from torch._dynamo.pgo import auto_dynamic
    from torch._dynamo.variables import builder

    sources = {f"L[{name!r}]" for name in numbers}
    process = builder.process_automatic_dynamic

    def process_number(tx: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        seen = process(tx, name, *args, **kwargs)
        return dataclasses.replace(seen, scalar=auto_dynamic) if name in sources else seen

    more = ",".join(filter(None, [compiler_config.dynamic_sources, *sorted(sources)]))
    builder.process_automatic_dynamic = process_number
    try:
        with compiler_config.patch(dynamic_sources=more):
            yield
    finally:
        builder.process_automatic_dynamic = process


@contextlib.contextmanager
def _side_by_side() -> Iterator[None]:
    """Have the two halves of a library, the calling code and the kernels, compiled at the same time."""
    from torch._inductor import codecache

    build_in_turn = codecache._worker_compile_cpp

    def build(lock_path: str, builders: Sequence[Any]) -> None:
        *halves, linker = builders
        if halves:
            locks = [f"{lock_path}.{number}" for number in range(len(halves))]
            with ThreadPoolExecutor(len(halves)) as pool:
                list(pool.map(build_in_turn, locks, [(half,) for half in halves]))
        build_in_turn(lock_path, (linker,))

    codecache._worker_compile_cpp = build
    try:
        yield
    finally:
        codecache._worker_compile_cpp = build_in_turn


@contextlib.contextmanager
def _without_paths() -> Iterator[None]:
    """Have the compiler write one name wherever a source would write its own path into the library."""
    from torch._inductor import cpp_builder

    flags = cpp_builder._get_shared_cflags
    more = ["Wno-builtin-macro-redefined", """D__FILE__='"graph.cpp"'"""]
    cpp_builder._get_shared_cflags = lambda *arguments: [*flags(*arguments), *more]
    try:
        yield
    finally:
        cpp_builder._get_shared_cflags = flags


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

    def build_guards(self: Any, f_code: CodeType, output_graph: Any, *args: Any, **kwargs: Any) -> None:
        injected = _injected_globals(output_graph)
        traced = list(output_graph.tracing_context.traced_code)
        frame_globals = output_graph.global_scope
        build(self, f_code, output_graph, *args, **kwargs)
        on_frame(
            FrameTrace(f_code, transformed[f_code], frame_globals, injected, self.guard_manager.root, traced)
        )

    def compile_and_watch(code: CodeType, *args: Any, **kwargs: Any) -> Any:
        try:
            result = compile_frame(code, *args, **kwargs)
        except torch._dynamo.exc.Unsupported as error:
            on_skip(code, _in_a_line(str(error)))
            raise
        if result.guarded_code is None and getattr(result, "skip_reason", None):
            on_skip(code, _in_a_line(str(result.skip_reason)))
        return result

    CheckFunctionManager.__init__ = build_guards
    convert_frame._compile = compile_and_watch
    try:
        yield
    finally:
        handle.remove()
        CheckFunctionManager.__init__ = build
        convert_frame._compile = compile_frame


def _in_a_line(reason: str) -> str:
    """What dynamo explains at length: what it met, the last of several first, and the user's line."""
    heads = [part.strip().partition("\n")[0] for part in re.split(r"\*\*\* While handling .*\*\*\*", reason)]
    words = "; ".join(dict.fromkeys(head for head in reversed(heads) if head)) or "no reason given"
    line = _last_line(reason.partition("from user code:")[2])
    return f"{words}, at {line}" if line else words


def _last_line(stack: str) -> str:
    """The innermost line of a stack in text: `model.py:10 in forward`, or nothing."""
    lines = re.findall(r'File "([^"]*)", line (\d+), in (\S+)', stack)
    if not lines:
        return ""
    file, number, function = lines[-1]
    return f"{Path(file).name}:{number} in {function}"


def _injected_globals(output: Any) -> dict[str, Any]:
    names = set(output.installed_globals) | set(output.import_sources)
    if output.name_of_builtins_dict_key_in_fglobals:
        names.add(output.name_of_builtins_dict_key_in_fglobals)
    return {name: output.global_scope[name] for name in names if name in output.global_scope}


def resume_function(value: Any) -> tuple[CodeType, str]:
    """The code and the module of a resume function, as dynamo bound it in a frame's globals.

    One with free variables is bound as a factory that takes the closure.
    """
    if value.__code__.co_name == "_make_fn":
        cells = dict(zip(value.__code__.co_freevars, value.__closure__, strict=True))
        return cells["code"].cell_contents, cells["f_globals"].cell_contents["__name__"]
    return value.__code__, value.__globals__["__name__"]


def compile_graph(
    gm: Any,
    example_inputs: Sequence[Any],
    variants: Sequence[Variant],
    operators: str,
    on_variant: Callable[[str, float | None], None] = lambda name, seconds: None,
) -> tuple[Callable[..., Any], CompiledGraph]:
    """Compile an FX graph with inductor once per variant; tracing and lowering to ATen happen once.

    operators: the module a library calls custom operators through (its `custom_op_wrapper`); on_variant:
    told the name of a variant before it is compiled, with None, and after, with the seconds it took.
    Returns the callable of the first variant and the record.
    """
    import torch._inductor.config as inductor_config
    from torch._guards import TracingContext
    from torch._inductor.compile_fx import compile_fx

    graph = CompiledGraph(readable=gm.print_readable(print_output=False), place=_first_line(gm))
    graph.disable_grad = torch.is_grad_enabled()

    def compile_variants(inner: Any, inputs: Sequence[Any], **kwargs: Any) -> Any:
        part = graph
        if kwargs.get("is_backward"):
            part = graph.backward = CompiledGraph(readable=inner.print_readable(print_output=False))
        if part.libraries or part.python:
            graph.obstacle = graph.obstacle or "inductor split it in several parts"
        first = None
        for number, variant in enumerate(variants, 1):
            # compile_fx_inner consumes the graph it is given.
            given = inner if number == len(variants) else copy.deepcopy(inner)
            on_variant(variant.name, None)
            started = time.perf_counter()
            with (
                inductor_config.patch(variant.settings),
                _vectors_within(variant.requires),
                # The strides of outputs are reported once, to what traced the graph.
                TracingContext.report_output_strides() if first else contextlib.nullcontext(),
            ):
                compiled = _compile_variant(part, variant.name, given, inputs, kwargs, operators)
            on_variant(variant.name, round(time.perf_counter() - started, 3))
            if first is None:
                first = compiled
            elif compiled.output_strides != first.output_strides:
                graph.obstacle = graph.obstacle or f"the variant {variant.name} returns other strides"
            _describe(part, compiled, inputs, python=variant.name in part.python)
            graph.obstacle = graph.obstacle or part.obstacle
        return first

    wrappers = _Wrappers(graph)
    with wrappers.watched():
        function = compile_fx(gm, list(example_inputs), inner_compile=compile_variants)
    wrappers.finish()
    return function, graph


def _first_line(gm: Any) -> str:
    """Where the first operation of a graph is in the user's source: `model.py:10 in forward`."""
    for node in gm.graph.nodes:
        if node.op.startswith("call") and (line := _last_line(node.stack_trace or "")):
            return line
    return ""


def _compile_variant(
    part: CompiledGraph,
    variant: str,
    inner: Any,
    inputs: Sequence[Any],
    settings: dict[str, Any],
    operators: str,
) -> Any:
    """Inductor's C++ wrapper for a graph or, where that one refuses it, the Python one."""
    import torch._inductor.config as inductor_config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.exc import InductorError
    from torch._inductor.select_algorithm import extern_kernels

    spare = _copied(inner)
    try:
        with _library_paths(operators) as paths:
            compiled = compile_fx_inner(inner, inputs, **settings)
    except InductorError as error:
        refusal = error
    else:
        if len(paths) != 1:
            part.obstacle = part.obstacle or f"inductor made {len(paths)} libraries of it"
        part.libraries.update((variant, path) for path in paths)
        return compiled
    # A C++ wrapper has kernels saved for it, by code of inductor's in this one.
    plain = {"cpp_wrapper": False, "compile_threads": 1, "triton.store_cubin": False}
    with inductor_config.patch(plain), _kernel_paths() as kernels:
        try:
            compiled = compile_fx_inner(spare, inputs, **{**settings, "cpp_wrapper": False})
        except InductorError:
            raise refusal from None
    part.why_python = str(refusal.inner_exception) or type(refusal.inner_exception).__name__
    try:
        part.python[variant] = portable_wrapper(compiled.source_code, extern_kernels)
    except NotPortable as error:
        part.obstacle = part.obstacle or f"{part.why_python}, and its Python wrapper needs inductor's {error}"
    part.kernels[variant] = kernels
    return compiled


def _copied(gm: Any) -> Any:
    """A graph module and the graph modules in it with graphs of their own; tensors are shared."""
    result = torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))
    for name, child in gm.named_children():
        if isinstance(child, torch.fx.GraphModule):
            setattr(result, name, _copied(child))
    return result


def _describe(graph: CompiledGraph, compiled: Any, inputs: Sequence[Any], *, python: bool) -> None:
    source = compiled.source_code
    graph.inputs = len(inputs)
    constants = compiled.constants or {}
    graph.constants, graph.constant_names = list(constants.values()), list(constants)
    if python:
        graph.outputs = len(compiled.output_strides or ())
        if compiled.torchbind_constants or compiled.opaque_value_type_classes:
            graph.obstacle = graph.obstacle or "it has constants that are no tensors"
    else:
        match = re.search(r"num_outputs=(\d+)", source)
        if match is None:
            graph.obstacle = graph.obstacle or "inductor did not use its C++ wrapper for it"
            return
        graph.outputs = int(match.group(1))
        graph.scalar_outputs = [int(i) for i in re.findall(r"output_tensors\[(\d+)\]\.item\(\)", source)]
    if compiled.inputs_to_check:
        graph.obstacle = graph.obstacle or "its inputs would have to be realigned"


# The compiler's flags for vectors, and torch's names for what they need.
_VECTOR_FLAGS = {
    "-mavx2": "avx2",
    "-mfma": "fma3",
    "-mf16c": "f16c",
    "-mavx512f": "avx512_f",
    "-mavx512bw": "avx512_bw",
    "-mavx512dq": "avx512_dq",
    "-mavx512vl": "avx512_vl",
    "-mavx512bf16": "avx512_bf16",
    "-mavx512vnni": "avx512_vnni",
    "-mamx-tile": "amx_tile",
    "-mamx-bf16": "amx_bf16",
    "-mamx-int8": "amx_int8",
    "-mamx-fp16": "amx_fp16",
}


@contextlib.contextmanager
def _vectors_within(capabilities: Collection[str]) -> Iterator[None]:
    """Have inductor write for the widest vectors that need nothing but these capabilities.

    Left alone it takes all this machine has: code for any processor with AVX-512 would need the AMX of
    the machine it was built on. One that is unknown here is out of bounds, but for another architecture's.
    """
    from torch._inductor import cpu_vec_isa

    of_this_machine = cpu_vec_isa.valid_vec_isa_list

    def needed(isa: Any) -> set[str]:
        return {_VECTOR_FLAGS.get(flag, flag) for flag in isa.build_arch_flags().split()}

    def within() -> list[Any]:
        if platform.machine() not in ("x86_64", "AMD64"):
            return list(of_this_machine())
        found = []
        for isa in of_this_machine():
            # What an instance found on this machine, BF16 and FP16, adds to the flags of its class.
            plain = copy.copy(isa)
            vars(plain).clear()
            found += [each for each in (isa, plain) if needed(each) <= set(capabilities)][:1]
        return found

    cpu_vec_isa.valid_vec_isa_list = within
    try:
        yield
    finally:
        cpu_vec_isa.valid_vec_isa_list = of_this_machine


@contextlib.contextmanager
def _kernel_paths() -> Iterator[list[Path]]:
    """The libraries of the kernels that inductor's Python wrapper loads while the block runs."""
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    paths: list[Path] = []
    load = CppPythonBindingsCodeCache.__dict__["load_pybinding"]

    def load_and_note(*args: Any, **kwargs: Any) -> Any:
        kernel = load.__func__(CppPythonBindingsCodeCache, *args, **kwargs)
        paths.append(Path(kernel.__self__.__file__))
        return kernel

    CppPythonBindingsCodeCache.load_pybinding = load_and_note
    try:
        yield paths
    finally:
        CppPythonBindingsCodeCache.load_pybinding = load


@contextlib.contextmanager
def _library_paths(operators: str) -> Iterator[list[Path]]:
    """The shared libraries inductor's C++ wrapper loads while the block runs.

    An operator without a C function is called through Python. The source names a module of inductor's
    for that; the library gets one of the runtime's instead.
    """
    from torch._inductor.codecache import CppWrapperCodeCache

    paths: list[Path] = []
    own = vars(CppWrapperCodeCache).get("load_pybinding")  # torch 2.13 and 2.14 inherit it
    load = CppWrapperCodeCache.load_pybinding

    def load_and_note(*args: Any, **kwargs: Any) -> Any:
        kwargs["main_code"] = kwargs["main_code"].replace("torch._inductor.codecache", operators)
        entry = load(*args, **kwargs)
        paths.append(Path(entry.__self__.__file__))
        return entry

    CppWrapperCodeCache.load_pybinding = load_and_note
    try:
        yield paths
    finally:
        if own is None:
            del CppWrapperCodeCache.load_pybinding
        else:
            CppWrapperCodeCache.load_pybinding = own


class _Wrappers:
    """Sees which of AOTAutograd's wrappers go around a graph, and with what.

    Where they amount to what the runtime does itself the graph is native. Else they are pickled, in
    their order, to be put around the graph again by torch's own code in the target process.
    """

    _IDLE = (
        ("AOTDedupeWrapper", "the same tensor is passed to it twice"),
        ("AOTSyntheticBaseWrapper", "its inputs share memory"),
        ("AOTDispatchSubclassWrapper", "it uses tensor subclasses"),
        ("FunctionalizedRngRuntimeWrapper", "its random numbers are functionalized"),
        ("EffectTokensWrapper", "it carries effect tokens"),
    )

    def __init__(self, graph: CompiledGraph) -> None:
        self.graph = graph
        self.steps: list[tuple[str, dict[str, Any], Any]] = []
        self.config: Any = None
        self._undo: list[tuple[Any, str, Any]] = []

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        import torch._functorch.config as functorch_config
        from torch._functorch._aot_autograd import runtime_wrappers as module

        for name, reason in self._IDLE:
            self._watch(getattr(module, name), reason)
        self._watch(module.RuntimeWrapper, "")
        self._watch_autograd(module.AOTDispatchAutograd)
        try:
            # A backward that were compiled at its first call would be compiled on the target.
            with functorch_config.patch(force_non_lazy_backward_lowering=True):
                yield
        finally:
            for owner, name, original in self._undo:
                setattr(owner, name, original)

    def _watch(self, cls: Any, reason: str) -> None:
        post_compile = cls.post_compile

        def watched(wrapper: Any, compiled_fn: Any, aot_config: Any, **kwargs: Any) -> Any:
            result = post_compile(wrapper, compiled_fn, aot_config, **kwargs)
            if result is not compiled_fn:
                meta = kwargs["runtime_metadata"]
                if reason:
                    self.graph.why_wrapped = self.graph.why_wrapped or reason
                else:
                    self._read_metadata(meta, wrapper)
                settings = {spec.name: getattr(wrapper, spec.name) for spec in dataclasses.fields(wrapper)}
                self.steps.append((cls.__name__, settings, meta))
                self.config = aot_config
            return result

        self._undo.append((cls, "post_compile", post_compile))
        cls.post_compile = watched

    def _watch_autograd(self, cls: Any) -> None:
        """Training: one step, which puts a RuntimeWrapper around itself."""
        post_compile = cls.post_compile

        def watched(spec: Any) -> Any:
            before = len(self.steps)
            result = post_compile(spec)
            del self.steps[before:]
            self.graph.why_wrapped = "it computes gradients"
            if spec.lazy_backward_info is not None and self.graph.backward is None:
                self.graph.obstacle = self.graph.obstacle or "its backward was not compiled"
            names = (
                "maybe_subclass_meta",
                "num_symints_saved_for_bw",
                "backward_state_indices",
                "disable_amp",
                "indices_of_inps_to_detach",
            )
            self.steps.append((cls.__name__, {name: getattr(spec, name) for name in names}, spec.fw_metadata))
            self.config = spec.aot_config
            return result

        self._undo.append((cls, "post_compile", cls.__dict__["post_compile"]))
        cls.post_compile = staticmethod(watched)

    def _read_metadata(self, meta: Any, wrapper: Any) -> None:
        from torch._functorch._aot_autograd.schemas import OutputType

        graph = self.graph
        graph.disable_autocast = wrapper.disable_amp
        graph.written_inputs = list(meta.mutated_graph_handled_indices_seen_by_autograd)
        graph.copied_inputs = list(meta.mutated_inp_runtime_indices)
        reasons = {
            "it changes an input's shape or storage": any(
                info.mutates_metadata or info.mutates_storage_metadata for info in meta.input_info
            ),
            "it returns views that share a hidden base": bool(meta.num_intermediate_bases),
            "it changes the grad mode": meta.grad_enabled_mutation is not None,
        }
        plain = (OutputType.non_alias, OutputType.unsafe_view_alias, OutputType.custom_function_view)
        for index, info in enumerate(meta.output_info):
            if info.output_type is OutputType.is_input:
                graph.input_outputs[index] = info.base_idx
            elif info.output_type is OutputType.alias_of_input:
                graph.view_outputs[index] = info.base_idx
            elif info.output_type not in plain:
                reasons["it returns tensors that share memory"] = True
        for reason, present in reasons.items():
            if present:
                graph.why_wrapped = graph.why_wrapped or reason

    def finish(self) -> None:
        """Pickle the wrappers where the graph needs them."""
        if not self.graph.why_wrapped:
            return
        for _, settings, _ in self.steps:
            settings.pop("fw_only", None)
        keep = ("num_params_buffers", "aot_id", "keep_inference_input_mutations", "dynamic_shapes")
        config = {name: getattr(self.config, name) for name in keep}
        try:
            self.graph.wrapping = pickle.dumps((config, self.steps), protocol=5)
        except Exception as error:
            self.graph.obstacle = self.graph.obstacle or f"{self.graph.why_wrapped}, and {error}"
