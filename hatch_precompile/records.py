"""What a capture hands on, and a bundle's manifest has of it: plain data, so that nothing alive crosses over.

Each value has its type and its range, because a manifest may be somebody else's. What is missing has a
default, so that a manifest of another format can be shown. docs/bundle-format.md says what each means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

__all__ = [
    "CAPTURE",
    "GUARDS",
    "MARSHAL",
    "Autotuning",
    "Capture",
    "CapturedEntry",
    "CapturedFrame",
    "Case",
    "Conditions",
    "Configuration",
    "ConstantRecord",
    "EntryRecord",
    "FixedValue",
    "FrameRecord",
    "GraphRecord",
    "KernelKey",
    "MeasuredKernel",
    "OnGpu",
    "Number",
    "Place",
    "Reference",
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

Number = Annotated[int, Meta(ge=0, lt=1 << 31)]
Size = Annotated[int, Meta(ge=0, lt=1 << 48)]
Reference = tuple[str, list[Any]]
"""A module, and the steps from there."""
Place = tuple[str, list[Any], str]
"""A module, the steps from there, and the fingerprint of what is found."""


class ConstantRecord(Struct, frozen=True, omit_defaults=True):
    """`device`: the kind of device that it is moved to before a call, "" for none."""

    file: str
    dtype: str
    size: list[Size]
    name: str = ""
    device: str = ""


class GraphRecord(Struct, frozen=True, omit_defaults=True):
    """One compiled graph: its files, and how to call it, which the compiler writes.

    libraries: by variant; python, kernels: instead of one, a Python wrapper and the libraries of its kernels;
    why_python: why inductor's C++ wrapper refused the graph; direct: whether its library has an entry that
    takes tensors and numbers as they are
    scalar_outputs: those that are numbers; input_outputs: output -> the input it is; view_outputs: output ->
    the input whose memory it has; detached_outputs: those of view_outputs that `detach()` cuts off from the
    input for autograd -> whether the output is a view of the detached input, and not itself the detached one
    written_inputs: inputs changed in place whose autograd version has to be bumped; copied_inputs: those
    whose new values are the first outputs, to be copied into them; changes_inputs: whether the library itself
    writes to an input; unwrapped_inputs: input -> the ways to the tensors that it wraps, taken in its place
    rounded: variant -> the type that its factors are rounded to, "int8" or "bfloat16"
    hidden_weights: whether wrappers take weights out of tensor subclasses, whose changes nobody would see
    weights: by variant, how weights that do not change are prepared; constants: tensors after the inputs
    autotuning: variant -> what `hatch-precompile tune` reads of its kernels
    backward: the graph of the gradients; wrapping: AOTAutograd's own wrappers, pickled; why_wrapped: why
    """

    libraries: dict[str, str] = {}
    inputs: Number = 0
    outputs: Number = 0
    readable: str = ""
    scalar_outputs: list[Number] = []
    input_outputs: dict[Number, Number] = {}
    view_outputs: dict[Number, Number] = {}
    detached_outputs: dict[Number, bool] = {}
    direct: bool = False
    written_inputs: list[Number] = []
    copied_inputs: list[Number] = []
    changes_inputs: bool = False
    unwrapped_inputs: dict[Number, list[list[str]]] = {}
    rounded: dict[str, str] = {}
    hidden_weights: bool = False
    weights: dict[str, str] = {}
    constants: list[ConstantRecord] = []
    python: dict[str, str] = {}
    kernels: dict[str, list[str]] = {}
    why_python: str = ""
    autotuning: dict[str, str] = {}
    disable_autocast: bool = False
    disable_grad: bool = False
    backward: GraphRecord | None = None
    wrapping: str = ""
    why_wrapped: str = ""

    def files(self) -> dict[str, list[str]]:
        """Variant to the files it is called through: its library, or a Python wrapper and its kernels."""
        found = {variant: [path] for variant, path in self.libraries.items()}
        return found | {
            variant: [path, *self.kernels.get(variant, [])] for variant, path in self.python.items()
        }

    def with_files(self, name: Callable[[str, str], str], begin: str = "") -> GraphRecord:
        """The record with other names of its files. name: gives one, for how the file's own name ends, which
        no other of the graph's does, and the name that it has here; begin: what such an end begins with."""

        def named(files: Mapping[str, str], kind: str) -> dict[str, str]:
            return {variant: name(f"{begin}-{variant}.{kind}", path) for variant, path in files.items()}

        return replace(
            self,
            libraries=named(self.libraries, "so"),
            python=named(self.python, "py"),
            kernels={
                variant: [name(f"{begin}-{variant}-{n}.so", path) for n, path in enumerate(paths)]
                for variant, paths in self.kernels.items()
            },
            weights=named(self.weights, "weights"),
            autotuning=named(self.autotuning, "autotuning"),
            readable=name(f"{begin}.txt", self.readable) if self.readable else "",
            wrapping=name(f"{begin}.wrapping", self.wrapping) if self.wrapping else "",
            constants=[
                replace(each, file=name(f"{begin}-constant-{number}.bin", each.file))
                for number, each in enumerate(self.constants)
            ],
            backward=self.backward.with_files(name, f"{begin}-backward") if self.backward else None,
        )


class OnGpu(Struct, frozen=True):
    """That an entry is for GPUs. `variant`: the only one that its graphs are compiled for; `pinned`: whether
    it serves the first GPU of a process alone, while that is the current one, or each that tensors are on."""

    variant: str
    pinned: bool


class EntryRecord(Struct, frozen=True):
    """One guarded specialisation of a frame; `data`, `source`: files; `guards`: the file of the library with
    its native guard, or "" without one; `gpu`: left out in an entry for CPUs."""

    data: str = ""
    source: str = ""
    graphs: list[Number] = []
    sample: Number = 0
    checks: Number = 0
    dropped: Number = 0
    rebound: Number = 0
    by_kind: dict[str, Number] = {}
    native: bool = False
    guards: str = ""
    gpu: OnGpu | UnsetType = UNSET


class CapturedEntry(EntryRecord, frozen=True, kw_only=True):
    """One whose files are below the folder of its capture. `head`: a file of it; in a bundle those of a frame
    are in one."""

    head: str


class FrameRecord(Struct, frozen=True):
    """One code object dynamo compiled: the functions that have it, or where functions are made of it, or a
    resume function."""

    qualname: str = ""
    module: str = ""
    functions: list[Place] = []
    code: Place | None = None
    resume: Number | None = None


class CapturedFrame(FrameRecord, frozen=True, kw_only=True):
    """`resume`: of this capture."""

    entries: list[CapturedEntry]


class SkippedFrame(Struct, frozen=True):
    """A function torch.compile gave up on, which runs as Python. `reason`: dynamo's, in a line."""

    function: str = ""
    reason: str = ""


class ResumeRecord(Struct, frozen=True):
    """The function a graph break continues in: its marshalled code, and the module whose globals it sees."""

    code: str = ""
    module: str = ""


class TensorInput(Struct, frozen=True):
    """A tensor that a call passes in. `size`: the sample's; `fixed`: of each dimension, whether no other size
    is served; `contiguous`: whether the sample's was."""

    name: str
    dtype: str
    size: list[int]
    fixed: list[bool]
    contiguous: bool = True


class FixedValue(Struct, frozen=True):
    """A Python value that must be what it was. `argument`: of the call, not of the model."""

    name: str
    value: str
    argument: bool


class Conditions(Struct, frozen=True):
    """What an entry asks of a call, for people. `sizes`: conditions on sizes that may vary, as Python."""

    inputs: list[TensorInput] = []
    values: list[FixedValue] = []
    sizes: list[str] = []


class Case(Struct, frozen=True):
    """A call of a sample in other sizes that were declared. `sizes`: the name of a dimension, its size in the
    sample, and the one here, each."""

    sample: int
    sizes: tuple[tuple[str, int, int], ...]


class Capture(Struct, frozen=True):
    """The capture of one entrypoint. The target's own frame, where it was compiled, is the first."""

    name: str
    target: str
    home: Reference  # where the target is defined
    kind: str  # "module class" | "method" | "function"
    samples: int
    frames: list[CapturedFrame]
    graphs: list[GraphRecord]
    resumes: list[ResumeRecord]
    seconds: float
    skipped: list[SkippedFrame] = []
    made_from: dict[str, str] = {}  # digests of what else decides, part by part
    conditions: dict[str, Conditions] = {}  # by the entry's `data`; nothing of it goes into the bundle
    with_gradients: list[int] = []  # samples that have entries with gradients on, too; counted from 0
    cases: list[Case] = []  # for verification; nothing of it goes into the bundle
    taken_from: str = ""  # the earlier wheel that it comes from; nothing of it goes into the bundle
    gpu: str = ""  # the variant, if it is for GPUs

    @property
    def entries(self) -> int:
        return sum(len(frame.entries) for frame in self.frames)


KernelKey = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
"""What a kernel for a GPU is known by in every build (`kernel_key` in backends/cuda/configurations.py)."""
Count = Annotated[int, Meta(ge=1, le=64)]


class Configuration(Struct, frozen=True):
    """Of a kernel. arguments: those that a configuration decides, such as `XBLOCK`; num_warps, num_stages: as
    in `triton.Config`"""

    arguments: dict[str, bool | int | float | str]
    num_warps: Count
    num_stages: Count


class Autotuning(Struct, frozen=True):
    """What a bundle has beside a library for a GPU. source: Python that makes its kernels and launches each
    with sample arguments, as inductor runs it to find the fastest configurations; kernels: those that the
    library has, with their names"""

    source: str
    kernels: dict[KernelKey, tuple[str, Configuration]]


class MeasuredKernel(Struct, frozen=True):
    """Of a kernel the configurations that inductor tries, each with the microseconds of a launch."""

    key: KernelKey
    name: str
    times: list[tuple[Configuration, float]]
