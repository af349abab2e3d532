"""What the log holds back, and what it advises."""

from __future__ import annotations

from typing import get_args

import pytest

from hatch_precompile.lower.guards.checks import Kind
from hatch_precompile.runtime import runtime

reporting = runtime("explaining.reporting")
advice = runtime("explaining.advice")


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
    ("kind", "place", "expected", "said"),
    [
        ("TENSOR_DTYPE", "x", "torch.float32", "convert it to torch.float32, "),
        ("TENSOR_CLASS", "x", "torch.Tensor", "pass a torch.Tensor"),
        (
            "TENSOR_SIZE",
            "x",
            (1, 8),
            "pass one of that size, or rebuild the wheel with a sample that has it or with "
            "dynamic-shapes.x.1",
        ),
        ("TENSOR_RANK", "x", 2, "pass one with as many dim"),
        ("SHAPE_ENV", "x", None, "pass a size in that range, "),
        ("STRIDES", "x", None, "pass one with those strides (.contiguous() makes"),
        ("INFERENCE_MODE", "", False, "make the call under torch.no_grad()"),
        ("STAND_ASIDE", "", None, "make the call outside"),
        ("TRAINING", "self.training", False, "call eval() on the model"),
        ("TRAINING", "self.training", True, "call train() on the model"),
        ("TYPE_MATCH", "self", "c1", "pass an object of exactly that class"),
        ("EQUALS_MATCH", "self.scale", 2.0, "pass that value, "),
        ("EQUALS_MATCH", "hooks", (), "pass that value, "),
        ("UNKNOWN", "", None, "rebuild the wheel with a sample like this call"),
    ],
)
def test_each_kind_of_check_has_its_remedy(kind: str, place: str, expected: object, said: str) -> None:
    assert advice.remedy(kind, ["no_grad"], place, expected).startswith(said)


def test_no_size_is_to_be_declared_of_what_is_no_argument() -> None:
    assert "dynamic-shapes" not in advice.remedy("TENSOR_SIZE", ["no_grad"], "___stack0", (1, 8))


def test_no_kind_of_check_is_without_advice_and_no_advice_without_a_kind() -> None:
    found_out = {kind for _, kind in advice.BY_TORCHS_WORDS} | {"REACHED", "UNKNOWN"}
    of_tensors = {"TENSOR_ALIASING", "TENSOR_LAYOUT", "TENSOR_DEVICE"}
    assert set(advice.BY_KIND) == {*get_args(Kind), *found_out, *of_tensors}


@pytest.mark.parametrize(
    ("kind", "said", "begins"),
    [
        ("GLOBAL_STATE", "grad_mode", "make the call under torch.no_grad()"),
        ("GLOBAL_STATE", "autocast", "set torch's state as it was at the build"),
        ("TENSOR_MATCH", "tensor 'w' requires_grad mismatch. expected requires_grad=1", "set requires_grad"),
        ("TENSOR_MATCH", "tensor 'w' dtype mismatch. expected Float, actual Double", "convert it, or"),
        ("TENSOR_MATCH", "tensor 'x' stride mismatch at index 0. expected 20, actual 40", "pass one with"),
        ("TENSOR_MATCH", "tensor 'x' says something new", "rebuild the wheel"),
    ],
)
def test_torchs_words_say_what_of_its_check_failed(kind: str, said: str, begins: str) -> None:
    assert advice.remedy(advice.torchs_kind(kind, said), ["no_grad"]).startswith(begins)


@pytest.mark.parametrize(
    ("mode", "said"), [("inference", "torch.inference_mode()"), ("train", "with gradients on")]
)
def test_the_mode_that_is_missing_is_the_entrypoints(mode: str, said: str) -> None:
    assert advice.remedy("GRAD_MODE", [mode]).endswith(said)


def test_a_wheel_for_gpus_alone_has_no_variant_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        for variant in ("native", ""):
            reporting.Log("shelf", own=True).installed("net", 3, variant)
    assert [record.getMessage() for record in caplog.records] == [
        "installed net: 3 entries, variant native",
        "installed net: 3 entries, for GPUs",
    ]
