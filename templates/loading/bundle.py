"""The files of a bundle: each is held against its sha256 before it is used."""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from types import CodeType
from typing import TYPE_CHECKING, Any

from ..errors import Unfit, check_parts, raised_by_signal
from ..graphs import callers
from ..values.constants import decode
from ..values.references import Damaged
from ..values.static_lookup import file_of
from .manifest import read_file, seal_of

if TYPE_CHECKING:
    from ..graphs.weights import FixedWeights


_UNMAPPED = "put the package where files may be executed (no mount with noexec), or allow more memory"

__all__ = ["Bundle", "with_file"]


_HEXADECIMAL = frozenset("0123456789abcdef")  # a pattern would cost the first call a third of a millisecond


class Bundle:
    """Reads files of one bundle, each checked against the manifest's sha256 before it is used."""

    def __init__(
        self,
        directory: str,
        package: str,
        manifest: dict[str, Any],
        variant: str,
        lock: Callable[[], AbstractContextManager[Any]] = nullcontext,
        *,
        by_content: bool = False,
    ) -> None:
        """lock: gives what is held while anything is loaded; by_content: files lie where cells.py says."""
        self._lock = lock
        self.directory = directory
        self.package = package
        self.manifest = manifest
        self.variant = variant
        self._by_content = by_content
        self._seal: bytes | None = None
        self._graphs: dict[int, Any] = {}
        self._libraries: dict[str, Callable[..., Any]] = {}
        self.fixed_weights: list[FixedWeights] = []

    def read(self, name: str) -> bytes:
        """The content of a file of the bundle; raises Damaged if it is missing or not what was built."""
        expected = self.manifest["files"].get(name)
        if expected is None:
            raise Damaged(f"{name} is not listed in the manifest")
        if os.path.isabs(name) or ".." in name.split("/"):
            raise Damaged(f"{name} leads out of the bundle")
        if not isinstance(expected, str) or len(expected) != 64 or not _HEXADECIMAL.issuperset(expected):
            raise Damaged(f"{name} has no sha256 in the manifest")
        path = self._path(name)
        try:
            content = read_file(path)
        except (OSError, ValueError) as error:  # ValueError: no name of a file
            if raised_by_signal(error):
                raise
            reason = getattr(error, "strerror", None) or error
            raise self._damaged(f"{name} cannot be read ({reason})", path, error) from None
        if hashlib.sha256(content).hexdigest() != expected:
            raise self._damaged(f"{name} is damaged (its sha256 is not the manifest's)", path)
        return content

    @staticmethod
    def _damaged(text: str, path: str, error: BaseException | None = None) -> Damaged:
        from ..causes import advice_on
        from ..errors import IMPORTED

        return Damaged(text, advice_on(path, IMPORTED, error))

    def _path(self, name: str) -> str:
        if self._by_content:
            from .cells import stored_as

            name = stored_as(name, self.manifest["files"][name])
        return os.path.join(self.directory, name)

    def heads(self, frame: dict[str, Any]) -> list[bytes]:
        """The heads of a frame's entries, in their order. Raises Unfit where the manifest is not the one that
        they were built with: nothing else that it says is looked at then."""
        if frame["heads"] in self.manifest["files"]:
            *heads, seal = marshal.loads(self.read(frame["heads"]))
            if self._seal is None:
                self._seal = seal_of(self.manifest)
            if seal == self._seal:
                return heads
        raise Unfit(f"the manifest in {self.directory} is damaged; reinstall the package")

    def check_seal(self) -> None:
        """Raise Unfit as `heads` does, where that has not been asked for yet."""
        for frame in self.manifest["frames"]:
            if self._seal is None:
                with suppress(Damaged):  # which is told where the file is needed
                    self.heads(frame)

    def graph(self, number: int) -> Callable[..., Any]:
        """The callable of a graph; its libraries are verified and loaded the first time."""
        if number not in self._graphs:
            record = self.manifest["graphs"][number]
            if "wrapping" not in record:
                self._graphs[number] = callers.with_effects(self._library(record), record)
            else:
                from ..graphs.autograd import WrappedGraph

                check_parts()
                backward = self._library(record["backward"], boxed=True) if "backward" in record else None
                wrapping = self.read(record["wrapping"])
                graph = WrappedGraph(self._library(record, boxed=True), backward, wrapping, self._lock)
                self._graphs[number] = graph.caller()
        return self._graphs[number]

    def _library(self, record: dict[str, Any], *, boxed: bool = False) -> Callable[..., Any]:
        """boxed: whether it is called through its `boxed`."""
        constants = [self._constant(constant) for constant in record.get("constants", ())]
        name = record.get("python", {}).get(self.variant)
        if name is None:
            path = self._library_of(record["libraries"])
            library = self._loaded(path, "inductor_entry_cpp")
            direct = record.get("direct") and not boxed

            def caller(constants: list[Any]) -> Callable[..., Any]:
                call = callers.direct_caller(library, record, constants) if direct else None
                return call or callers.library_caller(library, record, constants)

            if any("device" in constant for constant in record.get("constants", ())):
                found = callers.on_each_gpu(caller, constants, record)
            else:
                found = caller(constants)
            return self._with_weights(found, record, self._path(path))
        kernels = [self._loaded(kernel, "kernel") for kernel in record["kernels"][self.variant]]
        names = [constant["name"] for constant in record.get("constants", ())]
        call = callers.python_caller(
            compile(self.read(name), name, "exec", dont_inherit=True),
            {"kernels": kernels, **dict(zip(names, constants, strict=True))},
            record,
        )
        first = record["kernels"][self.variant][:1]
        return self._with_weights(call, record, self._path(first[0]) if first else "")

    def _library_of(self, libraries: dict[str, str]) -> str:
        """The path of that for the variant that was chosen; of a graph for GPUs of that for its own."""
        if self.variant not in libraries:
            for_gpus = {each["name"] for each in self.manifest["variants"] if each.get("device")}
            for name in for_gpus.intersection(libraries):
                return libraries[name]
        return libraries[self.variant]

    def _with_weights(
        self, call: Callable[..., Any], record: dict[str, Any], library: str = ""
    ) -> Callable[..., Any]:
        name = record.get("weights", {}).get(self.variant)
        ways = record.get("unwrapped_inputs")
        if name is None:
            return callers.with_inner_tensors(call, ways) if ways else call
        from ..graphs.weights import FixedWeights, load_steps

        prepack_graph = marshal.loads(self.read(name))
        load_steps(prepack_graph[1])
        check_parts()
        fixed = FixedWeights(
            call,
            prepack_graph,
            ways=ways,
            noticed=not record.get("hidden_weights", False),
            path=library,
            lock=self._lock,
        )
        self.fixed_weights.append(fixed)
        return fixed.caller()

    def guards(self, name: str) -> Callable[..., Any]:
        """What makes the guards that a library has: of a guard's number and its constants."""
        return self._loaded(name, "guards")

    def _loaded(self, name: str, function: str) -> Callable[..., Any]:
        if name not in self._libraries:  # graphs whose libraries are equal share one
            self.read(name)
            unique = f"{self.package}._precompiled.{name.replace('/', '_').removesuffix('.so')}"
            try:
                self._libraries[name] = callers.load_library(self._path(name), unique, function)
            except ImportError as error:  # of the dynamic loader's
                if raised_by_signal(error) or "failed to map" not in str(error):
                    raise
                raise Damaged(f"{name} cannot be loaded ({error})", _UNMAPPED) from None
        return self._libraries[name]

    def _constant(self, record: dict[str, Any]) -> Any:
        torch = sys.modules["torch"]
        data = bytearray(self.read(record["file"]))
        dtype = getattr(torch, record["dtype"])
        with torch.inference_mode(False):  # other calls than the first need not be in it
            flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
            return flat.reshape(record["size"])

    def resume_code(self, number: int) -> CodeType:
        record = self.manifest["resumes"][number]
        code, constants = marshal.loads(self.read(record["code"]))
        return with_file(code, file_of(sys.modules[record["module"]]), constants)


def with_file(code: CodeType, filename: str, constants: Any, *marks: str) -> CodeType:
    """Bytecode with this machine's file name and the constants that marshal could not hold, and marks behind
    these."""
    consts = list(code.co_consts)
    for index, constant in enumerate(consts):
        if isinstance(constant, CodeType):
            inner = [(path[1:], encoded) for path, encoded in constants if len(path) > 1 and path[0] == index]
            consts[index] = with_file(constant, filename, inner)
    for path, encoded in constants:
        if len(path) == 1:
            consts[path[0]] = decode(encoded)
    return code.replace(co_filename=filename, co_consts=(*consts, *marks))


WHOLE = True
