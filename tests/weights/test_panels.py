"""Layers by our own functions: any count of rows, sizes that fill no vector, any threads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hatch_precompile.backends.base import Variant
from hatch_precompile.backends.x86_64.layers.panels import COLUMNS, FEW_ROWS, FEW_ROWS_OF_AVX512, FUNCTIONS
from hatch_precompile.backends.x86_64.levels import Instructions
from hatch_precompile.inductor import compiling
from tests.support.hardware import about_x86
from tests.support.layers import (
    CAPABILITIES,
    compiled,
    in_the_other_way,
    multiplied_by_onednn,
    require_int_mm,
    variant,
)

pytestmark = about_x86("layers")


def few_rows(of: Variant) -> int:
    """Up to which the layers of a variant are ours on any processor."""
    return FEW_ROWS_OF_AVX512 if Instructions(of.requires).has_avx512 else FEW_ROWS


def products_of_onednn(call: Any, capfd: pytest.CaptureFixture[str]) -> tuple[Any, list[str]]:
    return multiplied_by_onednn(call, "inner_product", capfd)


class Turned(nn.Module):
    """A layer that keeps its weight as it is multiplied, as GPT-2's do."""

    def __init__(self, inner: int, outer: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inner, outer) / inner**0.5)
        self.bias = nn.Parameter(torch.randn(outer)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)


class Rows(nn.Module):
    """The same layers for inputs of several counts of rows."""

    def __init__(self, inner: int, outer: int, kind: type[nn.Linear | Turned] = nn.Linear) -> None:
        super().__init__()
        self.first, self.second = kind(inner, outer), kind(outer, inner, bias=False)

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        return [self.second(torch.relu(self.first(x))) + x for x in inputs]


def test_panels_are_as_wide_as_the_runtime_makes_them() -> None:
    assert f"constexpr int64_t COLUMNS = {COLUMNS}, " in FUNCTIONS


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4", "native"])
# Widths that fill no vector, nor the chunks that a row is read in.
@pytest.mark.parametrize(
    ("inner", "outer", "kind"),
    [(300, 137, nn.Linear), (300, 137, Turned), (512, 64, nn.Linear), (1027, 33, nn.Linear)],
)
def test_any_count_of_rows_agrees_and_its_weights_are_packed_once(
    name: str, inner: int, outer: int, kind: type[nn.Linear | Turned], capfd: pytest.CaptureFixture[str]
) -> None:
    of = variant(name)
    few = few_rows(of)
    counts = [1, 2, 5, 6, 7, 12, 13, 15, 16, 17, 29, FEW_ROWS, *([70, few] if few > FEW_ROWS else [])]
    more = [few + 1, 200]
    torch.manual_seed(0)
    model = Rows(inner, outer, kind)
    inputs = [torch.randn(count, inner) for count in (*counts, *more)]
    call, _, steps = compiled(model, of, *inputs)
    others = (
        "mkldnn._reorder_linear_weight.default"
        if Instructions(of.requires).has_avx512
        else "x86_64:packed_here"
    )
    views = ["aten.permute.default"] * 2 if kind is Turned else []
    assert sorted(steps) == sorted(["x86_64:in_panels", others] * 2 + views)
    answers, ran = products_of_onednn(call, capfd)
    sizes = [f"mb{m}ic{k}oc{n}" for m in more for k, n in ((inner, outer), (outer, inner))]
    assert sorted(ran) == (sorted(sizes) if CAPABILITIES.get("avx512_f") else [])
    with torch.no_grad():
        for one, other in zip(answers, model(*inputs), strict=True):
            torch.testing.assert_close(one, other)


class Deriving(nn.Module):
    """Its layer's weight depends on weights alone, and is the caller's to change."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(137, 300) / 300**0.5)
        self.other = nn.Parameter(torch.randn(400, 137) / 137**0.5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weight = self.weight * 2
        return nn.functional.linear(nn.functional.linear(x, weight), self.other), weight


@pytest.mark.parametrize("rows", [1, 5, 50])
def test_a_weight_that_is_returned_is_packed_at_each_call(rows: int) -> None:
    torch.manual_seed(0)
    model, x = Deriving(), torch.randn(rows, 300)
    call, _, steps = compiled(model, variant("x86-64-v3"), x)
    assert steps == ["x86_64:in_panels" if rows <= FEW_ROWS else "x86_64:packed_here"]  # of the other
    for _ in range(2):
        answers = call()
        with torch.no_grad():
            torch.testing.assert_close(list(answers), list(model(x)), atol=1e-5, rtol=1e-5)
            answers[1].zero_()


class Choosing(nn.Module):
    """Only data tells how many rows its layer has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(300, 512)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [torch.relu(self.layer(x[x[:, 0] > 0]))]


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
def test_there_may_be_no_rows(name: str) -> None:
    torch.manual_seed(0)
    model, x = Choosing(), torch.randn(50, 300)
    call, _, steps = compiled(model, variant(name), x)
    assert steps
    for chosen in (50, 1, 0, 33, 0):
        x[:, 0] = -1
        x[:chosen, 0] = 1
        with torch.no_grad():
            torch.testing.assert_close(call()[0], model(x)[0])


class Integers(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        weight = torch.randint(-128, 128, (outer, inner), dtype=torch.int8)
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        return [torch._int_mm(x, self.weight.t()) for x in inputs]


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4", "native"])
@pytest.mark.parametrize(
    ("inner", "outer", "dtype"),
    [(300, 137, torch.int8), (514, 64, torch.uint8), (1027, 33, torch.uint8), (2055, 17, torch.int8)],
)
def test_integers_are_exact(name: str, inner: int, outer: int, dtype: torch.dtype) -> None:
    of = variant(name)
    if name == "native" and not Instructions(of.requires).has_vnni:
        pytest.skip("one of the others is the same")
    torch.manual_seed(0)
    counts = [
        1,
        2,
        6,
        15,
        16,
        17,
        31,
        FEW_ROWS,
        *([33, 70, FEW_ROWS_OF_AVX512] if Instructions(of.requires).has_vnni else []),
    ]
    require_int_mm(dtype)
    counts += [200] if Instructions(of.requires).has_tiles else []
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    model = Integers(inner, outer)
    inputs = [torch.randint(least, most + 1, (count, inner), dtype=dtype) for count in counts]
    # The largest products that there are, in pairs of one sign.
    model.weight.data[0], inputs[1][0], inputs[1][1] = -128, least, most
    call, graph, steps = compiled(model, of, *inputs)
    assert steps.count("aten.contiguous.default") == 1
    assert graph.record.rounded == {of.name: "int8"}
    answers = [*call(), *in_the_other_way(call, graph, of)]
    with torch.no_grad():
        for x, answer in zip(inputs * 2, answers, strict=True):
            assert torch.equal(answer, x.int() @ model.weight.t().int())


class Layer(nn.Module):
    """One layer for inputs of several counts of rows."""

    def __init__(
        self, inner: int, outer: int, *, bias: bool, kind: type[nn.Linear | Turned] = nn.Linear
    ) -> None:
        super().__init__()
        self.layer = kind(inner, outer, bias=bias)

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        return [self.layer(x) for x in inputs]


@pytest.mark.parametrize("name", ["x86-64-v4-bf16", "native"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
# Words and panels that fill no tile, and more words than are copied at once.
@pytest.mark.parametrize(
    ("inner", "outer", "bias", "kind"),
    [
        (300, 137, True, nn.Linear),
        (300, 137, True, Turned),
        (64, 1024, False, nn.Linear),
        (1027, 33, True, nn.Linear),
    ],
)
def test_bfloat16_is_rounded_once_and_summed_in_float32(
    name: str,
    dtype: torch.dtype,
    inner: int,
    outer: int,
    bias: bool,
    kind: type[nn.Linear | Turned],
    capfd: pytest.CaptureFixture[str],
) -> None:
    of = variant(name)
    if not Instructions(of.requires).has_bfloat16:
        pytest.skip("this processor has no bfloat16")
    few = few_rows(of)
    counts = [1, 2, 15, 16, 17, 31, 32, 33, 48, 100, few]
    torch.manual_seed(0)
    model = Layer(inner, outer, bias=bias, kind=kind).to(dtype)
    inputs = [torch.randn(count, inner, dtype=dtype) for count in counts]
    call, graph, steps = compiled(
        model, of, *inputs, torch.randn(few + 1, inner, dtype=dtype), precision="medium"
    )
    assert steps.count("aten.contiguous.default") == steps.count("mkldnn._reorder_linear_weight.default") == 1
    assert graph.record.rounded == {of.name: "bfloat16"}
    answers, ran = products_of_onednn(call, capfd)
    assert ran == [f"mb{few + 1}ic{inner}oc{outer}"]
    others = in_the_other_way(call, graph, of)
    weight = model.layer.weight.bfloat16().double()
    turned = weight if kind is Turned else weight.t()
    for x, answer, other in zip(inputs, answers, others, strict=False):
        expected = x.bfloat16().double() @ turned
        if bias:
            expected += model.layer.bias.double()
        for found in (answer, other):
            assert found.dtype == dtype
            near = 1e-5 if dtype == torch.float32 else 2**-8
            torch.testing.assert_close(found.double(), expected, rtol=near, atol=near)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_no_number_stays_none(dtype: torch.dtype) -> None:
    """And is nowhere else: neither in another row, nor in what a row is filled up with."""
    of = variant("native")
    if not Instructions(of.requires).has_bfloat16:
        pytest.skip("this processor has no bfloat16")
    torch.manual_seed(0)
    model = Layer(300, 137, bias=True).to(dtype)
    full = torch.full((20, 300), torch.nan, dtype=dtype)
    x = torch.randn(19, 300, dtype=dtype)
    x[3, 5], x[4, 6] = torch.nan, torch.inf
    call, graph, _ = compiled(model, of, full, x, precision="medium")
    for _ in range(3):
        for answer in (call()[1], in_the_other_way(call, graph, of)[1]):
            finite = answer.isfinite().all(dim=1)
            assert [row for row in range(19) if not finite[row]] == [3, 4]
            assert answer[3].isnan().all()


def test_the_same_bits_for_any_threads() -> None:
    torch.manual_seed(0)
    native = variant("native")
    models: list[tuple[nn.Module, str]] = [(Rows(1000, 2000), "highest"), (Rows(1000, 2000), "medium")]
    before = torch.get_num_threads()
    for model, precision in models:
        call, _, _ = compiled(
            model, native, torch.randn(17, 1000), torch.randn(80, 1000), precision=precision
        )
        answers = []
        try:
            for threads in (1, 2, 3, 7):
                torch.set_num_threads(threads)
                answers.append(call())
        finally:
            torch.set_num_threads(before)
        for answer in answers:
            assert all(map(torch.equal, answer, answers[0]))


def test_a_graph_that_gets_a_python_wrapper_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(gm: Any) -> None:
        raise compiling._NoHandle("no C++")

    monkeypatch.setattr(compiling, "_require_handles", refuse)
    torch.manual_seed(0)
    native = variant("native")
    integers = torch.int8 if torch.__version__ < (2, 12) else torch.uint8  # 2.11 traces no product of uint8
    least, most = torch.iinfo(integers).min, torch.iinfo(integers).max
    cases: list[tuple[nn.Module, torch.Tensor]] = [
        (Rows(300, 137), torch.randn(5, 300)),
        (Rows(300, 137), torch.randn(50, 300)),
        (Integers(300, 137), torch.randint(least, most + 1, (20, 300), dtype=integers)),
        (Layer(300, 137, bias=True).bfloat16(), torch.randn(5, 300, dtype=torch.bfloat16)),
    ]
    for model, x in cases:
        call, graph, steps = compiled(model, native, x)
        assert graph.record.why_python == "no C++"
        assert "x86_64:packed_here" not in steps
        with torch.no_grad():
            torch.testing.assert_close(list(call()), model(x))


def test_rows_that_are_not_known_are_for_onednn_where_it_has_avx512(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The variant cannot tell, so that the processor is asked where the weights are packed."""
    torch.manual_seed(0)
    of = variant("x86-64-v3")
    for has_avx512 in (False, True):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda has=has_avx512: {"avx512_f": has})
        model, x = Rows(256, 512), torch.randn(8, 256)
        torch._dynamo.mark_dynamic(x, 0)
        call, _, steps = compiled(model, of, x)
        assert steps == ["x86_64:packed_here"] * 2
        (answer,), ran = products_of_onednn(call, capfd)
        assert ran == (["mb8ic256oc512", "mb8ic512oc256"] if has_avx512 else [])
        with torch.no_grad():
            torch.testing.assert_close([answer], model(x))
