"""The frames that dynamo has traced for one entrypoint: each trace becomes an entry, lowered and written."""

from __future__ import annotations

import hashlib
import inspect
import marshal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from pathlib import Path
from types import CodeType
from typing import Any

from msgspec.structs import replace

from hatch_precompile.capture.frame_names import FrameName, frame_name
from hatch_precompile.capture.graphs import Graphs
from hatch_precompile.capture.parent import Request
from hatch_precompile.capture.size_cases import Region
from hatch_precompile.capture.two_gpus import Trace
from hatch_precompile.entrypoints.finding import Declared
from hatch_precompile.errors import BuildError, CaptureError, Unsupported
from hatch_precompile.events import Event
from hatch_precompile.lower.bytecode import lower_code, portable_code
from hatch_precompile.lower.conditions import conditions_of, require_free
from hatch_precompile.lower.dependencies.kinds import Dependency
from hatch_precompile.lower.dependencies.writer import dependencies_of
from hatch_precompile.lower.entries import LoweredEntry, write_entry
from hatch_precompile.lower.guards.lowering import lower_guards
from hatch_precompile.lower.guards.native.library import NativeGuards
from hatch_precompile.lower.names import Namer
from hatch_precompile.lower.size_conditions import size_conditions
from hatch_precompile.records import (
    GUARDS,
    MARSHAL,
    CapturedEntry,
    CapturedFrame,
    Conditions,
    OnGpu,
    ResumeRecord,
    SkippedFrame,
)
from hatch_precompile.runtime import references
from hatch_precompile.tracing import (
    NO_OPERATIONS,
    RESUME_FUNCTIONS,
    FrameTrace,
    changes_grad_mode,
    graph_break_reasons,
    is_compiled,
    resume_function,
    wants_fullgraph,
)
from hatch_precompile.tracing.guardtree import GuardNode, GuardRecorder
from hatch_precompile.tracing.set_orders import SetOrders

__all__ = ["Entries"]


@dataclass
class Entries:
    """What one entrypoint's traces have left.

    device: the traces' own, as in `cuda:0`

    sample: of the call that is traced, from 0; sizes: of that call, see Declared in size_conditions.py;
    changes_grad_mode: whether a trace since it was last set to False does; failure: what stopped one of them
    frames: the entries of each; skipped: frames that dynamo left uncompiled; regions: for size_cases.py
    conditions: of each entry, by its file; dependencies: of all; traces: of the entries on a GPU
    orders: of the sets that their guards ask for
    """

    request: Request
    declared: Declared
    graphs: Graphs
    device: str
    report: Callable[[Event], None]
    recorder: GuardRecorder = field(default_factory=GuardRecorder)
    sample: int = 0
    sizes: dict[tuple[int, int], str] = field(default_factory=dict)
    changes_grad_mode: bool = False
    failure: BuildError | None = None
    frames: dict[CodeType, list[CapturedEntry]] = field(default_factory=dict)
    skipped: dict[CodeType, SkippedFrame] = field(default_factory=dict)
    regions: dict[CodeType, list[Region]] = field(default_factory=dict)
    resumes: list[ResumeRecord] = field(default_factory=list)
    conditions: dict[str, Conditions] = field(default_factory=dict)
    dependencies: list[Dependency] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    orders: SetOrders = field(default_factory=SetOrders)
    _names: dict[CodeType, FrameName] = field(default_factory=dict)
    _resume_numbers: dict[CodeType, int] = field(default_factory=dict)
    _native_guards: NativeGuards = field(default_factory=NativeGuards)
    _bare: int = 0  # entries of calls without an operation

    def __post_init__(self) -> None:
        self.entrypoint = self.request.entrypoint
        self.directory = Path(self.request.directory)
        # The prefix of the names put into other modules' globals: ours alone, and the same in every build.
        owner = f"{self.request.package} {self.entrypoint.name}"
        self.prefix = f"__precompiled_{hashlib.sha256(owner.encode()).hexdigest()[:8]}"

    def begin(self, sample: int, sizes: dict[tuple[int, int], str]) -> None:
        """Say whose call is traced next."""
        self.sample = self.graphs.sample = sample
        self.sizes = sizes

    def count(self) -> int:
        """How many there are, but for those of calls without an operation."""
        return sum(map(len, self.frames.values())) - self._bare

    def on_frame(self, trace: FrameTrace) -> None:
        """Write the entry of a trace that dynamo has finished."""
        if trace.bare and _would_differ([trace.code, *trace.traced]):
            self._say_stays(trace.code)
            return
        try:
            self._add(trace)
        except BuildError as error:
            if trace.bare:
                # Nothing is lost: a call of this kind is a miss, and eager Python is all there is to it.
                self._say_stays(trace.code)
                return
            # Raised inside dynamo it would be wrapped in an error of its own; the sample's end raises it.
            self.failure = self.failure or error

    def on_skip(self, code: CodeType, reason: str) -> None:
        """Note a frame that dynamo leaves uncompiled."""
        if NO_OPERATIONS in reason:
            # Nothing is lost: eager Python is all there is to it, and what it calls is looked up as ever.
            self._say_stays(code)
            return
        self.skipped.setdefault(code, SkippedFrame(code.co_qualname, reason))
        if self.entrypoint.on_skip == "eager":
            self._note(
                f"sample {self.sample + 1}: {code.co_qualname} is skipped and runs as Python: {reason}"
            )

    def require_whole(self, label: str) -> None:
        """Raise what stops the build: a call failed, left frames uncompiled, or compiled nothing."""
        if self.failure is not None:
            raise self.failure
        if self.skipped and self.entrypoint.on_skip == "fail":
            raise self.left_uncompiled(label)
        if not self.frames:
            reasons = "; ".join(graph_break_reasons()) or "it runs no tensor operation that can be compiled"
            raise CaptureError(
                f"{label}: torch.compile captured nothing of {self.entrypoint.target}: {reasons}"
            )

    def left_uncompiled(self, label: str) -> Unsupported:
        """What a build says that frames left uncompiled stop."""
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

    def put_own_frame_first(self) -> None:
        """The first frame is what the runtime reports on, and from where a miss can be compiled."""
        function_with = references.function_with
        own = [code for code in self.frames if function_with(self.declared.function(), code) is not None]
        self.frames = {code: self.frames[code] for code in dict.fromkeys([*own, *self.frames])}
        if not own and self.entrypoint.on_miss == "compile":
            reasons = "\n  ".join(f"{each.function}: {each.reason}" for each in self.skipped.values())
            raise Unsupported(
                f'on-miss = "compile", but of {self.entrypoint.target} itself nothing was compiled that a '
                "miss could start from",
                reasons,
                'Set on-miss = "eager" or "error", or change the code so that torch.compile takes it whole.',
            )

    def compile_guards(self) -> None:
        """Write the library of the entries' guards; without one they run as Python."""
        for line in self._native_guards.left_in_python:
            self._note(f"a guard runs as Python, which is slower, because of: {line}")
        problem = self._native_guards.compile(self.directory / GUARDS)
        if problem:
            self._note(
                f"guards run as Python, because their C code does not compile: {problem.splitlines()[0]}"
            )
            for entries in self.frames.values():
                entries[:] = [replace(entry, guards="") for entry in entries]

    def note_gpus(self, variant: str, reasons: Sequence[str]) -> None:
        """Note in each entry whether it serves every GPU. reasons: why not, of each by number, or empty"""
        for entries in self.frames.values():
            for place_in_frame, entry in enumerate(entries):
                reason = reasons[int(Path(entry.data).stem)]
                entries[place_in_frame] = replace(entry, gpu=OnGpu(variant, bool(reason)))
                if reason:
                    text = f"sample {entry.sample + 1} serves the first GPU of a process only, because of"
                    self._note(f"{text} {reason}")

    def records(self) -> list[CapturedFrame]:
        return [self._record(code, entries) for code, entries in self.frames.items()]

    def _note(self, text: str) -> None:
        self.report(Event(step="note", text=text))

    def _say_stays(self, code: CodeType) -> None:
        self._note(f"sample {self.sample + 1}: {code.co_qualname} has no tensor operation and stays as it is")

    def _add(self, trace: FrameTrace) -> None:
        graphs = self.graphs.called_by(trace.injected)
        if any(is_compiled(name) and name not in graphs for name in trace.injected):
            raise Unsupported(
                f"{trace.code.co_qualname} is under a torch.compile of the package's own, with another "
                "backend than inductor",
                f"{trace.code.co_filename}:{trace.code.co_firstlineno}",
                "Leave the backend out there.",
            )
        resumes = {
            name: self._resume_number(value)
            for name, value in trace.injected.items()
            if name.startswith(RESUME_FUNCTIONS)
        }
        self.changes_grad_mode |= changes_grad_mode([trace.code, *trace.traced])
        tree = self.recorder.tree(trace.root)
        self.orders.see(tree)
        traced = [code for code in trace.traced if code not in self._resume_numbers]
        namer = Namer(trace.frame_globals, trace.injected)
        dependencies = dependencies_of(trace.code, traced, trace.assumed, tree, namer, self._resume_numbers)
        memory = [self.graphs.memory[number] for _, number in graphs.values()]
        dependencies = replaced(dependencies, memory=tuple(each for each in memory if each.written))
        on_gpu = self.graphs.on_gpu
        guards = lower_guards(
            tree, trace.frame_globals, trace.injected, dependencies, trace.numbers, on_gpu=on_gpu
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
            self._names[trace.code] = self._name(trace, tree)
        self.dependencies += dependencies.at_load
        numbers = sorted(graph for _, graph in graphs.values())
        if on_gpu:
            texts = self.graphs.texts_of(numbers)
            self.traces.append(
                Trace.of(self.device, trace.code.co_qualname, guards, code, dependencies.at_load, texts)
            )
        entry = LoweredEntry(
            number, trace.code.co_qualname, self.sample, guards, code, dependencies.at_load, numbers
        )
        record = write_entry(entry, self.directory, self.entrypoint.name, trace.dispatch, self._native_guards)
        self.frames[trace.code].append(record)
        if trace.bare:  # what it does not serve is served by eager Python just as well
            self._bare += 1
        else:
            conditions = size_conditions(tree, self.sizes, trace.fixed_sizes)
            self.regions.setdefault(trace.code, []).append(Region(conditions, {self.sample}))
        self.conditions[record.data] = conditions_of(tree)

    def _name(self, trace: FrameTrace, tree: GuardNode) -> FrameName:
        module = trace.frame_globals["__name__"]
        if trace.code in self._resume_numbers:
            return FrameName(module, [], None)
        return frame_name(trace.code, tree, Namer(trace.frame_globals), self.declared, self.entrypoint.target)

    def _resume_number(self, value: Any) -> int:
        """The number of a resume function. A new one is written: its code, and the constants that marshal
        cannot hold, as in the head of an entry."""
        code, module = resume_function(value)
        if code not in self._resume_numbers:
            number = self._resume_numbers[code] = len(self._resume_numbers)
            content = marshal.dumps(portable_code(code, {}, Namer(sys.modules[module].__dict__)), MARSHAL)
            record = ResumeRecord(f"resume/{number}.code", module)
            (self.directory / record.code).write_bytes(content)
            self.resumes.append(record)
        return self._resume_numbers[code]

    def _record(self, code: CodeType, entries: list[CapturedEntry]) -> CapturedFrame:
        name = self._names[code]
        return CapturedFrame(
            qualname=code.co_qualname,
            module=name.module,
            functions=name.functions,
            code=name.code,
            resume=self._resume_numbers.get(code),
            entries=entries,
        )


def _would_differ(traced: Sequence[CodeType]) -> bool:
    """Whether a call that dynamo skips may answer otherwise where it is compiled: its code asks whether it is
    being compiled, or is a generator, in whose place compiled code returns another iterator."""
    asking = {"is_compiling", "is_dynamo_compiling"}
    return any(code.co_flags & inspect.CO_GENERATOR or asking & set(code.co_names) for code in traced)
