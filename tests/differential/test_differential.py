"""Our guard functions are no weaker than dynamo's guards: a small run of `make differential`."""

from __future__ import annotations

import dataclasses
import re
import types
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from differential.frames import held_frames, mapped
from differential.harness import HeldFrame, hold, native
from differential.report import JUSTIFIED, Tally, all_mutations, try_mutations
from hatch_precompile.runtime import runtime
from tests.support.guard_text import functions_of


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


def test_each_refusal_is_told_in_words(held: Held) -> None:
    """The check that refused is the readable guard's, and its words name no variable of a guard."""
    explanation, first_failure = (
        runtime("explaining.explanation"),
        runtime("explaining.refusal").first_failure,
    )
    kinds, told = set(), 0
    for frame, frame_locals, mutations in held:
        for mutation in mutations[::7]:
            with frame.mode(), mutation.apply(frame_locals) as changed:
                stop = first_failure(frame.beside.guard, frame.words, changed)
                if stop is None:
                    continue
                kind, reason = "REACHED", stop.missing
                if stop.check is not None:
                    kind, reason = explanation._words(frame.beside, stop.check, stop)
                assert stop.line in frame.source
            assert reason, mutation.what
            assert not re.search(r"\b[vc]\d+(_keys|_flat)?\b", reason), (mutation.what, reason)
            kinds.add(kind)
            told += 1
    assert told > 300
    assert kinds >= {"TYPE_MATCH", "EQUALS_MATCH", "TENSOR_CLASS", "TENSOR_SIZE", "GRAD_MODE", "REACHED"}


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


def test_what_becomes_the_same_tensor_is_refused(held: Held) -> None:
    """More than dynamo asks: a masked array, a tensor, an array that cannot be written to."""
    same = ("tensor", "masked", "matrix", "subclass", "records", "read-only", "repeated", "number")
    refused = 0
    for frame, frame_locals, mutations in held:
        for mutation in mutations:
            if mutation.kind != "array argument" or not mutation.what.endswith(same):
                continue
            with frame.mode(), mutation.apply(frame_locals) as changed, warnings.catch_warnings():
                warnings.simplefilter("error")
                assert not frame.ours(changed), mutation.what
                refused += 1
    assert refused >= len(same)


def test_what_is_equal_and_of_another_type_is_refused(held: Held) -> None:
    refused = 0
    for frame, frame_locals, mutations in held:
        if frame.name != "with_sets_and_equals":
            continue
        for mutation in mutations:
            if mutation.kind == "equal value" and "kinds" not in mutation.what:
                with frame.mode(), mutation.apply(frame_locals) as changed:
                    assert not frame.ours(changed), mutation.what
                    refused += 1
    assert refused > 5


class Text(str):
    pass


@dataclasses.dataclass(frozen=True)
class Point:
    x: Any
    note: Any = dataclasses.field(default=0, compare=False)


class TestAlike:
    """In Python and in C."""

    @pytest.fixture(scope="class")
    @classmethod
    def says(cls) -> Callable[[Any, Any], bool]:
        namespace = runtime("loading.guards").guard_namespace()
        namespace["entry"] = types.SimpleNamespace(hits=0)
        source = "def guard(L):\n    if not (alike(L['one'], L['other'])): return False\n    return True\n"
        in_c, in_python = native(functions_of(source), namespace), namespace["alike"]

        def says(one: Any, other: Any) -> bool:
            answer = bool(in_python(one, other))
            assert in_c({"one": one, "other": other}) is answer
            return answer

        return says

    @pytest.mark.parametrize(
        "one, other",
        [
            (1, True), (1, 1.0), (0.0, -0.0), (0.0, 0), (1, numpy.int64(1)), (2.0, numpy.float64(2)),
            (0j, -0j), (complex(0.0, 1), complex(-0.0, 1)), ("a", Text("a")), ((1, 2), (True, 2)),
            ((0.0,), (-0.0,)), ([1], [1.0]), ([1], (1,)), (((1,),), ((1.0,),)), ({1, 2}, {True, 2}),
            (frozenset({1}), {1}), (frozenset({(1, 2)}), frozenset({(1.0, 2)})), ({1: 2}, {True: 2}),
            ({"a": 1}, {"a": 1.0}), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (slice(1), slice(True)),
            (range(0, 3, 2), range(0, 4, 2)), (Point(1), Point(1.0)), (torch.Size([1]), (1,)), (1, 2),
            (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)), (OrderedDict(a=1), OrderedDict(a=True)),
        ],
    )  # fmt: skip
    def test_what_is_equal_and_not_alike(self, says: Any, one: Any, other: Any) -> None:
        assert not says(one, other)
        assert not says([one], [other])
        assert not says({"k": (one,)}, {"k": (other,)})

    @pytest.mark.parametrize(
        "make",
        [
            lambda: 10**30, lambda: 0.5, lambda: float("nan"), lambda: -0.0, lambda: complex("nan-0j"),
            lambda: "text" * 3, lambda: (1, (2.0, "a"), [True]), lambda: {3, 1, "b"}, lambda: {1: {2: []}},
            lambda: slice(1, None), lambda: range(4), lambda: Point([0.0]), lambda: Point(1, note=[]),
            lambda: torch.float32, lambda: torch.Size([2, 3]), lambda: b"text", lambda: frozenset({(1, 0.5)}),
        ],
    )  # fmt: skip
    def test_what_is_made_alike(self, says: Any, make: Any) -> None:
        assert says(make(), make())
        assert says((make(), [make()]), (make(), [make()]))


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
