"""Graphs compiled where there is no GPU: `python -m tests.backends.cuda.compiled VARIANT FOLDER`

Libraries and what was seen go into the folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from msgspec import to_builtins
from torch import nn

import hatch_precompile.capture.preloaded  # noqa: F401
from hatch_precompile.backends.cuda import BACKEND, standin
from hatch_precompile.inductor import capture_settings, compile_graph
from hatch_precompile.lower.graphs import write_graph
from hatch_precompile.runtime import runtime


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.norm = nn.LayerNorm(64)

    def forward(self, x: Any) -> Any:
        return self.norm(x + self.attention(x, x, x, need_weights=False)[0])


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.filters, self.norm, self.head = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        return self.head(torch.relu(self.norm(self.filters(x))).mean((2, 3)))


def noise(x: Any) -> Any:
    return (
        nn.functional.dropout(x, 0.5, training=True) + torch.rand_like(x) + torch.randn(64, device=x.device)
    )


def pointwise(x: Any, y: Any) -> Any:
    return torch.softmax(x * y.sin() + 1, -1), (x - y).sum(0)


def written(x: Any, y: Any) -> Any:
    x.mul_(2)
    return x + y


def with_constant(x: Any) -> Any:
    return x * torch.tensor([1.0, 2.0, 3.0, 4.0] * 16, device=x.device)


def training() -> tuple[Any, ...]:
    layer = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64))
    return layer, (torch.randn(16, 64),), True


GRAPHS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "attention": lambda: (Attention().eval().half(), (torch.randn(2, 128, 64).half(),), False),
    "convolution": lambda: (Convolution().eval(), (torch.randn(2, 3, 32, 32),), False),
    "noise": lambda: (noise, (torch.randn(8, 64),), False),
    "pointwise": lambda: (pointwise, (torch.randn(8, 64), torch.randn(8, 64)), False),
    "written": lambda: (written, (torch.randn(8, 64), torch.randn(8, 64)), False),
    "constant": lambda: (with_constant, (torch.randn(8, 64),), False),
    "any batch": lambda: (pointwise, (torch.randn(8, 64), torch.randn(8, 64)), False),
    "training": training,
}


def main(variant: str, folder: Path, *names: str) -> None:
    standin.settle()
    torch.manual_seed(0)
    sys.modules["compiled_operators"] = runtime("graphs.callers")
    seen: dict[str, Any] = {}
    for name in names or GRAPHS:
        target, inputs, trains = GRAPHS[name]()
        if isinstance(target, nn.Module):
            target.cuda()
        inputs = tuple(each.cuda() for each in inputs)
        if name == "any batch":
            for each in inputs:
                torch._dynamo.mark_dynamic(each, 0, min=2, max=64)
        key = name.replace(" ", "-")

        def compile_here(graph: Any, examples: Any, key: str = key) -> Any:
            function, compiled = compile_graph(
                graph, examples, [BACKEND.variant(variant)], "compiled_operators"
            )
            assert not compiled.obstacle, compiled.obstacle
            seen[key] = to_builtins(write_graph(compiled, folder, key))
            return function

        torch._dynamo.reset()
        with (
            BACKEND.compiler().tracing(BACKEND.variant(variant)),
            capture_settings({}, graphs_expected=1),
            torch.set_grad_enabled(trains),
        ):
            result = torch.compile(target, backend=compile_here)(*inputs)
        try:
            (result if isinstance(result, torch.Tensor) else result[0]).sum().item()
        except RuntimeError as error:
            seen[key]["read"] = str(error).splitlines()[0]
        if name == "written":
            try:
                inputs[0].cpu()
            except RuntimeError as error:
                seen[key]["input"] = str(error).splitlines()[0]
    (folder / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
