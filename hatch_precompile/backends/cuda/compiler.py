"""How inductor compiles for a GPU, whether there is one or not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hatch_precompile.backends.base import Compiler, Variant
from hatch_precompile.backends.cuda import standin
from hatch_precompile.backends.cuda.cards import CARDS
from hatch_precompile.backends.cuda.carrier import wrapped_to_be_carried
from hatch_precompile.backends.cuda.configurations import configurations_chosen
from hatch_precompile.backends.cuda.folding import constants_folded_on_the_cpu
from hatch_precompile.backends.cuda.placeholder_outputs import PlaceholderOutputs
from hatch_precompile.backends.cuda.triton import kernels_saved, triton_compiles_for
from hatch_precompile.inductor.vector_isa import vectors_from

__all__ = ["CudaCompiler"]


class CudaCompiler(Compiler):
    has_python_wrapper = False

    @contextlib.contextmanager
    def tracing(self, variant: Variant) -> Iterator[None]:
        """Dynamo compiles kernels that an author wrote in Triton, to find out what they write to."""
        with contextlib.ExitStack() as stack:
            if standin.is_preloaded():
                stack.enter_context(triton_compiles_for(CARDS[variant.name]))
            yield

    @contextlib.contextmanager
    def lowering(self, variant: Variant) -> Iterator[None]:
        import torch._inductor.config as inductor_config

        own = {name: value for name, value in variant.settings.items() if name != "cpp.march"}
        with inductor_config.patch(own), contextlib.ExitStack() as stack:
            if standin.is_preloaded():
                stack.enter_context(constants_folded_on_the_cpu())
            yield

    @contextlib.contextmanager
    def compiling(self, variant: Variant) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(vectors_from(lambda _: []))  # of what of a graph runs on the CPU
            stack.enter_context(wrapped_to_be_carried())
            stack.enter_context(configurations_chosen(variant.tuned))
            saved = stack.enter_context(kernels_saved(run=not standin.is_preloaded()))
            yield
        self.autotuning = next(iter(saved), None)

    def uncompiled(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        return PlaceholderOutputs(outputs, inputs)

    def compiled(self, function: Any, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
        # The library looks itself whether the memory of inputs begins where its kernels want it.
        function.inputs_to_check = ()
        if standin.is_preloaded():
            function.current_callable = PlaceholderOutputs(outputs, inputs, function.mutated_input_idxs)
