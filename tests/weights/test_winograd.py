"""Convolutions by Winograd's algorithm: any size, what is infinite, any threads, any way a weight is kept."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from hatch_precompile.backends.x86_64.layers.winograd import convolution
from hatch_precompile.backends.x86_64.levels import Instructions
from hatch_precompile.inductor import compiling
from tests.support.graphs import load_graph, save_graph
from tests.support.hardware import about_x86
from tests.support.layers import CAPABILITIES, compiled, multiplied_by_onednn, variant

pytestmark = [
    pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN"),
    about_x86("convolutions"),
]

# What a graph multiplies with points.
STEP = "x86_64:points_here"


class Picture(nn.Module):
    """A convolution, what may follow it, and its like for inputs of several sizes."""

    def __init__(self, channels: int, filters: int, *, bias: bool = True, padding: Any = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, bias=bias, padding=padding)

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for x in inputs:
            y = self.conv(x)
            found += [F.relu(y), torch.sigmoid(y)] if len(found) < 2 else [F.relu(self.conv(x))]
        return found


def use_our_own(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A variant without AVX-512 leaves convolutions to oneDNN on a processor with it."""
    if name == "x86-64-v3":
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {**CAPABILITIES, "avx512_f": False})


def images(*sizes: tuple[int, ...], channels: int) -> list[torch.Tensor]:
    return [torch.randn(count, channels, *size) for count, *size in sizes]


def require_close(answers: Any, expected: Any) -> None:
    for one, other in zip(answers, expected, strict=True):
        assert one.stride() == other.stride()
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(
    ("channels", "filters", "bias", "padding"),
    # One panel, an odd number of panels, more channels than are copied at once.
    [(16, 16, True, 1), (48, 80, False, 0), (272, 32, True, (0, 1)), (32, 48, True, (1, 0))],
)
def test_any_size_agrees(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    name: str,
    channels: int,
    filters: int,
    bias: bool,
    padding: Any,
) -> None:
    of = variant(name)
    use_our_own(monkeypatch, name)
    torch.manual_seed(0)
    model = Picture(channels, filters, bias=bias, padding=padding)
    # Odd and even, tiles that fill no part of a block, several blocks, one row or column of tiles.
    sizes = [(1, 9, 7), (1, 56, 40), (2, 14, 14), (3, 5, 6), (1, 3, 37), (1, 33, 4), (5, 7, 7)]
    inputs = images(*sizes, channels=channels)
    inputs[1] = inputs[1].contiguous(memory_format=torch.channels_last)
    inputs[2] = torch.randn(2, channels, 14, 28)[..., ::2]
    call, _, steps = compiled(model, of, *inputs)
    # What oneDNN would be packed for are the sizes of each.
    assert steps == ["finite", *[STEP] * (1 if Instructions(of.requires).has_avx512 else len(inputs))]
    answers, ran = multiplied_by_onednn(call, "convolution", capfd)
    assert not ran
    with torch.no_grad():
        require_close(answers, model(*inputs))


def test_sums_are_as_exact_as_onednns() -> None:
    torch.manual_seed(0)
    model, x = Picture(256, 256, bias=False), torch.randn(1, 256, 14, 14)
    x = x.contiguous(memory_format=torch.channels_last)
    call, _, steps = compiled(model, variant("native"), x)
    assert steps == ["finite", STEP]
    with torch.no_grad():
        exact = F.conv2d(x.double(), model.conv.weight.double(), padding=1).relu()
        ours, theirs = ((found[0] - exact).abs().mean() for found in (call(), model(x)))
    assert ours <= theirs


@pytest.mark.parametrize("channels", [16, 64])
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan, 3e38])
def test_what_is_infinite_stays_it_and_is_nowhere_else(channels: int, value: float) -> None:
    """The algorithm takes pixels away from each other, and adds them before they are multiplied."""
    torch.manual_seed(0)
    model = Picture(channels, 32)
    inputs = images((2, 12, 13), channels=channels)
    inputs[0][0, 3, 5, 6] = value
    inputs[0][1, 4, 0, 12] = inputs[0][1, 4, 1, 12] = value
    call, _, steps = compiled(model, variant("native"), *inputs)
    assert steps == ["finite", STEP]
    with torch.no_grad():
        for one, other in zip(call(), model(*inputs), strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4, equal_nan=True)


@pytest.mark.parametrize("value", [torch.inf, torch.nan, 3e38])
def test_so_do_weights(value: float) -> None:
    torch.manual_seed(0)
    # Around a picture torch multiplies them with zeros, and oneDNN, which it packs for, does not.
    model, inputs = Picture(32, 32, padding=0), images((1, 8, 8), channels=32)
    with torch.no_grad():
        model.conv.weight[3, 4, 0, 0] = value
    call, _, _ = compiled(model, variant("native"), *inputs)
    with torch.no_grad():
        for one, other in zip(call(), model(*inputs), strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4, equal_nan=True)


def test_the_same_bits_for_any_threads() -> None:
    torch.manual_seed(0)
    # Few tiles, on which all threads work together, and many, of which each has its own.
    model, inputs = Picture(128, 128), images((1, 7, 7), (1, 29, 30), (2, 80, 80), channels=128)
    call, _, _ = compiled(model, variant("native"), *inputs)
    before, answers = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            answers.append(call())
    finally:
        torch.set_num_threads(before)
    for answer in answers:
        assert all(map(torch.equal, answer, answers[0]))


class Normed(nn.Module):
    """A residual block, with its norms; its filters are more than once in the graph."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.two = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.norm.running_mean.uniform_(-1, 1)  # type: ignore[union-attr, operator]
        self.norm.running_var.uniform_(1, 2)  # type: ignore[union-attr, operator]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.one(x)))
        y = F.relu(self.norm(self.two(y)) + x)
        z: torch.Tensor = F.max_pool2d(y, 2) + F.max_pool2d(self.two(y), 2)
        return z


@pytest.mark.parametrize("dynamic", [(), (0,), (0, 2, 3)])
def test_norms_are_folded_and_sizes_may_change(dynamic: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, x = Normed(32), torch.randn(2, 32, 20, 20)
    for dimension in dynamic:
        torch._dynamo.mark_dynamic(x, dimension)
    call, _, steps = compiled(model, variant("native"), x)
    assert steps.count(STEP) == 3
    with torch.no_grad():
        torch.testing.assert_close(call(), [model(x)], atol=1e-5, rtol=1e-5)


class Others(nn.Module):
    """For oneDNN: those that move by two, are far apart, of groups, or whose channels fill no panel."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [
                nn.Conv2d(16, 16, 3, stride=2),
                nn.Conv2d(16, 16, 3, dilation=2),
                nn.Conv2d(16, 16, 3, groups=2),
                nn.Conv2d(16, 24, 3),
                nn.Conv2d(16, 16, 3, padding=2),
                nn.Conv2d(16, 16, (3, 1)),
                nn.Conv2d(16, 16, 3, padding=1, padding_mode="circular"),
            ]
        )
        self.few = nn.Conv2d(16, 16, 3)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [*(conv(x) for conv in self.convs), self.few(x[..., :5, :3])]


def test_others_are_for_onednn() -> None:
    torch.manual_seed(0)
    model, x = Others(), torch.randn(1, 16, 12, 12)
    call, _, steps = compiled(model, variant("native"), x)
    assert steps.count(STEP) == 1, "what is filled up around the picture comes before that one"
    assert steps.count("mkldnn._reorder_convolution_weight.default") == 7
    with torch.no_grad():
        require_close(call(), model(x))


class Making(nn.Module):
    """Makes its filters of its weights, and gives them to the caller."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 16, 3, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weight = self.weight * 2
        return F.conv2d(x, weight), F.conv2d(x, self.weight, padding=1), weight  # type: ignore[return-value]


def test_filters_that_are_returned_are_the_callers() -> None:
    torch.manual_seed(0)
    model, x = Making(), torch.randn(1, 16, 10, 10)
    call, _, steps = compiled(model, variant("native"), x)
    assert steps == ["finite", STEP]  # of the others
    for _ in range(2):
        answers = call()
        with torch.no_grad():
            torch.testing.assert_close(list(answers), list(model(x)), atol=1e-4, rtol=1e-4)
            answers[2].zero_()


def test_a_graph_that_gets_a_python_wrapper_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(gm: Any) -> None:
        raise compiling._NoHandle("no C++")

    monkeypatch.setattr(compiling, "_require_handles", refuse)
    torch.manual_seed(0)
    for model, x in ((Normed(32), torch.randn(2, 32, 9, 9)), (Making(), torch.randn(1, 16, 10, 10))):
        call, graph, steps = compiled(model, variant("native"), x)
        assert graph.record.why_python == "no C++"
        assert "x86_64:in_points" in steps
        assert STEP not in steps
        with torch.no_grad():
            expected = model(x)
            expected = [expected] if isinstance(expected, torch.Tensor) else list(expected)
            torch.testing.assert_close(list(call()), expected, atol=1e-4, rtol=1e-4)


def test_it_sees_what_torch_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A library of its kernels has the function that looks."""

    def refuse(gm: Any) -> None:
        raise compiling._NoHandle("no C++")

    monkeypatch.setattr(compiling, "_require_handles", refuse)
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(32, 16, 3, 3))

    def seen(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.relu(F.conv2d(x, weight)) * 2

    given = {"x": torch.randn(1, 16, 9, 9), "weight": weight}
    graph = save_graph(tmp_path, seen, given, fixed_weights=True)
    assert graph.python and graph.prepack_graphs
    kernel = next(path for path in sorted(tmp_path.rglob("*.so")))
    assert hasattr(ctypes.PyDLL(str(kernel)), "precompiled_watch")
    call = load_graph(tmp_path)
    with torch.no_grad():
        for factor in (1, 3):
            weight.data.mul_(factor)
            torch.testing.assert_close(call(**given), [seen(**given)], atol=1e-4, rtol=1e-4)


def test_a_variant_without_avx512_asks_the_processor(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    model, x = Normed(32), torch.randn(1, 32, 10, 10)
    of = variant("x86-64-v3")
    for has_avx512 in (False, True):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda has=has_avx512: {"avx512_f": has})
        call, _, steps = compiled(model, of, x)
        assert steps.count(STEP) == 3
        answers, ran = multiplied_by_onednn(call, "convolution", capfd)
        assert len(ran) == (3 if has_avx512 else 0)
        with torch.no_grad():
            torch.testing.assert_close(answers, [model(x)], atol=1e-5, rtol=1e-5)


def test_sizes_of_a_result_are_torchs() -> None:
    for padding in ((0, 0), (1, 1), (0, 1)):
        x, weight = torch.empty(2, 16, 9, 12, device="meta"), torch.empty(32, 16, 3, 3, device="meta")
        expected = F.conv2d(x, weight, padding=padding).contiguous(memory_format=torch.channels_last)
        found = convolution(x, weight, None, padding, 32, relu=True)
        assert (found.shape, found.stride()) == (expected.shape, expected.stride())
