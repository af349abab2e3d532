"""Convolutions by our own functions: any sizes, what follows them, any threads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from hatch_precompile.backends.x86_64.layers import convolutions
from hatch_precompile.backends.x86_64.levels import Instructions
from hatch_precompile.inductor import compiling
from tests.support.hardware import about_x86
from tests.support.layers import compiled, multiplied_by_onednn, variant

pytestmark = [
    about_x86("convolutions"),
    pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN"),
]

STEP = "x86_64:in_panels"


def refuse_handles(gm: Any) -> None:
    """So that inductor's Python wrapper is taken."""
    raise compiling._NoHandle("no C++")


def avx512() -> Any:
    of = variant("native")
    if not Instructions(of.requires).has_avx512:
        pytest.skip("this processor has no AVX-512")
    return of


class Residual(nn.Module):
    """An inverted residual: wider, each channel by itself, weighed, narrower."""

    def __init__(self, channels: int, wide: int, few: int) -> None:
        super().__init__()
        self.expand = nn.Conv2d(channels, wide, 1, bias=False)
        self.norm = nn.BatchNorm2d(wide)
        self.each = nn.Conv2d(wide, wide, 3, padding=1, groups=wide)
        self.squeeze, self.excite = nn.Conv2d(wide, few, 1), nn.Conv2d(few, wide, 1)
        self.project = nn.Conv2d(wide, channels, 1)
        self.norm.running_var.uniform_(1, 2)  # type: ignore[union-attr, operator]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.hardswish(self.norm(self.expand(x)))
        y = F.relu6(self.each(y))
        y = y * F.hardsigmoid(self.excite(F.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        return self.project(y) + x


class Sizes(nn.Module):
    """Rows and columns that fill no block of registers, and enough of both for several threads."""

    def __init__(self) -> None:
        super().__init__()
        shapes = [(3, 1, 1), (5, 7, 4), (40, 33, 30), (17, 48, 3), (64, 100, 28)]
        self.inputs = [torch.randn(2, inner, size, size + size // 8) for inner, _, size in shapes]
        self.convs = nn.ModuleList(nn.Conv2d(inner, outer, 1, bias=outer != 33) for inner, outer, _ in shapes)

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        return [F.silu(conv(x)) for conv, x in zip(self.convs, inputs, strict=True)]


# Channels, height and width of images, of filters, steps, padding, and whether there is a bias. Rows that end
# within a block of seven or eight pixels, and narrower ones than filters; channels that end within a vector
# and within what a thread takes; filters that reach over both edges.
DEPTHWISE = [
    (16, 9, 7, (3, 3), (1, 1), (1, 1), True),
    (24, 5, 16, (3, 3), (1, 1), (1, 1), False),
    (8, 1, 1, (3, 3), (1, 1), (1, 1), True),
    (33, 11, 9, (5, 5), (1, 1), (2, 2), True),
    (130, 8, 15, (3, 3), (2, 2), (1, 1), False),
    (272, 4, 3, (7, 7), (1, 1), (3, 3), True),
    (40, 13, 22, (5, 3), (2, 1), (0, 1), True),
    (20, 12, 10, (1, 7), (1, 2), (0, 3), False),
    (17, 10, 6, (9, 1), (3, 2), (4, 0), True),
    (16, 6, 6, (6, 6), (1, 1), (5, 5), True),
    (144, 56, 56, (3, 3), (1, 1), (1, 1), True),
]


class Depthwise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inputs = [torch.randn(2, channels, height, width) for channels, height, width, *_ in DEPTHWISE]
        self.convs = nn.ModuleList(
            nn.Conv2d(channels, channels, size, stride, padding, groups=channels, bias=bias)
            for channels, _, _, size, stride, padding, bias in DEPTHWISE
        )

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        return [F.silu(conv(x)) for conv, x in zip(self.convs, inputs, strict=True)]


@pytest.mark.parametrize("kind", [Sizes, Depthwise])
def test_any_sizes_and_threads(kind: Any, capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model = kind()
    call, _, steps = compiled(model, avx512(), *model.inputs)
    assert steps.count(STEP) == len(model.inputs)
    threads, answers = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            given, ran = multiplied_by_onednn(call, "convolution", capfd)
            answers.append(list(given))
            assert ran == []
    finally:
        torch.set_num_threads(threads)
    with torch.no_grad():
        eager = model(*model.inputs)
        exact = model.double()(*(x.double() for x in model.inputs))
    for one, other, plain, right in zip(*answers, eager, exact, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == plain.stride()
        assert (one - right).abs().max() <= 2 * (plain - right).abs().max() + 1e-7


FUNCTIONS: dict[str, Any] = {
    "nothing": lambda x: x,
    "relu": F.relu,
    "hardtanh": lambda x: F.hardtanh(x, -0.3, 0.7),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "tanh": torch.tanh,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


class Followed(nn.Module):
    """Each function after a depthwise convolution alone, and after a sum with one."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv2d(20, 20, 3, padding=1, groups=20) for _ in range(2 * len(FUNCTIONS))
        )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        convs = iter(self.convs)
        return [
            function(next(convs)(x) + x if more else next(convs)(x))
            for function in FUNCTIONS.values()
            for more in (False, True)
        ]


@pytest.mark.parametrize("dynamic", [(), (0, 2, 3)])
def test_what_follows_a_depthwise_convolution(
    dynamic: tuple[int, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    model, x = Followed(), torch.randn(2, 20, 9, 12)
    for dimension in dynamic:
        torch._dynamo.mark_dynamic(x, dimension)
    call, _, steps = compiled(model, avx512(), x)
    assert steps.count(STEP) == len(model.convs)
    answer, ran = multiplied_by_onednn(call, "convolution", capfd)
    assert ran == []
    with torch.no_grad():
        torch.testing.assert_close(list(answer), model(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dynamic", [(), (0, 2, 3)])
def test_depthwise_convolutions_whose_weights_are_read(
    dynamic: tuple[int, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    model = Depthwise()
    for x in model.inputs[3:5]:
        for dimension in dynamic:
            torch._dynamo.mark_dynamic(x, dimension)
    call, _, steps = compiled(model, avx512(), *model.inputs, fixed=False)
    assert steps == []
    with torch.no_grad():
        for conv in model.convs:
            conv.weight.mul_(2)
        answer, ran = multiplied_by_onednn(call, "convolution", capfd)
        assert ran == []
        eager = model(*model.inputs)
    for one, other in zip(answer, eager, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
        assert one.stride() == other.stride()


# Channels, height and width of images, size of filters, steps, what lies around the image (left, right,
# above, below), its value, and whether that is left to the convolution.
PADDED: list[Any] = [
    (24, 16, 16, 3, 2, (0, 1, 0, 1), 0, True),
    (24, 15, 16, 3, 2, (1, 1, 1, 1), 0, True),
    (20, 14, 15, 5, 2, (1, 2, 1, 2), 0, True),
    (20, 14, 14, 5, 2, (2, 1, 2, 1), 0, True),
    (9, 11, 10, 3, 1, (2, 0, 0, 2), 0.0, True),
    (16, 8, 8, 3, 1, (0, 1, 1, 0), 0, False),  # as many results as no padding alike gives
    (16, 8, 8, 3, 2, (3, 0, 3, 0), 0, True),
    (16, 8, 8, 3, 2, (0, 1, 0, 1), 0.5, False),
    (16, 8, 8, 3, 2, (-1, 1, 0, 1), 0, False),
]


class Padded(nn.Module):
    """As networks do that were made for TensorFlow."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = [torch.randn(2, channels, height, width) for channels, height, width, *_ in PADDED]
        self.convs = nn.ModuleList(
            nn.Conv2d(channels, channels, size, step, groups=channels)
            for channels, _, _, size, step, *_ in PADDED
        )

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.silu(conv(F.pad(x, sides, value=value)))
            for conv, x, (*_, sides, value, _) in zip(self.convs, inputs, PADDED, strict=True)
        ]


@pytest.mark.parametrize("wrapper", ["C++", "Python"])
def test_zeros_around_an_image_are_left_to_the_convolution(
    wrapper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if wrapper == "Python":
        monkeypatch.setattr(compiling, "_require_handles", refuse_handles)
    seen: list[bool] = []
    own = convolutions._padded

    def watched(node: Any) -> Any:
        found = own(node)
        seen.append(found[0] is not node.args[0])
        return found

    monkeypatch.setattr(convolutions, "_padded", watched)
    torch.manual_seed(0)
    model = Padded()
    call, _, steps = compiled(model, avx512(), *model.inputs)
    assert steps.count(STEP) == len(model.inputs)
    assert seen == [left for *_, left in PADDED]
    with torch.no_grad():
        answers = list(call())
        for one, other in zip(answers, model(*model.inputs), strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
            assert one.stride() == other.stride()


@pytest.mark.parametrize("alike", [True, False])
def test_zeros_around_an_image_of_any_size(alike: bool) -> None:
    """As many on both sides are padding. Others are not: the results may be fewer."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.ZeroPad2d((1, 1 if alike else 2, 1, 1)), nn.Conv2d(16, 16, 3, 2, groups=16))
    x = torch.randn(1, 16, 11, 14)
    torch._dynamo.mark_dynamic(x, 2)
    torch._dynamo.mark_dynamic(x, 3)
    call, _, steps = compiled(model, avx512(), x)
    assert STEP in steps
    with torch.no_grad():
        torch.testing.assert_close(list(call()), [model(x)], atol=1e-5, rtol=1e-5)


class Blur(nn.Module):
    """One filter for each of any number of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(1, 1, 3, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        channels = x.shape[1]
        return F.conv2d(x, self.filter.expand(channels, 1, 3, 3), padding=1, groups=channels)


@pytest.mark.parametrize("fixed", [True, False])
def test_any_number_of_channels_is_left_to_onednn(fixed: bool, capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, x = Blur(), torch.randn(2, 16, 9, 11)
    torch._dynamo.mark_dynamic(x, 1)
    call, *_ = compiled(model, avx512(), x, fixed=fixed)
    answer, ran = multiplied_by_onednn(call, "convolution", capfd)
    assert len(ran) == 1
    with torch.no_grad():
        torch.testing.assert_close(answer[0], model(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("fixed", [True, False])
def test_infinite_weights_of_a_depthwise_convolution_reach_no_further_than_the_image(fixed: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Conv2d(24, 24, 3, padding=1, groups=24), torch.randn(1, 24, 5, 9)
    with torch.no_grad():
        model.weight[3, 0, 0, 0], model.weight[7, 0, 2, 1] = float("inf"), float("nan")
        call, *_ = compiled(model, avx512(), x, fixed=fixed)
        expected = model(x)
        assert expected[0, 3].isfinite().any()
        torch.testing.assert_close(call()[0], expected, atol=1e-5, rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize("dynamic", [(), (0, 2, 3)])
def test_a_block_of_a_network_for_phones(dynamic: tuple[int, ...], capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, x = Residual(24, 72, 20), torch.randn(2, 24, 14, 13)
    for dimension in dynamic:
        torch._dynamo.mark_dynamic(x, dimension)
    call, _, steps = compiled(model, avx512(), x)
    assert steps.count(STEP) == 5
    answer, ran = multiplied_by_onednn(call, "convolution", capfd)
    assert ran == []
    with torch.no_grad():
        torch.testing.assert_close(list(answer), [model(x)], atol=1e-5, rtol=1e-5)


class Lying(nn.Module):
    """Weights that lie otherwise than in rows, and one that the call returns, which is not packed."""

    def __init__(self) -> None:
        super().__init__()
        self.turned = nn.Parameter(torch.randn(16, 24, 1, 1))
        self.wide = nn.Parameter(torch.randn(24, 40, 1, 1))
        self.scale = nn.Parameter(torch.randn(24, 1, 1, 1))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        made = self.wide[:, 3:19] * self.scale
        of_each = (self.turned.transpose(0, 1), self.wide[:, :16], self.scale.expand(24, 16, 1, 1), made)
        return [*(F.relu(F.conv2d(x, weight)) for weight in of_each), made]


def test_weights_that_lie_otherwise() -> None:
    torch.manual_seed(0)
    model, x = Lying(), torch.randn(1, 16, 7, 7)
    call, _, steps = compiled(model, avx512(), x)
    assert STEP in steps
    with torch.no_grad():
        torch.testing.assert_close(list(call()), model(x), atol=1e-5, rtol=1e-5)


class Others(nn.Module):
    """For oneDNN."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [
                nn.Conv2d(16, 24, 1, stride=2),
                nn.Conv2d(16, 24, 1, padding=1),
                nn.Conv2d(16, 24, 1, groups=2),
                nn.Conv2d(16, 24, (1, 2)),
                nn.Conv2d(16, 32, 3, groups=16),
                nn.Conv2d(16, 16, 3, groups=16, dilation=2),
                nn.Conv2d(16, 16, 3, groups=16, stride=3),
                nn.Conv2d(16, 16, (1, 8), padding=(0, 4), groups=16),
            ]
        )
        self.narrow = nn.Conv2d(16, 24, 1).bfloat16()

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [*(conv(x) for conv in self.convs), self.narrow(x.bfloat16()).float()]


def test_others_are_onednns() -> None:
    torch.manual_seed(0)
    model, x = Others(), torch.randn(1, 16, 7, 7)
    call, _, steps = compiled(model, avx512(), x)
    assert STEP not in steps
    with torch.no_grad():
        torch.testing.assert_close(list(call()), model(x), atol=2e-2, rtol=2e-2)


def test_a_variant_without_avx512_leaves_them_to_onednn(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, x = nn.Conv2d(16, 24, 1), torch.randn(1, 16, 7, 7)
    call, _, steps = compiled(model, variant("x86-64-v3"), x)
    assert STEP not in steps
    assert len(multiplied_by_onednn(call, "convolution", capfd)[1]) == 1


def test_a_graph_that_gets_a_python_wrapper_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_require_handles", refuse_handles)
    torch.manual_seed(0)
    model, x = Residual(24, 72, 20), torch.randn(2, 24, 14, 13)
    call, graph, _ = compiled(model, avx512(), x)
    assert graph.record.why_python == "no C++"
    with torch.no_grad():
        torch.testing.assert_close(list(call()), [model(x)], atol=1e-5, rtol=1e-5)


def test_the_function_knows_what_follows_by_the_same_numbers() -> None:
    names = [name.upper() for name in (*convolutions._FOLLOWING, "gelu_tanh")]
    assert f"enum Function {{ {', '.join(names)} }};" in convolutions._COMMON
