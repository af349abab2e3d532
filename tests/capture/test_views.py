"""What a graph returns of its inputs' memory: views where torch says so, else tensors of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.graphs import load_graph, save_graph


def several(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x + 1
    return (
        *(x.t(), x.view(-1), x[0], x.unfold(0, 2, 1), x.view(torch.int32)[1:], x.unbind(0)[1]),
        *(x.detach(), x[:2].data, x[0].detach(), x.detach()[0], x.T.detach().t(), x.chunk(2)[0].detach()),
        y,
    )


def complexes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = torch.view_as_complex(x.view(4, 4, 2))
    return z, z.real, z.imag, z.real.detach(), z.detach().imag, x + 1


def seen(function: Callable[..., Any], x: torch.Tensor) -> list[tuple[Any, ...]]:
    """What torch knows of each output."""
    with torch.no_grad():
        outputs = function(x)
    for output in outputs:
        if output.untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
            assert output._version == x._version
    return [
        (
            *(output._is_view(), output._base is x, output is x, output.requires_grad, output.dtype),
            *(output.size(), output.stride(), output.storage_offset(), output.is_conj(), output.is_neg()),
            output.tolist(),
        )
        for output in outputs
    ]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("function", [several, complexes])
def test_outputs_are_views_where_those_of_eager_code_are(
    function: Any, requires_grad: bool, tmp_path: Path
) -> None:
    x = torch.randn(4, 8, requires_grad=requires_grad)
    save_graph(tmp_path, function, {"x": x})
    graph = load_graph(tmp_path)
    assert seen(lambda x: graph(x=x), x) == seen(function, x)


def test_what_is_returned_in_several_places_is_one_tensor_there(tmp_path: Path) -> None:
    """Inductor gives one handle for them, whose tensor is given out once."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return y, x.detach(), y * 2, x.detach(), x.detach()

    x = torch.randn(4, 8)
    save_graph(tmp_path, function, {"x": x})
    graph = load_graph(tmp_path)
    for _ in range(3):
        assert seen(lambda x: graph(x=x), x) == seen(function, x)


def test_views_that_are_conjugated_or_negated_are_torchs_own(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.conj(), x.conj().imag, x[0].conj().detach(), x + 1

    x = torch.randn(4, 4, dtype=torch.complex64)
    assert "conjugate" in save_graph(tmp_path, function, {"x": x}).record.why_wrapped
    graph = load_graph(tmp_path)
    assert seen(lambda x: graph(x=x), x) == seen(function, x)


def test_what_was_detached_can_be_written_under_gradients(tmp_path: Path) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.detach(), x + 1

    x, weight = torch.ones(4), torch.full((1,), 3.0, requires_grad=True)
    save_graph(tmp_path, function, {"x": x})
    with torch.no_grad():
        detached, _ = load_graph(tmp_path)(x=x)
    version = x._version
    detached.mul_(weight)
    assert x.tolist() == [3.0] * 4 and x._version == version + 1
    assert (detached.requires_grad, x.requires_grad) == (True, False)


def test_views_of_new_tensors_are_as_under_torch_compile(tmp_path: Path) -> None:
    """A graph hands out no views of what it made: neither does torch.compile's."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x + 1
        return y, y.t()

    x = torch.randn(4, 8)
    save_graph(tmp_path, function, {"x": x})
    graph = load_graph(tmp_path)
    torch._dynamo.reset()
    compiled = torch.compile(function)
    assert [each[:-1] for each in seen(lambda x: graph(x=x), x)] == [each[:-1] for each in seen(compiled, x)]
    _, turned = graph(x=x)
    assert turned._base is None
