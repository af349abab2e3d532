"""Weights that torchao has quantized: native graphs of integers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor.utils import run_and_get_code

from hatch_precompile.backends import variants_for_this_machine
from hatch_precompile.backends.x86_64.levels import Instructions
from tests.conftest import Site, build_entrypoints
from tests.support.graphs import load_graph, save_graph

HERE = Path(__file__).parent
NETWORKS = {"Dynamic": "dynamic", "WeightOnly": "weight_only", "Handing": "handing"}


@pytest.fixture(scope="module", params=["read", "fixed"])
def site(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Site:
    tables = [
        {
            "target": f"quantized.model:{name}",
            "instance": f"quantized.model:{make}",
            "samples": "quantized.model:samples",
            "weights": request.param,
        }
        for name, make in NETWORKS.items()
    ]
    work = tmp_path_factory.mktemp("quantized") / "work"
    return build_entrypoints("quantized", tables, HERE / "src", work)


def manifest_of(site: Site) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(
        (site.directory / "quantized/_precompiled/bundle/manifest.json").read_text()
    )
    return manifest


def graphs(site: Site) -> dict[str, Any]:
    manifest = manifest_of(site)
    assert len(manifest["entrypoints"]) == len(manifest["graphs"]) == 3
    return dict(zip((each["name"] for each in manifest["entrypoints"]), manifest["graphs"], strict=True))


@pytest.mark.parametrize("entrypoint", ["dynamic", "weightonly"])
def test_calls_are_served_without_the_compiler_whatever_became_of_the_weights(
    site: Site, entrypoint: str
) -> None:
    record = graphs(site)[entrypoint]
    assert "wrapping" not in record
    ways = [["qdata"], ["scale"], ["zero_point"]]
    assert list(record["unwrapped_inputs"].values()) == [ways, ways]
    seen = site.play("quantized_weights.changed_and_called", entrypoint=entrypoint)
    assert seen["right"] == [True] * 8
    assert seen["hits"] == 8
    assert seen["imported"] == []
    assert (seen["kept"] > 0) == ("weights" in record)


def test_weights_that_are_taken_out_of_sight_are_used_as_they_are_at_each_call(site: Site) -> None:
    record = graphs(site)["handing"]
    assert record["why_wrapped"] == "it uses tensor subclasses"
    assert record.get("hidden_weights", False) == ("weights" in record)
    seen = site.play("quantized_weights.changed_and_called", entrypoint="handing")
    assert seen["right"] == [True] * 8
    assert seen["hits"] == 8
    assert seen["kept"] == 0


def test_integers_are_multiplied(site: Site) -> None:
    rounded = {each["name"]: each["rounded"] for each in manifest_of(site)["entrypoints"]}
    assert rounded == {"dynamic": {"native": "int8"}, "weightonly": {}, "handing": {}}
    record = graphs(site)["dynamic"]
    library = site.directory / "quantized/_precompiled/bundle" / record["libraries"]["native"]
    # Of a few rows, and weights that are fixed, the library has its own function for it.
    native, *_ = variants_for_this_machine(["native"])
    ours = (
        Instructions(native.requires).has_vnni or Instructions(native.requires).has_fma
    ) and "weights" in record
    assert (b"aoti_torch_cpu__int_mm" in library.read_bytes()) != ours


def test_what_is_quantized_after_gelu_computes_it_once(tmp_path: Path) -> None:
    def quantized(x):  # type: ignore[no-untyped-def]
        x = torch.nn.functional.gelu(x)
        scale = x.abs().amax(-1, keepdim=True) / 127
        return (x / scale).round().to(torch.int8), scale

    inputs = {"x": torch.randn(16, 64)}
    with torch.no_grad():
        _, otherwise = run_and_get_code(torch.compile(quantized), **inputs)
        _, (code,) = run_and_get_code(save_graph, tmp_path, quantized, inputs)
    assert [text.count(".erf()") for text in (otherwise[0], code)] == [2, 1]
    integers, scale = load_graph(tmp_path)(**inputs)
    expected, expected_scale = quantized(**inputs)
    assert torch.allclose(scale, expected_scale)
    assert (integers.int() - expected.int()).abs().max() <= 1
