"""Convolution nets serve every size that was declared, on both sides of what torch would tell apart."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import Site, build_entrypoints, made_once

HERE = Path(__file__).parent


def sized(**ranges: tuple[int, int]) -> dict[str, Any]:
    names = ["batch", "", "height", "width"]
    return {
        str(names.index(name)): {"name": name, "min": low, "max": high}
        for name, (low, high) in ranges.items()
    }


def table(name: str, net: str, samples: str, shapes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "target": f"sights.model:{net}",
        "instance": f"sights.model:{name.partition('_')[0]}",
        "samples": f"sights.model:{samples}",
        "dynamic-shapes": {"x": shapes},
        **more,
    }


WHOLE = sized(batch=(1, 64), height=(8, 512), width=(8, 512))
LENGTHS = {
    "0": {"name": "batch", "min": 2, "max": 32},
    "2": {"name": "length", "min": 4, "max": 100_000},
}
TABLES = [
    table("residual_fixed", "Residual", "pictures", WHOLE, weights="fixed"),
    table("halves_read", "Halves", "one_picture", sized(height=(8, 512), width=(8, 512))),
    table("depthwise_read", "Depthwise", "rounded_pictures", {**WHOLE, **sized(batch=(2, 64))}),
    table("decoder_read", "Decoder", "small_pictures", sized(batch=(2, 32), height=(2, 64), width=(2, 64))),
    table("waves_read", "Waves", "signals", LENGTHS),
]
if torch.__version__ < (2, 13):  # which tells apart what each halving leaves, even and odd: too many entries
    TABLES = [each for each in TABLES if each["name"] != "halves_read"]

# Both sides of 15 and 16 pictures, of 20,480 elements, and of what becomes one pixel at the end.
BATCHES = (1, 2, 3, 15, 16, 17, 64)
SIDES = (8, 9, 33, 82, 83, 145, 512)


def pictures(channels: int, *, batches: tuple[int, ...] = BATCHES, sides: tuple[int, ...] = SIDES) -> Any:
    two = [[2, channels, height, width] for height, width in itertools.product(sides, sides[::4])]
    more = [[batch, channels, side, 24] for batch, side in itertools.product(batches, sides[:3])]
    return [*two, *more]


CALLS: dict[str, Any] = {
    "residual_fixed": pictures(3),
    "halves_read": [[1, *size[1:]] for size in pictures(3, batches=(1,))],
    "depthwise_read": pictures(3, batches=(2, 15, 16, 64)),
    "decoder_read": pictures(4, batches=(2, 15, 16, 32), sides=(2, 3, 35, 36, 64)),
    "waves_read": [[b, 2, n] for b in (2, 15, 16) for n in (4, 5, 63, 2560, 10_241, 100_000)],
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    def make(place: Path) -> None:
        build_entrypoints("sights", TABLES, HERE / "src", place / "work")

    return Site(made_once(tmp_path_factory, "sights", make) / "work" / "installed")


@pytest.mark.parametrize("entrypoint", [each["name"] for each in TABLES])
def test_every_size_that_was_declared_is_a_hit(site: Site, entrypoint: str) -> None:
    dtype = "bfloat16" if entrypoint.startswith("depthwise") else "float32"
    seen = site.play(
        "vision.in_sizes",
        entrypoint=entrypoint,
        sizes=CALLS[entrypoint],
        dtype=dtype,
        environment={"HATCH_PRECOMPILE": "strict"},
    )
    assert seen == {"missed": [], "wrong": [], "misses": 0}
