"""Convolutions whose weights are read, and are more than the pictures, take both as they lie in memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from hatch_precompile.inductor import compiling
from tests.support.graphs import load_graph, save_graph

pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"),
    reason="oneDNN lays out weights for AVX2 and AVX-512",
)


def mostly_weights(x, many, w, turned, five, grouped, one, b):  # type: ignore[no-untyped-def]
    """Seven convolutions with more weights than pictures, and six that are something else."""
    hidden = F.relu(F.conv2d(x, w, b, padding=1))  # (1, 256, 10, 9)
    wide = F.conv2d(hidden, five, padding="same")
    last = F.conv2d(x.contiguous(memory_format=torch.channels_last), w)
    return (
        *(F.conv2d(x + 1, w, stride=2), hidden + wide, F.max_pool2d(wide, 2)),
        F.conv2d(F.silu(hidden), grouped, groups=2, dilation=2, padding=2) * 2,
        *(last, last.as_strided((3, 5), (7, 1), 2), wide.as_strided((3, 5), (7, 1), 2)),
        # ATen itself takes these small ones.
        *(F.conv2d(x[..., :3, :3], w, b) + x[..., :1, :1], F.conv2d(x[..., 1:5, ::2], w)),
        *(F.conv2d(many, w, b).relu().mean((2, 3)), F.conv2d(x, turned), F.conv2d(x, w * 2)),
        *(F.conv2d(hidden, one) + x, F.conv_transpose2d(x, w)),
        F.conv2d(x[:, :8].double(), w[:, :8].double()),
    )


def given() -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(0)

    def rand(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=made)

    return {
        "x": rand(1, 256, 10, 9),
        "many": rand(4, 256, 24, 24),
        "w": rand(256, 256, 3, 3) / 48,
        "turned": (rand(256, 256, 3, 3) / 48).contiguous(memory_format=torch.channels_last),
        "five": rand(256, 256, 5, 5) / 80,
        "grouped": rand(256, 128, 3, 3) / 34,
        "one": rand(256, 256, 1, 1) / 16,
        "b": rand(256),
    }


def called(
    capfd: pytest.CaptureFixture[str], call: Callable[[], Any]
) -> tuple[Any, Counter[tuple[str, str]]]:
    """What a call returns, and of weights that oneDNN turned the shape and the order of dimensions."""
    capfd.readouterr()
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
        result = call()
    reorders = re.findall(r",reorder,.*?src:\w+:\w*:\w+:(\w+).*?,,([\dx]+),", capfd.readouterr().out)
    return result, Counter((shape, order) for order, shape in reorders if shape.startswith(("256x", "2x")))


def test_they_take_both_as_they_lie(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    inputs = given()
    assert not save_graph(tmp_path, mostly_weights, inputs).record.why_python
    graph = load_graph(tmp_path)
    found, orders = called(capfd, lambda: graph(**inputs))
    assert orders["256x256x5x5", "abcd"] == 1
    assert orders["2x128x128x3x3", "abcde"] == 1
    assert orders["256x256x3x3", "abcd"] == 3
    assert orders["256x256x3x3", "acdb"] == 3  # many, turned and w * 2
    for index, (one, other) in enumerate(zip(found, mostly_weights(**inputs), strict=True)):
        if 1 not in one.shape[2:]:  # or its strides say less
            assert one.stride() == other.stride(), index
        torch.testing.assert_close(
            one, other, atol=1e-4, rtol=1e-4, msg=lambda text, at=index: f"{at}: {text}"
        )


def test_a_graph_that_gets_a_python_wrapper(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(gm: Any) -> None:
        raise compiling._NoHandle("no C++")

    monkeypatch.setattr(compiling, "_require_handles", refuse)
    inputs = given()
    assert save_graph(tmp_path, mostly_weights, inputs).record.why_python == "no C++"
    graph = load_graph(tmp_path)
    found, orders = called(capfd, lambda: graph(**inputs))
    assert orders["256x256x3x3", "abcd"] == 3
    for one, other in zip(found, mostly_weights(**inputs), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def layers(x, w, b):  # type: ignore[no-untyped-def]
    return F.conv2d(F.relu(F.conv2d(x, w, b, padding=1)), w)


def test_the_number_of_pictures_is_known_at_the_call_only(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The sample's decides."""
    inputs = given()
    w, b = inputs["w"], inputs["b"]
    for place, pictures, order in (("few", 2, "abcd"), ("many", 20, "acdb")):
        x = torch.randn(pictures, 256, 10, 9)
        torch._dynamo.mark_dynamic(x, 0)
        save_graph(tmp_path / place, layers, {"x": x, "w": w, "b": b})
        graph = load_graph(tmp_path / place)
        for number in (3, 1, 30):
            x = torch.randn(number, 256, 10, 9)
            found, orders = called(capfd, partial(graph, x=x, w=w, b=b, size=number))
            assert orders["256x256x3x3", order] == orders.total() == 2, number
            torch.testing.assert_close(found, (layers(x, w, b),), atol=1e-4, rtol=1e-4)


def test_a_training_step_keeps_inductors_order(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    inputs = {name: given()[name].requires_grad_() for name in ("x", "w", "b")}
    save_graph(tmp_path, layers, inputs, grad=True)
    graph = load_graph(tmp_path)
    (found,), orders = called(capfd, lambda: graph(**inputs))
    assert orders["256x256x3x3", "acdb"] == orders.total() == 2
    torch.testing.assert_close(found, layers(**inputs), atol=1e-4, rtol=1e-4)
