"""Compiled graph to files: one stripped library per variant, constants as raw bytes, how fixed weights are
prepacked as the marshalled fields of a `PrepackGraph`."""

from __future__ import annotations

import ctypes
import marshal
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import torch
from msgspec.structs import replace

from hatch_precompile.backends import every
from hatch_precompile.errors import BuildError
from hatch_precompile.inductor import CompiledGraph
from hatch_precompile.records import MARSHAL, ConstantRecord, GraphRecord

__all__ = ["write_graph"]


def write_graph(graph: CompiledGraph, directory: Path, name: str) -> GraphRecord:
    """Copy a graph's libraries and constants below `directory`. Returns its record, with their names.

    `name` starts the names of its files, relative to `directory`.
    """
    libraries = {variant: f"{name}-{variant}.so" for variant in graph.libraries}
    for variant, source in graph.libraries.items():
        _copy_stripped(source, directory / libraries[variant])
    python = {variant: f"{name}-{variant}.py" for variant in graph.python}
    kernels: dict[str, list[str]] = {}
    for variant, wrapper in graph.python.items():
        (directory / python[variant]).write_text(wrapper.source)
        kernels[variant] = [f"{name}-{variant}-{number}.so" for number in range(len(wrapper.kernels))]
        for path, source in zip(kernels[variant], wrapper.kernels, strict=True):
            _copy_stripped(source, directory / path)
    # The folders are the build machine's own.
    readable = re.sub(r"\bFile: .*?/(?=[^/\n]+:\d+ in )", "File: ", graph.readable)
    (directory / f"{name}.txt").write_text(readable)
    weights = {variant: f"{name}-{variant}.weights" for variant in graph.prepack_graphs}
    for variant, prepack in graph.prepack_graphs.items():
        plan = (prepack.kept, prepack.steps, prepack.outputs, prepack.watched)
        (directory / weights[variant]).write_bytes(marshal.dumps(plan, MARSHAL))
    autotuning = {variant: f"{name}-{variant}.autotuning" for variant in graph.autotuning}
    for variant, content in graph.autotuning.items():
        (directory / autotuning[variant]).write_bytes(msgspec.json.encode(content))
    if graph.wrapping:
        (directory / f"{name}.wrapping").write_bytes(graph.wrapping)
    return replace(
        graph.record,
        libraries=libraries,
        readable=f"{name}.txt",
        weights=weights,
        constants=[
            _write_constant(tensor, directory, f"{name}-constant-{index}.bin", called if python else "")
            for index, (called, tensor) in enumerate(graph.constants.items())
        ],
        python=python,
        kernels=kernels,
        autotuning=autotuning,
        backward=write_graph(graph.backward, directory, f"{name}-backward") if graph.backward else None,
        wrapping=f"{name}.wrapping" if graph.wrapping else "",
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


def _write_constant(tensor: torch.Tensor, directory: Path, file: str, name: str) -> ConstantRecord:
    if tensor.device.type not in {each.device for each in every()}:
        raise BuildError(f"a constant of a graph is on {tensor.device}, which no backend has")
    dense = tensor.detach().cpu().contiguous()
    (directory / file).write_bytes(ctypes.string_at(dense.data_ptr(), dense.nbytes))
    dtype, device = str(tensor.dtype).removeprefix("torch."), tensor.device.type
    return ConstantRecord(file, dtype, list(tensor.size()), name, "" if device == "cpu" else device)
