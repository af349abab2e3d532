"""The graphs of one entrypoint's traces, each compiled for every variant and written."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from hatch_precompile.backends import backend
from hatch_precompile.backends.base import Variant
from hatch_precompile.capture.two_gpus import graph_as_text
from hatch_precompile.config import Entrypoint
from hatch_precompile.errors import Unsupported
from hatch_precompile.events import Event
from hatch_precompile.inductor import CompiledGraph, compile_graph
from hatch_precompile.lower.dependencies.writer import Memory
from hatch_precompile.lower.graphs import write_graph
from hatch_precompile.records import GraphRecord
from hatch_precompile.tracing import compiled_graph, input_sources, last_line

__all__ = ["Graphs", "as_traced"]


@dataclass
class Graphs:
    """What dynamo's backend has been given, by number.

    operators: the module from which compiled code calls operators; of_first: where this is the trace on a
    second GPU, the graphs of the one on the first: nothing is compiled then

    records: as they are written; memory: what each writes to; texts: of those on a GPU, to compare them;
    sample: of the call that is traced, from 0
    """

    entrypoint: Entrypoint
    variants: Sequence[Variant]
    directory: Path
    operators: str
    report: Callable[[Event], None]
    of_first: Graphs | None = None
    records: list[GraphRecord] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    sample: int = 0
    _obstacles: dict[int, Unsupported] = field(default_factory=dict)

    def compiled(self, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Compile a graph and write it: the backend that dynamo gets."""
        number = len(self.records)
        if self.on_gpu:
            self.texts.append(graph_as_text(gm))
        function = (
            self._compile(number, gm, example_inputs)
            if self.of_first is None
            else self._uncompiled(number, gm, self.of_first)
        )

        function = as_traced(function, gm, example_inputs)

        def run(*args: Any) -> Any:
            return function(*args)

        run.precompile_graph = number  # type: ignore[attr-defined]  # see called_by
        return run

    @property
    def on_gpu(self) -> bool:
        return backend(self.variants[0].backend).device != "cpu"

    def called_by(self, injected: dict[str, Any]) -> dict[str, tuple[str, int]]:
        """The kind and the number of each graph among what dynamo has put into a frame's globals. Raises
        Unsupported for one that cannot be carried."""
        graphs = {name: graph for name, value in injected.items() if (graph := _graph(value)) is not None}
        for _, number in graphs.values():
            if number in self._obstacles:
                raise self._obstacles[number]
        return graphs

    def texts_of(self, numbers: Iterable[int]) -> list[str]:
        return [self.texts[number] for number in numbers]

    def _compile(self, number: int, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        nodes = sum(node.op.startswith("call") for node in gm.graph.nodes)
        label = f"sample {self.sample + 1}: graph {number}"
        about = Event(step="graph", sample=self.sample + 1, graph=number, operations=nodes)
        text = f"{label}: {nodes} operations, compiling"
        self.report(replace(about, text=text, variants=len(self.variants)))
        started = time.perf_counter()

        def on_variant(variant: str, seconds: float | None) -> None:
            step = "variant" if seconds is None else "variant-end"
            self.report(replace(about, step=step, variant=variant, seconds=seconds))

        function, graph = compile_graph(
            gm,
            example_inputs,
            self.variants,
            self.operators,
            on_variant,
            fixed_weights=self.entrypoint.weights == "fixed",
            matmul_precision=self.entrypoint.float32_matmul_precision,
        )
        seconds = time.perf_counter() - started
        self.report(
            replace(about, step="graph-end", text=f"{label}: {seconds:.1f} s", seconds=round(seconds, 3))
        )
        for variant in self.variants:
            self._tell_tuned(label, variant, graph)
        self._write(number, graph)
        if self.on_gpu and b"cuda" in graph.wrapping:
            self.texts[number] += "\nAOTAutograd keeps a device of it."  # and not in the second trace
        sources = list(enumerate(input_sources(gm)))
        self.memory.append(
            Memory(
                written=tuple(name for place, name in sources if name and place in graph.changed),
                others=tuple(name for place, name in sources if name and place not in graph.changed),
            )
        )
        return function

    def _tell_tuned(self, label: str, variant: Variant, graph: CompiledGraph) -> None:
        parts = [graph, *([graph.backward] if graph.backward else [])]
        kernels = [
            key for part in parts if (made := part.autotuning.get(variant.name)) for key in made.kernels
        ]
        if kernels and variant.tuned:
            tuned = sum(key in variant.tuned for key in kernels)
            text = f"{label}: {tuned} of {len(kernels)} kernels have a tuned configuration"
            self.report(Event(step="note", text=text, variant=variant.name))

    def _write(self, number: int, graph: CompiledGraph) -> None:
        if graph.obstacle:
            self._obstacles[number] = Unsupported(
                f"a graph of {self.entrypoint.target} cannot be carried: {graph.obstacle}",
                f"{graph.place or 'an unknown line'}, where it starts (sample {self.sample + 1})",
                "Put torch.compiler.disable on the function that does it, or name a smaller target.",
            )
        self.records.append(write_graph(graph, self.directory, f"graphs/{number}"))

    def _uncompiled(self, number: int, gm: Any, first: Graphs) -> Callable[..., Any]:
        """For a graph of which only the trace counts. What it writes to is known from the first trace."""
        self.records.append(GraphRecord())
        self.memory.append(first.memory[number] if number < len(first.memory) else Memory((), ()))
        given = [node for node in gm.graph.nodes if node.op == "placeholder"]
        (returned,) = gm.graph.output_node().args
        values = [
            [each.meta.get("example_value") if isinstance(each, torch.fx.Node) else each for each in nodes]
            for nodes in (returned, given)
        ]
        function = backend(self.variants[0].backend).compiler().uncompiled(*values)
        return lambda *args: function(list(args))


def as_traced(function: Callable[..., Any], gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """A function that calls another, and raises Unsupported where a tensor is of another type than the graph
    was traced for: torch 2.14 calls graphs so with numbers that `random` drew, and its code reads others."""
    types = [each.dtype if isinstance(each, torch.Tensor) else None for each in example_inputs]
    place = next(filter(None, (last_line(node.stack_trace or "") for node in gm.graph.nodes)), "")

    def call(*args: Any) -> Any:
        for given, expected in zip(args, types, strict=False):
            if isinstance(given, torch.Tensor) and given.dtype != expected:
                own = f"torch {torch.__version__}"
                raise Unsupported(
                    f"{own} calls a graph with {given.dtype} that it traced for {expected}",
                    place,
                    "Draw random numbers outside of the target, or build with another version of torch.",
                )
        return function(*args)

    return call


def _graph(value: Any) -> tuple[str, int] | None:
    function, plain = compiled_graph(value)
    number = getattr(function, "precompile_graph", None)
    return None if number is None else ("plain graph" if plain else "graph", int(number))
