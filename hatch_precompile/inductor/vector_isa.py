"""Which architecture inductor compiles for, and which vectors of a CPU it writes for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from hatch_precompile.backends.base import Variant
from hatch_precompile.errors import BuildError
from hatch_precompile.torch_versions import way

__all__ = ["vectors_from", "with_settings_of"]


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


def _architecture(march: str) -> AbstractContextManager[Any]:
    """Torch 2.11 compiles for the machine that it is on."""
    from torch._inductor import cpp_builder

    flags = cpp_builder._get_optimization_cflags

    def flags_for_it(*args: Any, **kwargs: Any) -> tuple[list[str], list[str]]:
        compiling, linking = flags(*args, **kwargs)
        for_others = [f"march={march}" if flag == "march=native" else flag for flag in compiling]
        if for_others == compiling:
            raise BuildError("torch has no flag for the architecture that could be replaced")
        return for_others, linking

    return patch.object(cpp_builder, "_get_optimization_cflags", flags_for_it)


def vectors_from(choose: Callable[[Callable[[], list[Any]]], list[Any]]) -> AbstractContextManager[Any]:
    """Have inductor write for the first set of vectors that `choose` gives. Left alone it takes all that the
    build machine has. choose: called with a function that gives this machine's sets"""
    from torch._inductor import cpu_vec_isa

    of_this_machine = cpu_vec_isa.valid_vec_isa_list
    return patch.object(cpu_vec_isa, "valid_vec_isa_list", lambda: choose(of_this_machine))
