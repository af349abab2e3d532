"""What a capture hands on: plain data in files, so that nothing alive crosses to the bundle."""

from __future__ import annotations

import msgspec

__all__ = [
    "CAPTURE",
    "GUARDS",
    "MARSHAL",
    "Case",
    "Conditions",
    "EntryRecord",
    "FixedValue",
    "FrameRecord",
    "GraphRecord",
    "Capture",
    "ResumeRecord",
    "SkippedFrame",
    "TensorInput",
]


CAPTURE = "capture.json"
"""The record of a capture, in its folder."""

GUARDS = "guards.so"
"""The library of an entrypoint's guards, below the capture's folder."""

# The last version of the marshal format without references, whose bytes depend on what else is alive.
MARSHAL = 2


class GraphRecord(msgspec.Struct, frozen=True):
    """One compiled graph: files (relative to the capture's folder) and how to call it."""

    libraries: dict[str, str]
    inputs: int
    outputs: int
    readable: str
    scalar_outputs: list[int] = []
    input_outputs: dict[int, int] = {}
    view_outputs: dict[int, int] = {}
    detached_outputs: dict[int, bool] = {}
    direct: bool = False
    written_inputs: list[int] = []
    copied_inputs: list[int] = []
    changes_inputs: bool = False
    unwrapped_inputs: dict[int, list[list[str]]] = {}
    rounded: dict[str, str] = {}
    hidden_weights: bool = False
    weights: dict[str, str] = {}
    constants: list[dict[str, object]] = []
    python: dict[str, str] = {}
    kernels: dict[str, list[str]] = {}
    why_python: str = ""
    disable_autocast: bool = False
    disable_grad: bool = False
    backward: GraphRecord | None = None
    wrapping: str = ""
    why_wrapped: str = ""


class EntryRecord(msgspec.Struct, frozen=True):
    """One guarded specialisation of a frame; `data`, `head`, `source`: files below the capture's folder;
    `guards`: so is the library with its guard, or "" without one."""

    data: str
    head: str
    source: str
    graphs: list[int]
    sample: int
    checks: int
    dropped: int
    rebound: int
    by_kind: dict[str, int]
    native: bool
    guards: str = ""


class FrameRecord(msgspec.Struct, frozen=True):
    """One code object dynamo compiled: the functions that have it, or where functions are made of it, or a
    resume function of this capture. A reference is (module, steps, fingerprint)."""

    qualname: str
    module: str
    functions: list[list[object]]
    code: list[object] | None
    resume: int | None
    entries: list[EntryRecord]


class SkippedFrame(msgspec.Struct, frozen=True):
    """A function torch.compile gave up on, which runs as Python. `reason`: dynamo's, in a line."""

    function: str
    reason: str


class ResumeRecord(msgspec.Struct, frozen=True):
    """The function a graph break continues in: its marshalled code, and the module whose globals it sees."""

    code: str
    module: str


class TensorInput(msgspec.Struct, frozen=True):
    """A tensor that a call passes in. `size`: the sample's; `fixed`: whether it must be so, each;
    `contiguous`: whether the sample's was."""

    name: str
    dtype: str
    size: list[int]
    fixed: list[bool]
    contiguous: bool = True


class FixedValue(msgspec.Struct, frozen=True):
    """A Python value that must be what it was. `argument`: of the call, not of the model."""

    name: str
    value: str
    argument: bool


class Conditions(msgspec.Struct, frozen=True):
    """What an entry asks of a call, for people. `sizes`: conditions on sizes that may vary, as Python."""

    inputs: list[TensorInput] = []
    values: list[FixedValue] = []
    sizes: list[str] = []


class Case(msgspec.Struct, frozen=True):
    """A call of a sample in other sizes that were declared. `sizes`: the name of a dimension, its size in the
    sample, and the one here, each."""

    sample: int
    sizes: tuple[tuple[str, int, int], ...]


class Capture(msgspec.Struct, frozen=True):
    """The capture of one entrypoint. The target's own frame, where it was compiled, is the first."""

    name: str
    target: str
    home: tuple[str, list[object]]  # where the target is defined: a module and the steps from there
    kind: str  # "module class" | "method" | "function"
    samples: int
    frames: list[FrameRecord]
    graphs: list[GraphRecord]
    resumes: list[ResumeRecord]
    seconds: float
    skipped: list[SkippedFrame] = []
    made_from: dict[str, str] = {}  # digests of what else decides, part by part
    conditions: dict[str, Conditions] = {}  # by the entry's `data`; nothing of it goes into the bundle
    with_gradients: list[int] = []  # samples that are entries with gradients on, too; counted from 0
    cases: list[Case] = []  # for verification; nothing of it goes into the bundle
    taken_from: str = ""  # the earlier wheel that it comes from; nothing of it goes into the bundle

    @property
    def entries(self) -> int:
        return sum(len(frame.entries) for frame in self.frames)
