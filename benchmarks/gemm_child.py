"""The measured process of gemm.py: gemm_child.py WAY, of which it prints a JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from calls_child import least
from inside import announce, served

SETTINGS: dict[str, dict[str, Any]] = {
    "freezing": {"freezing": True},
    "micro-GEMM": {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP"},
}


def cases(way: str) -> Iterator[tuple[str, Callable[[], object]]]:
    import torch
    from bench_gemm import model

    for kind in model.LAYERS:
        torch.manual_seed(0)
        made = kind().eval()
        call: Callable[[Any], object] = made
        for x in model.inputs(made.layer):
            name = f"{len(x)} x {x.shape[1]} x {made.layer.out_features}, {str(x.dtype)[6:]}"
            if way in SETTINGS:
                torch._dynamo.reset()  # or it would be the ninth of its code
                call = torch.compile(made, dynamic=False)
            yield name, lambda call=call, x=x: call(x)


def main(way: str) -> None:
    import torch

    torch.set_num_threads(1)
    if way in SETTINGS:
        import torch._inductor.config

        for name, value in SETTINGS[way].items():
            setattr(torch._inductor.config, name, value)
    found: dict[str, float] = {}
    with torch.no_grad():
        for name, call in cases(way):
            try:
                call()
            except Exception as error:  # inductor's
                if way != "micro-GEMM" or "No choices" not in str(error):
                    raise
                continue
            for _ in range(20):  # guards become native code after ten
                call()
            found[name] = least(call, 200)
            if way == "wheel" and served("bench_gemm")[1]:
                raise RuntimeError(f"{name}: not every call was a hit")
    announce()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
