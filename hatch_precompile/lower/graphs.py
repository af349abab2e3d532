"""Compiled graph to files: one stripped library per variant, constants as raw bytes."""

from __future__ import annotations

import ctypes
import marshal
import re
import shutil
import subprocess
from pathlib import Path

import torch

from hatch_precompile.errors import BuildError
from hatch_precompile.inductor import CompiledGraph
from hatch_precompile.records import MARSHAL, GraphRecord

__all__ = ["write_graph"]


def write_graph(graph: CompiledGraph, directory: Path, name: str) -> GraphRecord:
    """Copy a graph's libraries and constants below `directory` and say how to call it.

    `name` starts the names of its files, relative to `directory`.
    """
    libraries: dict[str, str] = {}
    for variant, source in graph.libraries.items():
        libraries[variant] = f"{name}-{variant}.so"
        _copy_stripped(source, directory / libraries[variant])
    kernels: dict[str, list[str]] = {}
    python: dict[str, str] = {}
    for variant, text in graph.python.items():
        python[variant] = f"{name}-{variant}.py"
        (directory / python[variant]).write_text(text)
        kernels[variant] = [f"{name}-{variant}-{number}.so" for number in range(len(graph.kernels[variant]))]
        for path, source in zip(kernels[variant], graph.kernels[variant], strict=True):
            _copy_stripped(source, directory / path)
    # The folders are the build machine's own.
    readable = re.sub(r"# File: .*?/(?=[^/\n]+:\d+ in )", "# File: ", graph.readable)
    (directory / f"{name}.txt").write_text(readable)
    weights: dict[str, str] = {}
    for variant, plan in graph.plans.items():
        weights[variant] = f"{name}-{variant}.weights"
        content = (plan.kept, plan.steps, plan.outputs, plan.watched)
        (directory / weights[variant]).write_bytes(marshal.dumps(content, MARSHAL))
    if graph.wrapping:
        (directory / f"{name}.wrapping").write_bytes(graph.wrapping)
    return GraphRecord(
        libraries=libraries,
        inputs=graph.inputs,
        outputs=graph.outputs,
        readable=f"{name}.txt",
        scalar_outputs=graph.scalar_outputs,
        input_outputs=graph.input_outputs,
        view_outputs=graph.view_outputs,
        detached_outputs=graph.detached_outputs,
        direct=not python,
        written_inputs=graph.written_inputs,
        copied_inputs=graph.copied_inputs,
        changes_inputs=graph.changes_inputs,
        unwrapped_inputs=graph.unwrapped_inputs,
        rounded=graph.rounded,
        hidden_weights=graph.hidden_weights and bool(weights),
        weights=weights,
        constants=[
            _write_constant(tensor, directory, f"{name}-constant-{index}.bin")
            | ({"name": graph.constant_names[index]} if python else {})
            for index, tensor in enumerate(graph.constants)
        ],
        python=python,
        kernels=kernels,
        why_python=graph.why_python,
        disable_autocast=graph.disable_autocast,
        disable_grad=graph.disable_grad,
        backward=write_graph(graph.backward, directory, f"{name}-backward") if graph.backward else None,
        wrapping=f"{name}.wrapping" if graph.wrapping else "",
        why_wrapped=graph.why_wrapped,
    )


def _copy_stripped(source: Path, destination: Path) -> None:
    """Strip what only a debugger reads: it is most of the size, and it holds the build machine's paths."""
    shutil.copyfile(source, destination)
    result = subprocess.run(
        # The build id is a hash over what is stripped, paths included.
        ["strip", "--strip-unneeded", "--remove-section=.note.gnu.build-id", str(destination)],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise BuildError(f"strip failed on {source.name}: {result.stderr.strip()}")


def _write_constant(tensor: torch.Tensor, directory: Path, name: str) -> dict[str, object]:
    if tensor.device.type != "cpu":
        raise BuildError(f"a constant of a graph is on {tensor.device}; only cpu is supported")
    dense = tensor.detach().contiguous()
    (directory / name).write_bytes(ctypes.string_at(dense.data_ptr(), dense.nbytes))
    return {"file": name, "dtype": str(tensor.dtype).removeprefix("torch."), "size": list(tensor.size())}
