"""Which of inductor's settings an author may choose: not those a wheel rests on."""

from __future__ import annotations

from collections.abc import Mapping

from hatch_precompile.config.reading import quote_key
from hatch_precompile.errors import ConfigError

__all__ = ["FIXED", "check_options"]

_ONE_LIBRARY = "a graph is one library, called through inductor's C++ wrapper"
_CACHES = "nothing is read from or left in the caches of the build machine"
_VARIANT = "the key variants says what code is written for"
_CPU = "kernels are compiled where none can run"

# A setting of torch._inductor.config, or with a dot at its end all that begin so, and why it is not free.
FIXED: Mapping[str, str] = {
    "cpp_wrapper": _ONE_LIBRARY,
    "cpp_wrapper_build_separate": _ONE_LIBRARY,
    "cpp_cache_precompile_headers": "the build decides by the number of graphs",
    "graph_partition": _ONE_LIBRARY,
    "aot_inductor.": _ONE_LIBRARY,
    "fx_graph_cache": _CACHES,
    "fx_graph_remote_cache": _CACHES,
    "force_disable_caches": _CACHES,
    "freezing": "weights are not in the wheel; the key weights says whether they may change",
    "freezing_discard_parameters": "weights are inputs of a graph",
    "cpp.dynamic_threads": "a library runs with any number of threads",
    "cpp.threads": "a library runs with any number of threads",
    "cpp.march": _VARIANT,
    "cpp.simdlen": _VARIANT,
    "cpp.vec_isa_ok": _VARIANT,
    "assert_indirect_indexing": "an index out of range must be an error, not a read beyond a tensor",
    "triton.cudagraphs": "CUDA graphs are recorded in the process that calls, and nothing does that yet",
    "triton.": _CPU,
    "cuda.": _CPU,
    "cpu_backend": "graphs are compiled as C++",
    "cpp.inject_relu_bug_TESTING_ONLY": "it makes results wrong",
    "cpp.inject_log1p_bug_TESTING_ONLY": "it makes results wrong",
}


_ARGUMENTS: Mapping[str, str] = {
    "mode": "torch._inductor.list_mode_options() has the settings that each mode stands for",
    "dynamic": "the key dynamic-shapes says which sizes vary",
    "fullgraph": "it is a key of the entrypoint",
    "backend": "graphs are compiled by inductor",
}


def check_options(options: Mapping[str, object], path: str) -> None:
    """Raises ConfigError, whose text starts with the full key, for a setting that the build fixes itself."""
    for key in options:
        name = key.replace("-", "_")  # torch.compile takes both
        if name in _ARGUMENTS:
            raise ConfigError(
                f"{path}.{quote_key(key)}: expected a setting of inductor, got an argument of torch.compile: "
                f"{_ARGUMENTS[name]}"
            )
        for fixed, reason in FIXED.items():
            if name == fixed or (fixed.endswith(".") and name.startswith(fixed)):
                raise ConfigError(
                    f"{path}.{quote_key(key)}: expected no setting that the build makes itself: {reason}"
                )
