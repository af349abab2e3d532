"""What is computed of fixed weights: how long it is kept, what finds it changed; the library is a stub."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from hatch_precompile.runtime import runtime

weights = runtime("graphs.weights")


@pytest.fixture(autouse=True)
def without_the_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    weights.stop_watching()


def doubling(numbers: int, step: str = "aten.mul.Tensor") -> Any:
    """A graph that gives each of its inputs doubled, computed once."""
    watched = tuple(range(numbers))
    arguments = ([2.0] if step == "aten.mul.Tensor" else []) if step != "finite" else []
    steps = tuple((step, [("input", number), *arguments], {}) for number in watched)
    return weights.FixedWeights(lambda *made: [each.clone() for each in made], ((), steps, watched, watched))


def kept(*graphs: Any) -> int:
    return sum(len(graph.tensors()) for graph in graphs)


def parameters(*sizes: int) -> list[nn.Parameter]:
    return [nn.Parameter(torch.randn(size, 64)) for size in sizes]


@pytest.mark.parametrize("replaced", [0, 1])
def test_a_replaced_weight_whose_memory_is_kept_leaves_nothing(replaced: int) -> None:
    graphs = doubling(2), doubling(2)
    calls = [graph.caller() for graph in graphs]
    given, adapters = parameters(8, 8), [torch.randn(8, 64) for _ in range(30)]
    others = [parameters(8, 8) for _ in range(10)]
    for other in others:
        calls[0](*other)
    for adapter in adapters:
        given[replaced] = nn.Parameter(adapter)
        for call in calls:
            torch.testing.assert_close(call(*given), [each.detach() * 2 for each in given])
    assert kept(*graphs) == 2 * (len(others) + 2)
    del other, others
    assert kept(*graphs) == 4


def test_it_goes_with_the_weights() -> None:
    graph = doubling(3)
    call, given = graph.caller(), parameters(2, 3, 4)
    call(*given)
    references = [weakref.ref(each) for each in given]
    assert kept(graph) == 3
    del given
    assert [reference() for reference in references] == [None] * 3
    assert kept(graph) == 0
    dropped = weakref.ref(graph)
    del graph, call
    assert dropped() is None


def test_what_an_attribute_leads_to_is_not_kept() -> None:
    """The attribute makes a cycle, which the collector finds: nothing of ours may hold on to it."""
    graph = doubling(1)
    call, (weight,) = graph.caller(), parameters(8)
    weight.owner = [weight]  # type: ignore[attr-defined]
    call(weight)
    (late,) = parameters(8)
    call(late)
    late.owner = [late]  # type: ignore[attr-defined]
    call(*parameters(4))
    assert kept(graph) == 1
    gone = [weakref.ref(weight), weakref.ref(late)]
    del weight, late
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    assert kept(graph) == 0


def test_what_is_computed_is_never_the_weights_own_memory() -> None:
    graph = doubling(1, "aten.alias.default")
    call, (weight,) = graph.caller(), parameters(8)
    call(weight)
    assert kept(graph) == 1
    del weight
    assert kept(graph) == 0


def test_nothing_is_seen_of_it_at_the_weights() -> None:
    call, (one, other) = doubling(1).caller(), parameters(8, 8)
    call(one)
    assert vars(one) == {}
    assert weakref.getweakrefs(one) == []
    before = one.detach() * 1
    torch.utils.swap_tensors(one, other)
    torch.testing.assert_close(call(one), [one.detach() * 2])
    assert not torch.equal(one, before)
    torch.utils.swap_tensors(one, other)
    torch.testing.assert_close(call(one), [before * 2])


def test_a_weight_that_is_not_finite_fails_until_it_is_and_leaves_nothing() -> None:
    graph = doubling(1, "finite")
    call, (weight,) = graph.caller(), parameters(8)
    with torch.no_grad():
        weight[3, 4] = torch.inf
    for _ in range(2):
        with pytest.raises(runtime("graphs.callers").GraphFailed) as failure:
            call(weight)
        assert failure.value.rerun
    with torch.no_grad():
        weight[3, 4] = 1
    torch.testing.assert_close(call(weight), [weight.detach()])


@pytest.mark.parametrize(
    ("weight", "place", "is_seen"),
    [
        (torch.randn(9000), (8000,), True),
        (torch.randn(64, 64), (40, 3), True),
        (torch.randn(500, 600)[:, ::2], (-1, -1), True),
        (torch.randn(500, 600).t(), (0, 0), True),
        (torch.randn(3, 5, 1000, 70), (1, 2, 500, 30), False),
        (nn.Parameter(torch.randn(64)), (33,), True),
        (nn.Parameter(torch.randn(500, 300)), (499, 299), True),
        (nn.Parameter(torch.randn(500, 300)), (250, 150), False),
        (torch.randn(1, 1).expand(300, 700), (0, 0), True),
        (torch.randn(300, 300, dtype=torch.bfloat16), (0, 0), True),
    ],
)
def test_a_number_that_torch_does_not_count_is_seen(weight: Any, place: Any, is_seen: bool) -> None:
    call = doubling(1).caller()
    (before,) = call(weight)
    weight.data[place].add_(100)
    (after,) = call(weight)
    assert torch.equal(before, after) != is_seen


def test_nothing_to_compare_is_no_change() -> None:
    call = doubling(2).caller()
    for _ in range(2):
        torch.testing.assert_close(call(torch.empty(0), torch.ones(2))[1], torch.full((2,), 2.0))


def test_many_instances_take_no_longer_each() -> None:
    """Each step looks at a few of them."""
    graph = doubling(2)
    call, held, looked = graph.caller(), [], []
    count = weights._Prepared.has_memory
    weights._Prepared.has_memory = lambda self: looked.append(1) or count(self)  # type: ignore[func-returns-value]
    try:
        for _ in range(300):
            held.append(parameters(2, 2))
            call(*held[-1])
        del held[:]
    finally:
        weights._Prepared.has_memory = count
    assert kept(graph) == 0
    assert len(looked) < 300 * 8
