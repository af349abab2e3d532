"""Triton, compiling for a card that is not there: its driver, and what makes kernels of inductor's.

Seen in Triton 3.6.0 with torch 2.11.0, and 3.7.1 with 2.13.0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from hatch_precompile.backends.cuda.cards import Card
from hatch_precompile.backends.cuda.configurations import autotuning_of
from hatch_precompile.records import Autotuning

__all__ = ["kernels_saved", "triton_compiles_for"]


class _Driver:
    """What Triton asks of the driver that is active while it compiles. It loads nothing, and runs nothing."""

    def __init__(self, card: Card) -> None:
        compiler: Any = import_module("triton.backends.compiler")
        self._target = compiler.GPUTarget("cuda", card.capability, 32)
        properties = {
            "max_shared_mem": card.shared,
            "max_num_regs": 65536,
            "multiprocessor_count": card.multiprocessors,
            "warpSize": 32,
        }
        # load_binary gives the module, the function, its registers, its spilled registers, the most threads.
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: properties, load_binary=lambda *_: (0, 0, 0, 0, 1024)
        )

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        def launch(*_: Any, **__: Any) -> None:
            raise RuntimeError("a kernel is to run, and there is no GPU")

        return launch

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        import torch

        return torch.cuda

    def get_benchmarker(self) -> Any:
        raise RuntimeError("kernels are to be timed, and there is no GPU")

    get_empty_cache_for_benchmark = get_benchmarker


@contextlib.contextmanager
def triton_compiles_for(card: Card) -> Iterator[None]:
    """Triton compiles for a card while the block runs, whatever the machine has."""
    from torch._inductor.runtime import triton_helpers

    config: Any = import_module("triton").runtime.driver
    drivers, set_driver = (config._active, config._default), triton_helpers.set_driver_to_gpu
    config._active = config._default = _Driver(card)
    triton_helpers.set_driver_to_gpu = lambda: None
    try:
        yield
    finally:
        triton_helpers.set_driver_to_gpu = set_driver
        config._active, config._default = drivers


@contextlib.contextmanager
def kernels_saved(*, run: bool) -> Iterator[list[Autotuning]]:
    """Have inductor compile the kernels of a graph while the block runs. What `hatch-precompile tune` reads
    of them is in the list after it.

    run: whether to run each, as inductor does by itself to take the fastest of its configurations; else the
    first is taken
    """
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    found: list[Autotuning] = []

    def compile_and_save(self: Any) -> None:
        self.kernel_autotune_defs.splice("\nasync_compile.wait(globals())\ndel async_compile\n")
        scope: dict[str, Any] = {}
        source = self.kernel_autotune_defs.getvalue()
        exec(f"{source}\n{self.kernel_autotune_calls.getvalue()}" if run else source, scope)
        kernels = {name: each for name, each in scope.items() if isinstance(each, CachingAutotuner)}
        for kernel in kernels.values():
            if not kernel.launchers:
                kernel.precompile()
            if not run:
                first, *_ = kernel.launchers
                kernel.save_gpu_kernel(0, first)
        if kernels:
            found.append(autotuning_of(self, kernels))

    by_itself = PythonWrapperCodegen.generate_and_run_autotune_block
    PythonWrapperCodegen.generate_and_run_autotune_block = compile_and_save
    try:
        yield found
    finally:
        PythonWrapperCodegen.generate_and_run_autotune_block = by_itself
