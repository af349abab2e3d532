"""Entries: from the files of a bundle to guard function, bytecode and graphs, at a frame's first call."""

from __future__ import annotations

import builtins
import importlib
import marshal
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import islice
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from . import graphs, torch_private
from .activation import CELLS
from .bundle import Bundle, with_file
from .errors import raised_by_signal, warn
from .inputs import check_inputs
from .references import Stale, decode

if TYPE_CHECKING:
    from .activation import Frame, Site

__all__ = ["Entry", "heads", "native_guard", "prepare_guard"]

# How many calls an entry serves before its guard is called as native code.
NATIVE_AFTER = 10


def heads(frame: Frame) -> list[Callable[[], Entry | None]]:
    """For each entry of a frame what makes it, or leaves it out with a warning."""
    installation = frame.installation

    def make(record: dict[str, Any], head: bytes) -> Entry | None:
        try:
            return Entry(frame, record, head, bundle)
        except Exception as error:
            if raised_by_signal(error):
                raise
            installation.leave_out(frame, record, error)
            return None

    try:
        bundle = installation.bundle
        read = bundle.heads(frame.record)
        return [
            partial(make, record, head) for record, head in zip(frame.record["entries"], read, strict=True)
        ]
    except Exception as error:
        if raised_by_signal(error):
            raise
        installation.leave_out(frame, frame.record, error)
        return []


class Entry:
    """One guarded specialisation. Until a call passes its stub, nothing of it is read but its head.

    guard: asked before each call; the stub, until the entry is loaded; readable: the same as a Python
    function, which has lines.
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
        self.code = with_file(code, frame.code.co_filename, constants)
        torch_private.leave_untraced_code(self.code)
        self.stub = FunctionType(stub, torch_private.guard_namespace(), "guard")
        self.guard: Callable[[dict[str, Any]], bool] = self.stub
        self.readable = self.stub

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
                if raised_by_signal(error):
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
        self.readable = FunctionType(code, namespace, "guard")
        self.guard = self._until_native(data["native"]) if self.record.get("guards") else self.readable
        self.ready = True

    def _until_native(self, native: Any) -> Callable[[dict[str, Any]], bool]:
        """The readable guard, until it has accepted so many calls that a library is worth loading."""
        readable = self.readable

        def guard(frame_locals: dict[str, Any]) -> bool:
            if not readable(frame_locals):
                return False
            if self.hits >= NATIVE_AFTER:
                self._use_native(native)
            return True

        return guard

    def _use_native(self, native: Any) -> None:
        installation = self.frame.installation
        with installation.lock:
            if not self.ready:
                return
            self.guard = self.readable
            try:
                make = self._bundle.guards(self.record["guards"])
                self.guard = native_guard(make, self.readable.__globals__, native)
            except Exception as error:
                if raised_by_signal(error):
                    raise
                text = f"the guards of {self.frame.record['qualname']} run as Python: {error}"
                warn(installation.package, text, installation.mode)

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
            except graphs.GraphFailed as error:
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
            return graph if kind == "graph" else graphs.without_overrides(graph)
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


def native_guard(make: Callable[..., Any], namespace: dict[str, Any], native: Any) -> Callable[..., bool]:
    """The guard that a library makes of what a readable one finds in its namespace."""
    number, names, values = native
    # A dict finds the very string that is its key without comparing text.
    kept = (sys.intern(value) if type(value) is str else value for value in values)
    guard: Callable[..., bool] = make(number, (*(_named(namespace, name) for name in names), *kept))
    return guard


def _named(namespace: dict[str, Any], dotted: str) -> Any:
    name, *attributes = dotted.split(".")
    value = namespace[name] if name in namespace else getattr(builtins, name)
    for attribute in attributes:
        value = getattr(value, attribute)
    return value


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
    """The helpers of torch._dynamo.utils that bytecode calls, without dynamo: torch 2.13 to 2.15.

    Any other helper is the real one: asking for it imports torch._dynamo, then and only then.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    dict_getitem = staticmethod(dict.__getitem__)
    iter_next = staticmethod(next)
    list_getitem = staticmethod(list.__getitem__)
    object_new = staticmethod(object.__new__)

    @staticmethod
    def call_size(tensor: Any, dimension: int) -> int:
        return tensor.size(dimension)

    @staticmethod
    def call_stride(tensor: Any, dimension: int) -> int:
        return tensor.stride(dimension)

    @staticmethod
    def call_storage_offset(tensor: Any) -> int:
        return tensor.storage_offset()

    @staticmethod
    def dict_keys_getitem(table: dict[Any, Any], position: int) -> Any:
        return next(islice(dict.keys(table), position, None))

    @staticmethod
    def make_cell(content: Any = None) -> CellType:
        return CellType(content)

    @staticmethod
    def object_setattr_ignore_descriptor(value: Any, name: str, attribute: Any) -> None:
        _attributes(value)[name] = attribute

    @staticmethod
    def object_delattr_ignore_descriptor(value: Any, name: str) -> None:
        del _attributes(value)[name]

    @staticmethod
    def to_subclass(tensor: Any, cls: type) -> Any:
        return tensor.as_subclass(cls)

    @staticmethod
    def tuple_iterator_getitem(iterator: Any, position: int) -> Any:
        _, (elements,), start = iterator.__reduce__()
        return elements[start + position]

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._module), name)


def _attributes(value: Any) -> dict[str, Any]:
    """The dict of an object, whatever its class does with attributes."""
    kind = threading.local if isinstance(value, threading.local) else object
    found: dict[str, Any] = kind.__getattribute__(value, "__dict__")
    return found


for _helper in (_attributes, *(getattr(DynamoHelpers, name) for name in vars(DynamoHelpers))):
    if isinstance(_helper, FunctionType) and not _helper.__name__.startswith("__"):
        torch_private.leave_untraced(_helper, below=True)


def _import(module: str) -> None:
    """A module the traced code imported may not be here yet. A compiler is never imported for it."""
    if module not in sys.modules and not module.startswith(("torch._dynamo", "torch._inductor")):
        importlib.import_module(module)


def _never(_locals: dict[str, Any]) -> bool:
    return False
