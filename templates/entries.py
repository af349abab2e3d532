"""Entries: verified file to guard function, bytecode and graphs. Loaded at a frame's first call."""

from __future__ import annotations

import hashlib
import importlib
import marshal
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from . import torch_private
from .activation import CELLS
from .inputs import check_inputs
from .references import Damaged, Stale, decode

if TYPE_CHECKING:
    from .activation import Frame, Site

__all__ = ["Bundle", "Entry", "heads", "prepare_guard"]


class Bundle:
    """Reads files of one bundle, each checked against the manifest's sha256 before it is used."""

    def __init__(
        self,
        directory: str,
        package: str,
        manifest: dict[str, Any],
        variant: str,
        lock: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """lock: gives what is held while anything is loaded."""
        self._lock = lock
        self.directory = directory
        self.package = package
        self.manifest = manifest
        self.variant = variant
        self._graphs: dict[int, Any] = {}

    def read(self, name: str) -> bytes:
        """The content of a file of the bundle; raises Damaged if it is missing or not what was built."""
        expected = self.manifest["files"].get(name)
        if expected is None:
            raise Damaged(f"{name} is not listed in the manifest")
        if os.path.isabs(name) or ".." in name.split("/"):
            raise Damaged(f"{name} leads out of the bundle")
        try:
            with open(os.path.join(self.directory, name), "rb") as file:
                content = file.read()
        except (OSError, ValueError) as error:  # ValueError: no name of a file
            raise Damaged(f"{name} cannot be read ({getattr(error, 'strerror', error)})") from None
        if hashlib.sha256(content).hexdigest() != expected:
            raise Damaged(f"{name} is damaged (its sha256 is not the manifest's)")
        return content

    def heads(self, frame: dict[str, Any]) -> list[bytes]:
        """The heads of a frame's entries, in their order."""
        heads: list[bytes] = marshal.loads(self.read(frame["heads"]))
        return heads

    def graph(self, number: int) -> Callable[..., Any]:
        """The callable of a graph; its libraries are verified and loaded the first time."""
        if number not in self._graphs:
            record = self.manifest["graphs"][number]
            if "wrapping" not in record:
                self._graphs[number] = torch_private.with_effects(self._library(record), record)
            else:
                from .wrapped import WrappedGraph

                backward = self._library(record["backward"]) if "backward" in record else None
                wrapping = self.read(record["wrapping"])
                graph = WrappedGraph(self._library(record), backward, wrapping, self._lock)
                self._graphs[number] = graph.caller()
        return self._graphs[number]

    def _library(self, record: dict[str, Any]) -> Callable[..., Any]:
        constants = [self._constant(constant) for constant in record.get("constants", ())]
        name = record.get("python", {}).get(self.variant)
        if name is None:
            library = self._loaded(record["libraries"][self.variant], "inductor_entry_cpp")
            return torch_private.library_caller(library, record, constants)
        kernels = [self._loaded(kernel, "kernel") for kernel in record["kernels"][self.variant]]
        names = [constant["name"] for constant in record.get("constants", ())]
        return torch_private.python_caller(
            compile(self.read(name), name, "exec", dont_inherit=True),
            {"kernels": kernels, **dict(zip(names, constants, strict=True))},
            record,
        )

    def _loaded(self, name: str, function: str) -> Callable[..., Any]:
        self.read(name)
        unique = f"{self.package}._precompiled.{name.replace('/', '_').removesuffix('.so')}"
        return torch_private.load_library(os.path.join(self.directory, name), unique, function)

    def _constant(self, record: dict[str, Any]) -> Any:
        torch = sys.modules["torch"]
        data = bytearray(self.read(record["file"]))
        dtype = getattr(torch, record["dtype"])
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        return flat.reshape(record["size"])

    def resume_code(self, number: int) -> CodeType:
        record = self.manifest["resumes"][number]
        code, constants = marshal.loads(self.read(record["code"]))
        return _with_file(code, getattr(sys.modules[record["module"]], "__file__", None) or "", constants)


def heads(frame: Frame) -> list[Callable[[], Entry | None]]:
    """For each entry of a frame what makes it, or leaves it out with a warning."""
    installation = frame.installation

    def make(record: dict[str, Any], head: bytes) -> Entry | None:
        try:
            return Entry(frame, record, head, bundle)
        except Exception as error:
            if torch_private.raised_by_signal(error):
                raise
            installation.leave_out(frame, record, error)
            return None

    # It imports a module of torch's, which a fork must not find half imported: this is under the lock.
    torch_private.guard_namespace()
    try:
        bundle = installation.bundle
        read = bundle.heads(frame.record)
        return [
            partial(make, record, head) for record, head in zip(frame.record["entries"], read, strict=True)
        ]
    except Exception as error:
        if torch_private.raised_by_signal(error):
            raise
        installation.leave_out(frame, frame.record, error)
        return []


class Entry:
    """One guarded specialisation. Until a call passes its stub, nothing of it is read but its head.

    guard: asked before each call; the stub, until the entry is loaded.
    """

    def __init__(self, frame: Frame, record: dict[str, Any], head: bytes, bundle: Bundle) -> None:
        self.frame = frame
        self.record = record
        self.hits = 0
        self.ready = False
        self.state: torch_private.StateGuard
        self._bundle = bundle
        stub, code, constants, modules = marshal.loads(head)
        for module in modules:
            _import(module)
        self.code = _with_file(code, frame.code.co_filename, constants)
        torch_private.leave_untraced_code(self.code)
        self.stub = FunctionType(stub, torch_private.guard_namespace(), "guard")
        self.guard: Callable[[dict[str, Any]], bool] = self.stub

    def load(self) -> bool:
        """Set up what the stub stands for; one that does not fit this process is left out with a warning."""
        installation = self.frame.installation
        if not self.ready and self.guard is self.stub:
            try:
                data = marshal.loads(self._bundle.read(self.record["data"]))
                # Not under the lock: an import waits for other threads', which may wait for the lock.
                for module in data["modules"]:
                    _import(module)
                with installation.lock:
                    if not self.ready and not installation.uninstalled:
                        self._load(data)
            except Exception as error:
                if torch_private.raised_by_signal(error):
                    raise
                self.give_up(error)
        return self.ready

    def _load(self, data: dict[str, Any]) -> None:
        check_inputs(data["inputs"])
        log = self.frame.installation.log
        stands_in = self if log is None else _Announced(self, log)
        namespace = torch_private.guard_namespace()
        code = prepare_guard(namespace, data, self.frame.globals, stands_in)
        names = {name: self._global(spec) for name, spec in data["globals"].items()}
        self.frame.globals.update(names)
        self.guard = FunctionType(code, namespace, "guard")
        self.ready = True

    def runner(self, site: Site, closure: tuple[Any, ...] | None) -> Callable[..., Any]:
        """What a call of the site runs in the place of its body.

        Where a graph fails, nothing has happened yet, unless it changes its inputs: the body runs instead,
        and raises what it raises.
        """
        compiled = FunctionType(self.code, site.globals, self.code.co_name, None, closure)
        owner = next((owner for owner in self.frame.owners if owner.calls_others), None)
        call = compiled if owner is None else owner.enclosing(compiled)
        if not self.record["graphs"]:
            return call

        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            except torch_private.GraphFailed as error:
                failure = error
            if not failure.rerun:
                raise failure.instead
            with torch_private.without_compiling():
                return site.eager(by_cells)(*args, **kwargs)

        by_cells = {CELLS: closure} if site.by_cells else None
        torch_private.leave_untraced(run, below=False)
        return run

    def _global(self, spec: Any) -> Any:
        kind, value = spec
        if kind in ("graph", "plain graph"):
            graph = self._bundle.graph(value + self.record["first_graph"])
            return graph if kind == "graph" else torch_private.without_overrides(graph)
        if kind == "resume":
            number = value + self.record["first_resume"]
            return self.frame.installation.resume_function(number)
        if kind == "helpers":
            return DynamoHelpers(value)
        return decode(value)

    def source(self) -> str:
        """The readable guard source that lies beside the entry; empty if it was removed."""
        try:
            return self._bundle.read(self.record["source"]).decode()
        except Stale:
            return ""

    def give_up(self, error: Exception) -> None:
        """The entry cannot be made to work in this process."""
        self.retire()
        self.frame.installation.leave_out(self.frame, self.record, error)

    def retire(self) -> None:
        """Make the guard refuse from now on."""
        self.ready = False
        self.guard = _never


class _Announced:
    """Stands in for an entry in its guard function: the first hit is logged, each is counted."""

    def __init__(self, entry: Entry, log: Any) -> None:
        self._entry = entry
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    @property
    def hits(self) -> int:
        return self._entry.hits

    @hits.setter
    def hits(self, value: int) -> None:
        if self._entry.hits == 0:
            frame = self._entry.frame
            self._log.hit(frame, frame.entries.index(self._entry))
        self._entry.hits = value

    @property
    def state(self) -> Any:
        return self._entry.state

    @state.setter
    def state(self, value: Any) -> None:
        self._entry.state = value


def prepare_guard(
    namespace: dict[str, Any], data: dict[str, Any], frame_globals: dict[str, Any], entry: Any
) -> CodeType:
    """Fill a guard function's globals from an entry's data, and return its code; `entry` gets its `state`.

    Raises Stale where something it compares with cannot be found, Refused where it cannot be made.
    """
    entry.state = torch_private.StateGuard(data["state"])
    namespace.update(entry=entry, state=entry.state, G=frame_globals)
    namespace.update({f"c{i}": decode(constant) for i, constant in enumerate(data["constants"])})
    with torch_private.dispatching_as(*data["dispatch"]):
        for index, group in enumerate(data["tensors"]):
            namespace[f"T{index}"] = torch_private.tensor_guards(group)
    *parts, code = data["guard"]
    namespace.update({part.co_name: FunctionType(part, namespace, part.co_name) for part in parts})
    whole: CodeType = code
    return whole


class DynamoHelpers:
    """The helpers of torch._dynamo.utils that bytecode calls for symbolic sizes, without dynamo.

    Any other helper is the real one: asking for it imports torch._dynamo, then and only then.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    @staticmethod
    def call_size(tensor: Any, dimension: int) -> int:
        return tensor.size(dimension)

    @staticmethod
    def call_stride(tensor: Any, dimension: int) -> int:
        return tensor.stride(dimension)

    @staticmethod
    def call_storage_offset(tensor: Any) -> int:
        return tensor.storage_offset()

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module), name)


for _helper in (DynamoHelpers.call_size, DynamoHelpers.call_stride, DynamoHelpers.call_storage_offset):
    torch_private.leave_untraced(_helper, below=True)


def _import(module: str) -> None:
    """A module the traced code imported may not be here yet. A compiler is never imported for it."""
    if module not in sys.modules and not module.startswith(("torch._dynamo", "torch._inductor")):
        importlib.import_module(module)


def _never(_locals: dict[str, Any]) -> bool:
    return False


def _with_file(code: CodeType, filename: str, constants: Any) -> CodeType:
    """Bytecode with this machine's file name and the constants that marshal could not hold."""
    consts = list(code.co_consts)
    for index, constant in enumerate(consts):
        if isinstance(constant, CodeType):
            inner = [(path[1:], encoded) for path, encoded in constants if len(path) > 1 and path[0] == index]
            consts[index] = _with_file(constant, filename, inner)
    for path, encoded in constants:
        if len(path) == 1:
            consts[path[0]] = decode(encoded)
    return code.replace(co_filename=filename, co_consts=tuple(consts))
