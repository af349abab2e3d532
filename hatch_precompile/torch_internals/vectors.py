"""Which architecture inductor compiles for, and which vectors of a CPU it writes for."""

from __future__ import annotations

import contextlib
import copy
import platform
from collections.abc import Collection, Iterator
from typing import Any

from hatch_precompile.config.variants import Variant
from hatch_precompile.errors import BuildError
from hatch_precompile.torch_versions import way

__all__ = ["vectors_within", "with_settings_of"]

# The compiler's flags for vectors, and torch's names for what they need.
_VECTOR_FLAGS = {
    "-mavx2": "avx2",
    "-mfma": "fma3",
    "-mf16c": "f16c",
    "-mavx512f": "avx512_f",
    "-mavx512bw": "avx512_bw",
    "-mavx512dq": "avx512_dq",
    "-mavx512vl": "avx512_vl",
    "-mavx512bf16": "avx512_bf16",
    "-mavx512vnni": "avx512_vnni",
    "-mamx-tile": "amx_tile",
    "-mamx-bf16": "amx_bf16",
    "-mamx-int8": "amx_int8",
    "-mamx-fp16": "amx_fp16",
}


# Inductor's own word on these is needed: whether the compiler knows all of them depends on its version.
_ASKED = {"amx_tile"}

# Instances of inductor's classes, and each without what it found.
_PLAIN: dict[int, tuple[Any, Any]] = {}


def _plain(isa: Any) -> Any:
    """A set of vectors that works here, without what it may have found out: BF16 and FP16 add to the flags of
    its class.

    Inductor asks each set, for every kernel, whether it works. It starts a compiler and a process to find
    out: eight seconds on a machine with AVX-512, in each process that captures. The capabilities say that
    the CPU has it, and every compiler that can build torch's headers knows its instructions.
    """
    known = _PLAIN.get(id(isa))
    if known is None or known[0] is not isa:
        cls = type(isa)
        methods = {"__bool__": lambda self: True, "__hash__": cls.__hash__}
        plain = copy.copy(isa)
        plain.__class__ = type(cls.__name__, (cls,), methods)
        vars(plain).clear()
        known = _PLAIN[id(isa)] = (isa, plain)
    return known[1]


@contextlib.contextmanager
def with_settings_of(variant: Variant) -> Iterator[None]:
    """Have inductor compile with a variant's settings."""
    import torch._inductor.config as inductor_config

    named = "cpp.march" in variant.settings
    if not named or way("the architecture that is compiled for") == "a setting":
        with inductor_config.patch(variant.settings):
            yield
        return
    settings = dict(variant.settings)
    march = settings.pop("cpp.march")
    with inductor_config.patch(settings), _architecture(str(march)):
        yield


@contextlib.contextmanager
def _architecture(march: str) -> Iterator[None]:
    """Torch 2.11 compiles for the machine that it is on."""
    from torch._inductor import cpp_builder

    flags = cpp_builder._get_optimization_cflags

    def flags_for_it(*args: Any, **kwargs: Any) -> tuple[list[str], list[str]]:
        compiling, linking = flags(*args, **kwargs)
        for_others = [f"march={march}" if flag == "march=native" else flag for flag in compiling]
        if for_others == compiling:
            raise BuildError("torch has no flag for the architecture that could be replaced")
        return for_others, linking

    cpp_builder._get_optimization_cflags = flags_for_it
    try:
        yield
    finally:
        cpp_builder._get_optimization_cflags = flags


@contextlib.contextmanager
def vectors_within(capabilities: Collection[str]) -> Iterator[None]:
    """Have inductor write for the widest vectors that need nothing but these capabilities.

    Left alone it takes all this machine has: code for any processor with AVX-512 would need the AMX of
    the machine it was built on. One that is unknown here is out of bounds, but for another architecture's.
    """
    from torch._inductor import cpu_vec_isa

    of_this_machine = cpu_vec_isa.valid_vec_isa_list

    def needed(isa: Any) -> set[str]:
        return {_VECTOR_FLAGS.get(flag, flag) for flag in isa.build_arch_flags().split()}

    def within() -> list[Any]:
        if platform.machine() not in ("x86_64", "AMD64"):
            return list(of_this_machine())
        if not _ASKED & set(capabilities):
            known = (cpu_vec_isa.VecAVX512, cpu_vec_isa.VecAVX2)
            every = [_plain(isa) for isa in cpu_vec_isa.supported_vec_isa_list if isinstance(isa, known)]
            return [isa for isa in every if needed(isa) <= set(capabilities)]
        found = []
        for isa in of_this_machine():
            found += [each for each in (isa, _plain(isa)) if needed(each) <= set(capabilities)][:1]
        return found

    cpu_vec_isa.valid_vec_isa_list = within
    try:
        yield
    finally:
        cpu_vec_isa.valid_vec_isa_list = of_this_machine
