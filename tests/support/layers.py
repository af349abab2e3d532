"""Graphs whose weights are fixed, compiled for one variant."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import pytest
import torch
from torch import nn

from hatch_precompile.backends import variants_for_this_machine
from hatch_precompile.backends.base import Variant
from hatch_precompile.errors import ConfigError
from hatch_precompile.inductor import CompiledGraph, compile_graph
from hatch_precompile.runtime import runtime
from tests.support.graphs import OPERATORS
from tests.support.headers import settings_of_a_build

__all__ = [
    "CAPABILITIES",
    "compiled",
    "in_the_other_way",
    "multiplied_by_onednn",
    "require_int_mm",
    "variant",
]

CAPABILITIES = torch.cpu.get_capabilities()


def variant(name: str) -> Variant:
    """One that this machine runs; skips the test where it does not."""
    try:
        return variants_for_this_machine([name])[0]
    except ConfigError as error:
        pytest.skip(str(error))


def require_int_mm(dtype: torch.dtype) -> None:
    """Skips the test where torch.compile takes no matrix of that type times one of int8."""
    if dtype == torch.uint8 and torch.__version__ < (2, 12):
        pytest.skip("this torch does not trace it")


def compiled(
    model: nn.Module, of: Variant, *inputs: Any, precision: str = "highest", fixed: bool = True
) -> tuple[Any, CompiledGraph, list[str]]:
    """The call of the graph with these inputs, the graph, and the steps that its weights take. fixed: whether
    the weights are."""
    made: list[Any] = []
    given: list[Any] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        how: dict[str, Any] = {"fixed_weights": fixed, "matmul_precision": precision}
        made.extend(compile_graph(gm, example_inputs, [of], OPERATORS, **how))

        def keep(*inputs: Any) -> Any:
            given[:] = inputs
            return made[0](*inputs)

        return keep

    sys.modules[OPERATORS] = runtime("graphs.callers")
    torch._dynamo.reset()
    with torch.no_grad(), settings_of_a_build():
        torch.compile(model.eval(), backend=backend, fullgraph=True)(*inputs)
    graph = made[1]
    assert not graph.obstacle
    for library in graph.libraries.values():  # it is the same in each build
        assert b" at 0x" not in library.read_bytes()
    prepack = graph.prepack_graphs.get(of.name)  # None: this processor takes the weights as they are
    return (
        torch.no_grad()(lambda: made[0](*given)),
        graph,
        [name for name, *_ in prepack.steps] if prepack else [],
    )


def in_the_other_way(call: Any, graph: CompiledGraph, of: Variant) -> Any:
    """What a call answers where the library decides otherwise what it decides where it runs."""
    switch = ctypes.CDLL(str(graph.libraries[of.name])).precompiled_decide_otherwise
    switch(ctypes.c_bool(True))
    try:
        return call()
    finally:
        switch(ctypes.c_bool(False))


def multiplied_by_onednn(call: Any, kind: str, capfd: pytest.CaptureFixture[str]) -> tuple[Any, list[str]]:
    """What a call answers, and what oneDNN multiplied for it: its own words for the sizes of each `kind`."""
    capfd.readouterr()
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
        answer = call()
    ran = [line for line in capfd.readouterr().out.splitlines() if f",exec,cpu,{kind}," in line]
    return answer, [line.split(",")[-2] for line in ran]
