"""Which devices entrypoints and variants are for: what fits together, and what is captured at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hatch_precompile.backends import known
from hatch_precompile.config.reading import quote_key
from hatch_precompile.errors import BuildError, ConfigError

if TYPE_CHECKING:
    from hatch_precompile.config.model import Config, Entrypoint

__all__ = ["captured_together", "check_devices", "of_device", "require_variants"]

# Settings with which inductor tries kernels, and takes the fastest.
_TRIES = ("max_autotune", "coordinate_descent", "benchmark_", "autotune_")


def check_devices(config: Config, prefix: str) -> None:
    """Raises ConfigError, whose text starts with the full key, for variants and devices that do not fit."""
    for number, entrypoint in enumerate(config.entrypoints):
        path = f"{prefix}.entrypoints[{number}]"
        for device in entrypoint.devices:
            if not of_device(config.variants, device):
                example = "cuda-sm90" if device == "cuda" else "native"
                hardware = "GPUs" if device == "cuda" else "CPUs"
                raise ConfigError(
                    f'{path}.devices: "{device}" needs a variant for {hardware} in {prefix}.variants, '
                    f'such as "{example}"'
                )
        if "cuda" in entrypoint.devices:
            _check_for_gpu(entrypoint, path)
    if config.tuned_kernels is not None and not any("cuda" in each.devices for each in config.entrypoints):
        raise ConfigError(
            f'{prefix}.tuned-kernels: is for GPUs, and no entrypoint has "cuda" in its devices; leave it out'
        )
    if config.matrix is not None:
        _check_matrix(bool(config.matrix.cuda), of_device(config.variants, "cuda"), f"{prefix}.matrix.cuda")
    wanted = {device for entrypoint in config.entrypoints for device in entrypoint.devices}
    for name in config.variants:
        for device in ("cpu", "cuda"):
            if device not in wanted and name in known(device):
                raise ConfigError(
                    f'{prefix}.variants: "{name}" is for no entrypoint: none has "{device}" in its devices'
                )


def _check_matrix(has_cudas: bool, variants: tuple[str, ...], key: str) -> None:
    """Code for GPUs is for one CUDA; which, pip does not know."""
    if variants and not has_cudas:
        raise ConfigError(
            f'{key}: expected an array such as ["cu130"] beside the variant "{variants[0]}", but the key is '
            "missing"
        )
    if has_cudas and not variants:
        raise ConfigError(f"{key}: is for GPUs, and no variant is; leave it out")


def _check_for_gpu(entrypoint: Entrypoint, path: str) -> None:
    """What is not there for GPUs."""
    beside = 'beside devices with "cuda"'
    if entrypoint.weights != "read":
        raise ConfigError(f'{path}.weights: expected "read" {beside}, got "{entrypoint.weights}"')
    if entrypoint.float32_matmul_precision != "highest":
        raise ConfigError(
            f'{path}.float32-matmul-precision: expected "highest" {beside}: there it is what '
            "torch.set_float32_matmul_precision says in the process that calls"
        )
    if entrypoint.workload is not None:
        raise ConfigError(
            f"{path}.workload: expected samples {beside}, because no call of a workload is moved"
        )
    for key in entrypoint.options:
        if key.replace("-", "_").startswith(_TRIES):
            raise ConfigError(
                f"{path}.options.{quote_key(key)}: expected no setting {beside} for which kernels are tried: "
                "a build has no GPU to try them on"
            )


def of_device(variants: tuple[str, ...], device: str) -> tuple[str, ...]:
    """Those of some variants that are for devices of a kind; names that nobody knows are for CPUs."""
    others = {name for kind in ("cpu", "cuda") if kind != device for name in known(kind)}
    return tuple(
        name for name in variants if name not in others and (device == "cpu" or name in known(device))
    )


def require_variants(config: Config) -> None:
    """Raises BuildError for an entrypoint of which nothing is built on this machine."""
    for each in config.entrypoints:
        if not any(captured_together(each, config.variants)):
            raise BuildError(
                f"entrypoint {each.name}: none of the variants for its devices is built on this machine; "
                "name one that is, or build it where one is"
            )


def captured_together(entrypoint: Entrypoint, variants: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The variants of each capture of an entrypoint. Those for CPUs share what is traced; a trace for a GPU
    is for one capability, by which torch chooses among its functions. Of those the highest is first, as
    entries are asked in this order where none has served yet."""
    found = [of_device(variants, "cpu")] if "cpu" in entrypoint.devices else []
    if "cuda" in entrypoint.devices:
        found += [
            (name,) for name in sorted(of_device(variants, "cuda"), key=known("cuda").index, reverse=True)
        ]
    return found
