"""A wheel with code for GPUs (tests/backends/cuda), where something stands in for two of them, or nothing."""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from rig import _precompiled, models

from hatch_precompile.backends.cuda import standin


def _hits() -> dict[str, int]:
    return {name: each["hits"] for name, each in _precompiled.status()["entrypoints"].items()}


def _called(call: Callable[[], Any]) -> dict[str, Any]:
    """Where the results of a call are, the launches of compiled code, and whether an entry served it."""
    before = sum(_hits().values())
    with torch.no_grad(), standin.launches_recorded() as launches:
        try:
            given = call()
        except RuntimeError as error:  # eager code, of which nothing runs
            given = str(error).splitlines()[0]
    results = given if isinstance(given, (tuple, list)) else [given]
    return {
        "devices": [str(each.device) if isinstance(each, torch.Tensor) else str(each) for each in results],
        "launches": [[each.device, each.grid, each.stream] for each in launches],
        "hits": sum(_hits().values()) - before,
    }


def on_both() -> dict[str, Any]:
    """Calls on two GPUs, and of tensors on both; on a stream; of views that begin in the middle."""
    x, y = torch.randn(8, 64), torch.randn(8, 64)
    seen = {}
    for device in ("cuda:0", "cuda:1"):
        there = x.to(device), y.to(device)
        seen[device] = _called(partial(models.scaled, *there))
    seen["both"] = _called(lambda: models.scaled(x.to("cuda:0"), y.to("cuda:1")))
    stream = torch.cuda.Stream()

    def on_a_stream() -> Any:
        with torch.cuda.stream(stream):
            return models.scaled(x.cuda(), y.cuda())

    seen["stream"] = _called(on_a_stream) | {"expected": stream.cuda_stream}
    unaligned = torch.zeros(8 * 64 + 1).cuda()[1:].view(8, 64)
    seen["unaligned"] = _called(lambda: models.scaled(unaligned, y.cuda()))
    seen["cpu"] = _called(lambda: models.scaled(x, y))
    return seen


def in_a_thread() -> dict[str, Any]:
    """A call in a thread that has asked CUDA for nothing: its memory is what a call before it left."""
    x, y = torch.randn(8, 64).cuda(), torch.randn(8, 64).cuda()
    _called(lambda: models.scaled(x, y))
    seen: dict[str, Any] = {}
    thread = threading.Thread(target=lambda: seen.update(_called(lambda: models.scaled(x, y))))
    thread.start()
    thread.join()
    return seen


def ways() -> dict[str, Any]:
    """For each way to speak of a device, whether a call on the first and one on the second GPU are served,
    and one on the first while the second is the current one."""
    x = torch.randn(8, 64)

    def served(way: str, device: str, current: int) -> int:
        with torch.cuda.device(current):
            hits: int = _called(lambda: models.ways(x.to(device), way))["hits"]
            return hits

    return {
        way: [served(way, "cuda:0", 0), served(way, "cuda:1", 0), served(way, "cuda:0", 1)]
        for way in models.WAYS
    }


def settings() -> dict[str, list[int]]:
    """For each setting that torch chooses its functions by, whether calls are served before, while and after
    it is another than at the build."""
    x, y = torch.randn(8, 64).cuda(), torch.randn(8, 64).cuda()
    private = torch._C
    _called(lambda: models.scaled(x, y))  # before, torch has no order of its own
    order = private._get_sdp_priority_order()
    precision = torch.backends.cuda.matmul.fp32_precision

    def put_tf32(allowed: bool) -> None:
        private._set_cublas_allow_tf32(allowed)
        if not allowed:  # for torch 2.15, not the same as never to have said so
            torch.backends.cuda.matmul.fp32_precision = precision

    ways: dict[str, tuple[Callable[[Any], None], Any, Any]] = {
        "flash": (private._set_sdp_use_flash, False, True),
        "order": (private._set_sdp_priority_order, order[::-1], order),
        "sums": (private._set_math_sdp_allow_fp16_bf16_reduction, True, False),
        "third": (private._set_sdp_use_fa3, not (fa3 := private._get_fa3_sdp_enabled()), fa3),
        "cudnn": (private._set_cudnn_enabled, False, True),
        "tf32": (put_tf32, True, False),
        "autocast": (partial(torch.set_autocast_enabled, "cuda"), True, False),
    }
    seen = {}
    for name, (put, other, own) in ways.items():
        seen[name] = [_called(lambda: models.scaled(x, y))["hits"]]
        for value in (other, own):
            put(value)
            seen[name].append(_called(lambda: models.scaled(x, y))["hits"])
    return seen


def no_room() -> dict[str, Any]:
    """How often a constant is moved to a GPU that has no memory for it, and what is said, in three calls."""
    x, y = torch.randn(8, 64).cuda(), torch.randn(8, 64).cuda()
    own, moved = torch.Tensor.to, list[Any]()

    def full(*args: Any, **kwargs: Any) -> Any:
        moved.append(args[1:])
        raise torch.OutOfMemoryError("CUDA out of memory")

    torch.Tensor.to = full
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        calls = [_called(lambda: models.scaled(x, y)) for _ in range(3)]
    torch.Tensor.to = own
    elsewhere = _called(lambda: models.scaled(x.to("cuda:1"), y.to("cuda:1")))
    return {
        "moved": moved,
        "said": [str(each.message) for each in said],
        "launches": [each["launches"] for each in calls],
        "elsewhere": len(elsewhere["launches"]),
    }


def own_kernel() -> list[int]:
    """Whether calls of a kernel of the author's are served, on each of two GPUs."""
    from rig import kernels

    x, seen = torch.randn(8, 64), []
    for device in ("cuda:0", "cuda:1"):
        before = _hits()["tripled"]
        with torch.no_grad(), standin.launches_recorded(), contextlib.suppress(Exception):
            kernels.tripled(x.to(device))
        seen.append(_hits()["tripled"] - before)
    return seen


def launches_of_own_kernel() -> list[Any]:
    """Grids, of a call that is served."""
    from rig import kernels

    seen = _called(lambda: kernels.tripled(torch.randn(8, 64).cuda()))
    assert seen["hits"] == 1
    return [grid for _, grid, _ in seen["launches"]]


def too_large() -> dict[str, Any]:
    """Of two calls of a kernel that a card may not have the shared memory for: launches, and what is said."""
    from rig import kernels

    x, launches = torch.randn(128, 256).half().cuda(), []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            with torch.no_grad(), standin.launches_recorded() as found, contextlib.suppress(Exception):
                kernels.squared(x)
            launches.append(len(found))
    return {"launches": launches, "said": [str(each.message) for each in said]}


def written() -> list[Any]:
    """Of an input that is written to and begins in the middle: whether the call is served, its launches, and
    what lies beside it."""
    memory = torch.arange(8 * 64 + 1, dtype=torch.float32).cuda()
    view = memory[1:].view(8, 64)
    seen = _called(lambda: models.doubled(view))
    return [seen["hits"], len(seen["launches"]), memory[:1].cpu().item()]


def other_card() -> dict[str, Any]:
    """What is served where the card is of another capability than that of any variant."""
    x, y = torch.randn(8, 64).cuda(), torch.randn(8, 64).cuda()
    return _called(lambda: models.scaled(x, y))


def explained() -> dict[str, list[str]]:
    """Why a call with tensors on two GPUs is not served, and one where torch does not use cuDNN."""
    x, y = torch.randn(8, 64).to("cuda:0"), torch.randn(8, 64)
    with torch.no_grad():
        on_two = _precompiled.explain("scaled", x, y.to("cuda:1"))
        torch._C._set_cudnn_enabled(False)
        on_one = _precompiled.explain("scaled", x, y.to("cuda:0"))
    reasons = {"two GPUs": on_two, "no cuDNN": on_one}
    return {name: [each["reason"] for each in reports] for name, reports in reasons.items()}


def without() -> dict[str, Any]:
    """In a process without a GPU: what is served, said, and loaded; and an explanation."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        x, y = torch.randn(8, 64), torch.randn(8, 64)
        with torch.no_grad(), contextlib.suppress(RuntimeError):
            models.scaled(x, y)
            models.Net().eval()(x)
            models.ways(x, "beside")
    backend = f"{_precompiled.__name__}.backends.cuda" in sys.modules
    with torch.no_grad():
        reports = _precompiled.explain("scaled", x, y)
    return {
        "hits": _hits(),
        "said": [str(each.message) for each in said],
        "opened": torch.cuda.is_initialized(),
        "compilers": [name for name in sys.modules if name.startswith(("triton", "torch._inductor"))],
        "backend": backend,
        "variant": _precompiled.status()["variant"],
        "not run": _precompiled.status()["compiled_not_run"],
        "reasons": [each["reason"] for each in reports],
    }
