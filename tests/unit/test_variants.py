"""Hardware targets: what a CPU must have for each, and what the compiler may use for it."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import cpu_vec_isa

import hatch_precompile.backends
from hatch_precompile.backends import backend, every, most_demanding, variants_for_this_machine
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
    @pytest.fixture(autouse=True)
    def arm(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(platform, "machine", lambda: "aarch64")

    @pytest.mark.parametrize("name", ["native", "armv8-a"])
    def test_a_wheel_runs_on_every_such_processor(self, name: str) -> None:
        """Also where the build machine has SVE, for which inductor would write."""
        variant = one(name, {"sve": True, "bf16": True})
        assert (variant.name, variant.backend, variant.requires) == (name, "aarch64", ("asimd",))
        assert variant.settings == {"cpp.march": "armv8-a"}
        with backend("aarch64").compiler().compiling(variant):
            (isa,) = cpu_vec_isa.valid_vec_isa_list()
        assert type(isa).__name__ == "VecNEON"

    def test_what_another_kind_of_machine_builds_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r'variants: "x86-64-v3" cannot be built on aarch64'):
            one("x86-64-v3", {})

    def test_where_a_wheel_runs_it_is_asked_what_the_processor_is(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here = runtime("backends.aarch64").here
        assert here() == {"asimd"}
        monkeypatch.setattr(platform, "machine", lambda: "x86_64")
        assert here() == set()


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
    assert list(most_demanding(["native", "x86-64", "armv8-a"])) == []


def test_a_variant_this_machine_cannot_run_names_the_missing_flags() -> None:
    with pytest.raises(
        ConfigError,
        match=r'this machine cannot run "x86-64-v4", its CPU has no avx512_f, avx512_bw, .*; build on one',
    ):
        one("x86-64-v4", V3)


def test_an_unknown_variant_names_the_known() -> None:
    with pytest.raises(ConfigError, match=r'unknown variant "x86-64-v5"; known: "native", "armv8-a", .*-v4"'):
        one("x86-64-v5", V4)
