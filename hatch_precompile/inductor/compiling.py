"""A graph in, and for each variant a library, or a Python wrapper with its kernels, out."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from msgspec.structs import replace

from hatch_precompile.backends import backend
from hatch_precompile.backends.base import Compiler, Variant
from hatch_precompile.inductor.autograd import Wrappers
from hatch_precompile.inductor.bfloat16_factors import multiplied_as
from hatch_precompile.inductor.integer_divisions import unchecked_division
from hatch_precompile.inductor.libraries import kernel_paths, libraries_made
from hatch_precompile.inductor.local_buffers import local_buffers_of_single_rows
from hatch_precompile.inductor.operators import python_operators_called_directly
from hatch_precompile.inductor.pooling import whole_windows_are_means
from hatch_precompile.inductor.prepacking.weights import (
    WATCHED,
    PrepackGraph,
    computed,
    prepared_inputs,
    separate,
)
from hatch_precompile.inductor.python_wrapper import NotPortable, portable_wrapper
from hatch_precompile.inductor.realize_heuristics import heavy_values_kept
from hatch_precompile.inductor.vector_isa import with_settings_of
from hatch_precompile.records import Autotuning, GraphRecord
from hatch_precompile.tracing.dynamo import last_line

__all__ = ["CompiledGraph", "PythonWrapper", "compile_graph"]


@dataclass(frozen=True)
class PythonWrapper:
    """Inductor's, in the place of a library (see python_wrapper.py). kernels: the libraries that it calls, in
    the order in which it loads them."""

    source: str
    kernels: list[Path]


@dataclass(frozen=True)
class CompiledGraph:
    """What inductor made of one graph, for each variant, and what must run around it.

    record: how it is called; its files have no names yet, which lower/graphs.py gives them
    libraries, python: variant -> shared library or, where inductor's C++ wrapper refused the graph, the
    Python one
    constants: tensors that these want after the inputs, by the names that a Python wrapper has for them
    prepack_graphs: variant -> what its library takes in the place of weights that do not change
    autotuning: variant -> what `hatch-precompile tune` reads of its kernels
    backward: the graph of the gradients; wrapping: AOTAutograd's own wrappers, pickled, where it cannot be
    called without them
    readable: the FX graph as text; changed: the inputs whose memory a call writes to, in the library or
    after it; obstacle: why the graph cannot be carried at all, or ""; place: the source line of its first
    operation
    """

    record: GraphRecord
    libraries: dict[str, Path]
    python: dict[str, PythonWrapper]
    constants: dict[str, torch.Tensor]
    prepack_graphs: dict[str, PrepackGraph]
    readable: str
    autotuning: dict[str, Autotuning] = dataclasses.field(default_factory=dict)
    backward: CompiledGraph | None = None
    wrapping: bytes = b""
    changed: frozenset[int] = frozenset()
    obstacle: str = ""
    place: str = ""


def compile_graph(
    gm: Any,
    example_inputs: Sequence[Any],
    variants: Sequence[Variant],
    operators: str,
    on_variant: Callable[[str, float | None], None] = lambda name, seconds: None,
    *,
    fixed_weights: bool = False,
    matmul_precision: str = "highest",
) -> tuple[Callable[..., Any], CompiledGraph]:
    """Compile an FX graph with inductor once per variant; tracing and lowering to ATen happen once.

    operators: the module a library calls custom operators through (its `custom_op_wrapper`); on_variant:
    told the name of a variant before it is compiled, with None, and after, with the seconds it took;
    fixed_weights: whether what depends on weights alone is computed once, and not by the library;
    matmul_precision: of float32 layers, in the words of torch.set_float32_matmul_precision.
    Returns the callable of the first variant and the record.
    """
    from torch._inductor.compile_fx import compile_fx

    place, obstacles = _first_line(gm), list[str]()
    bfloat16 = matmul_precision == "medium"
    inner_compile = _InnerCompile(
        gm, variants, operators, on_variant, fixed_weights, bfloat16, obstacles.append
    )
    wrappers = Wrappers(obstacles.append)
    disable_grad = torch.is_grad_enabled()
    first = variants[0]
    with wrappers.watched(), backend(first.backend).compiler().lowering(first):
        function = compile_fx(gm, list(example_inputs), inner_compile=inner_compile)
    forward, backward = inner_compile.forward, inner_compile.backward
    around = wrappers.finish(has_backward=backward is not None)
    hidden = around.record.hidden_weights and bool(forward.prepack_graphs)
    graph = forward.finished(replace(around.record, disable_grad=disable_grad, hidden_weights=hidden))
    return function, dataclasses.replace(
        graph,
        backward=None if backward is None else backward.finished(GraphRecord()),
        wrapping=around.wrapping,
        changed=around.changed,
        obstacle=next(iter(obstacles), ""),
        place=place,
    )


class _Part:
    """A graph while it is compiled for one variant after the other."""

    def __init__(self, gm: Any) -> None:
        self.readable: str = gm.print_readable(print_output=False)
        self.libraries: dict[str, Path] = {}
        self.python: dict[str, PythonWrapper] = {}
        self.why_python = ""
        self.prepack_graphs: dict[str, PrepackGraph] = {}
        self.rounded: dict[str, str] = {}
        self.autotuning: dict[str, Autotuning] = {}
        self.constants: dict[str, torch.Tensor] = {}
        self.inputs = self.outputs = 0
        self.scalar_outputs: list[int] = []

    def finished(self, record: GraphRecord) -> CompiledGraph:
        """record: what is known of what runs around it."""
        record = replace(
            record,
            inputs=self.inputs,
            outputs=self.outputs,
            scalar_outputs=self.scalar_outputs,
            direct=not self.python,
            rounded=self.rounded,
            why_python=self.why_python,
        )
        return CompiledGraph(
            record,
            self.libraries,
            self.python,
            self.constants,
            self.prepack_graphs,
            self.readable,
            self.autotuning,
        )


class _InnerCompile:
    """Compiles the graphs that AOTAutograd makes of one, each once per variant: the forward, and where
    gradients are wanted the backward. give_up: told why the graph cannot be carried."""

    def __init__(
        self,
        gm: Any,
        variants: Sequence[Variant],
        operators: str,
        on_variant: Callable[[str, float | None], None],
        fixed_weights: bool,
        bfloat16: bool,
        give_up: Callable[[str], None],
    ) -> None:
        self.forward = _Part(gm)
        self.backward: _Part | None = None
        self.variants = variants
        self.operators = operators
        self.on_variant = on_variant
        self.fixed_weights = fixed_weights
        self.bfloat16 = bfloat16
        self.give_up = give_up

    def __call__(self, gm: Any, inputs: Sequence[Any], **settings: Any) -> Any:
        """The callable of the first variant."""
        part = self.forward
        if settings.get("is_backward"):
            part = self.backward = _Part(gm)
        if part.libraries or part.python:
            self.give_up("inductor split it in several parts")
        fixed = self.fixed_weights and settings.get("is_inference") and part is self.forward
        first = None
        for number, variant in enumerate(self.variants, 1):
            # Inductor consumes the graph it is given.
            given = gm if number == len(self.variants) else _copied(gm)
            taken, its_settings = inputs, settings
            owner = backend(variant.backend)
            bfloat16 = self.bfloat16 and owner.multiplies_bfloat16(variant)
            compiler = owner.compiler()
            if fixed:
                weights = settings.get("static_input_idxs", ())
                prepack = partial(compiler.prepack, variant=variant, bfloat16=bfloat16)
                separated = separate(given, inputs, weights, prepack)
                if separated is not None:
                    taken, part.prepack_graphs[variant.name] = separated
                    its_settings = _settings_after(separated[1], settings)
            whole_windows_are_means(given.graph)
            inference = bool(settings.get("is_inference"))
            compiler.rewrite(given.graph, variant, bfloat16=bfloat16, inference=inference)
            if rounded := multiplied_as(given.graph):
                part.rounded[variant.name] = rounded
            again = first is not None
            compiled = self._compile(part, variant, compiler, given, taken, its_settings, again=again)
            if variant.name in part.python and variant.name in part.prepack_graphs:
                # The Python wrapper unpacks panels and points by itself.
                part.prepack_graphs[variant.name] = part.prepack_graphs[variant.name].the_same_everywhere()
            first = first or compiled
            if compiled.output_strides != first.output_strides:
                self.give_up(f"the variant {variant.name} returns other strides")
            part.inputs, part.constants = len(taken), dict(compiled.constants or {})
            if compiled.inputs_to_check:
                self.give_up("its inputs would have to be realigned")
        prepack_graph = part.prepack_graphs.get(self.variants[0].name)
        if prepack_graph is not None:
            _compute_first(prepack_graph, first)
        return first

    def _compile(
        self,
        part: _Part,
        variant: Variant,
        compiler: Compiler,
        gm: Any,
        inputs: Sequence[Any],
        settings: dict[str, Any],
        *,
        again: bool,
    ) -> Any:
        from torch._guards import TracingContext

        self.on_variant(variant.name, None)
        started = time.perf_counter()
        outputs, given = _values(gm)
        with (
            with_settings_of(variant),
            compiler.compiling(variant),
            heavy_values_kept(),
            local_buffers_of_single_rows(),
            _named_without_addresses(),
            prepared_inputs(),
            # The strides of outputs are reported once, to what traced the graph.
            TracingContext.report_output_strides() if again else contextlib.nullcontext(),
        ):
            compiled = _compile_variant(
                part, variant.name, compiler, gm, inputs, settings, self.operators, self.give_up
            )
        if compiler.autotuning:
            part.autotuning[variant.name] = compiler.autotuning
        compiler.compiled(compiled, outputs, given)
        self.on_variant(variant.name, round(time.perf_counter() - started, 3))
        return compiled


def _values(gm: Any) -> tuple[list[Any], list[Any]]:
    """What stands for the outputs of a graph, and what for its inputs."""
    (returned,) = gm.graph.output_node().args
    given = [node for node in gm.graph.nodes if node.op == "placeholder"]
    both = (list(returned) if isinstance(returned, (tuple, list)) else [returned], given)
    outputs, inputs = (
        [each.meta.get("val") if isinstance(each, torch.fx.Node) else each for each in nodes]
        for nodes in both
    )
    return outputs, inputs


def _settings_after(prepack_graph: PrepackGraph, settings: dict[str, Any]) -> dict[str, Any]:
    """Inductor's settings for the inputs that the graph has after what depends on weights alone was taken
    out."""
    weights = set(settings.get("static_input_idxs", ()))
    kept, all_of_them = len(prepack_graph.kept), len(prepack_graph.kept) + len(prepack_graph.outputs)
    static = [place for place, number in enumerate(prepack_graph.kept) if number in weights]
    return {**settings, "static_input_idxs": [*static, *range(kept, all_of_them)]}


def _compute_first(prepack_graph: PrepackGraph, compiled: Any) -> None:
    """Have what was compiled take the graph's own inputs, and compute the prepacked ones of them first."""
    library = compiled.current_callable

    def call(inputs: list[Any]) -> Any:
        given = list(inputs)
        inputs.clear()
        return library([*(given[number] for number in prepack_graph.kept), *computed(prepack_graph, given)])

    compiled.current_callable = call


def _first_line(gm: Any) -> str:
    """Where the first operation of a graph is in the user's source: `model.py:10 in forward`."""
    for node in gm.graph.nodes:
        if node.op.startswith("call") and (line := last_line(node.stack_trace or "")):
            return line
    return ""


def _compile_variant(
    part: _Part,
    variant: str,
    compiler: Compiler,
    inner: Any,
    inputs: Sequence[Any],
    settings: dict[str, Any],
    operators: str,
    give_up: Callable[[str], None],
) -> Any:
    """Inductor's C++ wrapper for a graph or, where that one refuses it, the Python one."""
    import torch._inductor.config as inductor_config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.exc import InductorError
    from torch._inductor.select_algorithm import extern_kernels

    if problem := unchecked_division(inner.graph):
        give_up(problem)
    _require_a_call(inner)
    spare = _copied(inner)
    more = WATCHED if variant in part.prepack_graphs else ""
    try:
        _require_handles(inner)
        with libraries_made(give_up, operators, more) as made, python_operators_called_directly():
            compiled = compile_fx_inner(inner, inputs, **settings)
    except (InductorError, _NoHandle) as error:
        if not compiler.has_python_wrapper:
            raise
        refusal: Exception = error
    else:
        if not made:
            give_up("inductor did not use its C++ wrapper for it")
        elif len(made) > 1:
            give_up(f"inductor made {len(made)} libraries of it")
        for library in made:
            part.libraries[variant] = library.path
            part.outputs, part.scalar_outputs = library.outputs, library.scalar_outputs
        return compiled
    # store_cubin is for a C++ wrapper; in a Python one it becomes code that needs inductor.
    plain = {"cpp_wrapper": False, "compile_threads": 1, "triton.store_cubin": False}
    with inductor_config.patch(plain), kernel_paths(give_up, more) as kernels:
        try:
            compiled = compile_fx_inner(spare, inputs, **{**settings, "cpp_wrapper": False})
        except InductorError:
            raise refusal from None
    reason = refusal.inner_exception if isinstance(refusal, InductorError) else refusal
    part.why_python = str(reason) or type(reason).__name__
    try:
        source = portable_wrapper(compiled.source_code, extern_kernels)
        part.python[variant] = PythonWrapper(source, kernels)
    except NotPortable as error:
        give_up(f"{part.why_python}, and its Python wrapper needs inductor's {error}")
    part.outputs = len(compiled.output_strides or ())
    if compiled.torchbind_constants or compiled.opaque_value_type_classes:
        give_up("it has constants that are no tensors")
    return compiled


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def _named_without_addresses() -> AbstractContextManager[Any]:
    """Have checks in libraries call what made a tensor by a name that is the same in each build: inductor
    takes Python's words for a function, which have its address."""
    from torch._inductor import ir

    name = ir.ExternKernel.get_op_name
    return patch.object(ir.ExternKernel, "get_op_name", lambda self: _ADDRESS.sub("", name(self)))


def _require_a_call(gm: Any) -> None:
    """Inductor compiles no graph that only hands on its inputs, which it would run as Python. Where there is
    no operator, one is added, whose result nobody uses and inductor leaves out."""
    from torch._dynamo.utils import count_calls
    from torch._guards import TracingContext

    if count_calls(gm.graph):
        return
    inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]
    tensors = [node for node in inputs if isinstance(node.meta.get("val"), torch.Tensor)]
    *_, output = gm.graph.nodes
    with gm.graph.inserting_before(output):
        if tensors:
            added = gm.graph.call_function(torch.ops.aten.alias.default, (tensors[0],))
            added.meta["val"] = tensors[0].meta["val"]
        else:
            settings = {"dtype": torch.float32, "device": torch.device("cpu"), "pin_memory": False}
            added = gm.graph.call_function(torch.ops.aten.full.default, ([], 0.0), settings)
            with TracingContext.get().fake_mode:
                added.meta["val"] = torch.full([], 0.0)
    gm.recompile()


class _NoHandle(Exception):
    """The C++ wrapper would compile, and fail when it is called."""


def _require_handles(gm: Any) -> None:
    """Raises _NoHandle for an operator of a library's that returns None in place of a tensor."""
    for node in gm.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace not in ("aten", "prims"):
            value = node.meta.get("val")
            if isinstance(value, (tuple, list)) and any(item is None for item in value):
                raise _NoHandle(f"{node.target} returns None for a tensor")


def _copied(gm: Any) -> Any:
    """A graph module and the graph modules in it with graphs of their own; tensors are shared."""
    result = torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))
    result.meta = dict(gm.meta)
    for name, child in gm.named_children():
        if isinstance(child, torch.fx.GraphModule):
            setattr(result, name, _copied(child))
    return result
