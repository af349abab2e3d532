"""Our guard functions are no weaker than dynamo's guards: a small run of `make differential`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from differential.frames import held_frames, mapped
from differential.harness import HeldFrame, hold
from differential.report import JUSTIFIED, Tally, all_mutations, try_mutations


class Held(list[tuple[HeldFrame, dict[str, Any], list[Any]]]):
    """The frames; a short repr, because hypothesis writes it out for every example."""

    def __repr__(self) -> str:
        return f"{len(self)} held frames"


@pytest.fixture(scope="module")
def held() -> Held:
    frames = [(frame, frame_locals) for frame, frame_locals in held_frames() if "wrapper" not in frame.name]
    return Held((frame, frame_locals, all_mutations(frame, frame_locals)) for frame, frame_locals in frames)


def test_no_single_mutation_is_served_that_dynamo_would_refuse(held: Held) -> None:
    tally = Tally()
    for frame, frame_locals, mutations in held:
        for mutation in mutations:
            try_mutations(tally, frame, frame_locals, [mutation])
    assert tally.mutations > 5000
    assert tally.wrong_hits == []
    assert tally.accepted > 100, "a guard that refuses everything would pass the line above"


def test_both_accept_the_unchanged_call_and_honest_variations(held: Held) -> None:
    tally = Tally()
    for frame, frame_locals, mutations in held:
        honest = [mutation for mutation in mutations if mutation.honest]
        assert honest
        for mutation in honest:
            try_mutations(tally, frame, frame_locals, [mutation])
    assert tally.dishonest == []


def test_every_extra_miss_is_of_a_justified_kind(held: Held) -> None:
    tally = Tally()
    for frame, frame_locals, mutations in held:
        for mutation in mutations:
            try_mutations(tally, frame, frame_locals, [mutation])
    assert set(tally.extra_misses) <= set(JUSTIFIED)


@settings(max_examples=300, print_blob=False)
@given(data=st.data())
def test_no_combination_of_mutations_is_served_that_dynamo_would_refuse(
    held: Held, data: st.DataObject
) -> None:
    frame, frame_locals, mutations = held[data.draw(st.integers(0, len(held) - 1))]
    indexes = data.draw(st.lists(st.integers(0, len(mutations) - 1), min_size=1, max_size=3, unique=True))
    tally = Tally()
    try_mutations(tally, frame, frame_locals, [mutations[index] for index in indexes])
    assert tally.wrong_hits == []


def test_a_changed_thread_count_is_accepted_and_costs_no_entry(held: Held) -> None:
    frame, frame_locals, _ = held[0]
    before = torch.get_num_threads()
    try:
        for threads in (1, before + 1, before):
            torch.set_num_threads(threads)
            with frame.mode():
                assert frame.ours(frame_locals)
    finally:
        torch.set_num_threads(before)


def test_a_frame_first_looked_up_in_inference_mode_still_serves_its_own_mode_only() -> None:
    import torch

    from differential.frames import Linear2
    from differential.harness import hold

    model, x = Linear2().eval(), torch.randn(2, 8)
    with torch.no_grad():
        frame = hold(model, x)[0]
    frame_locals = {"self": model, "x": x}
    with torch.inference_mode():
        assert not frame.ours(frame_locals)
    with torch.no_grad():
        assert frame.ours(frame_locals)
    with torch.inference_mode():
        assert not frame.ours(frame_locals)


def test_a_class_of_the_trace_that_becomes_a_container_is_refused_by_both() -> None:
    """Dynamo wants pytree's registry unchanged since it traced; we want what the trace met of it unchanged.

    The last test here: dynamo counts changes, so for its guard this one is never taken back.
    """
    from torch.utils import _pytree

    x = torch.randn(4, 8)
    frame, frame_locals = hold(mapped, x)[0], {"x": x}
    assert "SUPPORTED_NODES" in frame.source
    assert frame.dynamo(frame_locals)
    assert frame.ours(frame_locals)

    class Container:
        pass

    for cls, served in ((torch.Tensor, False), (Container, True)):
        _pytree.SUPPORTED_NODES[cls] = _pytree.SUPPORTED_NODES[tuple]
        try:
            assert not frame.dynamo(frame_locals)
            assert frame.ours(frame_locals) is served
        finally:
            del _pytree.SUPPORTED_NODES[cls]
