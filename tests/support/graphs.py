"""Single graphs, compiled as a build compiles them and called as a wheel calls them.

`save_graph` belongs to the process that builds; `load_graph` to any other, which needs no compiler.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import torch

from hatch_precompile.backends.x86_64.emulated_processors import OtherProcessors
from hatch_precompile.runtime import runtime
from tests.support.hardware import a_variant
from tests.support.headers import settings_of_a_build

OPERATORS = "graphs_of_tests._precompiled.graphs.callers"


def save_graph(
    directory: Path,
    function: Callable[..., Any],
    inputs: dict[str, Any],
    *,
    grad: bool = False,
    requires: tuple[str, ...] | None = None,
    fixed_weights: bool = False,
) -> Any:
    """Compile a function's one graph with a build's settings and write it; requires: of the variant."""
    from hatch_precompile.inductor import compile_graph
    from hatch_precompile.lower.graphs import write_graph

    graphs: list[Any] = []
    capabilities = {name for name, value in torch.cpu.get_capabilities().items() if value is True}
    variant = a_variant("here", tuple(capabilities) if requires is None else requires)

    def backend(gm: Any, example_inputs: Any) -> Any:
        compiled, graph = compile_graph(gm, example_inputs, [variant], OPERATORS, fixed_weights=fixed_weights)
        graphs.append(graph)
        return compiled if fixed_weights else gm.forward

    torch._dynamo.reset()
    with torch.set_grad_enabled(grad), settings_of_a_build():
        torch.compile(function, backend=backend, fullgraph=True)(**inputs)
    (graph,) = graphs
    assert not graph.obstacle, graph.obstacle
    files = directory / "files"
    files.mkdir(parents=True)
    written = write_graph(graph, files, "graph")
    record = msgspec.to_builtins(written.with_files(lambda _, path: f"{files.name}/{path}"))
    digests = {
        f"files/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest() for path in files.iterdir()
    }
    (directory / "manifest.json").write_text(json.dumps({"files": digests, "graphs": [record]}))
    return graph


def load_graph(directory: Path) -> Callable[..., Any]:
    """What a wheel's bytecode calls, but for the arguments: those of the function, by their names, and
    `size` for what is dynamic in them."""
    call = graph_of(directory)
    text = (directory / "files/graph.txt").read_text()
    signature = text[text.index("def forward(") :].partition("\n")[0]
    names = [name or "size" for name, _ in re.findall(r"\b(?:L_(\w+)_|(s\d+)):", signature)]
    return lambda **inputs: call(*(inputs[name] for name in names))


def graph_of(directory: Path) -> Callable[..., Any]:
    """The same, with the arguments that the graph has, in their order."""
    for parent in ("graphs_of_tests", "graphs_of_tests._precompiled"):
        sys.modules[parent] = ModuleType(parent)
    sys.modules[OPERATORS] = runtime("graphs.callers")
    manifest = json.loads((directory / "manifest.json").read_text())
    graph: Callable[..., Any] = (
        runtime("loading.bundle").Bundle(str(directory), "graphs_of_tests", manifest, "here").graph(0)
    )
    return graph


def other_processors(directory: Path) -> OtherProcessors:
    """For what `load_graph` loads from now on."""
    file = str(directory / "__init__.py")
    return OtherProcessors(SimpleNamespace(__file__=file, __name__="graphs_of_tests._precompiled"))
