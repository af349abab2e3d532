"""One entrypoint, traced: runs its samples under dynamo and writes what they left."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec.structs import replace

from hatch_precompile.backends import backend, backends_of
from hatch_precompile.backends.base import Variant
from hatch_precompile.capture.compile_errors import chain_of, failure, models_own, needs_a_gpu
from hatch_precompile.capture.entries import Entries
from hatch_precompile.capture.frame_names import home_of
from hatch_precompile.capture.graphs import Graphs
from hatch_precompile.capture.parent import Request
from hatch_precompile.capture.size_cases import Cases
from hatch_precompile.capture.two_gpus import pinned
from hatch_precompile.entrypoints.advice import own_line
from hatch_precompile.entrypoints.call import Sample, copied, gives_no_gradient, mode_context, raised_eagerly
from hatch_precompile.entrypoints.dynamic import mark_dynamic, require_in_range
from hatch_precompile.entrypoints.finding import (
    Declared,
    Target,
    find_declared,
    find_target,
    find_targets,
    require_own_frame,
)
from hatch_precompile.entrypoints.placing import moved, place
from hatch_precompile.entrypoints.resized import in_words, resized
from hatch_precompile.entrypoints.samples import samples_of
from hatch_precompile.entrypoints.workload import recorded_calls
from hatch_precompile.errors import BuildError, CaptureError, Unsupported
from hatch_precompile.events import Event
from hatch_precompile.inductor import capture_settings
from hatch_precompile.lower.guards.builder import user_line
from hatch_precompile.records import CAPTURE, Capture, Case
from hatch_precompile.reuse.cache_key import made_from, sources_of, what_has_changed
from hatch_precompile.runtime import RUNTIME_PACKAGE, callers
from hatch_precompile.tracing import compiling_with, forget, tracing_frames
from hatch_precompile.tracing.any_value import AnyValue
from hatch_precompile.tracing.guardtree import GuardNode
from hatch_precompile.tracing.set_orders import name_of_set

__all__ = ["capture"]


# Calls of one sample. As many are verified.
_AT_MOST = 3


def capture(request: Request, variants: Sequence[Variant], report: Callable[[Event], None]) -> Capture:
    """Trace every sample of an entrypoint and write the files of its capture, or take over an earlier one
    where this would be the same. Raises BuildError where an entry, a guard or a graph cannot be carried.
    """
    started = time.perf_counter()
    report(Event(step="import", text=f"import {request.entrypoint.target}"))
    declared = find_declared(request.entrypoint)
    require_own_frame(declared, request.entrypoint)
    captured = _Session(request, declared, variants, report).run()
    return replace(captured, seconds=round(time.perf_counter() - started, 3))


class _Session:
    """first: where what was traced on the first GPU is traced on a second one, the session that did that."""

    def __init__(
        self,
        request: Request,
        declared: Declared,
        variants: Sequence[Variant],
        report: Callable[[Event], None],
        first: _Session | None = None,
    ) -> None:
        self.request = request
        self.declared = declared
        self.entrypoint = request.entrypoint
        self.variants = variants
        self.report = report
        self.directory = Path(request.directory)
        for name in ("entries", "graphs", "resume"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        # Here it is the runtime's module itself, in the target process the wheel's copy of it.
        operators = f"{request.package}.{RUNTIME_PACKAGE}.graphs.callers"
        sys.modules[operators] = callers
        of_first: Graphs | None = first.graphs if first else None
        self.graphs: Graphs = Graphs(self.entrypoint, variants, self.directory, operators, report, of_first)
        device = backend(variants[0].backend).device
        self.on_gpu = self.graphs.on_gpu
        self.device = torch.device(device, 1 if first else 0) if self.on_gpu else torch.device("cpu")
        self.entries = Entries(request, declared, self.graphs, str(self.device), report)
        self.sample = 0
        self.samples: int = first.samples if first else 0
        self.at = ""  # the sizes in which it is called, if they are not its own
        self.order = ""  # that in which sets are, if it is not their own
        self.with_gradients: list[int] = []
        self.unsettled: set[int] = set()  # samples of which each call makes new entries

    def run(self) -> Capture:
        if self.entrypoint.float32_matmul_precision == "medium":
            self._say_where_precision_has_no_effect()
        samples = list(samples_of(self.entrypoint))
        self.samples = len(samples)
        targets = find_targets(self.entrypoint, samples)
        require_in_range(self.entrypoint, targets, samples)
        origin = made_from(self.entrypoint, self.variants, samples)
        if self.request.earlier and (taken_over := self._take_over(Path(self.request.earlier), origin)):
            return taken_over
        cases = self._trace(targets, samples)
        if self.on_gpu:
            self._trace_on_a_second_gpu()
        made = self.entries
        made.put_own_frame_first()
        made.compile_guards()
        return Capture(
            name=self.entrypoint.name,
            target=self.entrypoint.target,
            home=home_of(self.declared, self.entrypoint.target),
            kind=self.declared.kind,
            samples=self.samples,
            frames=made.records(),
            graphs=self.graphs.records,
            resumes=made.resumes,
            seconds=0.0,
            skipped=list(made.skipped.values()),
            made_from={**origin, "sources": sources_of(made.dependencies)},
            conditions=made.conditions,
            with_gradients=self.with_gradients,
            cases=cases,
            gpu=self.variants[0].name if self.on_gpu else "",
        )

    def _trace(self, targets: Sequence[Target], samples: Sequence[Sample]) -> list[Case]:
        """Make the entries. Returns the calls of samples in other sizes that they are for."""
        if self.on_gpu:
            self._place(targets)
        with (
            backend(self.variants[0].backend).compiler().tracing(self.variants[0]),
            capture_settings(
                self.entrypoint.options,
                graphs_expected=len(samples) * self.request.captures,
                numbers=self.entrypoint.dynamic_numbers,
                headers=self.request.headers,
            ) as values,
            self.entries.recorder.recording(),
            tracing_frames(self.entries.on_frame, self.entries.on_skip),
            compiling_with(self.graphs.compiled),
        ):
            compiled = {id(target): target.compiled(self.graphs.compiled) for target in targets}
            for self.sample, (target, sample) in enumerate(zip(targets, samples, strict=True)):
                values.next_sample()
                self.entries.changes_grad_mode = False
                self._run_until_settled(target, compiled[id(target)], sample)
                self._run_with_gradients(target, compiled[id(target)], sample)
            self._run_workload_compiled(values)
            cases = []
            for self.sample, (target, sample) in enumerate(zip(targets, samples, strict=True)):
                values.next_sample()
                cases += self._in_all_sizes(target, compiled[id(target)], sample, values)
        return cases

    def _place(self, targets: Sequence[Target]) -> None:
        for target in {id(each): each for each in targets}.values():
            try:
                place(target, self.device)
            except Exception as error:
                if (line := self._wants_a_gpu(error)) is None:
                    raise
                raise needs_a_gpu("to move the instance there", line) from error

    def _trace_on_a_second_gpu(self) -> None:
        """Find out which entries serve each GPU, and note it in their records."""
        forget()
        with tempfile.TemporaryDirectory() as folder:
            request = replace(self.request, directory=folder)
            second = _Session(request, self.declared, self.variants, lambda event: None, self)
            traces = self.entries.traces
            try:
                samples = list(samples_of(self.entrypoint))
                second._trace(find_targets(self.entrypoint, samples), samples)
            except BuildError as error:
                reasons = [f"the trace on another GPU fails: {str(error).splitlines()[0]}"] * len(traces)
            else:
                reasons = pinned(traces, second.entries.traces)
        self.entries.note_gpus(self.variants[0].name, reasons)

    def _take_over(self, earlier: Path, origin: dict[str, str]) -> Capture | None:
        """The earlier capture, with its files, if this one would be the same."""
        changed = what_has_changed(earlier, origin)
        captured = msgspec.json.decode((earlier / CAPTURE).read_bytes(), type=Capture)
        if changed:
            text = f"nothing is taken over from {captured.taken_from}: {changed}"
            self.report(Event(step="note", text=text))
            return None
        shutil.copytree(earlier, self.directory, dirs_exist_ok=True)
        self.report(Event(step="note", text=f"taken over from {captured.taken_from}"))
        return captured

    def _say_where_precision_has_no_effect(self) -> None:
        if any(backend(variant.backend).multiplies_bfloat16(variant) for variant in self.variants):
            return
        text = 'float32-matmul-precision = "medium" has no effect: no variant makes layers bfloat16'
        others = [f'"{name}" does' for each in backends_of("") for name in each.in_bfloat16]
        self.report(Event(step="note", text="; ".join([text, *others])))

    def _run_until_settled(self, target: Target, compiled: Callable[..., Any], sample: Sample) -> int:
        """Run a sample until nothing new comes of it, in each order of the sets that it goes through. Returns
        how many entries were made."""
        made, orders = self._run_again(target, compiled, sample), self.entries.orders
        for other in orders.others():
            self._require_served(orders.too_many())
            with other as self.order:
                made += self._run_again(target, compiled, sample)
            self.order = ""
        self._require_served(orders.missing())
        return made

    def _require_served(self, found: tuple[GuardNode, str] | None) -> None:
        """Raises Unsupported where there is a set of which not all orders are served, with the reason."""
        if found is not None:
            node, why = found
            raise Unsupported(
                f"the order of a set of other elements than numbers, {name_of_set(node)}: {why}",
                user_line(next(iter(node.leaves), None)),
                "Sort what decides it: sorted(...) of a set, a tuple or dict in its place.",
            )

    def _run_again(self, target: Target, compiled: Callable[..., Any], sample: Sample) -> int:
        """Run a sample until nothing new comes of it: a model may fill a cache at its first call, so that its
        second is another one. Returns how many entries were made."""
        made = 0
        for number in range(_AT_MOST):
            given = self._copied(sample, target)
            again = number > 0 or self.order != ""
            new = self._run_sample(target, compiled, given, again=again)
            made += new
            if number > 0 and not new:
                return made
        text = (
            f"{self._label()}: each of {_AT_MOST} calls made new entries, so something that "
            "the code reads changes at every call; later calls of this kind are misses"
        )
        self.report(Event(step="note", text=text))
        self.unsettled.add(self.sample)
        return made

    def _in_all_sizes(
        self, target: Target, compiled: Callable[..., Any], sample: Sample, values: AnyValue
    ) -> list[Case]:
        """Make the entries that a sample's declared sizes need beside those of its own."""

        def call(sample: Sample) -> int:
            made, self.at = self.entries, in_words(sample.resized)
            skipped, values.resized = dict(made.skipped), True
            try:
                return self._run_until_settled(target, compiled, sample)
            except BuildError:
                # The caller (size_cases.py) decides what the failure means; no trace of it stays here.
                made.failure, made.skipped = None, skipped
                raise
            finally:
                self.at, values.resized = "", False

        def note(text: str) -> None:
            self.report(Event(step="note", text=f"{self._label()} {text}"))

        made = self.entries
        in_pieces = len(made.frames) > 1 or bool(made.skipped)
        cases = Cases(self.entrypoint, made.regions, call, note, in_pieces=in_pieces)
        return cases.serve(self.sample, target, sample)

    def _run_with_gradients(self, target: Target, compiled: Callable[..., Any], sample: Sample) -> None:
        """A target that enters `no_grad` itself is called with gradients on, too, and gets entries for that.
        Not one of which each call makes new entries: a further call would change the later ones."""
        if sample.mode == "train" or not self.entries.changes_grad_mode or self.sample in self.unsettled:
            return
        with_gradients = replaced(sample, mode="grad")
        if gives_no_gradient(target.call, self._copied(with_gradients)):
            text = f"{self._label()}: it gives no gradients; also traced as it is called with gradients on"
            self.report(Event(step="note", text=text))
            self.with_gradients.append(self.sample)
            self._run_until_settled(target, compiled, with_gradients)

    def _run_workload_compiled(self, values: AnyValue) -> None:
        """Run the workload once more, each call compiled, and make entries for calls that have none: what an
        earlier call has returned may be other than what eager code returns, a tensor of other strides.
        """
        if self.entrypoint.workload is None:
            return
        targets: dict[int, tuple[Target, Callable[..., Any]]] = {}

        def through(sample: Sample, _: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if id(sample.owner) not in targets:
                target = find_target(self.entrypoint, sample.owner)
                targets[id(sample.owner)] = target, target.compiled(self.graphs.compiled)
            target, compiled = targets[id(sample.owner)]
            with torch.compiler.set_stance("default"):
                self.sample = self.samples
                values.next_sample()
                if self._entries_made(target, compiled, self._copied(sample)):
                    self.samples += 1
                    text = f"{self._label()}: a call of the workload where those before it are compiled"
                    self.report(Event(step="note", text=text))
                    self._run_until_settled(target, compiled, sample)
                return compiled(*args, **kwargs)

        for mode in self.entrypoint.modes:
            # What else the workload may have under torch.compile is not this entrypoint's.
            with torch.compiler.set_stance("force_eager"):
                recorded_calls(self.entrypoint, self.entrypoint.workload, mode, through)

    def _run_sample(
        self, target: Target, compiled: Callable[..., Any], sample: Sample, *, again: bool
    ) -> int:
        """One call. Returns how many entries it made."""
        started = time.perf_counter()
        label = self._label()
        if not again:
            self.report(Event(step="sample", sample=self.sample + 1, samples=self.samples))
        new = self._entries_made(target, compiled, sample)
        seconds = time.perf_counter() - started
        if not again:
            outcome = f"{new} new entries" if new else "served by an earlier entry"
            self.report(
                Event(
                    step="sample-end",
                    text=f"{label}: {outcome}, {seconds:.1f} s",
                    sample=self.sample + 1,
                    samples=self.samples,
                    entries=new,
                    seconds=round(seconds, 3),
                )
            )
        elif new:
            when = f"with {self.order}" if self.order else "when it is called again"
            text = f"{label}: {new} new entries {when}, {seconds:.1f} s"
            self.report(Event(step="note", text=text))
        return new

    def _entries_made(self, target: Target, compiled: Callable[..., Any], sample: Sample) -> int:
        label, made = self._label(), self.entries
        before = made.count()
        declared = mark_dynamic(self.entrypoint, target, sample)
        made.begin(self.sample, {(id(each.tensor), each.index): each.key for each in declared})
        try:
            with mode_context(sample.mode):
                compiled(*sample.args, **sample.kwargs)
        except Exception as error:
            if made.failure is not None:
                raise made.failure from None
            if self.entrypoint.fullgraph and made.skipped:
                raise made.left_uncompiled(label) from None
            if self.on_gpu and (place := self._wants_a_gpu(error)) is not None:
                raise needs_a_gpu(label, place) from error
            if not self.at and not self.on_gpu and (own := raised_eagerly(target.call, sample)) is not None:
                raise models_own(label, own, with_traceback=self.request.traceback) from own
            traced = self.request.traceback
            raise failure(
                label, error, with_traceback=traced, runs_eagerly=not self.at and not self.on_gpu
            ) from error
        made.require_whole(label)
        return made.count() - before

    def _wants_a_gpu(self, error: Exception) -> str | None:
        """Where something would have had to be computed, if that is what an error says."""
        owner = backend(self.variants[0].backend)
        return next((own_line(each) for each in chain_of(error) if owner.wants_hardware(each)), None)

    def _copied(self, sample: Sample, target: Target | None = None) -> Sample:
        """A copy of a sample, in the sizes that it asks for where the target is given, on the device."""
        try:
            given = resized(self.entrypoint, target, sample) if target and sample.resized else copied(sample)
            return moved(given, self.device) if self.on_gpu else given
        except Exception as error:
            advice = "; yield it with .detach()" if "graph leaves" in str(error) else ""
            raise CaptureError(
                f"{self._label()}: the arguments cannot be copied ({type(error).__name__}: {error}); "
                f"every call gets a copy of its own, which copy.deepcopy makes{advice}"
            ) from error

    def _label(self) -> str:
        at = f" at {self.at}" if self.at else ""
        return f"sample {self.sample + 1}/{max(self.samples, self.sample + 1)}{at}"
