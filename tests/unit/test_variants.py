"""Hardware targets: what a CPU must have for each, and what the compiler may use for it."""

from __future__ import annotations

import platform
from typing import Any

import pytest

from hatch_precompile.config.variants import _EXTENSIONS, Variant, _needed, variants_for_this_machine
from hatch_precompile.errors import ConfigError

V3 = dict.fromkeys(_needed("x86-64-v3"), True)
V4 = dict.fromkeys(_needed("x86-64-v4"), True)
SAPPHIRE_RAPIDS = {**V4, **dict.fromkeys(_EXTENSIONS, True), "amx_fp16": False, "clflush": True}


@pytest.fixture(autouse=True)
def x86(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")


def one(name: str, capabilities: dict[str, Any]) -> Variant:
    (variant,) = variants_for_this_machine([name], {"architecture": "x86_64", "cores": 2, **capabilities})
    return variant


def test_a_level_needs_all_below_it_and_nothing_this_machine_has_beyond() -> None:
    v3 = one("x86-64-v3", SAPPHIRE_RAPIDS)
    assert set(v3.requires) == set(V3)
    assert set(_needed("x86-64-v2")) < set(v3.requires)
    assert v3.settings == {"cpp.march": "x86-64-v3"}
    assert not v3.has_bfloat16
    bf16 = one("x86-64-v4-bf16", SAPPHIRE_RAPIDS)
    assert set(bf16.requires) == {*V4, "avx512_bf16"}
    assert bf16.settings == {"cpp.march": "x86-64-v4"}
    assert bf16.has_bfloat16


@pytest.mark.parametrize(
    ("capabilities", "level", "beyond"),
    [
        ({**V3, "sha": True}, "x86-64-v3", set()),
        ({**V3, "avx512_f": True}, "x86-64-v3", set()),
        (V4, "x86-64-v4", set()),
        ({**V4, "avx512_vnni": True}, "x86-64-v4", {"avx512_vnni"}),
        ({**V4, "avx512_bf16": True}, "x86-64-v4", {"avx512_bf16"}),
        (SAPPHIRE_RAPIDS, "x86-64-v4", set(_EXTENSIONS) - {"amx_fp16"}),
    ],
)
def test_native_is_the_highest_level_here_and_what_inductor_can_use_beyond(
    capabilities: dict[str, bool], level: str, beyond: set[str]
) -> None:
    native = one("native", capabilities)
    assert sorted(native.requires) == sorted(set(_needed(level)) | beyond)
    assert native.settings == {"cpp.march": f"{level} -mtune=native"}


def test_native_of_another_architecture_asks_for_all_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert one("native", {"sve": True, "bf16": True, "i8mm": False}).requires == ("bf16", "sve")
    with pytest.raises(ConfigError, match=r'variants: "x86-64-v3" cannot be built on aarch64'):
        one("x86-64-v3", {"sve": True})


def test_a_variant_this_machine_cannot_run_names_the_missing_flags() -> None:
    with pytest.raises(
        ConfigError,
        match=r'this machine cannot run "x86-64-v4", its CPU has no avx512_f, avx512_bw, .*; build on one',
    ):
        one("x86-64-v4", V3)


def test_an_unknown_variant_names_the_known() -> None:
    with pytest.raises(ConfigError, match=r'unknown variant "x86-64-v5"; known: "native", "x86-64", .*-v4"'):
        one("x86-64-v5", V4)
