"""Hardware targets: what a CPU must have for each, and what the compiler may use for it."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._inductor import cpu_vec_isa
from torch.fx.experimental.proxy_tensor import make_fx

import hatch_precompile.backends
from hatch_precompile.backends import backend, built_here, every, most_demanding, variants_for_this_machine
from hatch_precompile.backends.aarch64.levels import highest
from hatch_precompile.backends.base import Variant
from hatch_precompile.backends.x86_64.levels import EXTENSIONS, Instructions, needed
from hatch_precompile.errors import ConfigError
from hatch_precompile.runtime import runtime, runtime_directory

V3 = dict.fromkeys(needed("x86-64-v3"), True)
V4 = dict.fromkeys(needed("x86-64-v4"), True)
SAPPHIRE_RAPIDS = {**V4, **dict.fromkeys(EXTENSIONS, True), "amx_fp16": False, "clflush": True}


@pytest.fixture(autouse=True)
def x86(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


def one(name: str, capabilities: dict[str, Any]) -> Variant:
    here = {"architecture": "x86_64", "cores": 2, **capabilities}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cpu, "get_capabilities", lambda: here)
        (variant,) = variants_for_this_machine([name])
    return variant


def test_a_level_needs_all_below_it_and_nothing_this_machine_has_beyond() -> None:
    v3 = one("x86-64-v3", SAPPHIRE_RAPIDS)
    assert set(v3.requires) == set(V3)
    assert set(needed("x86-64-v2")) < set(v3.requires)
    assert v3.settings == {"cpp.march": "x86-64-v3"}
    assert not Instructions(v3.requires).has_bfloat16
    bf16 = one("x86-64-v4-bf16", SAPPHIRE_RAPIDS)
    assert set(bf16.requires) == {*V4, "avx512_bf16"}
    assert bf16.settings == {"cpp.march": "x86-64-v4"}
    assert Instructions(bf16.requires).has_bfloat16


@pytest.mark.parametrize(
    ("capabilities", "level", "beyond"),
    [
        ({**V3, "sha": True}, "x86-64-v3", set()),
        ({**V3, "avx512_f": True}, "x86-64-v3", set()),
        (V4, "x86-64-v4", set()),
        ({**V4, "avx512_vnni": True}, "x86-64-v4", {"avx512_vnni"}),
        ({**V4, "avx512_bf16": True}, "x86-64-v4", {"avx512_bf16"}),
        (SAPPHIRE_RAPIDS, "x86-64-v4", set(EXTENSIONS) - {"amx_fp16"}),
    ],
)
def test_native_is_the_highest_level_here_and_what_inductor_can_use_beyond(
    capabilities: dict[str, bool], level: str, beyond: set[str]
) -> None:
    native = one("native", capabilities)
    assert sorted(native.requires) == sorted(set(needed(level)) | beyond)
    assert native.settings == {"cpp.march": f"{level} -mtune=native"}


class TestArm:
    A53 = frozenset({"asimd", "crc32"})
    N1 = A53 | {"atomics", "asimdrdm", "fphp", "asimdhp", "asimddp"}
    M2 = N1 | {"bf16", "i8mm"}
    V1 = M2 | {"sve", "svebf16", "svei8mm", "sve256"}  # as Graviton3
    V2 = V1 - {"sve256"}  # as Graviton4, whose vectors have 128 bits

    @pytest.fixture(autouse=True)
    def arm(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")
        self.gcc(monkeypatch, 13)

    def gcc(self, monkeypatch: pytest.MonkeyPatch, version: int, more: str = "") -> None:
        answer = SimpleNamespace(stdout=f"#define __GNUC__ {version}\n#define __GNUC_MINOR__ 5\n{more}")
        monkeypatch.setattr(subprocess, "run", lambda *_, **__: answer)
        monkeypatch.delenv("CXX", raising=False)

    def one(self, name: str, capabilities: frozenset[str]) -> Variant:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime("backends.aarch64"), "here", lambda: set(capabilities))
            (variant,) = variants_for_this_machine([name])
        return variant

    @pytest.mark.parametrize(
        ("capabilities", "level"),
        [
            (A53, "armv8-a"),
            (N1 - {"atomics"}, "armv8-a"),
            (N1, "armv8.2-a"),
            (N1 | {"sve", "sve256"}, "armv8.2-a"),
            (M2, "armv8.2-a-bf16"),
            (V2, "armv8.2-a-bf16"),
            (V1, "armv8.2-a-sve256"),
        ],
    )
    def test_native_is_the_highest_level_here(self, capabilities: frozenset[str], level: str) -> None:
        native, named = self.one("native", capabilities), self.one(level, capabilities)
        assert (native.name, native.backend) == ("native", "aarch64")
        assert (native.requires, native.settings) == (named.requires, named.settings)
        assert capabilities.issuperset(native.requires)
        assert "native" not in native.settings["cpp.march"]

    @pytest.mark.parametrize(
        ("level", "vectors", "flags"),
        [
            ("armv8-a", "VecNEON", ""),
            ("armv8.2-a-bf16", "VecNEON", ""),
            ("armv8.2-a-sve256", "VecSVE", "-msve-vector-bits=256"),
        ],
    )
    def test_inductor_writes_for_the_vectors_of_the_level(self, level: str, vectors: str, flags: str) -> None:
        """Not for those of the machine: with SVE2 torch would have the compiler use that, too."""
        variant = self.one(level, self.V1)
        with (
            pytest.MonkeyPatch.context() as patch,
            backend("aarch64").compiler().compiling(variant),
        ):
            patch.setattr(torch.cpu, "get_capabilities", lambda: {"sve2": True, "sve": True, "bf16": True})
            (isa,) = cpu_vec_isa.valid_vec_isa_list()
            assert isa  # known to work, without a compiler
            assert type(isa).__name__.startswith(vectors)
            assert isa.build_arch_flags() == flags
            assert cpu_vec_isa.pick_vec_isa() is isa
        plain = [each for each in cpu_vec_isa.supported_vec_isa_list if type(each) is type(isa)]
        assert plain == []  # torch's own is as it was

    @pytest.mark.parametrize(
        ("version", "more", "level"),
        [
            (12, "", "armv8.2-a-bf16"),
            (13, "", "armv8.2-a-sve256"),
            (4, "#define __clang__ 1\n", "armv8.2-a-sve256"),
        ],
    )
    def test_a_compiler_that_fails_at_sve(
        self, version: int, more: str, level: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.gcc(monkeypatch, version, more)
        assert self.one("native", self.V1).requires == self.one(level, self.V1).requires
        said = (
            r'"armv8.2-a-sve256" cannot be compiled here: g\+\+ is GCC 12, '
            "which fails at code for SVE; install GCC 13"
        )
        with pytest.raises(ConfigError, match=said) if version == 12 else nullcontext():
            self.one("armv8.2-a-sve256", self.V1)

    def test_layers_are_torchs_own_with_fixed_weights_too(self) -> None:
        """Inductor's packed ones of bfloat16 are slower than eager code by far."""

        def layer(x, weight, bias):  # type: ignore[no-untyped-def]
            return torch.addmm(bias, x, weight.t())

        of = (torch.ones(size, dtype=torch.bfloat16) for size in ((8, 64), (64, 64), (64,)))
        graph = make_fx(layer)(*of).graph
        before, arm = str(graph), backend("aarch64")
        for name in ("armv8-a", "armv8.2-a-bf16", "armv8.2-a-sve256"):
            variant = self.one(name, self.V1)
            assert not arm.multiplies_bfloat16(variant)
            arm.compiler().prepack(graph, set(graph.find_nodes(op="placeholder")), variant, bfloat16=False)
            arm.compiler().rewrite(graph, variant, bfloat16=False, inference=True)
        assert str(graph) == before

    def test_what_the_processor_lacks_is_named(self) -> None:
        with pytest.raises(
            ConfigError, match=r'cannot run "armv8.2-a-bf16", its CPU has no bf16, i8mm; build on'
        ):
            self.one("armv8.2-a-bf16", self.N1)

    def test_what_another_kind_of_machine_builds_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r'variants: "x86-64-v3" cannot be built on aarch64'):
            one("x86-64-v3", {})


class TestWhatAnArmProcessorHas:
    """As the kernel's words say, which are given here: templates/backends/aarch64/."""

    A53 = (0xFF, 0)
    M4_IN_A_CONTAINER = (0xFF | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12 | 1 << 20, 1 << 1 | 1 << 13 | 1 << 14)
    V1 = (M4_IN_A_CONTAINER[0] | 1 << 22, 1 << 9 | 1 << 12 | 1 << 13 | 1 << 14)

    def here(self, words: tuple[int, int], length: int = -1, machine: str = "aarch64") -> set[str]:
        class Function:
            def __init__(self, answer: Callable[[int], int]) -> None:
                self.answer = answer

            def __call__(self, argument: int) -> int:
                return self.answer(argument)

        libc = SimpleNamespace(
            getauxval=Function({16: words[0], 26: words[1]}.__getitem__),
            prctl=Function({51: length}.__getitem__),
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "uname", lambda: SimpleNamespace(machine=machine))
            patch.setattr(ctypes, "CDLL", lambda _: libc)
            found: set[str] = runtime("backends.aarch64").here()
        return found

    def test_levels(self) -> None:
        assert self.here(self.A53) == {"asimd", "crc32"}
        assert highest(self.here(self.A53)) == "armv8-a"
        assert highest(self.here((self.V1[0], 0), 32)) == "armv8.2-a"
        assert highest(self.here(self.V1, 32)) == "armv8.2-a-sve256"

    @pytest.mark.parametrize("length", [16, 64, -1, 16 | 1 << 17])
    def test_vectors_of_another_length_are_not_those(self, length: int) -> None:
        assert highest(self.here(self.V1, length)) == "armv8.2-a-bf16"

    def test_flags_beside_the_length_are_none_of_it(self) -> None:
        assert highest(self.here(self.V1, 32 | 1 << 17)) == "armv8.2-a-sve256"  # PR_SVE_VL_INHERIT

    def test_sve2_without_sve_is_no_sve(self) -> None:
        here = self.here(self.M4_IN_A_CONTAINER, 32)
        assert not any(name.startswith("sve") for name in here)
        assert highest(here) == "armv8.2-a-bf16"

    def test_torchs_own_variable_is_heeded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
        assert highest(self.here(self.V1, 32)) == "armv8.2-a-bf16"

    def test_another_kind_of_machine_has_nothing_of_it(self) -> None:
        """There the same bits mean something else."""
        assert self.here((2**64 - 1, 2**64 - 1), 32, machine="x86_64") == set()

    @pytest.mark.skipif(platform.machine() != "aarch64", reason="64-bit Arm: make test-arm64")
    def test_this_one(self) -> None:
        assert "asimd" in runtime("backends.aarch64").here()


class TestVariantsOfSeveralMachines:
    """One table for builds on each."""

    NAMES = ("x86-64-v2", "armv8-a", "x86-64-v3", "armv8.2-a")

    @pytest.mark.parametrize(
        ("machine", "left"),
        [
            ("x86_64", ["x86-64-v2", "x86-64-v3"]),
            ("aarch64", ["armv8-a", "armv8.2-a"]),
            ("riscv64", [*NAMES]),
        ],
    )
    def test_each_builds_its_own(
        self, machine: str, left: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(platform, "machine", lambda: machine)
        assert built_here(self.NAMES) == left
        assert built_here(["native", *self.NAMES]) == (["native", *left] if len(left) == 2 else ["native"])

    def test_that_of_the_gpu_here_is_for_the_machines_that_have_such(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")
        assert built_here(["native", "cuda-native", "cuda-sm90"]) == ["native"]

    def test_one_that_is_not_known_is_not_left_out(self) -> None:
        assert built_here(["x86-64-v9", "armv8-a"]) == ["x86-64-v9"]

    def test_where_none_is_for_this_one_the_build_says_so(self) -> None:
        with pytest.raises(ConfigError, match=r'variants: "armv8-a" cannot be built on x86_64'):
            variants_for_this_machine(built_here(["armv8-a"]))


def test_no_backend_is_for_some_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(ConfigError, match=r'variants: "native" cannot be built on riscv64'):
        one("native", {})


def test_the_folders_of_both_sides_have_the_same_names() -> None:
    folders = [
        {each.parent.name for each in side.glob("*/__init__.py")}
        for side in (Path(hatch_precompile.backends.__file__).parent, runtime_directory() / "backends")
    ]
    assert folders[0] == folders[1] == {each.name for each in every()}


def test_no_two_backends_have_a_variant_of_one_name() -> None:
    names = [name for each in every() for name in each.variants]
    assert sorted({*names}) == sorted(names)


def test_the_most_demanding_of_some_variants() -> None:
    assert list(most_demanding(["native", "x86-64-v4", "x86-64-v2"])) == ["x86-64-v4"]
    assert list(most_demanding(["native", "x86-64", "armv8-a", "cuda-sm90"])) == []
    assert list(most_demanding(["x86-64-v3", "armv8.2-a", "armv8-a"])) == ["armv8.2-a", "x86-64-v3"]


def test_a_variant_this_machine_cannot_run_names_the_missing_flags() -> None:
    with pytest.raises(
        ConfigError,
        match=r'this machine cannot run "x86-64-v4", its CPU has no avx512_f, avx512_bw, .*; build on one',
    ):
        one("x86-64-v4", V3)


def test_an_unknown_variant_names_the_known() -> None:
    with pytest.raises(
        ConfigError, match=r'unknown variant "x86-64-v5"; known: "native", "cuda-native", .*-v4"'
    ):
        one("x86-64-v5", V4)
