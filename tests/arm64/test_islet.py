"""A wheel for 64-bit Arm: built there, and called on processors with and without what its variants need.

`make test-arm64` runs this inside an emulated machine, where QEMU_CPU says what the processor is.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hatch_precompile.backends.aarch64.levels import LEVELS, highest
from hatch_precompile.runtime import runtime
from tests.conftest import REPOSITORY, Site, made_once
from tests.wheel.conftest import build, run

pytestmark = pytest.mark.skipif(platform.machine() != "aarch64", reason="64-bit Arm: make test-arm64")

HERE = Path(__file__).parent
EMULATED = pytest.mark.skipif("QEMU_CPU" not in os.environ, reason="no emulated 64-bit Arm: make test-arm64")
VARIANTS = ("armv8-a", "armv8.2-a", "armv8.2-a-bf16")
NAMES = {"layers", "fixed", "narrow", "half", "trained", "integers", "extremes", "collected", "branched"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = made_once(tmp_path_factory, "islet", _build)
    (wheel,) = (work / "dist").glob("*.whl")
    return wheel


def _build(work: Path) -> None:
    own, _ = build(REPOSITORY, REPOSITORY, work / "own", "--wheel")
    with zipfile.ZipFile(own) as archive:
        archive.extractall(work / "plugin")
    _, log = build(HERE / "islet", work / "plugin", work / "dist", "--wheel")
    (work / "log").write_text(log)
    (wheel,) = (work / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(work / "site")


@pytest.fixture(scope="module")
def site(wheel: Path) -> Site:
    return Site(wheel.parent.parent / "site", timeout=1200)


def manifest_of(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as archive:
        return json.loads(archive.read("islet/_precompiled/bundle/manifest.json"))


def on(processor: str = "") -> dict[str, str]:
    """The environment of a process on one. With SVE, oneDNN's products of matrices are wrong under QEMU 7.2,
    in eager code, too: it is to do without. Torch's NVPL adds by `ldaddal` (armv8.1-a) where it has more than
    one thread: eager products of float32 end there on a processor without."""
    if "QEMU_CPU" not in os.environ:
        return {}
    threads = {"OMP_NUM_THREADS": "1"} if processor == "cortex-a53" else {}
    return {
        "QEMU_CPU": processor or os.environ["QEMU_CPU"],
        "ONEDNN_MAX_CPU_ISA": "ADVANCED_SIMD",
        **threads,
    }


def play(site: Site, scenario: str, processor: str = "", **arguments: Any) -> Any:
    return site.play(f"islet_calls.{scenario}", environment=on(processor), **arguments)


def test_the_wheel_says_what_it_runs_on(wheel: Path) -> None:
    tag = wheel.stem.split("-")[-1]
    assert re.fullmatch(r"manylinux_2_\d+_aarch64", tag)
    arguments = ("show", "--json", "--ldpaths", wheel.parent, wheel)  # as in wheel/test_needs.py
    assert json.loads(run(sys.executable, "-m", "auditwheel", *arguments))["sym_tag"] == tag
    assert [(each["name"], each["backend"]) for each in manifest_of(wheel)["variants"]] == [
        (name, "aarch64") for name in VARIANTS
    ]


def code_of(wheel: Path, site: Site, entrypoint: str) -> dict[str, str]:
    """What each variant has compiled for its graph, disassembled."""
    code = {}
    for variant in VARIANTS:
        libraries = [graph["libraries"][variant] for graph in manifest_of(wheel)["graphs"]]
        (library,) = (each for each in libraries if each.startswith(f"{entrypoint}/"))
        code[variant] = run(
            "objdump", "--disassemble", site.directory / "islet/_precompiled/bundle" / library
        )
    return code


def test_the_variants_are_other_code(wheel: Path, site: Site) -> None:
    """What requires it writes sums by one instruction; the other has the two of every processor, too."""
    code = code_of(wheel, site, "collected")
    assert all(re.search(r"\tcasa?l?\t", text) for text in code.values())
    exclusive = {variant: bool(re.search(r"\tlda?xr\t", text)) for variant, text in code.items()}
    assert exclusive == {"armv8-a": True, "armv8.2-a": False, "armv8.2-a-bf16": False}


def test_bfloat16_is_rounded_by_an_instruction_where_the_compiler_says_so(wheel: Path, site: Site) -> None:
    """Torch's headers ask for this macro, which GCC 12 does not define."""
    march = f"-march={LEVELS['armv8.2-a-bf16'].march}"
    macros = run(os.environ.get("CXX", "g++"), march, "-E", "-dM", "-x", "c++", os.devnull)
    code = code_of(wheel, site, "narrow")
    assert {variant: bool(re.search(r"\tbfcvtn?2?\t", text)) for variant, text in code.items()} == {
        "armv8-a": False,
        "armv8.2-a": False,
        "armv8.2-a-bf16": "#define __ARM_FEATURE_BF16 " in macros,
    }


def check(seen: Any, variant: str) -> None:
    assert seen["variant"] == variant
    assert seen["right"] == dict.fromkeys(NAMES, True)
    assert {name: misses for name, (hits, misses) in seen["served"].items() if misses or not hits} == {}
    assert seen["imported"] == []


def test_it_serves_where_it_was_built(site: Site) -> None:
    level = highest(runtime("backends.aarch64").here())
    check(play(site, "every_call"), level if level in VARIANTS else VARIANTS[-1])


@EMULATED
@pytest.mark.parametrize(
    ("processor", "variant"),
    [
        ("cortex-a53", "armv8-a"),
        ("neoverse-n1", "armv8.2-a"),  # as Graviton2
        ("a64fx", "armv8-a"),  # SVE of 512 bits
        ("max,sve512=off,sve1024=off,sve2048=off", "armv8.2-a-bf16"),
        ("max", "armv8.2-a-bf16"),
    ],
)
def test_the_variant_that_a_processor_runs_is_chosen(site: Site, processor: str, variant: str) -> None:
    """And none ends at an instruction that the processor does not have."""
    check(play(site, "every_call", processor), variant)


EVERYTHING = """
import ctypes, types, torch
def everything(_): return 2 ** 64 - 1
kernel, kept = types.SimpleNamespace(getauxval=everything, prctl=lambda _: 64), ctypes.CDLL
ctypes.CDLL = lambda name, *more: kept(name, *more) if name else kernel
import islet.model as m
with torch.no_grad(): m.collected(*m.of_collected()[0])
"""


@EMULATED
def test_a_processor_ends_at_an_instruction_that_it_does_not_have(site: Site) -> None:
    """So that the test above could fail: the kernel says too much, and the variant is one too high."""
    ended = site.run(EVERYTHING, ok=False, **on("cortex-a53"))
    assert ended.returncode == -signal.SIGILL, ended.stderr
    site.run(EVERYTHING, **on("max"))


def test_guards_run_in_c_after_some_calls(site: Site) -> None:
    assert play(site, "guards_after_many_calls") == {"native": True, "hits": 20, "misses": 2}


def test_signals_and_threads(site: Site) -> None:
    seen = play(site, "signals_and_threads", times=20)
    assert seen == {"raised": seen["raised"], "caught": seen["raised"], "calls": 80, "wrong": 0}


def test_fixed_weights_are_not_taken_where_bfloat16_is_slow(wheel: Path) -> None:
    """Of frozen layers of bfloat16 oneDNN has its reference only: eager code's own operator is called."""
    with zipfile.ZipFile(wheel) as archive:
        texts = [
            archive.read(name) for name in archive.namelist() if name.endswith(".so") and "/narrow/" in name
        ]
    assert texts and not any(b"mkldnn" in text for text in texts)
    assert any(b"addmm" in text for text in texts)
