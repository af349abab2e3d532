"""Linear layers go to the library that is fast on the processor they run on, and both compute the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from hatch_precompile.backends.x86_64.layers import blas_choice
from tests.support.graphs import load_graph, other_processors, save_graph

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or not torch.backends.mkl.is_available(),
    reason="one of the two libraries is not in this torch",
)
WIDE, NARROW = 512, 256


def layers(x, one, w, b, narrow, small):  # type: ignore[no-untyped-def]
    """The first eight layers may go to either library, the others are left as they are."""
    hidden = F.gelu(F.linear(x, w, b))  # (2, 32, NARROW) to (2, 32, WIDE)
    back = F.linear(hidden, narrow) + x
    return (
        back,
        F.linear(one, w, b).relu() * 2,
        F.linear(hidden.reshape(-1, WIDE), narrow, b[:NARROW]),
        F.linear(x, w.flip(0), b),
        hidden @ w,
        torch.addmm(b, one, narrow),
        F.linear(x, narrow[:, ::2].t().contiguous().t(), b[:NARROW]),
        hidden @ w[:, : NARROW // 2],
        F.linear(hidden[:, ::2], narrow),
        F.linear(x, small),
        F.linear(x.double(), w.double(), b.double()),
        torch.addmm(b, x[0], w.t(), beta=2, alpha=0.5),
        torch.addmm(back.reshape(-1, NARROW)[:, :1], x.reshape(-1, NARROW), w.t()),
    )


def inputs() -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(0)

    def rand(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=made) / size[-1] ** 0.5

    return {
        "x": rand(2, 32, NARROW),
        "one": rand(48, NARROW),
        "w": rand(WIDE, NARROW),
        "b": rand(WIDE),
        "narrow": rand(NARROW, WIDE),
        "small": rand(3, NARROW),
    }


def any_number_of_rows(x, w, b):  # type: ignore[no-untyped-def]
    return F.linear(x, w, b).tanh(), F.linear(x, w)


def any_number_of_turned_rows(x, w, b):  # type: ignore[no-untyped-def]
    return torch.addmm(b, x, w.view(NARROW, WIDE)).tanh(), x @ w.view(NARROW, WIDE)


@pytest.fixture(params=["Intel's processor", "another's"])
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    fast = "true" if request.param == "Intel's processor" else "false"
    text = f"#define PRECOMPILED_MKL_IS_FAST {fast}\n{blas_choice._FUNCTION}"
    monkeypatch.setattr(blas_choice, "_FUNCTION", text)
    return request.param


def called(capfd: pytest.CaptureFixture[str], call: Callable[[], Any]) -> tuple[Any, int]:
    """What a call returns, and how many matrices oneDNN multiplied in it."""
    capfd.readouterr()
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
        result = call()
    lines = capfd.readouterr().out.splitlines()
    return result, sum(",exec,cpu," in line and (",inner_product," in line) for line in lines)


def test_layers_give_the_same_on_both(
    tmp_path: Path, processor: str, capfd: pytest.CaptureFixture[str]
) -> None:
    given = inputs()
    assert not save_graph(tmp_path, layers, given).record.why_python
    graph = load_graph(tmp_path)
    found, times = called(capfd, lambda: graph(**given))
    assert times == (0 if processor == "Intel's processor" else 8)
    for index, (one, other) in enumerate(zip(found, layers(**given), strict=True)):
        assert one.stride() == other.stride(), index
        torch.testing.assert_close(one, other, msg=lambda text, at=index: f"{at}: {text}")


@pytest.mark.parametrize("layers", [any_number_of_rows, any_number_of_turned_rows])
def test_the_number_of_rows_is_known_at_the_call_only(
    tmp_path: Path, processor: str, layers: Callable[..., Any], capfd: pytest.CaptureFixture[str]
) -> None:
    given = {"x": torch.randn(40, NARROW), "w": torch.randn(WIDE, NARROW), "b": torch.randn(WIDE)}
    torch._dynamo.mark_dynamic(given["x"], 0)
    save_graph(tmp_path, layers, given)
    graph = load_graph(tmp_path)
    for rows, worth_it in ((1, 0), (31, 0), (32, 2), (300, 2), (3, 0)):
        x = torch.randn(rows, NARROW)
        found, times = called(
            capfd,
            lambda x=x, rows=rows: graph(x=x, w=given["w"], b=given["b"], size=rows),  # type: ignore[misc]
        )
        assert times == (0 if processor == "Intel's processor" else worth_it), rows
        for one, other in zip(found, layers(x, given["w"], given["b"]), strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def parts_of_a_weight(x, w):  # type: ignore[no-untyped-def]
    return F.linear(x, w[1]), F.linear(x, w[2]), x @ w[3].view(NARROW, WIDE)


def test_a_weight_is_part_of_another(tmp_path: Path, processor: str) -> None:
    given = {"x": torch.randn(40, NARROW), "w": torch.randn(4, WIDE, NARROW)}
    save_graph(tmp_path, parts_of_a_weight, given)
    for one, other in zip(load_graph(tmp_path)(**given), parts_of_a_weight(**given), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("layers", [any_number_of_rows, any_number_of_turned_rows])
def test_a_weight_starts_within_its_memory_at_the_call_only(
    tmp_path: Path, processor: str, layers: Callable[..., Any]
) -> None:
    given = {"x": torch.randn(40, NARROW), "w": torch.randn(WIDE, NARROW), "b": torch.randn(WIDE)}
    save_graph(tmp_path, layers, given)
    for start in (1, 2):
        there = {**given, "w": torch.randn(4, WIDE, NARROW)[start]}
        for one, other in zip(load_graph(tmp_path)(**there), layers(**there), strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_the_processor_decides(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Where the library runs, not where it was made: it asks in its own code."""
    given = {"x": torch.randn(40, NARROW), "w": torch.randn(WIDE, NARROW), "b": torch.randn(WIDE)}
    save_graph(tmp_path, any_number_of_rows, given)
    _, times = called(capfd, lambda: load_graph(tmp_path)(**given))
    cpu = Path("/proc/cpuinfo").read_text()
    assert times == (2 if "avx512f" in cpu and "GenuineIntel" not in cpu else 0)
    library = next(tmp_path.rglob("*.so")).read_bytes()
    for function in (
        b"aoti_torch_cpu__linear_pointwise",
        b"aoti_torch_cpu_addmm_out",
        b"aoti_torch_cpu_mm_out",
    ):
        assert function in library


def test_verification_runs_the_other_one_too(
    tmp_path: Path, processor: str, capfd: pytest.CaptureFixture[str]
) -> None:
    given = inputs()
    for name in ("one", "other"):
        save_graph(tmp_path / name, layers, given)
    others = other_processors(tmp_path / "one")
    assert not others.would_decide()
    one, other = load_graph(tmp_path / "one"), load_graph(tmp_path / "other")
    here, there = (0, 8) if processor == "Intel's processor" else (8, 0)
    assert called(capfd, lambda: one(**given))[1] == here
    assert others.would_decide()
    with others.deciding():
        found, times = called(capfd, lambda: one(**given))
        assert times == there
        assert called(capfd, lambda: other(**given))[1] == here  # another wheel's
    for each, expected in zip(found, layers(**given), strict=True):
        torch.testing.assert_close(each, expected)
    assert called(capfd, lambda: one(**given))[1] == here


@pytest.mark.parametrize("layers", [any_number_of_rows, any_number_of_turned_rows])
def test_layers_of_a_training_step(tmp_path: Path, processor: str, layers: Callable[..., Any]) -> None:
    given = {"x": torch.randn(64, NARROW), "w": torch.randn(WIDE, NARROW), "b": torch.randn(WIDE)}
    for tensor in given.values():
        tensor.requires_grad_()
    save_graph(tmp_path, layers, given, grad=True)
    found, plain = load_graph(tmp_path)(**given), layers(**given)
    total = sum(each.sum() for each in found)
    grads = torch.autograd.grad(total, list(given.values()))
    expected = torch.autograd.grad(sum(each.sum() for each in plain), list(given.values()))
    for one, other in zip((*found, *grads), (*plain, *expected), strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-4)
