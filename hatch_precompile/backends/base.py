"""What a backend is: a kind of hardware that code is built for, as x86-64 or 64-bit Arm.

Each is a folder beside this file, found by its name, whose module has its `Backend` as `BACKEND`. A folder of
the same name in templates/backends/ says what a machine has where a wheel runs. Reading a configuration asks
backends for names, so they import nothing heavy; what needs torch's compiler is in what `compiler()` returns.
"""

from __future__ import annotations

import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from hatch_precompile.records import Autotuning, Configuration

__all__ = ["Backend", "Compiler", "Launch", "Policy", "Surroundings", "Variant"]


@dataclass(frozen=True)
class Variant:
    """One level of a backend that libraries are built for.

    requires: capabilities of a machine, in the words of its backend: code for it uses these and no others
    settings: inductor's configuration
    backend: the name of the backend
    tuned: configurations of kernels that were measured to be the fastest, by what the backend knows them by
    """

    name: str
    requires: tuple[str, ...]
    settings: dict[str, Any]
    backend: str
    tuned: Mapping[str, Configuration] = field(default_factory=dict)


@dataclass(frozen=True)
class Surroundings:
    """What a process that traces and compiles starts with.

    environment: variables beside the build's own
    forked: whether it may be forked from one that has imported torch's compiler already
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    forked: bool = True


class Launch(Protocol):
    """One launch of a kernel."""

    @property
    def kernel(self) -> str:
        """Its name."""

    @property
    def device(self) -> int:
        """The number of the device."""


class Policy(Protocol):
    """One more way in which verification calls each sample, beside the plain calls: something that the
    machine decides where the wheel runs is decided otherwise."""

    words: str
    """What follows the sample in messages, with a blank before it."""

    def would_decide(self) -> bool:
        """Whether anything that has run would run in another way."""

    def deciding(self) -> AbstractContextManager[None]:
        """It is decided otherwise while the block runs."""


class Compiler:
    """How inductor compiles for a backend, one for each graph. As it stands: as inductor by itself."""

    autotuning: Autotuning | None = None
    """What `hatch-precompile tune` reads of the kernels of the graph that was compiled; None: there are none
    to tune."""

    has_python_wrapper: ClassVar[bool] = True
    """Whether a graph that inductor's C++ wrapper refuses can be carried with its Python one."""

    def tracing(self, variant: Variant) -> AbstractContextManager[None]:
        """Torch's settings while the samples of an entrypoint are traced. variant: the entrypoint's first"""
        return nullcontext()

    def lowering(self, variant: Variant) -> AbstractContextManager[None]:
        """Inductor's settings while a graph is lowered to ATen operators, once for all variants. variant: the
        first of them"""
        return nullcontext()

    def compiling(self, variant: Variant) -> AbstractContextManager[None]:
        """Inductor is set for a variant while the block compiles one graph; its `settings` are set already.
        Here belong vectors, lowerings, and what writes the calling code."""
        return nullcontext()

    def prepack(self, graph: Any, fixed: set[Any], variant: Variant, *, bfloat16: bool) -> None:
        """Change a graph of ATen operators to take weights in the layout that layers multiply fastest.

        fixed: the nodes of weights that do not change: what is computed of these alone leaves the graph
        afterwards, and runs once for each instance (inductor/prepacking/weights.py)
        bfloat16: whether layers of float32 become such of bfloat16
        """

    def rewrite(self, graph: Any, variant: Variant, *, bfloat16: bool, inference: bool) -> None:
        """Change a graph of ATen operators, after `prepack`, whether weights are fixed or not.

        inference: whether it is called without gradients
        """

    def uncompiled(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> Callable[[list[Any]], list[Any]]:
        """What is called in the place of a graph that is traced for another device, and not compiled for it.
        outputs, inputs: see `compiled`"""
        raise NotImplementedError

    def compiled(self, function: Any, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Change what inductor made of a graph, an object with `current_callable`, before a sample calls it.

        outputs, inputs: the values that stand for those of the graph that was compiled; an output that is an
        input is the same object in both
        """


class Backend(ABC):
    """A kind of hardware. Its variants: their names, what a machine must have for each, what this one has."""

    name: ClassVar[str]
    """Of its folders, and in manifests."""
    device: ClassVar[str] = "cpu"
    """What torch calls the devices that its code runs on."""
    machines: ClassVar[frozenset[str]] = frozenset()
    """What `platform.machine()` calls the machines that build for it."""
    hardware: ClassVar[str] = "CPU"
    """What a person calls it."""
    variants: ClassVar[tuple[str, ...]]
    """Names, the most demanding last."""
    native: ClassVar[str] = "native"
    """The name of the variant for the machine that builds, which stands for what that machine has; "" where
    there is none."""
    in_bfloat16: ClassVar[tuple[str, ...]] = ()
    """Those of the variants for machines that multiply bfloat16."""
    libraries: ClassVar[frozenset[str]] = frozenset()
    """What its libraries may need beside what any torch brings: torch has it where the code can run, so that
    it counts for no platform's tag."""

    def is_here(self) -> bool:
        """Whether this machine builds for it."""
        return platform.machine() in self.machines

    @abstractmethod
    def capabilities(self) -> frozenset[str]:
        """What this machine has, by the names in `Variant.requires`."""

    @abstractmethod
    def variant(self, name: str) -> Variant:
        """The variant of one of the names in `variants`."""

    @abstractmethod
    def native_variant(self, capabilities: Collection[str]) -> Variant:
        """The native variant for a machine with these capabilities. It requires nothing that cannot be asked
        for where a wheel runs."""

    def own_name(self, name: str) -> str:
        """The name of a variant; for `native`, where it stands for another variant, the name of that one."""
        return name

    def runs_here(self, variant: Variant) -> bool:
        """Whether this machine runs code for a variant that it builds."""
        return not self.missing(variant)

    def missing(self, variant: Variant) -> list[str]:
        """What this machine lacks to run a variant, which can then not be verified here."""
        here = self.capabilities()
        return [each for each in variant.requires if each not in here]

    def cannot_compile(self, variant: Variant) -> str:
        """Why the C++ compiler here is known to fail at a variant, with advice; empty where it is not."""
        return ""

    def wants_hardware(self, error: BaseException) -> bool:
        """Whether an error says that something had to run on hardware that is not here."""
        return False

    def launches_recorded(self) -> AbstractContextManager[Sequence[Launch]]:
        """Where the hardware is missing: the launches of what runs in the block, complete when the block is
        over. Nothing is computed."""
        raise NotImplementedError

    def most_demanding(self, names: Collection[str]) -> str | None:
        """The most demanding of these variants; None where every machine can run them."""
        demanding = [name for name in self.variants[1:] if name in names]
        return demanding[-1] if demanding else None

    def multiplies_bfloat16(self, variant: Variant) -> bool:
        """Whether each machine that runs it does, so that float32 layers may be made such."""
        return False

    def surroundings(self, variant: Variant, folder: Path) -> Surroundings:
        """Of the processes that trace and compile for a variant. folder: one of the build, in which what they
        need may be made; captures that are side by side share it."""
        return Surroundings()

    def settle(self) -> None:
        """Called in such a process before anything of torch's compiler is imported."""
        return

    def compiler(self) -> Compiler:
        """Imports torch's compiler where it is not plain inductor."""
        return Compiler()

    def policies(self, runtime: Any) -> Sequence[Policy]:
        """For verification. runtime: the package `_precompiled` of a wheel, which has loaded nothing yet."""
        return ()
