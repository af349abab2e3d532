"""One call of a sample: what it gives and leaves behind, and what of that is another in each call."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from hatch_precompile.entrypoints.call import Sample, copied, copy_of, mode_context
from hatch_precompile.errors import VerifyError
from hatch_precompile.verify.agreement import Agreement, compare, run_backward
from hatch_precompile.verify.effects import Effects, differing, kept, roots_of
from hatch_precompile.verify.gradient_noise import noise_of_gradients

__all__ = [
    "Answer",
    "answered",
    "changing_places",
    "copied_before",
    "eagerly",
    "is_random",
    "is_the_same",
    "noise_of",
    "seed",
]


class Answer(dict[str, Any]):
    """What a call gave, by name, and what it left behind."""

    def __init__(self, given: dict[str, Any], effects: Effects) -> None:
        super().__init__(given)
        self.effects = effects


def answered(
    call: Callable[..., Any], sample: Sample, mode: str, owner: Any = None, packages: tuple[str, ...] = ()
) -> tuple[Answer, float]:
    """One call with a sample, which it may change: its output, the inputs as it left them, and in training
    the gradients of its parameters; and the seconds it took.

    owner, packages: where else it may leave something
    """
    args, kwargs = sample.args, sample.kwargs
    seed()
    roots = roots_of(owner, args, kwargs, packages)
    before = kept(roots)
    with mode_context(mode):
        started = time.perf_counter()
        result: dict[str, Any] = {"output": call(*args, **kwargs), "inputs": (args, kwargs)}
        if mode == "train":
            run_backward(result["output"])
        seconds = time.perf_counter() - started
    if mode == "train" and isinstance(call, torch.nn.Module):
        result["gradients"] = {
            name: p.grad.clone() for name, p in call.named_parameters() if p.grad is not None
        }
        call.zero_grad(set_to_none=True)
    return Answer(result, Effects(before, kept(roots))), round(seconds, 6)


def eagerly() -> AbstractContextManager[Any]:
    """Have what the package itself puts under `torch.compile` run eagerly: there is no compiler here."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def copied_before(call: Any) -> Any:
    """A copy of the module that is called; None if it cannot be copied: then a difference counts. What is no
    module is given back as it is."""
    if not isinstance(call, torch.nn.Module):
        return call
    try:
        return copy_of(call)
    except Exception:
        return None


def noise_of(call: Any, sample: Sample, expected: dict[str, Any]) -> dict[str, float]:
    """By parameter, how far rounding brings its gradient. call: as it was before it was called."""
    if not isinstance(call, torch.nn.Module):
        return {}

    def gradients(module: torch.nn.Module) -> Any:
        with eagerly():
            return answered(module, sample, sample.mode)[0]["gradients"]

    return noise_of_gradients(call, expected["gradients"], copy_of, gradients)


def is_random(call: Callable[..., Any], sample: Any, mode: str) -> bool:
    """Whether the eager call gives another answer with another seed."""
    global _seed_value
    try:
        # Each on a copy: what is called may change when it is.
        with eagerly():
            first, _ = answered(copied_before(call), copied(sample), mode)
            _seed_value += 1
            second, _ = answered(call, copied(sample), mode)
        compare(first, second, "")
    except VerifyError:
        return True
    except Exception:  # then nothing excuses the difference
        return False
    finally:
        _seed_value = 0
    return False


def changing_places(call: Any, sample: Sample) -> set[str]:
    """The places that eager code leaves in another way in the next call of the same with another seed."""
    global _seed_value
    if not isinstance(call, torch.nn.Module):
        return set()
    try:
        with eagerly():
            copy, other = copied_before(call), copied_before(call)
            first, _ = answered(copy, copied(sample), sample.mode, copy)
            _seed_value += 1
            second, _ = answered(other, copied(sample), sample.mode, other)
    except Exception:  # then nothing excuses the difference
        return set()
    finally:
        _seed_value = 0
    return {place.name for place in differing(first.effects, second.effects, None)}


def is_the_same(answer: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether nothing of it is different, or unknown."""
    try:
        return compare(answer, other, "") == Agreement()
    except VerifyError:
        return False


_seed_value = 0


def seed() -> None:
    torch.manual_seed(_seed_value)
    random.seed(_seed_value)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(_seed_value)
