"""The measured process of gemm.py: gemm_child.py WAY, of which it prints a JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from calls_child import least
from inside import announce, served

OPTIONS: dict[str, dict[str, Any]] = {
    "freezing": {"freezing": True},
    "micro-GEMM": {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP"},
}


def cases(way: str) -> Iterator[tuple[str, Callable[[], object]]]:
    import torch
    from bench_gemm import model

    for kind in model.LAYERS:
        torch.manual_seed(0)
        layer = kind().eval()
        call = torch.compile(layer, dynamic=False, options=OPTIONS[way]) if way in OPTIONS else layer
        for x in model.inputs(layer):
            name = f"{len(x)} x {layer.in_features} x {layer.out_features}, {str(x.dtype)[6:]}"
            yield name, lambda call=call, x=x: call(x)


def main(way: str) -> None:
    import torch

    torch.set_num_threads(1)
    found: dict[str, float] = {}
    with torch.no_grad():
        for name, call in cases(way):
            for _ in range(20):  # guards become native code after ten
                call()
            before = served("bench_gemm")[0] if way == "wheel" else 0
            found[name] = least(call, 200)
            if way == "wheel" and served("bench_gemm")[0] - before != 200:
                raise RuntimeError(f"{name}: not every call was a hit")
    announce()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
