"""Which vectors of an x86-64 processor inductor writes for."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any

from hatch_precompile.inductor.vector_isa import vectors_from

__all__ = ["vectors_within"]

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

# By id: an instance of inductor's, and its copy without what that found out.
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


def vectors_within(capabilities: Collection[str]) -> AbstractContextManager[None]:
    """Have inductor write for the widest vectors that need nothing but these capabilities.

    Left alone it takes all this machine has: code for any processor with AVX-512 would need the AMX of
    the machine it was built on. Vectors that need a flag which no capability stands for are not used.
    """

    def needed(isa: Any) -> set[str]:
        return {_VECTOR_FLAGS.get(flag, flag) for flag in isa.build_arch_flags().split()}

    def within(of_this_machine: Callable[[], list[Any]]) -> list[Any]:
        from torch._inductor import cpu_vec_isa

        if not _ASKED & set(capabilities):
            known = (cpu_vec_isa.VecAVX512, cpu_vec_isa.VecAVX2)
            every = [_plain(isa) for isa in cpu_vec_isa.supported_vec_isa_list if isinstance(isa, known)]
            return [isa for isa in every if needed(isa) <= set(capabilities)]
        found = []
        for isa in of_this_machine():
            found += [each for each in (isa, _plain(isa)) if needed(each) <= set(capabilities)][:1]
        return found

    return vectors_from(within)
