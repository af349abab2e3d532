"""Which devices entrypoints and variants are for."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
import pytest
import torch

from hatch_precompile.backends import by_own_names, runs_here, variants_for_this_machine
from hatch_precompile.backends.cuda import BACKEND, first_gpu
from hatch_precompile.config import Config, load
from hatch_precompile.config.cells import cells_of, this_cell
from hatch_precompile.config.devices import captured_together, require_variants
from hatch_precompile.errors import BuildError, ConfigError

PREFIX = "tool.hatch.build.hooks.precompile"
ONE = {"target": "textmodel.model:Encoder", "samples": "textmodel.samples:encoder"}
GPU = ["native", "cuda-sm80", "cuda-sm90"]


def configured(variants: list[str], **keys: Any) -> Config:
    table = {"variants": variants, "entrypoints": [ONE | keys]}
    return load(table, default_package="textmodel")


def together(variants: list[str], **keys: Any) -> list[tuple[str, ...]]:
    config = configured(variants, **keys)
    return captured_together(config.entrypoints[0], config.variants)


def test_variants_for_cpus_are_captured_at_once() -> None:
    assert together(["x86-64-v3", "x86-64-v4"]) == [("x86-64-v3", "x86-64-v4")]


def test_each_variant_for_gpus_is_captured_by_itself_the_highest_first() -> None:
    assert together(["cuda-sm80", "native", "cuda-sm120"], devices=["cpu", "cuda"]) == [
        ("native",),
        ("cuda-sm120",),
        ("cuda-sm80",),
    ]
    assert together(["cuda-sm90"], devices=["cuda"]) == [("cuda-sm90",)]


class TestAMatrix:
    ROW: ClassVar[dict[str, list[str]]] = {"python": ["3.12"], "torch": ["2.11.0", "2.13.0"]}

    def config(self, variants: list[str], devices: list[str], **more: list[str]) -> Config:
        entrypoints = [ONE | {"devices": devices}]
        table = {"variants": variants, "entrypoints": entrypoints, "matrix": self.ROW | more}
        return load(table, default_package="textmodel")

    def test_for_gpus_it_has_every_cuda(self) -> None:
        config = self.config(["cuda-sm90"], ["cuda"], cuda=["cu126", "cu130"])
        assert config.matrix is not None
        assert [cell.name for cell in cells_of(config.matrix)] == [
            f"cp312-torch{torch}-{cuda}" for torch in ("2.11.0", "2.13.0") for cuda in ("cu126", "cu130")
        ]

    def test_for_gpus_the_cuda_must_be_named(self) -> None:
        with pytest.raises(
            ConfigError, match=r'matrix\.cuda: expected an array .* beside the variant "cuda-sm90"'
        ):
            self.config(["native", "cuda-sm90"], ["cpu", "cuda"])

    def test_for_cpus_it_must_not(self) -> None:
        with pytest.raises(ConfigError, match=r"matrix\.cuda: is for GPUs, and no variant is"):
            self.config(["native"], ["cpu"], cuda=["cu130"])

    def test_this_process_is_one(self) -> None:
        assert this_cell("2.13.0+cu126", "12.6").name.endswith("-torch2.13.0-cu126")
        assert this_cell("2.13.0+cpu").name.endswith("-torch2.13.0")


def test_an_entrypoint_of_which_nothing_is_built_here_stops_the_build() -> None:
    config = configured(["cuda-sm80"], name="small", devices=["cuda"])
    require_variants(config)
    with pytest.raises(BuildError, match="entrypoint small: none of the variants for its devices is built"):
        require_variants(msgspec.structs.replace(config, variants=("native",)))


@pytest.mark.parametrize(
    ("variants", "keys", "said"),
    [
        (
            ["native"],
            {"devices": ["cuda"]},
            f'entrypoints[0].devices: "cuda" needs a variant for GPUs in {PREFIX}.variants, '
            'such as "cuda-sm90"',
        ),
        (
            ["cuda-sm90"],
            {},
            f'entrypoints[0].devices: "cpu" needs a variant for CPUs in {PREFIX}.variants, such as "native"',
        ),
        (GPU, {}, 'variants: "cuda-sm80" is for no entrypoint: none has "cuda" in its devices'),
        (
            GPU,
            {"devices": ["cuda"]},
            'variants: "native" is for no entrypoint: none has "cpu" in its devices',
        ),
        (
            ["native"],
            {"devices": ["gpu"]},
            'entrypoints[0].devices[0]: expected "cpu" or "cuda", got "gpu"',
        ),
        (
            ["native"],
            {"devices": ["cpu", "cpu"]},
            'entrypoints[0].devices[1]: expected a value of its own, got "cpu" as in '
            f"{PREFIX}.entrypoints[0].devices[0]",
        ),
        (
            GPU,
            {"devices": ["cpu", "cuda"], "weights": "fixed"},
            'entrypoints[0].weights: expected "read" beside devices with "cuda", got "fixed"',
        ),
        (
            GPU,
            {"devices": ["cpu", "cuda"], "float32-matmul-precision": "high"},
            'entrypoints[0].float32-matmul-precision: expected "highest" beside devices with "cuda": there '
            "it is what torch.set_float32_matmul_precision says in the process that calls",
        ),
        (
            GPU,
            {"devices": ["cpu", "cuda"], "options": {"max-autotune": True}},
            'entrypoints[0].options.max-autotune: expected no setting beside devices with "cuda" for which '
            "kernels are tried: a build has no GPU to try them on",
        ),
    ],
)
def test_what_does_not_fit_is_said(variants: list[str], keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(variants, **keys)
    assert str(caught.value) == f"{PREFIX}.{said}"


def test_a_workload_is_not_moved() -> None:
    entrypoint = {"target": ONE["target"], "workload": "textmodel.samples:run", "devices": ["cuda"]}
    with pytest.raises(ConfigError, match=r"workload: expected samples beside devices with"):
        load({"variants": ["cuda-sm90"], "entrypoints": [entrypoint]}, default_package="textmodel")


@pytest.mark.parametrize(
    ("here", "expected"),
    [((9, 0), ["native", "cuda-sm90"]), ((8, 7), ["native", "cuda-sm86", "cuda-sm90"])],
)
def test_cuda_native_is_the_variant_for_the_gpu_here(
    monkeypatch: pytest.MonkeyPatch, here: tuple[int, int], expected: list[str]
) -> None:
    monkeypatch.setattr(first_gpu, "capability", lambda: here)
    assert by_own_names(["native", "cuda-native", "cuda-sm90"]) == expected


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (None, '"cuda-native": there is no GPU here; name a capability, as in "cuda-sm90"'),
        ((7, 5), '"cuda-native": there is no variant for this GPU, of capability 7.5'),
    ],
)
def test_cuda_native_without_such_a_gpu_is_said(
    monkeypatch: pytest.MonkeyPatch, here: tuple[int, int] | None, said: str
) -> None:
    monkeypatch.setattr(first_gpu, "capability", lambda: here)
    with pytest.raises(ConfigError) as told:
        by_own_names(["cuda-native"], PREFIX)
    assert str(told.value) == f"{PREFIX}.variants: {said}"


def test_it_is_for_gpus() -> None:
    config = configured(["native", "cuda-native"], devices=["cpu", "cuda"])
    assert captured_together(config.entrypoints[0], config.variants) == [("native",), ("cuda-native",)]


@pytest.mark.parametrize(
    ("here", "runs"),
    [(None, set()), ((8, 9), {"cuda-sm80", "cuda-sm86", "cuda-sm89"}), ((9, 0), {"cuda-sm90"})],
)
def test_what_the_gpu_here_runs(
    monkeypatch: pytest.MonkeyPatch, here: tuple[int, int] | None, runs: set[str]
) -> None:
    monkeypatch.setattr(first_gpu, "capability", lambda: here)
    assert {name for name in BACKEND.variants if runs_here(name)} == runs


def test_verify_may_be_run_and_nothing_else_that_is_no_boolean() -> None:
    entrypoints = [ONE]
    assert load({"verify": "run", "entrypoints": entrypoints}, default_package="textmodel").verify == "run"
    with pytest.raises(ConfigError, match=r'verify: expected true or false, or "run", got "always"'):
        load({"verify": "always", "entrypoints": entrypoints}, default_package="textmodel")


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is built for CUDA")
@pytest.mark.parametrize("name", BACKEND.variants)
def test_a_torch_without_cuda_is_said_before_anything_is_traced(name: str) -> None:
    said = rf'"{name}" cannot be compiled here: torch \S+ is not built for CUDA; require one of https://'
    with pytest.raises(ConfigError, match=said):
        variants_for_this_machine([name])
