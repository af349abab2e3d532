"""The samples of one entrypoint, served where something stands in for a GPU: what can be seen is checked.

Guards accept the call, bytecode runs, the library comes in and launches its kernels, on the GPU of the call.
No kernel runs, so there are no values. What torch itself would compute in between, such as a convolution, is
passed over; a call ends where it reads what it could only know from a kernel.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from hatch_precompile.backends import backend, variants_for_this_machine
from hatch_precompile.entrypoints.call import Sample, copied, mode_context
from hatch_precompile.entrypoints.finding import Target, find_targets
from hatch_precompile.entrypoints.placing import moved, place
from hatch_precompile.entrypoints.resized import in_words, resized
from hatch_precompile.entrypoints.samples import samples_of
from hatch_precompile.events import Event, send
from hatch_precompile.runtime import RUNTIME_PACKAGE
from hatch_precompile.static_lookup import attribute
from hatch_precompile.verify.agreement import run_backward_of_ones
from hatch_precompile.verify.parent import Request, SampleResult

__all__ = ["run"]

_GPUS = 2  # as many are stood in for
_UP_TO = ", up to where torch itself would compute"


def run(request: Request) -> list[SampleResult]:
    """What each sample did, and the declared sizes of each. Raises VerifyError where none can be run."""
    return _Verification(request).run()


class _Verification:
    def __init__(self, request: Request) -> None:
        (variant,) = variants_for_this_machine([request.variant])
        self.request = request
        self.entrypoint = request.entrypoint
        self.hardware = backend(variant.backend)
        self.hardware.settle()
        os.environ["HATCH_PRECOMPILE"] = "off"
        self.runtime: Any = importlib.import_module(f"{request.package}.{RUNTIME_PACKAGE}")
        entries: Any = importlib.import_module(f"{request.package}.{RUNTIME_PACKAGE}.loading.entries")
        # The first call of each sample asks guards as Python, the second as native code.
        entries.native_after(1)
        callers: Any = importlib.import_module(f"{request.package}.{RUNTIME_PACKAGE}.graphs.callers")
        self.failed = _noted(callers.GraphFailed)
        self.of_one_gpu: set[int] = set()  # samples that entries for the first one serve

    def run(self) -> list[SampleResult]:
        samples = [*self._samples(list(samples_of(self.entrypoint)))]
        targets = find_targets(self.entrypoint, [sample for _, sample in samples])
        given = [self._sized(target, sample) for target, (_, sample) in zip(targets, samples, strict=True)]
        os.environ["HATCH_PRECOMPILE"] = "quiet"
        self.runtime.install()
        found: list[SampleResult] = []
        for index in range(_GPUS):
            device = torch.device(self.hardware.device, index)
            os.environ["HATCH_PRECOMPILE"] = "off"
            targets = find_targets(self.entrypoint, given)
            os.environ["HATCH_PRECOMPILE"] = "quiet"
            for target in {id(each): each for each in targets}.values():
                place(target, device)
            for number, ((label, _), target, sample) in enumerate(zip(samples, targets, given, strict=True)):
                if index and number + 1 in self.of_one_gpu:
                    continue
                for turn in ("", ", again"):
                    words = f"{label} on {device}{turn}"
                    found.append(self._call(target, sample, device, number + 1, words))
        return found

    def _samples(self, samples: list[Sample]) -> Iterator[tuple[str, Sample]]:
        for number, sample in enumerate(samples, 1):
            yield f"sample {number}/{len(samples)}", sample
        for case in self.request.cases:
            label = f"sample {case.sample + 1}/{len(samples)} at {in_words(case.sizes)}"
            yield label, replace(samples[case.sample], resized=case.sizes)

    def _sized(self, target: Target, sample: Sample) -> Sample:
        return resized(self.entrypoint, target, sample) if sample.resized else sample

    def _entries(self) -> list[dict[str, Any]]:
        every: list[dict[str, Any]] = self.runtime.status()["entrypoints"][self.entrypoint.name]["by_entry"]
        return [each for each in every if each.get("variant") == self.request.variant]

    def _hits(self, *, pinned: bool | None = None) -> int:
        """Of all entries, or of those that serve the first GPU alone."""
        return sum(each["hits"] for each in self._entries() if pinned in (None, each["pinned"]))

    def _why(self, target: Target, sample: Sample) -> str:
        """Not by `strict`, which raises for what eager code calls where a library has failed, too."""
        left_out = self.runtime.status()["entrypoints"][self.entrypoint.name]["left_out"]
        if left_out:
            return "; ".join(left_out)
        owner = target.call if target.kind == "module class" else attribute(target.call, "__self__")
        given = sample.args if owner is None else (owner, *sample.args)
        try:
            with mode_context(sample.mode):
                reports = self.runtime.explain(self.entrypoint.name, *given, **sample.kwargs)
        except Exception as error:  # the miss is the news; why it cannot be explained comes with it
            return f"no entry's guards accept it ({type(error).__name__}: {error})"
        return "; ".join(report["reason"] for report in reports) or "no entry's guards accept it"

    def _call(
        self, target: Target, sample: Sample, device: torch.device, number: int, label: str
    ) -> SampleResult:
        given, ended = moved(copied(sample), device), ""
        hits, of_one = self._hits(), self._hits(pinned=True)
        self.failed.clear()
        try:
            with mode_context(sample.mode), self.hardware.launches_recorded() as launches:
                result = target.call(*given.args, **given.kwargs)
                if sample.mode == "train":
                    run_backward_of_ones(result)
        except Exception as error:
            if not self.hardware.wants_hardware(error):
                problem = f"{label} raised {type(error).__name__}: {error}"
                return SampleResult(number, False, None, None, problem)
            ended = _UP_TO
        for failed in self.failed:  # what eager code made of the call then says nothing
            if not self.hardware.wants_hardware(failed):
                problem = f"{label}: a graph fails: {type(failed).__name__}: {failed}"
                return SampleResult(number, True, None, None, problem)
            ended = _UP_TO
        if self._hits(pinned=True) > of_one:
            self.of_one_gpu.add(number)
        if self._hits() == hits:
            why = self._why(target, given)
            return SampleResult(number, False, None, None, f"{label} is not served: {why}")
        if astray := next((each for each in launches if each.device != device.index), None):
            problem = f"{label}: {astray.kernel} is launched on the GPU {astray.device}"
            return SampleResult(number, True, None, None, problem)
        text = f"{label}: hit, {len(launches)} kernels launched{ended}, and none run"
        send(Event(step="sample-end", text=text, sample=number, samples=number))
        return SampleResult(number, True, None, None, "")


def _noted(failure: type[Any]) -> list[BaseException]:
    """A list of what is raised in the place of graphs that fail from now on. The process has no other use."""
    found: list[BaseException] = []
    begin = failure.__init__

    def init(self: Any, instead: BaseException, *, rerun: bool) -> None:
        found.append(instead)
        begin(self, instead, rerun=rerun)

    failure.__init__ = init
    return found
