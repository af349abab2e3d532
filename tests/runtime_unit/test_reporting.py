"""What the log holds back, and what it advises."""

from __future__ import annotations

import pytest

from hatch_precompile.runtime import runtime

reporting = runtime("reporting")
remedy = runtime("advice").remedy


def test_the_first_misses_pass_and_then_one_every_so_often() -> None:
    now = 100.0
    limit = reporting.Limit(lambda: now)
    assert [limit.passes() for _ in range(reporting.BURST)] == [0] * reporting.BURST
    assert [limit.passes() for _ in range(7)] == [None] * 7
    now += reporting.SECONDS
    assert limit.passes() == 7
    assert [limit.passes() for _ in range(2)] == [None, None]
    now += 10 * reporting.SECONDS
    assert [limit.passes(), limit.passes()] == [2, None]


@pytest.mark.parametrize(
    ("check", "reason", "advice"),
    [
        (
            "v0.dtype is torch.float32",
            "x has dtype float64, the entry needs float32",
            "convert it to torch.float32, ",
        ),
        (
            "type(v0) is torch.Tensor",
            "x is a model.Other, the entry needs a torch.Tensor",
            "pass a torch.Tensor",
        ),
        (
            "v0.size(1) == 8",
            "x has size 9 in dimension 1, the entry needs 8",
            "pass one of that size, or rebuild the wheel with a sample that has it or with",
        ),
        ("v0.dim() == 2", "x is 3-dimensional, the entry needs 2 dimensions", "pass one with as many dim"),
        (
            "3 <= v0.size()[0] and v0.size()[0] <= 16",
            "x is a tensor of shape (17, 8); needed: 3 <= x.size()[0] and x.size()[0] <= 16",
            "pass a size in that range, ",
        ),
        (
            "state.check() or state.rebase()",
            "torch's global state differs: grad_mode",
            "make the call under torch.no_grad()",
        ),
        (
            "state.check() or state.rebase()",
            "torch's global state differs: autocast",
            "set torch's state as it was at the build",
        ),
        (
            "inference_mode() is False",
            "needed: inference_mode() is False",
            "make the call under torch.no_grad()",
        ),
        (
            "may_serve()",
            "a tracer, a dispatch mode or a functorch transform is active",
            "make the call outside",
        ),
        ("v4 is False", "self.training is True; needed: self.training is False", "call eval() on the model"),
        ("type(v1) is c1", "self is Sub(); needed: type(self) is c1", "pass an object of exactly that class"),
        (
            "type(v3) is float and v3 == 2.0",
            "self.scale is 3.0; needed: self.scale == 2.0",
            "pass that value, ",
        ),
        (
            "T0.check(v0, v6)",
            "tensor 'self.weight' requires_grad mismatch. expected requires_grad=1",
            "set requires_grad as it was at the build",
        ),
        (
            "T0.check(v0, v6)",
            "tensor 'self.weight' dtype mismatch. expected Float, actual Double",
            "convert it, or rebuild",
        ),
        (
            "T0.check(v0, v6)",
            "tensor 'x' stride mismatch at index 0. expected 20, actual 40",
            "pass one with those strides (.contiguous() makes",
        ),
        (
            "v0.stride()[0] == v0.size()[1]",
            "x is a tensor of shape (5, 20) and strides (40, 1); needed: x.stride()[0] == x.size()[1]",
            "pass one with those strides (.contiguous() makes",
        ),
        ("something(new)", "needed: something(new)", "rebuild the wheel with a sample like this call"),
    ],
)
def test_each_kind_of_check_has_its_remedy(check: str, reason: str, advice: str) -> None:
    assert remedy(check, reason, ["no_grad"]).startswith(advice)


@pytest.mark.parametrize(
    ("mode", "advice"), [("inference", "torch.inference_mode()"), ("train", "with gradients on")]
)
def test_the_mode_that_is_missing_is_the_entrypoints(mode: str, advice: str) -> None:
    reason = "torch's global state differs: grad_mode"
    assert remedy("state.check() or state.rebase()", reason, [mode]).endswith(advice)
