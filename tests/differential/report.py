"""Runs mutations over held frames and counts what came of them."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from differential.harness import HeldFrame
from differential.mutations import Mutation, mutations_of

# Where ours refuses what dynamo would take, and why that is right.
JUSTIFIED = {
    "torch state": "hooks on saved tensors are refused whatever they are; dynamo takes those it can inline",
    "tensor argument": "a tensor carrying dimension marks is refused unless the entry was built with them",
    "argument": "an equal value of another type, inside a container that dynamo compares as a whole",
    "attribute": "the same of an attribute",
    "array argument": "dynamo looks at the tensor that an array becomes, whatever its class",
    "equal value": "dynamo compares sets, tuples and dicts with ==, to which 1, 1.0 and True are one",
    "combined": "two of the above at once",
}


@dataclass
class Tally:
    """`extra_misses`: refused by ours alone, by kind; `wrong_hits`: taken by ours alone."""

    mutations: int = 0
    frames: int = 0
    accepted: int = 0
    wrong_hits: list[str] = field(default_factory=list)
    dishonest: list[str] = field(default_factory=list)
    extra_misses: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "mutations": self.mutations,
            "frames": self.frames,
            "accepted_by_both": self.accepted,
            "wrong_hits": len(self.wrong_hits),
            "wrong_hits_listed": self.wrong_hits,
            "extra_misses": dict(self.extra_misses),
            "extra_misses_justified": {
                kind: JUSTIFIED.get(kind, "NOT JUSTIFIED") for kind in self.extra_misses
            },
            "examples": self.examples,
        }


def try_mutations(
    tally: Tally, frame: HeldFrame, frame_locals: dict[str, Any], mutations: list[Mutation]
) -> None:
    """Apply the mutations together and compare the two answers."""
    what = f"{frame.name}: " + " and ".join(mutation.what for mutation in mutations)
    with ExitStack() as stack:
        stack.enter_context(frame.mode())
        changed = frame_locals
        try:
            for mutation in mutations:
                changed = stack.enter_context(mutation.apply(changed))
        except (KeyError, AttributeError, IndexError, TypeError, RuntimeError):
            return  # two that cannot both be in force, such as deleting a thing and changing it
        dynamo, ours = frame.dynamo(changed), frame.ours(changed)
    tally.mutations += 1
    if ours and not dynamo:
        tally.wrong_hits.append(what)
    elif dynamo and not ours:
        kind = mutations[0].kind if len(mutations) == 1 else "combined"
        tally.extra_misses[kind] += 1
        tally.examples.setdefault(kind, what)
    tally.accepted += ours and dynamo
    if mutations[0].honest and len(mutations) == 1 and not (ours and dynamo):
        tally.dishonest.append(what)


def all_mutations(frame: HeldFrame, frame_locals: dict[str, Any]) -> list[Mutation]:
    return list(mutations_of(frame_locals, frame.frame_globals))
