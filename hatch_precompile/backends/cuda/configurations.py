"""Configurations of kernels written in Triton: how much of its work a block does, with how many warps.

Inductor measures several on a GPU and keeps the fastest. Here is which one is taken where nothing can be run,
and the noting of what was measured where it can. By the class with which inductor starts kernels,
`CachingAutotuner` (torch/_inductor/runtime/triton_heuristics.py). Seen in torch 2.11.0 and 2.13.0.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from hatch_precompile.errors import BuildError
from hatch_precompile.records import Autotuning, Configuration, MeasuredKernel

__all__ = ["autotuning_of", "configurations_chosen", "measure"]

_KEY = "precompile_kernel_key"
# Inductor's settings that leave one configuration of each kernel (_SETTINGS of this package), and its own.
_AS_BY_ITSELF = {
    "'autotune_pointwise': False": "'autotune_pointwise': True",
    "'force_filter_reduction_configs': True": "'force_filter_reduction_configs': False",
}


def kernel_key(function: Any, meta: Mapping[str, Any], size_hints: Any, heuristic: Any) -> str:
    """The same for a kernel in each build: of its source without its name, the types of its arguments, the
    sizes it is made for, and the capability of the card."""
    source = re.sub(r"^def \w+", "def", function.src.strip(), count=1)
    kinds = (sorted(meta["signature"].items()), sorted(meta.get("constants", {}).items(), key=str))
    text = repr((source, kinds, size_hints, getattr(heuristic, "name", heuristic), meta["device"].cc))
    return hashlib.sha256(re.sub(r" at 0x[0-9a-f]+", "", text).encode()).hexdigest()[:32]


def _read(config: Any) -> Configuration:
    """Of a `triton.Config`."""
    return Configuration(dict(config.kwargs), config.num_warps, config.num_stages)


def configurations_chosen(chosen: Mapping[str, Configuration]) -> AbstractContextManager[None]:
    """Kernels that inductor makes while the block runs get the chosen one of their configurations, by
    `kernel_key`, and know that key. Raises BuildError for one that the kernel cannot have."""

    def choose(key: str, configs: list[Any]) -> list[Any]:
        return [_as_one_of(configs, chosen[key], key)] if key in chosen else configs

    return _made_with(choose)


def _made_with(edit: Callable[[str, list[Any]], list[Any]]) -> AbstractContextManager[None]:
    """edit: takes the key of a kernel and its configurations, and returns those that it gets."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    start: Callable[..., None] = CachingAutotuner.__init__

    def started(self: Any, fn: Any, triton_meta: Any, configs: Any, *args: Any, **kwargs: Any) -> None:
        key = kernel_key(fn, triton_meta, kwargs.get("size_hints"), kwargs.get("heuristic_type"))
        start(self, fn, triton_meta, edit(key, list(configs)), *args, **kwargs)
        setattr(self, _KEY, key)

    made: AbstractContextManager[Any] = patch.object(CachingAutotuner, "__init__", started)
    return made


def _as_one_of(configs: list[Any], chosen: Configuration, key: str) -> Any:
    first = configs[0]
    if chosen.arguments.keys() != first.kwargs.keys():
        raise BuildError(
            f"tuned-kernels: the arguments of the kernel {key} are {_words(chosen.arguments)}, "
            f"and a configuration of it has {_words(first.kwargs)}"
        )
    return type(first)(dict(chosen.arguments), num_warps=chosen.num_warps, num_stages=chosen.num_stages)


def _words(names: Iterable[str]) -> str:
    return " and ".join(names) or "none"


def autotuning_of(wrapper: Any, kernels: Mapping[str, Any]) -> Autotuning:
    """wrapper: what writes the calling code of a graph; kernels: those of it, by name, compiled."""
    source = f"{wrapper.kernel_autotune_defs.getvalue()}\n{wrapper.kernel_autotune_calls.getvalue()}"
    source = re.sub(r"(?m)^\s*#.*\n", "", source)  # where a kernel is from, with paths
    for ours, its in _AS_BY_ITSELF.items():
        source = source.replace(ours, its)
    made = {getattr(each, _KEY): (name, _read(each.launchers[0].config)) for name, each in kernels.items()}
    return Autotuning(source, made)


def measure(autotuning: Autotuning) -> list[MeasuredKernel]:
    """Have inductor measure the kernels that it has several configurations of, on the first GPU. That of the
    library is always among them."""
    import torch._inductor.config as inductor_config
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    found: list[MeasuredKernel] = []
    run: Callable[..., Any] = CachingAutotuner.benchmark_all_configs

    def with_that_of_the_library(key: str, configs: list[Any]) -> list[Any]:
        if key not in autotuning.kernels:
            return configs
        _, own = autotuning.kernels[key]
        there = any(_read(each) == own for each in configs)
        return configs if there else [*configs, _as_one_of(configs, own, key)]

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        milliseconds = run(self, *args, **kwargs)
        times = [(_read(launcher.config), 1000 * each) for launcher, each in milliseconds.items()]
        found.append(MeasuredKernel(getattr(self, _KEY), self.fn.__name__, times))
        return milliseconds

    with (
        inductor_config.patch(compile_threads=1),  # what is replaced here is replaced in this process alone
        _made_with(with_that_of_the_library),
        patch.object(CachingAutotuner, "benchmark_all_configs", noted),
    ):
        exec(autotuning.source, {})
    return found
