"""How the compiler is set while a wheel is built."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hatch_precompile.errors import ConfigError
from hatch_precompile.inductor.lstm_steps import lstm_steps
from hatch_precompile.inductor.parallel_regions import regions_for_any_threads
from hatch_precompile.tracing.any_size.tracing import sizes_as_declared
from hatch_precompile.tracing.any_value import AnyValue

__all__ = ["capture_settings", "compiler_settings"]


def compiler_settings() -> dict[str, Any]:
    """How torch's compiler is set outside of `capture_settings`, by the author's code or the environment, in
    words that are the same in each process."""
    import torch._dynamo.config as dynamo_config
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config

    return {
        module.__name__: {
            name: _words(value)
            for name, value in module.get_config_copy().items()
            # Where things lie, and how many processes compile, decides nothing.
            if name != "compile_threads" and not _is_place(value)
        }
        for module in (dynamo_config, functorch_config, inductor_config)
    }


def _is_place(value: Any) -> bool:
    return isinstance(value, str) and Path(value).is_absolute()


def _words(value: Any) -> Any:
    if isinstance(value, (str, int, float, type(None))):
        return value
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, (list, tuple)):
        return [_words(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _words(item) for key, item in value.items()}
    # A function, say: its address is another in each process.
    return getattr(value, "__qualname__", type(value).__qualname__)


@contextlib.contextmanager
def _without_log(name: str) -> Iterator[None]:
    """Silence a logger that writes a page when an operator refuses its inputs: the error says that, too."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextlib.contextmanager
def capture_settings(
    options: dict[str, Any], graphs_expected: int, numbers: Sequence[str] = (), headers: str = ""
) -> Iterator[AnyValue]:
    """Dynamo, AOTAutograd and inductor set so that what they build can leave this process.

    Sizes and numbers are static, unless they are declared dynamic (numbers: the arguments that are), and then
    for any value, or unless the AnyValue that is given says so; no recompile limit; one library per graph
    with a C++ wrapper, for any number of threads; nothing read from or left in the caches of this machine:
    compiled headers are kept in the folder `headers`, by all who are given the same.
    """
    import torch._dynamo.config as dynamo_config
    import torch._functorch.config as functorch_config
    import torch._inductor.config as inductor_config

    with (
        _without_log("torch._subclasses.fake_tensor"),
        dynamo_config.patch(
            enable_cpp_symbolic_shape_guards=False,
            record_runtime_overhead=False,
            # What changes is decided here, and nothing of it is kept in a file for other processes.
            automatic_dynamic_shapes=True,
            automatic_dynamic_local_pgo=False,
            automatic_dynamic_remote_pgo=False,
            assume_static_by_default=True,
            recompile_limit=10**6,
            accumulated_recompile_limit=10**6,
            fail_on_recompile_limit_hit=True,
            suppress_errors=False,
            caching_precompile=False,
            # Left alone, dynamo gives up on every function that calls a recurrent layer.
            allow_rnn=True,
        ),
        functorch_config.patch(
            enable_autograd_cache=False,
            # A backward that may write over what was saved for it can run once only: no retain_graph=True.
            donated_buffer=False,
        ),
        inductor_config.patch(
            {
                "cpp_wrapper": True,
                "cpp.dynamic_threads": True,
                # The calling code at -O1: it is most of what a large graph costs to compile.
                "cpp_wrapper_build_separate": True,
                "fx_graph_cache": False,
                "fx_graph_remote_cache": False,
                # Precompiling torch's headers takes the time that it saves on about six graphs.
                "cpp_cache_precompile_headers": graphs_expected > 6,
                **_known(options),
            }
        ),
        _without_paths(),
        _side_by_side(),
        _headers_in(headers),
        regions_for_any_threads(),
        sizes_as_declared(),
        lstm_steps(),
        _traced_for(values := AnyValue(numbers)),
    ):
        yield values


def _known(options: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of inductor by their names; torch.compile takes `max-autotune`, too. Raises ConfigError for
    one that is not there."""
    import torch._inductor.config as inductor_config

    names = inductor_config.get_config_copy()
    found = {key.replace("-", "_"): value for key, value in options.items()}
    for name in found.keys() - names.keys():
        close = get_close_matches(name, names, n=1)
        meant = f"; did you mean {close[0]}?" if close else "; torch._inductor.config has their names"
        raise ConfigError(f"options: inductor of this torch has no setting {name}{meant}")
    return found


@contextlib.contextmanager
def _traced_for(values: AnyValue) -> Iterator[None]:
    """Have dynamo trace these numbers and sizes for any value, as if it had seen several."""
    import torch.compiler.config as compiler_config
    from torch._dynamo.variables import builder

    def process(tx: Any, name: str, entry: Any, **_: Any) -> Any:
        return values.traced(tx.f_code, name, entry)

    more = ",".join(filter(None, [compiler_config.dynamic_sources, *sorted(values.sources)]))
    with (
        patch.object(builder, "process_automatic_dynamic", process),
        compiler_config.patch(dynamic_sources=more),
    ):
        yield


def _side_by_side() -> AbstractContextManager[Any]:
    """Have the two halves of a library, the calling code and the kernels, compiled at the same time."""
    from torch._inductor import codecache

    build_in_turn = codecache._worker_compile_cpp

    def build(lock_path: str, builders: Sequence[Any]) -> None:
        *halves, linker = builders
        if halves:
            locks = [f"{lock_path}.{number}" for number in range(len(halves))]
            with ThreadPoolExecutor(len(halves)) as pool:
                list(pool.map(build_in_turn, locks, [(half,) for half in halves]))
        build_in_turn(lock_path, (linker,))

    return patch.object(codecache, "_worker_compile_cpp", build)


def _headers_in(folder: str) -> AbstractContextManager[Any]:
    """Have compiled headers kept there. They have the paths of this environment in their names, so that in
    torch's folder for them, which is the user's, each isolated build would leave 300 MB that no other reads.
    """
    from torch._inductor import codecache

    if not folder:
        return contextlib.nullcontext()
    return patch.multiple(codecache, _HEADER_DIR=folder, _HEADER_LOCK_DIR=str(Path(folder) / "locks"))


# Where kernels note that they divided by zero is one variable for all libraries of a process. Ours do not
# note it (parallel_checks.py), and must not meet what somebody else's kernel is noting at the time.
_OWN_DIVISION_FLAG = "Dinductor_cpu_integer_div_error_flag=precompiled_integer_div_error_flag"


def _without_paths() -> AbstractContextManager[Any]:
    """Have the compiler write one name wherever a source would write its own path into the library."""
    from torch._inductor import cpp_builder

    flags = cpp_builder._get_shared_cflags
    more = ["Wno-builtin-macro-redefined", """D__FILE__='"graph.cpp"'""", _OWN_DIVISION_FLAG]
    return patch.object(cpp_builder, "_get_shared_cflags", lambda *arguments: [*flags(*arguments), *more])
