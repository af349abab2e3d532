"""The samples of one entrypoint, run in this process: first from the bundle, then without it."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace as replaced
from functools import partial
from typing import Any

from msgspec.structs import replace

from hatch_precompile.entrypoints.call import Sample, copied
from hatch_precompile.entrypoints.description import described
from hatch_precompile.entrypoints.finding import Target, find_target, find_targets
from hatch_precompile.entrypoints.resized import in_words, resized
from hatch_precompile.entrypoints.samples import samples_of
from hatch_precompile.entrypoints.workload import recorded_calls
from hatch_precompile.errors import VerifyError
from hatch_precompile.events import Event, send
from hatch_precompile.runtime import RUNTIME_PACKAGE
from hatch_precompile.validation.effects import STARTING, refusing_effects
from hatch_precompile.verify.agreement import Agreement, compare
from hatch_precompile.verify.answers import (
    Answer,
    answered,
    changing_places,
    copied_before,
    eagerly,
    is_random,
    is_the_same,
    noise_of,
    seed,
)
from hatch_precompile.verify.call_conditions import CallPolicies
from hatch_precompile.verify.effects import differing
from hatch_precompile.verify.parent import Request, SampleResult

__all__ = ["Verification", "run"]

_CHANGED = (
    "\n  It was served before, so the call changes what is called. Let `instance`, or the samples before "
    "this one, bring it to where it stays as it is."
)


def run(request: Request) -> list[SampleResult]:
    """What each sample did. Raises VerifyError, or any BuildError, where none can be run."""
    return Verification(request).run()


class Verification:
    """The samples of one entrypoint, in this process: first from the bundle, then without it."""

    def __init__(self, request: Request) -> None:
        self.entrypoint = request.entrypoint
        # Where globals may be that a call changes.
        self.packages = request.package, request.entrypoint.target.partition(":")[0].partition(".")[0]
        self.with_gradients = request.with_gradients
        self.cases = request.cases
        self.own = 0  # samples that are none of these
        self.gpu_variant = ""
        self.noted: set[str] = set()
        # What makes the samples may call the model in ways that no sample does, which `strict` would refuse.
        self.strict, os.environ["HATCH_PRECOMPILE"] = os.environ["HATCH_PRECOMPILE"], "off"
        try:
            self.runtime = importlib.import_module(f"{request.package}.{RUNTIME_PACKAGE}")
            errors: Any = importlib.import_module(f"{request.package}.{RUNTIME_PACKAGE}.errors")
            frames: Any = importlib.import_module(
                f"{request.package}.{RUNTIME_PACKAGE}.torch_internals.torch_frames"
            )
        except Exception as error:
            if RUNTIME_PACKAGE in str(getattr(error, "name", "")).split("."):
                raise VerifyError(
                    f"{request.package} was built by another version of hatch-precompile: its runtime has no "
                    f"{error.name}; verify it with that version, or build it again"  # type: ignore[attr-defined]
                ) from error
            raise VerifyError(
                f"{request.package} cannot be imported: {type(error).__name__}: {error}"
            ) from error
        self.miss: type[Exception] = errors.PrecompileError
        # A constructor may run its model, and a copy be made by a method that is compiled: neither is a call
        # of the sample.
        self.not_served: Callable[[], AbstractContextManager[None]] = frames.at_work
        self.variant = request.variant or None
        self.policies = CallPolicies(self.runtime, request.variant)

    def run(self) -> list[SampleResult]:
        seed()
        samples = self._samples()
        others = self._calls_that_are_others_when_served(samples)
        graded = [replaced(samples[number], mode="grad") for number in self.with_gradients]
        cases = [replaced(samples[case.sample], resized=case.sizes) for case in self.cases]
        everything = [*samples, *others.values(), *graded, *cases]
        self.own = len(everything) - len(cases)
        results = self._from_the_bundle(everything)
        self.rounded = self._status().get("rounded")
        self.runtime.uninstall()
        os.environ["HATCH_PRECOMPILE"] = "off"
        seed()
        again = self._targets_again(samples)
        numbers = (*others, *self.with_gradients, *(case.sample for case in self.cases))
        again += [again[number] for number in numbers]
        return [
            result
            if result.problem
            else self._beside_eager(target, self._sized(target, sample), result, answers, len(again))
            for target, sample, (result, answers) in zip(again, everything, results, strict=True)
        ]

    def _samples(self) -> list[Sample]:
        return list(samples_of(self.entrypoint))

    def _targets(self, samples: list[Sample]) -> list[Target]:
        return find_targets(self.entrypoint, samples)

    def _calls_that_are_others_when_served(self, samples: list[Sample]) -> dict[int, Sample]:
        """Calls of the workload, by their number, that get something else where those before them are served
        from the bundle: tensors of other strides, say. A call that is not served is said.
        """
        others: dict[int, Sample] = {}
        workload = self.entrypoint.workload
        if workload is None or self.entrypoint.activate == "compile":
            return others
        number = 0

        def through(sample: Sample, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            nonlocal number
            hits = self._hits()
            with _without_effects():
                result = call(*args, **kwargs)
            served = self._hits() > hits
            if not served:
                why = self._why(find_target(self.entrypoint, sample.owner), sample)
                self._note(
                    f"call {number + 1} of the workload",
                    f"not served where the calls before it are, so it runs as Python: {why}",
                )
            elif number < len(samples) and _looks(sample) != _looks(samples[number]):
                others[number] = sample
            number += 1
            return result

        os.environ["HATCH_PRECOMPILE"] = "quiet"
        self._install()
        seed()
        for mode in self.entrypoint.modes:
            recorded_calls(self.entrypoint, workload, mode, through)
        self.runtime.uninstall()
        return others

    def _install(self) -> None:
        try:
            self.runtime.install(self.variant)
        except self.miss as error:  # what is a warning elsewhere
            raise VerifyError(str(error)) from error

    def _targets_again(self, samples: list[Sample]) -> list[Target]:
        """What the samples call, made anew: the first calls may have changed it."""
        if self.entrypoint.workload is None:
            return self._targets(samples)
        again = list(samples_of(self.entrypoint))
        if len(again) != len(samples):
            raise VerifyError(
                f'workload = "{self.entrypoint.workload}" makes {len(samples)} calls the first time and '
                f"{len(again)} the second; it must make the same ones each time"
            )
        return find_targets(self.entrypoint, again)

    def _from_the_bundle(self, samples: list[Sample]) -> list[tuple[SampleResult, dict[str, Answer]]]:
        """What each sample did, and its answers."""
        os.environ["HATCH_PRECOMPILE"] = self.strict
        self._install()
        seed()
        with self.not_served():
            targets = self._targets(samples)
        self.policies.native_guards_early()
        results = [
            self._call(target, self._sized(target, sample), number, len(samples))
            for number, (target, sample) in enumerate(zip(targets, samples, strict=True), 1)
        ]
        if not any(result.problem for result, _ in results):
            self._require_all_used()
        return results

    def _require_all_used(self) -> None:
        """A function that runs eagerly because nobody asks its entries is no miss, so nothing else tells."""
        hits: dict[str, int] = {}
        for entry in self._status()["by_entry"]:
            if entry.get("variant", "") != self.gpu_variant:
                continue
            hits[entry["function"]] = hits.get(entry["function"], 0) + entry["hits"]
        unused = [function for function, number in hits.items() if not number]
        if unused:
            raise VerifyError(f"what was compiled of {', '.join(unused)} is not used by any sample")

    def _call(
        self, target: Target, sample: Sample, number: int, total: int
    ) -> tuple[SampleResult, dict[str, Answer]]:
        """Call it under each policy, up to the first call that does not pass. An answer that equals the
        first is kept as the first."""
        call = target.call
        if self.entrypoint.activate == "compile":
            call = _without_compiling(target.compiled)
        send(Event(step="sample", sample=number, samples=total))
        result = SampleResult(number, False, None, None, "")
        answers: dict[str, Answer] = {}
        for turn, deciding in self.policies:
            with deciding:
                label = self._label(number) + turn
                answer, seconds, problem = self._served(call, target, sample, label)
            result = replace(
                result,
                hit=answer is not None and not problem,
                seconds=result.seconds if answers else seconds,
                problem=problem + (_CHANGED if problem and self.policies.is_repeat(turn) else ""),
            )
            if problem or answer is None:
                break
            first = next(iter(answers.values()), None)
            if first is not None and is_the_same(answer, first):
                answer = Answer(first, answer.effects)
            answers[turn] = answer
        return result, answers

    def _served(
        self, call: Callable[..., Any], target: Target, sample: Sample, label: str
    ) -> tuple[Answer | None, float | None, str]:
        """The answer of a call from the bundle, its seconds, and why it does not pass."""
        hits = self._hits()
        try:
            with self.not_served():
                given = copied(sample)
            with _without_effects():
                answer, seconds = answered(call, given, sample.mode, target.call, self.packages)
        except self.miss as error:
            return None, None, _not_served(label, str(error))
        except Exception as error:
            return None, None, f"{label} from the bundle raised {type(error).__name__}: {error}"
        if self._hits() > hits:
            return answer, seconds, ""
        return answer, seconds, _not_served(label, self._why(target, sample))

    def _beside_eager(
        self, target: Target, sample: Sample, result: SampleResult, answers: dict[str, Answer], total: int
    ) -> SampleResult:
        """The result with how far its answers are from eager code's."""
        label = self._label(result.sample)
        before = copied_before(target.call)
        found = Agreement()
        drawn: bool | None = None
        for turn, answer in answers.items():
            try:
                with eagerly():
                    expected, _ = answered(
                        target.call, copied(sample), sample.mode, target.call, self.packages
                    )
            except Exception as error:
                problem = f"{label}{turn} raised {type(error).__name__} where it runs eagerly: {error}"
                return replace(result, problem=problem)
            try:
                try:
                    agreed = compare(
                        answer,
                        expected,
                        label + turn,
                        rounded=self.rounded,
                        noise=partial(noise_of, before, sample, expected),
                        few=bool(sample.resized),
                    )
                except VerifyError:
                    # Compiled code draws other random numbers than eager code, as under torch.compile.
                    if drawn is None:
                        drawn = before is not None and is_random(before, sample, sample.mode)
                    if not drawn:
                        raise
                    agreed = compare(answer, expected, label + turn, values=False)
                self._compare_effects(answer, expected, label + turn, before, sample)
            except VerifyError as error:
                return replace(result, problem=str(error))
            found = Agreement(max(found.largest, agreed.largest), [*found.notes, *agreed.notes])
        for note in dict.fromkeys(found.notes):
            self._note(label, note)
        difference = None if drawn else found.largest
        said = f"largest difference from eager {found.largest:.1e}"
        if drawn:
            said = "it draws random numbers, so only kinds, shapes and dtypes were compared with eager"
        send(
            Event(
                step="sample-end",
                text=f"{label}: hit; {said}" if drawn else f"{label}: hit, {said}",
                sample=result.sample,
                samples=total,
                difference=difference,
                seconds=result.seconds,
            )
        )
        return replace(result, difference=difference)

    def _compare_effects(
        self, answer: Answer, expected: Answer, label: str, before: Any, sample: Sample
    ) -> None:
        """Raises VerifyError with the first place that the two calls have left in two ways. What eager code
        leaves in another way when it is called again, with other random numbers, is none."""
        places = list(differing(answer.effects, expected.effects, self.rounded))
        if not places:
            return
        changing = set() if before is None else changing_places(before, sample)
        for place in places:
            if place.name not in changing:
                raise VerifyError(f"{label} {place.words}")

    def _label(self, number: int) -> str:
        """What the sample of a number, from 1, is called; after them come those in other sizes."""
        if number <= self.own:
            return f"sample {number}/{self.own}"
        case = self.cases[number - self.own - 1]
        return f"sample {case.sample + 1}/{self.own} at {in_words(case.sizes)}"

    def _sized(self, target: Target, sample: Sample) -> Sample:
        return resized(self.entrypoint, target, sample) if sample.resized else sample

    def _note(self, label: str, text: str) -> None:
        """Said of the first sample of which it is true."""
        if text not in self.noted:
            self.noted.add(text)
            send(Event(step="note", text=f"{label}: {text}"))

    def _status(self) -> Any:
        return self.runtime.status()["entrypoints"][self.entrypoint.name]

    def _hits(self) -> int:
        status = self._status()
        if status["skipped"]:  # perhaps the target itself: any function's
            return sum(entry["hits"] for entry in status["by_entry"])
        return int(status["hits"])

    def _why(self, target: Target, sample: Sample) -> str:
        left_out = self._status()["left_out"]
        if left_out:
            return "; ".join(left_out)
        owner = target.call if target.kind == "module class" else getattr(target.call, "__self__", None)
        given = sample.args if owner is None else (owner, *sample.args)
        try:
            reports = self.runtime.explain(self.entrypoint.name, *given, **sample.kwargs)
        except KeyError as error:
            return str(error.args[0])
        except Exception as error:  # the miss is the news; why it cannot be explained comes with it
            return f"no entry's guards accept it ({type(error).__name__}: {error})"
        return "; ".join(report["reason"] for report in reports) or "no entry's guards accept it"


def _looks(sample: Sample) -> Any:
    return described((sample.args, sample.kwargs), attributes=True)


def _without_compiling(compiled: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    def refuse(gm: Any, inputs: Any) -> Any:
        raise VerifyError("a graph was compiled, so some frame was not served by an entry")

    return compiled(refuse)


def _without_effects() -> AbstractContextManager[None]:
    """Refuse to start or send anything, and to open a file to write, but not to remove one: to find the
    folder of temporary files, Python makes one and removes it."""
    return refusing_effects(lambda what: VerifyError(f"the compiled call tried {what}"), STARTING)


def _not_served(label: str, why: str) -> str:
    advice = ""
    if re.search(r"\b___stack\d+ ", why):
        advice = (
            ". ___stack is what a call gave that torch.compile does not look into, such as one of the clock "
            "or of random, and it was another value at the build. Make that call outside of the target and "
            "pass what it gives; dynamic-numbers says which numbers may be any"
        )
    return f"{label} is not served by any entry: {why}{advice}"
