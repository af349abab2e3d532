"""One entrypoint, traced: runs its samples under dynamo and writes what they left."""

from __future__ import annotations

import hashlib
import inspect
import marshal
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace as replaced
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec
import torch
from msgspec.structs import replace

from hatch_precompile.backends import backend, backends_of
from hatch_precompile.backends.base import Variant
from hatch_precompile.capture.cases import Cases, Region
from hatch_precompile.capture.failures import chain_of, failure, models_own, needs_a_gpu
from hatch_precompile.capture.frame_names import FrameName, frame_name, home_of
from hatch_precompile.capture.on_gpus import Trace, graph_as_text, pinned
from hatch_precompile.capture.parent import Request
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
from hatch_precompile.inductor import CompiledGraph, Numbers, capture_settings, compile_graph
from hatch_precompile.lower.bytecode import lower_code, portable_code
from hatch_precompile.lower.conditions import conditions_of, require_free
from hatch_precompile.lower.dependencies.kinds import Dependency
from hatch_precompile.lower.dependencies.writer import Memory, dependencies_of
from hatch_precompile.lower.entries import LoweredEntry, write_entry
from hatch_precompile.lower.graphs import write_graph
from hatch_precompile.lower.guards.function import lower_guards
from hatch_precompile.lower.guards.native.library import NativeGuards
from hatch_precompile.lower.names import Namer
from hatch_precompile.lower.size_conditions import size_conditions
from hatch_precompile.records import (
    CAPTURE,
    GUARDS,
    MARSHAL,
    Capture,
    CapturedEntry,
    CapturedFrame,
    Case,
    Conditions,
    GraphRecord,
    OnGpu,
    ResumeRecord,
    SkippedFrame,
)
from hatch_precompile.reuse.made_from import made_from, sources_of, what_has_changed
from hatch_precompile.runtime import RUNTIME_PACKAGE, callers, references
from hatch_precompile.tracing import (
    NO_OPERATIONS,
    FrameTrace,
    changes_grad_mode,
    compiled_graph,
    compiling_with,
    forget,
    graph_break_reasons,
    input_sources,
    is_compiled,
    resume_function,
    tracing_frames,
    wants_fullgraph,
)
from hatch_precompile.tracing.guardtree import GuardNode, GuardRecorder

__all__ = ["capture"]


# Calls of one sample. As many are verified.
_AT_MOST = 3


def capture(request: Request, variants: Sequence[Variant], report: Callable[[Event], None]) -> Capture:
    """Trace every sample of an entrypoint and write the files of its capture, or take over an earlier one
    where this would be the same. Raises BuildError where an entry, a guard or a graph cannot be carried.
    """
    return _Session(request, variants, report).run()


class _Session:
    """first: where what was traced on the first GPU is traced on a second one, the session that did that."""

    def __init__(
        self,
        request: Request,
        variants: Sequence[Variant],
        report: Callable[[Event], None],
        first: _Session | None = None,
    ) -> None:
        self.request = request
        self.first = first
        device = backend(variants[0].backend).device
        self.on_gpu = device != "cpu"
        self.device = torch.device(device, 1 if first else 0) if self.on_gpu else torch.device("cpu")
        self.traces: list[Trace] = []  # of the entries, on a GPU
        self.graph_texts: list[str] = []
        self.entrypoint = request.entrypoint
        self.variants = variants
        self.directory = directory = Path(request.directory)
        self.report = report
        self.recorder = GuardRecorder()
        self.frames: dict[CodeType, list[CapturedEntry]] = {}
        self.frame_names: dict[CodeType, FrameName] = {}
        self.graphs: list[GraphRecord] = []
        self.graph_ids: dict[str, int] = {}
        self.resumes: dict[CodeType, int] = {}
        self.resume_records: list[ResumeRecord] = []
        self.conditions: dict[str, Conditions] = {}
        self.native_guards = NativeGuards()
        self.dependencies: list[Dependency] = []
        self.memory: list[Memory] = []  # of each graph
        self.obstacles: dict[int, Unsupported] = {}  # of graphs, by number: why it cannot be carried
        self.bare = 0  # entries of calls without an operation
        self.sample = self.samples = 0
        self.at = ""  # the sizes in which it is called, if they are not its own
        self.sizes: dict[tuple[int, int], str] = {}  # of the call: see Declared in size_conditions.py
        self.regions: dict[CodeType, list[Region]] = {}
        self.failure: BuildError | None = None
        self.changes_grad_mode = False
        self.with_gradients: list[int] = []
        self.unsettled: set[int] = set()  # samples of which each call makes new entries
        self.skipped: dict[CodeType, SkippedFrame] = {}
        # Here it is the runtime's module itself, in the target process the wheel's copy of it.
        self.operators = f"{request.package}.{RUNTIME_PACKAGE}.graphs.callers"
        sys.modules[self.operators] = callers
        # The prefix of the names put into other modules' globals: ours alone, and the same in every build.
        owner = f"{request.package} {self.entrypoint.name}"
        self.prefix = f"__precompiled_{hashlib.sha256(owner.encode()).hexdigest()[:8]}"
        for name in ("entries", "graphs", "resume"):
            (directory / name).mkdir(parents=True, exist_ok=True)

    def run(self) -> Capture:
        started = time.perf_counter()
        self.report(Event(step="import", text=f"import {self.entrypoint.target}"))
        declared = self.declared = find_declared(self.entrypoint)
        require_own_frame(declared, self.entrypoint)
        if self.entrypoint.float32_matmul_precision == "medium":
            self._say_where_precision_has_no_effect()
        samples = list(samples_of(self.entrypoint))
        self.samples = len(samples)
        targets = find_targets(self.entrypoint, samples)
        require_in_range(self.entrypoint, targets, samples)
        origin = made_from(self.entrypoint, self.variants, samples)
        if self.request.earlier and (taken_over := self._take_over(Path(self.request.earlier), origin)):
            return replace(taken_over, seconds=round(time.perf_counter() - started, 3))
        cases = self._trace(targets, samples)
        if self.on_gpu:
            self._trace_on_a_second_gpu()
        self._put_own_frame_first(declared)
        self._compile_guards()
        return Capture(
            name=self.entrypoint.name,
            target=self.entrypoint.target,
            home=home_of(declared, self.entrypoint.target),
            kind=declared.kind,
            samples=self.samples,
            frames=[self._frame_record(code, entries) for code, entries in self.frames.items()],
            graphs=self.graphs,
            resumes=self.resume_records,
            seconds=round(time.perf_counter() - started, 3),
            skipped=list(self.skipped.values()),
            made_from={**origin, "sources": sources_of(self.dependencies)},
            conditions=self.conditions,
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
            ) as numbers,
            self.recorder.recording(),
            tracing_frames(self._on_frame, self._on_skip),
            compiling_with(self._backend),
        ):
            compiled = {id(target): target.compiled(self._backend) for target in targets}
            for self.sample, (target, sample) in enumerate(zip(targets, samples, strict=True)):
                numbers.next_sample()
                self.changes_grad_mode = False
                self._run_until_settled(target, compiled[id(target)], sample)
                self._run_with_gradients(target, compiled[id(target)], sample)
            self._run_workload_compiled(numbers)
            cases = []
            for self.sample, (target, sample) in enumerate(zip(targets, samples, strict=True)):
                numbers.next_sample()
                cases += self._in_all_sizes(target, compiled[id(target)], sample)
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
            second = _Session(request, self.variants, lambda event: None, self)
            second.declared, second.samples = self.declared, self.samples
            try:
                samples = list(samples_of(self.entrypoint))
                second._trace(find_targets(self.entrypoint, samples), samples)
            except BuildError as error:
                reasons = [f"the trace on another GPU fails: {str(error).splitlines()[0]}"] * len(self.traces)
            else:
                reasons = pinned(self.traces, second.traces)
        variant = self.variants[0].name
        for entries in self.frames.values():
            for place_in_frame, entry in enumerate(entries):
                reason = reasons[int(Path(entry.data).stem)]
                entries[place_in_frame] = replace(entry, gpu=OnGpu(variant, bool(reason)))
                if reason:
                    text = f"sample {entry.sample + 1} serves the first GPU of a process only, because of"
                    self.report(Event(step="note", text=f"{text} {reason}"))

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

    def _compile_guards(self) -> None:
        for line in self.native_guards.left_in_python:
            text = f"a guard runs as Python, which is slower, because of: {line}"
            self.report(Event(step="note", text=text))
        problem = self.native_guards.compile(self.directory / GUARDS)
        if problem:
            text = f"guards run as Python, because their C code does not compile: {problem.splitlines()[0]}"
            self.report(Event(step="note", text=text))
            for entries in self.frames.values():
                entries[:] = [replace(entry, guards="") for entry in entries]

    def _put_own_frame_first(self, declared: Declared) -> None:
        """The first frame is what the runtime reports on, and from where a miss can be compiled."""
        function_with = references.function_with
        own = [code for code in self.frames if function_with(declared.function(), code) is not None]
        self.frames = {code: self.frames[code] for code in dict.fromkeys([*own, *self.frames])}
        if not own and self.entrypoint.on_miss == "compile":
            reasons = "\n  ".join(f"{each.function}: {each.reason}" for each in self.skipped.values())
            raise Unsupported(
                f'on-miss = "compile", but of {self.entrypoint.target} itself nothing was compiled that a '
                "miss could start from",
                reasons,
                'Set on-miss = "eager" or "error", or change the code so that torch.compile takes it whole.',
            )

    # -- samples ---------------------------------------------------------------------------------

    def _run_until_settled(self, target: Target, compiled: Callable[..., Any], sample: Sample) -> int:
        """Run a sample again until nothing new comes of it: a model may fill a cache at its first call, so
        that its second is another one. Returns how many entries were made."""
        made = 0
        for number in range(_AT_MOST):
            given = self._copied(sample, target)
            new = self._run_sample(target, compiled, given, again=number > 0)
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

    def _in_all_sizes(self, target: Target, compiled: Callable[..., Any], sample: Sample) -> list[Case]:
        """Make the entries that a sample's declared sizes need beside those of its own."""

        def call(sample: Sample) -> int:
            skipped, self.at = dict(self.skipped), in_words(sample.resized)
            try:
                return self._run_until_settled(target, compiled, sample)
            except BuildError:
                # What it is worth is found out there; nothing of it stays.
                self.failure, self.skipped = None, skipped
                raise
            finally:
                self.at = ""

        def note(text: str) -> None:
            self.report(Event(step="note", text=f"{self._label()} {text}"))

        return Cases(self.entrypoint, self.regions, call, note).serve(self.sample, target, sample)

    def _run_with_gradients(self, target: Target, compiled: Callable[..., Any], sample: Sample) -> None:
        """What enters `no_grad` itself is called with gradients on, and has entries for that, too. Not what
        each call changes: another call more in between, and the later ones would be others."""
        if sample.mode == "train" or not self.changes_grad_mode or self.sample in self.unsettled:
            return
        with_gradients = replaced(sample, mode="grad")
        if gives_no_gradient(target.call, self._copied(with_gradients)):
            text = f"{self._label()}: it gives no gradients; also traced as it is called with gradients on"
            self.report(Event(step="note", text=text))
            self.with_gradients.append(self.sample)
            self._run_until_settled(target, compiled, with_gradients)

    def _run_workload_compiled(self, numbers: Numbers) -> None:
        """Run the workload once more, each call compiled, and make entries for calls that have none: what an
        earlier call has returned may be other than what eager code returns, a tensor of other strides.
        """
        if self.entrypoint.workload is None:
            return
        targets: dict[int, tuple[Target, Callable[..., Any]]] = {}

        def through(sample: Sample, _: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if id(sample.owner) not in targets:
                target = find_target(self.entrypoint, sample.owner)
                targets[id(sample.owner)] = target, target.compiled(self._backend)
            target, compiled = targets[id(sample.owner)]
            with torch.compiler.set_stance("default"):
                self.sample = self.samples
                numbers.next_sample()
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
            text = f"{label}: {new} new entries when it is called again, {seconds:.1f} s"
            self.report(Event(step="note", text=text))
        return new

    def _entries_made(self, target: Target, compiled: Callable[..., Any], sample: Sample) -> int:
        label = self._label()
        before = self._entries()
        declared = mark_dynamic(self.entrypoint, target, sample)
        self.sizes = {(id(each.tensor), each.index): each.key for each in declared}
        try:
            with mode_context(sample.mode):
                compiled(*sample.args, **sample.kwargs)
        except Exception as error:
            if self.failure is not None:
                raise self.failure from None
            if self.entrypoint.fullgraph and self.skipped:
                raise self._left_uncompiled(label) from None
            if self.on_gpu and (place := self._wants_a_gpu(error)) is not None:
                raise needs_a_gpu(label, place) from error
            if not self.at and not self.on_gpu and (own := raised_eagerly(target.call, sample)) is not None:
                raise models_own(label, own, with_traceback=self.request.traceback) from own
            traced = self.request.traceback
            raise failure(
                label, error, with_traceback=traced, runs_eagerly=not self.at and not self.on_gpu
            ) from error
        self._require_whole(label)
        return self._entries() - before

    def _wants_a_gpu(self, error: Exception) -> str | None:
        """Where something would have had to be computed, if that is what an error says."""
        owner = backend(self.variants[0].backend)
        return next((own_line(each) for each in chain_of(error) if owner.wants_hardware(each)), None)

    def _entries(self) -> int:
        """How many there are, but for those of calls without an operation."""
        return sum(map(len, self.frames.values())) - self.bare

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

    def _require_whole(self, label: str) -> None:
        """Raise what stops the build: a call failed, left frames uncompiled, or compiled nothing."""
        if self.failure is not None:
            raise self.failure
        if self.skipped and self.entrypoint.on_skip == "fail":
            raise self._left_uncompiled(label)
        if not self.frames:
            reasons = "; ".join(graph_break_reasons()) or "it runs no tensor operation that can be compiled"
            raise CaptureError(
                f"{label}: torch.compile captured nothing of {self.entrypoint.target}: {reasons}"
            )

    def _left_uncompiled(self, label: str) -> Unsupported:
        advice = "Change the code so that torch.compile takes it whole, or name a smaller target. "
        if self.entrypoint.fullgraph:
            what = "torch.compile breaks the graph of a frame, which fullgraph = true forbids"
            advice += (
                "Without fullgraph what is before the break and what is after it are graphs of their own."
            )
        else:
            what = "torch.compile leaves a frame uncompiled"
            advice += 'With on-skip = "eager" it runs as Python, and what it calls is compiled.'
            if any(wants_fullgraph(skipped.reason) for skipped in self.skipped.values()):
                advice += " With fullgraph = true the graph has what only data tells, too."
        return Unsupported(
            f"{label}: {what}",
            "\n  ".join(
                f"{skipped.function} ({code.co_filename}:{code.co_firstlineno}): {skipped.reason}"
                for code, skipped in self.skipped.items()
            ),
            advice,
        )

    def _on_skip(self, code: CodeType, reason: str) -> None:
        if NO_OPERATIONS in reason:
            # Nothing is lost: eager Python is all there is to it, and what it calls is looked up as ever.
            self._say_stays(code)
            return
        self.skipped.setdefault(code, SkippedFrame(code.co_qualname, reason))
        if self.entrypoint.on_skip == "eager":
            text = f"sample {self.sample + 1}: {code.co_qualname} is skipped and runs as Python: {reason}"
            self.report(Event(step="note", text=text))

    def _say_stays(self, code: CodeType) -> None:
        text = f"sample {self.sample + 1}: {code.co_qualname} has no tensor operation and stays as it is"
        self.report(Event(step="note", text=text))

    # -- graphs ----------------------------------------------------------------------------------

    def _backend(self, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        if self.on_gpu:
            self.graph_texts.append(graph_as_text(gm))
        if self.first is not None:
            return self._uncompiled(gm, self.first)
        number = len(self.graphs)
        nodes = sum(node.op.startswith("call") for node in gm.graph.nodes)
        label = f"sample {self.sample + 1}: graph {number}"
        about = Event(step="graph", sample=self.sample + 1, graph=number, operations=nodes)
        self.report(
            replace(about, text=f"{label}: {nodes} operations, compiling", variants=len(self.variants))
        )
        started = time.perf_counter()

        def on_variant(variant: str, seconds: float | None) -> None:
            self.report(
                replace(
                    about,
                    step="variant" if seconds is None else "variant-end",
                    variant=variant,
                    seconds=seconds,
                )
            )

        function, graph = compile_graph(
            gm,
            example_inputs,
            self.variants,
            self.operators,
            on_variant,
            fixed_weights=self.entrypoint.weights == "fixed",
            matmul_precision=self.entrypoint.float32_matmul_precision,
        )
        seconds = time.perf_counter() - started
        self.report(
            replace(about, step="graph-end", text=f"{label}: {seconds:.1f} s", seconds=round(seconds, 3))
        )
        self._add_graph(graph)
        if self.on_gpu and b"cuda" in graph.wrapping:
            self.graph_texts[number] += "\nAOTAutograd keeps a device of it."  # and not in the second trace
        sources = list(enumerate(input_sources(gm)))
        self.memory.append(
            Memory(
                written=tuple(name for place, name in sources if name and place in graph.changed),
                others=tuple(name for place, name in sources if name and place not in graph.changed),
            )
        )

        def run(*args: Any) -> Any:
            return function(*args)

        run.precompile_graph = number  # type: ignore[attr-defined]  # see _graph
        return run

    def _uncompiled(self, gm: Any, first: _Session) -> Callable[..., Any]:
        """For a graph of which only the trace counts. What it writes to is known from the first trace."""
        number = len(self.graphs)
        self.graphs.append(GraphRecord())
        self.memory.append(first.memory[number] if number < len(first.memory) else Memory((), ()))
        given = [node for node in gm.graph.nodes if node.op == "placeholder"]
        (returned,) = gm.graph.output_node().args
        values = [
            [each.meta.get("example_value") if isinstance(each, torch.fx.Node) else each for each in nodes]
            for nodes in (returned, given)
        ]
        function = backend(self.variants[0].backend).compiler().uncompiled(*values)

        def run(*args: Any) -> Any:
            return function(list(args))

        run.precompile_graph = number  # type: ignore[attr-defined]
        return run

    def _add_graph(self, graph: CompiledGraph) -> None:
        number = len(self.graphs)
        if graph.obstacle:
            self.obstacles[number] = Unsupported(
                f"a graph of {self.entrypoint.target} cannot be carried: {graph.obstacle}",
                f"{graph.place or 'an unknown line'}, where it starts (sample {self.sample + 1})",
                "Put torch.compiler.disable on the function that does it, or name a smaller target.",
            )
        self.graphs.append(write_graph(graph, self.directory, f"graphs/{number}"))

    # -- frames ----------------------------------------------------------------------------------

    def _on_frame(self, trace: FrameTrace) -> None:
        if trace.bare and _would_differ([trace.code, *trace.traced]):
            self._say_stays(trace.code)
            return
        try:
            self._add_entry(trace)
        except BuildError as error:
            if trace.bare:
                # Nothing is lost: a call of this kind is a miss, and eager Python is all there is to it.
                self._say_stays(trace.code)
                return
            # Raised inside dynamo it would be wrapped in an error of its own; the sample's end raises it.
            self.failure = self.failure or error

    def _add_entry(self, trace: FrameTrace) -> None:
        graphs = {
            name: graph for name, value in trace.injected.items() if (graph := _graph(value)) is not None
        }
        for _, number in graphs.values():
            if number in self.obstacles:
                raise self.obstacles[number]
        foreign = [name for name in trace.injected if is_compiled(name) and name not in graphs]
        if foreign:
            raise Unsupported(
                f"{trace.code.co_qualname} is under a torch.compile of the package's own, with another "
                "backend than inductor",
                f"{trace.code.co_filename}:{trace.code.co_firstlineno}",
                "Leave the backend out there.",
            )
        resumes = {
            name: self._resume_number(value)
            for name, value in trace.injected.items()
            if name.startswith("__resume_at")
        }
        self.changes_grad_mode |= changes_grad_mode([trace.code, *trace.traced])
        tree = self.recorder.tree(trace.root)
        traced = [code for code in trace.traced if code not in self.resumes]
        namer = Namer(trace.frame_globals, trace.injected)
        dependencies = dependencies_of(trace.code, traced, trace.assumed, tree, namer, self.resumes)
        memory = [self.memory[number] for _, number in graphs.values()]
        dependencies = replaced(dependencies, memory=tuple(each for each in memory if each.written))
        guards = lower_guards(
            tree, trace.frame_globals, trace.injected, dependencies, trace.numbers, on_gpu=self.on_gpu
        )
        if trace.code in self.frames or not self.frames:
            require_free(tree, self.entrypoint.dynamic_numbers)
        number = sum(map(len, self.frames.values()))
        code = lower_code(
            trace.new_code,
            trace.injected,
            trace.frame_globals,
            f"{self.prefix}_{number}",
            graphs,
            resumes,
        )
        if trace.code not in self.frames:
            self.frames[trace.code] = []
            self.frame_names[trace.code] = self._name_frame(trace, tree)
        self.dependencies += dependencies.at_load
        numbers = sorted(graph for _, graph in graphs.values())
        if self.on_gpu:
            texts = [self.graph_texts[number] for number in numbers]
            self.traces.append(
                Trace.of(str(self.device), trace.code.co_qualname, guards, code, dependencies.at_load, texts)
            )
        entry = LoweredEntry(
            number, trace.code.co_qualname, self.sample, guards, code, dependencies.at_load, numbers
        )
        record = write_entry(entry, self.directory, self.entrypoint.name, trace.dispatch, self.native_guards)
        self.frames[trace.code].append(record)
        if trace.bare:  # what it does not serve is served by eager Python just as well
            self.bare += 1
        else:
            conditions = size_conditions(tree, self.sizes, trace.fixed_sizes)
            self.regions.setdefault(trace.code, []).append(Region(conditions, {self.sample}))
        self.conditions[record.data] = conditions_of(tree)

    def _name_frame(self, trace: FrameTrace, tree: GuardNode) -> FrameName:
        module = trace.frame_globals["__name__"]
        if trace.code in self.resumes:
            return FrameName(module, [], None)
        return frame_name(trace.code, tree, Namer(trace.frame_globals), self.declared, self.entrypoint.target)

    def _resume_number(self, value: Any) -> int:
        """Its file holds code, and what marshal cannot hold of its constants, as in the head of an entry."""
        code, module = resume_function(value)
        if code not in self.resumes:
            number = self.resumes[code] = len(self.resumes)
            content = marshal.dumps(portable_code(code, {}, Namer(sys.modules[module].__dict__)), MARSHAL)
            record = ResumeRecord(f"resume/{number}.code", module)
            (self.directory / record.code).write_bytes(content)
            self.resume_records.append(record)
        return self.resumes[code]

    def _frame_record(self, code: CodeType, entries: list[CapturedEntry]) -> CapturedFrame:
        name = self.frame_names[code]
        return CapturedFrame(
            qualname=code.co_qualname,
            module=name.module,
            functions=name.functions,
            code=name.code,
            resume=self.resumes.get(code),
            entries=entries,
        )


def _would_differ(traced: Sequence[CodeType]) -> bool:
    """Whether a call that dynamo skips may answer otherwise where it is compiled: it asks whether it is, or
    makes a generator, which compiled code gives another iterator for."""
    asking = {"is_compiling", "is_dynamo_compiling"}
    return any(code.co_flags & inspect.CO_GENERATOR or asking & set(code.co_names) for code in traced)


def _graph(value: Any) -> tuple[str, int] | None:
    """The kind and the number of the graph behind a function that dynamo put into a frame's globals."""
    function, plain = compiled_graph(value)
    number = getattr(function, "precompile_graph", None)
    return None if number is None else ("plain graph" if plain else "graph", int(number))
