"""Environment, hash seed, and the flags and switches of torch and Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from tests.truth.changes.registry import add, change

ENVIRONMENT = ("environ", "getenv")


@change("nothing", "nothing", harmless=True)
def nothing(run: Any) -> None:
    run.load()
    run.call()


@change("nothing, three times", "nothing", harmless=True)
def three_times(run: Any) -> None:
    run.load()
    for time in range(3):
        run.call(label=f"call {time}")


@change("the source is another", "source", listed=False)
def source(run: Any) -> None:
    """The site has a changed file; whether that is harmless, the case says."""
    run.load()
    run.call()
    run.call(label="again")


def _set_before_import(name: str, value: str) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        os.environ[name] = value
        run.load()
        run.call()

    return apply


def _set_before_call(name: str, value: str) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        os.environ[name] = value
        run.call()

    return apply


def _set_between(name: str, value: str) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        run.call()
        os.environ[name] = value
        run.call(label="then")

    return apply


for _name, _value in {
    "SPECIMENS_FACTOR": "7.5",
    "SPECIMENS_MODE": "fancy",
    "SPECIMENS_SHIFT": "",
    "ANOTHER_VARIABLE": "1",
    "HOME": "/nonexistent",
}.items():
    for _when, _make in (
        ("before the import", _set_before_import),
        ("before the first call", _set_before_call),
        ("between two calls", _set_between),
    ):
        _title = f"{_name}={_value} {_when}"
        add(_title, "environment", _make(_name, _value), harmless=True, reads=ENVIRONMENT)

for _variable, _harmless in {
    "PYTHONHASHSEED=1": True,
    "PYTHONHASHSEED=2": True,
    "PYTHONHASHSEED=77": True,
    "PYTHONOPTIMIZE=1": False,  # the code of functions with an assertion is another
    "PYTHONOPTIMIZE=2": False,
    "OMP_NUM_THREADS=1": True,
    "OMP_NUM_THREADS=3": True,
    "MKL_NUM_THREADS=1": True,
    "PYTHONMALLOC=debug": True,
    "TORCH_SHOW_CPP_STACKTRACES=0": True,
    "TORCH_LOGS=recompiles": True,
    "HATCH_PRECOMPILE=log": True,
    "HATCH_PRECOMPILE=strict": True,
    "ATEN_CPU_CAPABILITY=default": False,
    "PYTHONWARNINGS=error": True,
    "LANG=tr_TR.UTF-8": True,
}.items():
    _name, _, _value = _variable.partition("=")
    add(_variable, "environment at start", nothing, harmless=_harmless, environment={_name: _value})

for _variable in ("TORCHDYNAMO_DISABLE=1", "TORCH_COMPILE_DISABLE=1"):
    _name, _, _value = _variable.partition("=")
    add(_variable, "switched off", nothing, aside=True, environment={_name: _value})


SWITCHES: dict[str, tuple[Callable[[], Any], bool]] = {
    "set_num_threads(1)": (lambda: torch.set_num_threads(1), True),
    "set_num_threads(3)": (lambda: torch.set_num_threads(3), True),
    "set_default_dtype(float64)": (lambda: torch.set_default_dtype(torch.float64), False),
    "set_default_dtype(float16)": (lambda: torch.set_default_dtype(torch.float16), False),
    "set_grad_enabled(True)": (lambda: torch.set_grad_enabled(True), True),
    "set_grad_enabled(False)": (lambda: torch.set_grad_enabled(False), False),
    "use_deterministic_algorithms": (lambda: torch.use_deterministic_algorithms(True), False),
    "use_deterministic_algorithms, warn only": (
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        False,
    ),
    "float32 matmul precision high": (lambda: torch.set_float32_matmul_precision("high"), False),
    "float32 matmul precision medium": (lambda: torch.set_float32_matmul_precision("medium"), False),
    "set_flush_denormal": (lambda: torch.set_flush_denormal(True), False),
    "set_autocast_enabled": (lambda: torch.set_autocast_enabled("cpu", True), False),
    "set_autocast_cache_enabled(False)": (lambda: torch.set_autocast_cache_enabled(False), False),
    "set_default_device(cpu)": (lambda: torch.set_default_device("cpu"), False),
    "set_default_device(meta)": (lambda: torch.set_default_device("meta"), False),
    "mkldnn switched off": (lambda: torch.backends.mkldnn.set_flags(False), False),
    "flash attention switched off": (lambda: torch.backends.cuda.enable_flash_sdp(False), False),
    "math attention switched off": (lambda: torch.backends.cuda.enable_math_sdp(False), False),
    "manual_seed(5)": (lambda: torch.manual_seed(5), True),
    "anomaly mode": (lambda: torch.autograd.set_detect_anomaly(True), False),
    "multithreading of autograd off": (lambda: torch.autograd.set_multithreading_enabled(False), False),
    "recursion limit 400": (lambda: sys.setrecursionlimit(400), True),
    "a trace function": (lambda: sys.settrace(lambda *_: None), False),
    "a profile function": (lambda: sys.setprofile(lambda *_: None), False),
    "garbage collection off": (lambda: __import__("gc").disable(), True),
    "set_printoptions": (lambda: torch.set_printoptions(precision=2), True),
    "warn_always": (lambda: torch.set_warn_always(True), True),
    "overwrite_module_params_on_conversion": (
        lambda: torch.__future__.set_overwrite_module_params_on_conversion(True),
        True,
    ),
}


def _switched_first(switch: Callable[[], Any]) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        switch()
        run.load()
        run.call()

    return apply


def _switched_before_call(switch: Callable[[], Any]) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        switch()
        run.call()

    return apply


def _switched_between(switch: Callable[[], Any]) -> Callable[[Any], None]:
    def apply(run: Any) -> None:
        run.load()
        run.call()
        switch()
        run.call(label="then")
        run.call(label="at last")

    return apply


for _name, (_switch, _harmless) in SWITCHES.items():
    add(f"{_name} before the import", "switch", _switched_first(_switch), harmless=_harmless)
    add(f"{_name} before the first call", "switch", _switched_before_call(_switch), harmless=_harmless)
    add(f"{_name} between two calls", "switch", _switched_between(_switch), harmless=_harmless)


@change("a process group of gloo, before the import", "distributed", harmless=True, reads=("distributed",))
def distributed_first(run: Any) -> None:
    _initialise()
    run.load()
    run.call()


@change("a process group of gloo, between two calls", "distributed", harmless=True, reads=("distributed",))
def distributed_between(run: Any) -> None:
    run.load()
    run.call()
    _initialise()
    run.call(label="then")


def _initialise() -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
