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
from types import CellType, CodeType, FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..calling.activation import CELLS
from ..dependencies.inputs import check_inputs
from ..errors import raised_by_signal
from ..graphs import callers
from ..torch_internals import torch_private
from ..values.constants import decode
from ..values.references import COMPILED, Stale, Unimported
from .bundle import Bundle, with_file

if TYPE_CHECKING:
    from ..calling.activation import Frame, Site

__all__ = ["Beside", "Entry", "heads", "native_after", "native_guard", "prepare_guard"]

_native_after = 10


def native_after(calls: int) -> None:
    """An entry's guard is native code when it has served so many calls. Verification has it sooner."""
    global _native_after
    _native_after = calls


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
        self._lacking = ""
        self._pause = 1
        self._bundle = bundle
        stub, code, constants, modules = marshal.loads(head)
        for module in modules:
            _import(module)
        self.code = with_file(code, frame.code.co_filename, constants, COMPILED)
        torch_private.leave_untraced_code(self.code)
        self.stub = FunctionType(stub, torch_private.guard_namespace(), "guard")
        self.guard: Callable[[dict[str, Any]], bool] = self.stub
        self.readable = self.stub

    @property
    def given_up(self) -> bool:
        """Whether it does not fit this process, or was taken out."""
        return not self.ready and self.guard is not self.stub

    def load(self) -> bool:
        """Set up what the stub stands for; one that does not fit this process is left out with a warning."""
        installation = self.frame.installation
        if not self.ready and self.guard is self.stub:
            try:
                with torch_private.at_work():
                    data = marshal.loads(self._bundle.read(self.record["data"]))
                    # Not under the lock: an import waits for other threads', which may wait for the lock.
                    for module in data["modules"]:
                        _import(module)
                    with installation.lock:
                        if installation.loading:
                            return False  # the handler of a signal asks: what it stopped goes on after it
                        if not self.ready and not installation.uninstalled:
                            installation.loading = True
                            try:
                                self._load(data)
                                installation.let_in(self.frame, self._lacking)
                            finally:
                                installation.loading = False
            except Exception as error:
                if raised_by_signal(error):
                    raise
                if type(error) is Stale:
                    self._ask_later(error)
                else:
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

    def beside(self) -> Beside:
        """Its guard, to ask without a call. Of an entry that is not loaded it is made without the rest:
        nothing is imported, no library comes in. Raises Stale where the entry would be left out, Unimported
        where it needs a module that its loading imports."""
        if self.ready:
            return Beside(self.readable.__code__, {**self.readable.__globals__}, self.state)
        data = marshal.loads(self._bundle.read(self.record["data"]))
        namespace, made = torch_private.guard_namespace(), SimpleNamespace()
        try:
            # einops need not be called for it.
            check_inputs(record for record in data["inputs"] if record[0] != "prepared")
            with torch_private.without_torch_function():
                code = prepare_guard(namespace, data, self.frame.globals, made)
        except Stale:
            for module in filter(_is_to_be_imported, data["modules"]):
                raise Unimported(f"module {module} is not imported") from None
            raise
        return Beside(code, namespace, made.state)

    def _until_native(self, native: Any) -> Callable[[dict[str, Any]], bool]:
        """The readable guard, until it has accepted so many calls that a library is worth loading."""
        readable = self.readable

        def guard(frame_locals: dict[str, Any]) -> bool:
            if not readable(frame_locals):
                return False
            if self.hits >= _native_after:
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
                with torch_private.at_work():
                    make = self._bundle.guards(self.record["guards"])
                    self.guard = native_guard(make, self.readable.__globals__, native)
            except Exception as error:
                if raised_by_signal(error):
                    raise
                installation.tell(f"the guards of {self.frame.record['qualname']} run as Python", error)

    def runner(self, site: Site, closure: tuple[Any, ...] | None) -> Callable[..., Any]:
        """What a call of the site runs in the place of its body.

        Where a graph fails, nothing has happened yet, unless it changes its inputs: the body runs instead,
        and raises what it raises.
        """
        from ..calling.serving import eager, enclosing  # which has imported this module

        compiled = FunctionType(self.code, site.globals, self.code.co_name, None, closure)
        owner = next((owner for owner in self.frame.owners if owner.calls_others), None)
        call = compiled if owner is None else enclosing(owner, compiled)
        if not self.record["graphs"]:
            return call

        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            except callers.GraphFailed as error:
                # Not the error itself: this frame, which has the inputs, is in its traceback.
                instead = None if error.rerun else error.instead
            if instead is not None:
                try:
                    raise instead
                finally:
                    del instead
            with torch_private.without_compiling():
                return eager(site, by_cells)(*args, **kwargs)

        by_cells = {CELLS: closure} if site.by_cells else None
        torch_private.leave_untraced(run, below=False)
        return run

    def _global(self, spec: Any) -> Any:
        kind, value = spec
        if kind in ("graph", "plain graph"):
            graph = self._bundle.graph(value + self.record["first_graph"])
            return graph if kind == "graph" else callers.without_overrides(graph)
        if kind == "resume":
            number = value + self.record["first_resume"]
            return self.frame.installation.resume_function(number)
        if kind == "warnings":
            from .places import Warnings

            names = self.frame.globals
            return Warnings(lambda: decode(value[1]) if value[0] == "constant" else names[value[1]])
        if kind == "helpers":
            return DynamoHelpers(value)
        if kind == "random":
            return _drawing(decode(value))
        return decode(value)

    def words(self) -> Any:
        """What the bundle says of the lines of its guard; None if that was removed."""
        try:
            return marshal.loads(self._bundle.read(self.record["data"].removesuffix(".entry") + ".words"))
        except Stale:
            return None

    def give_up(self, error: Exception) -> None:
        """The entry cannot be made to work in this process."""
        self.retire()
        self.frame.installation.leave_out(self.frame, self.record, error)

    def _ask_later(self, error: Stale) -> None:
        """What the entry was made from is not as it was at the build. Perhaps it will be: a test may have
        patched it for this call. So the entry is loaded again at later calls, at one of twice as many each
        time."""
        if not self._lacking:
            self._lacking = str(error)
            self.give_up(error)
        left = self._pause
        self._pause *= 2

        def guard(_locals: dict[str, Any]) -> bool:
            nonlocal left
            left -= 1
            if left <= 0 and not self.frame.installation.uninstalled:
                self.guard = self.stub
            return False

        self.guard = guard

    def retire(self) -> None:
        """Make the guard refuse from now on."""
        self.ready = False
        self.guard = _never
        self.readable = self.stub  # the other has the entry among its globals


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


class Beside:
    """A guard function that counts no hits of its entry."""

    def __init__(self, code: CodeType, namespace: dict[str, Any], state: torch_private.StateGuard) -> None:
        self.state = state
        self.guard: Callable[[dict[str, Any]], bool] = FunctionType(code, namespace, "guard")
        namespace["entry"] = SimpleNamespace(state=state, hits=0)


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
    if parts:
        _add_parts(namespace, parts)
    whole: CodeType = code
    return whole


def _add_parts(namespace: dict[str, Any], parts: list[CodeType]) -> None:
    """Put the functions that have a guard's repeated checks into its namespace; each may call later ones.

    None is among its own globals: what goes round in a circle waits for Python's collector.
    """
    found = {**namespace}
    made: dict[str, FunctionType] = {}
    for part in reversed(parts):
        called = {name: made[name] for name in part.co_names if name in made}
        made[part.co_name] = FunctionType(part, {**found, **called} if called else found, part.co_name)
    namespace.update(made)


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

    call_size = staticmethod(torch_private.Tensor.size)
    call_stride = staticmethod(torch_private.Tensor.stride)
    call_storage_offset = staticmethod(torch_private.Tensor.storage_offset)

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
    kind = threading.local if issubclass(type(value), threading.local) else object
    found: dict[str, Any] = kind.__getattribute__(value, "__dict__")
    return found


for _helper in (_attributes, *(getattr(DynamoHelpers, name) for name in vars(DynamoHelpers))):
    if isinstance(_helper, FunctionType) and not _helper.__name__.startswith("__"):
        torch_private.leave_untraced(_helper, below=True)


def _drawing(calls: list[Any]) -> Callable[[], list[Any]]:
    """What makes a frame's calls of Python's `random`, each (function, arguments, keywords)."""

    def draw() -> list[Any]:
        return [function(*args, **keywords) for function, args, keywords in calls]

    torch_private.leave_untraced(draw, below=True)
    return draw


def _import(module: str) -> None:
    """A module the traced code imported may not be here yet. A compiler is never imported for it."""
    if _is_to_be_imported(module):
        importlib.import_module(module)


def _is_to_be_imported(module: str) -> bool:
    return module not in sys.modules and not module.startswith(("torch._dynamo", "torch._inductor"))


def _never(_locals: dict[str, Any]) -> bool:
    return False


WHOLE = True
