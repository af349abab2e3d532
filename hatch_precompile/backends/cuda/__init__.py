"""NVIDIA's GPUs: a variant for each capability, compiled where there is a GPU or none."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from hatch_precompile.backends.base import Backend, Compiler, Surroundings, Variant
from hatch_precompile.backends.cuda import first_gpu, standin
from hatch_precompile.backends.cuda.cards import CARDS, Card, variant_of
from hatch_precompile.errors import ConfigError

__all__ = ["BACKEND"]

# One configuration for each kernel: to choose among several, inductor runs them.
_SETTINGS = {
    "triton.autotune_at_compile_time": True,
    "triton.autotune_pointwise": False,
    "test_configs.force_filter_reduction_configs": True,
    "shape_padding": False,
    "compile_threads": 1,  # what stands in for a GPU's driver is in this process alone
    "cpp.march": "x86-64",  # for what of a graph runs on the CPU
}


# In the words of torch, where a kernel was to run on what stands in for a GPU (standin.c).
_NOT_RUN = (
    *("CUDA error: operation not supported", "CUBLAS_STATUS_NOT_INITIALIZED"),
    *("CUDNN_STATUS_NOT_INITIALIZED", "CUSOLVER_STATUS_NOT_INITIALIZED", "cuSPARSE error", "cuFFT error"),
    "no GPU, and what stands in",
)


class Cuda(Backend):
    """Its capabilities are that of the first GPU of this machine, as "sm_90"."""

    name = "cuda"
    device = "cuda"
    machines = frozenset({"x86_64", "AMD64"})
    hardware = "GPU"
    variants = tuple(CARDS)
    native = "cuda-native"
    libraries = frozenset({"libtorch_cuda.so"})

    def capabilities(self) -> frozenset[str]:
        found = first_gpu.capability()
        return frozenset() if found is None else frozenset({"sm_{}{}".format(*found)})

    def missing(self, variant: Variant) -> list[str]:
        """Nothing: what is compiled for a GPU is compiled without one."""
        return []

    def most_demanding(self, names: Collection[str]) -> None:
        """Every machine builds for all of them."""

    def cannot_compile(self, variant: Variant) -> str:
        import torch

        if torch.version.cuda is None:
            return (
                f"torch {torch.__version__} is not built for CUDA; "
                "require one of https://download.pytorch.org/whl/cu130"
            )
        card = CARDS[variant.name]
        if any(_runs(each, card) for each in _architectures(torch)):
            return ""
        return (
            f"torch {torch.__version__} for CUDA {torch.version.cuda} has no kernels for {card.serves}; "
            "require one for another CUDA"
        )

    def variant(self, name: str) -> Variant:
        return Variant(name, (f"sm_{CARDS[name].capability}",), dict(_SETTINGS), self.name)

    def native_variant(self, capabilities: Collection[str]) -> Variant:
        if not capabilities:
            raise ConfigError(f'"{self.native}": there is no GPU here; name a capability, as in "cuda-sm90"')
        (own,) = capabilities
        major, minor = divmod(int(own.removeprefix("sm_")), 10)
        name = variant_of(major, minor)
        if name is None:
            raise ConfigError(
                f'"{self.native}": there is no variant for this GPU, of capability {major}.{minor}'
            )
        return self.variant(name)

    def own_name(self, name: str) -> str:
        return self.native_variant(self.capabilities()).name if name == self.native else name

    def runs_here(self, variant: Variant) -> bool:
        found = first_gpu.capability()
        return found is not None and CARDS[variant.name].is_like(*found)

    def wants_hardware(self, error: BaseException) -> bool:
        return isinstance(error, RuntimeError) and any(words in str(error) for words in _NOT_RUN)

    @contextlib.contextmanager
    def launches_recorded(self) -> Iterator[list[standin.Launch]]:
        from hatch_precompile.backends.cuda.passed_over import libraries_passed_over

        with libraries_passed_over(), standin.launches_recorded() as launches:
            yield launches

    def surroundings(self, variant: Variant, folder: Path) -> Surroundings:
        """A process of its own: importing inductor counts the GPUs, after which torch refuses to use one in a
        fork."""
        environment = {
            **standin.environment_with(standin.build(folder / "standin"), CARDS[variant.name]),
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "TRITON_DISABLE_LINE_INFO": "1",  # or kernels would have this machine's paths
            "TORCH_CPP_LOG_LEVEL": "FATAL",  # or what is refused would come with torch's stack
        }
        return Surroundings(environment, forked=False)

    def settle(self) -> None:
        if standin.is_preloaded():
            standin.settle()
            standin.counted()

    def compiler(self) -> Compiler:
        from hatch_precompile.backends.cuda.compiler import CudaCompiler

        return CudaCompiler()


def _architectures(torch: Any) -> list[int]:
    """What torch's own kernels are compiled for: 80 and the like. It knows without a GPU."""
    numbers = (each.rpartition("_")[2] for each in (torch._C._cuda_getArchFlags() or "").split())
    return [int(number) for number in numbers if number.isdecimal()]


def _runs(compiled_for: int, card: Card) -> bool:
    """Whether code for a capability runs on a card: as 8.0 on 8.9."""
    major, minor = divmod(compiled_for, 10)
    return major == card.major and minor <= card.minor


BACKEND = Cuda()
