"""All that an import puts in place: functions with a prologue that asks for their entries.

One module, because finding one costs an import more than running it. What only a call needs is in serving.py:
an import reads a module as a whole.
"""

from __future__ import annotations

import sys
import threading
from _thread import get_ident
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from operator import is_
from sys import _getframe as frame_of
from types import CodeType, FrameType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from ..errors import PrecompileError, check_parts, raised_by_signal, unfit
from ..imports import is_in_the_middle
from ..torch_internals import torch_frames
from ..torch_internals.torch_frames import busy, eval_frame_callback, is_compiling, tracing_state
from ..values.references import CODE_CONSTANT, Stale, check, function_with, original, resolve
from .prologue import is_simple, with_constants, with_prologue

if TYPE_CHECKING:
    from ..installation import Installation
    from ..loading.entries import Entry

__all__ = ["CELLS", "Entrypoint", "Frame", "Site", "current", "same_cells", "unanswered"]


class _Current(threading.local):
    """The entrypoints whose compiled code, or whose skipped target, is on this thread's stack."""

    inside: tuple[Entrypoint, ...] = ()
    instead: bool = False
    """Whether eager code runs in the place of a graph that failed. That call was served, and none that the
    code makes is a miss."""


current = _Current()


class Frame:
    """One code object with its entries, and the places where it runs. Entries come in at the first call."""

    def __init__(self, installation: Installation, record: dict[str, Any], number: int) -> None:
        self.installation = installation
        self.record = record
        self.number = number
        self.owners: list[Entrypoint] = []
        self.misses = 0
        self.loaded = False
        self.awaited = False
        self.served = False
        """Whether a plain call is served: one that neither torch.compile nor an entrypoint makes."""
        self.entries: list[Entry] = []
        self.latest: list[Entry] = []
        """The same, the one that served a call last in front."""
        self.sites: list[Site] = []
        self.code: CodeType
        self.globals: dict[str, Any]

    def find(self) -> None:
        """Activate the functions with this code, now or once their module has been imported. Raises Stale."""
        installation = self.installation
        if self.sites or installation.uninstalled:
            return
        places = self.record["functions"] or [self.record["code"]]
        modules = {self.record["module"], *(place[0] for place in places)}
        missing = {module for module in modules if not installation.is_usable(module)}
        if not missing:
            self._activate()
        elif not self.awaited:
            self.awaited = True
            installation.when_imported(missing, self._find_later)

    def _find_later(self) -> None:
        with self.installation.lock:
            try:
                self.find()
            except Exception as error:  # not in an import of the user's
                if raised_by_signal(error):
                    raise
                self.installation.leave_out(self, self.record, error)

    def _activate(self) -> None:
        self.globals = resolve(self.record["module"], ()).__dict__
        functions = [_function(check(*place)) for place in self.record["functions"]]
        self.code = original(functions[0].__code__) if functions else check(*self.record["code"])
        for function in functions:
            self.activate(function)
        if not functions:
            self._activate_constant(self.record["code"])

    def activate(self, function: FunctionType) -> None:
        """Give a function of this code its prologue."""
        site = Site(self, function.__code__, function)
        site.call_at_start(dispatcher(site))
        if original(site.body) is not site.body:
            site.share_with(self.installation.frames)
        self.sites.append(site)
        function.__code__ = site.code

    def _activate_constant(self, place: Any) -> None:
        """The same for what functions are made of at run time: a constant of another function's code."""
        module, steps, _ = place
        split = next(index for index, (kind, _) in enumerate(steps) if kind == CODE_CONSTANT)
        outer = _function(resolve(module, steps[: split - 1]))
        path = [key for _, key in steps[split:]]
        site = Site(self, self.code, None)
        site.call_at_start(dispatcher(site))
        self.sites.append(site)
        site.undo = _replace_constant(outer, path, site.code)

    def resumed(self, code: CodeType, module_globals: dict[str, Any]) -> CodeType:
        """The code to make a resume function of, with this frame's entries."""
        if not self.sites:
            self.code, self.globals = code, module_globals
            site = Site(self, code, None)
            site.call_at_start(dispatcher(site))
            self.sites.append(site)
        return self.sites[0].code

    def retire(self) -> None:
        """Undo what was done to functions, and let go of what goes round in circles: who holds the class of a
        model waits for nobody's garbage collector. A call that is on its way has what it needs."""
        for site in self.sites:
            site.retire()
        for entry in self.entries:
            entry.retire()
        self.sites, self.entries, self.latest = [], [], []

    def serving(self) -> Any:
        """The module with what only a call needs, which comes in with the first one."""
        installation = self.installation
        if installation.serving is not None:
            return installation.serving
        hooked = torch_frames.eval_frame_callback()
        torch_frames.set_eval_frame(None)  # a torch.compile of the user's has nothing to do with it
        try:
            with installation.lock:  # a fork waits until all of it is in
                try:
                    found = installation.import_serving()
                    if is_in_the_middle(found):
                        return _Coming
                    check_parts()
                    installation.serving = found
                except Exception as error:  # the package is damaged, or gone since it was imported
                    if raised_by_signal(error):
                        raise
                    installation.leave_out(self, self.record, unfit(error))
                    installation.serving = _Gone
        finally:
            torch_frames.set_eval_frame(hooked)
        return installation.serving

    def is_inside(self) -> bool:
        """Whether an entrypoint that this frame belongs to is running on this thread."""
        return any(entrypoint in self.owners for entrypoint in current.inside)


class Site:
    """A function with a frame's code, or, if `function` is None, the code that functions are made of."""

    def __init__(self, frame: Frame, body: CodeType, function: FunctionType | None) -> None:
        """body: what it runs now, perhaps another wheel's. Raises Stale where it can have no prologue."""
        self.frame = frame
        self.body = body
        self.function = function
        self.globals = function.__globals__ if function is not None else frame.globals
        self.closure = function.__closure__ if function is not None else None
        maker: Any = function or FunctionType(_NOTHING, self.globals)
        self.builtins: dict[str, Any] = maker.__builtins__
        self.by_cells = function is None and bool(body.co_freevars)
        # For serving.py: what runs each entry; other wheels' code around this one's; the function without us.
        self.runs: dict[Any, Any] = {}
        self.around: dict[int, CodeType] = {}
        self.twin: FunctionType | None = None
        self.jitted: Any = None
        # This wheel's other prologues of the same function, asked after this one and before it.
        self.inner: list[Site] = []
        self.outer: list[Site] = []
        # Not one name for a.b and a_b.
        package = frame.installation.package.replace("_", "_u").replace(".", "_d")
        names = map(f"__precompiled_{package}_{{}}".format, _numbers)
        self.name = next(name for name in names if name not in self.builtins)
        try:
            self.code = with_prologue(body, self.name)
        except ValueError as error:
            raise Stale(str(error)) from None
        torch_frames.leave_untraced_code(self.code)
        self.undo: Callable[[], None] | None = None

    def call_at_start(self, dispatch: Dispatcher) -> None:
        """Have the prologue call this. Raises Stale where it would not find it."""
        # Not among the module's own names: a copy of the function may have others, or be sent elsewhere.
        try:
            self.builtins[self.name] = dispatch
        except TypeError as error:  # a mapping that cannot be changed
            raise Stale(f"nothing can be added to its builtins ({error})") from None

    def share_with(self, frames: list[Frame]) -> None:
        """Take note of what has a prologue of the same function already."""
        for other in (site for frame in frames for site in frame.sites if site.function is self.function):
            self.inner.append(other)
            other.outer.append(self)

    def retire(self) -> None:
        """Give the function the code back that it had. If somebody has given it another since, the prologue
        in that one finds its name no more, and goes when they give theirs back."""
        if self.undo is not None:
            self.undo()
        self.builtins.pop(self.name, None)
        if self.function is not None and self.function.__code__ is self.code:
            self.function.__code__ = _in_use(self.body, self.builtins)
        self.runs.clear()
        self.inner, self.outer = [], []


def dispatcher(site: Site) -> Dispatcher:
    """What the prologue of a function with entries calls: arguments in, what serves the call out, or None for
    the function's body."""
    frame, runs, simple, names = site.frame, site.runs, is_simple(site.body), site.body.co_freevars
    closure, own_globals, own_code = site.closure, site.globals, site.code
    installation = frame.installation

    # caller: given where a recorder calls, in the place of the prologue
    def dispatch(frame_locals: dict[str, Any], caller: FrameType | None = None) -> Callable[..., Any] | None:
        if is_compiling():
            return None  # dynamo is tracing through this: it goes on with the body
        if busy and get_ident() in busy:
            return None  # what loads an entry, or explains a miss, calls
        hooked = eval_frame_callback()
        if hooked is None and not frame.served and not frame.is_inside():
            return None
        if tracing_state() is not None:
            return None  # guards would be recorded, and warned about
        if hooked is None and followed() is not None:
            return None  # lines of the body are waited for
        if caller is None:
            caller = frame_of(1)
        cells = tuple(map(frame_locals.pop, names)) if names else None
        if caller.f_globals is not own_globals or (closure is not None and not same_cells(closure, cells)):
            # A function was made of this one's code: guards and entry know other variables.
            return frame.serving().copied(site, caller.f_globals, cells, frame_locals, hooked)
        if caller.f_code is not own_code and not frame.serving().is_in(site, caller.f_code):
            return None  # somebody has rewritten it
        if cells is not None:
            _fill_in(frame_locals, names, cells)
        if hooked is not None:
            return frame.serving().under_compile(site, frame_locals, hooked)
        all_refuse, entries = frame.loaded, frame.latest
        try:
            for entry in entries:
                guard = entry.guard
                if guard(frame_locals):
                    if guard is entry.stub:
                        all_refuse = False
                        break
                    if entry is not entries[0]:
                        # The next call is likely to be of this kind; dynamo does so, too. A new list:
                        # threads go through the one that they have.
                        frame.latest = [entry, *(other for other in entries if other is not entry)]
                    if simple and (run := runs.get(entry)) is not None:
                        return run
                    return (installation.serving or frame.serving()).runner(site, entry, frame_locals)
        except Exception as error:
            all_refuse = False
            if not frame.serving().is_refusal(error, guard, frame_locals):
                raise
        if all_refuse:
            return (installation.serving or frame.serving()).missed(site, frame_locals)
        # One is not loaded, or a guard did not come to its end.
        return frame.serving().serve(site, frame_locals)

    torch_frames.leave_untraced(dispatch, below=False)
    recorder = frame.installation.recorder
    return dispatch if recorder is None else recorder.watching(frame, dispatch)


def dispatcher_of_skipped(site: Site, entrypoint: Entrypoint) -> Dispatcher:
    """The same for a target of which nothing was compiled: it runs as it is, and what it calls is served."""
    frame, names, closure = site.frame, site.body.co_freevars, site.closure or ()

    def dispatch(frame_locals: dict[str, Any]) -> Callable[..., Any] | None:
        if is_compiling() or (busy and get_ident() in busy):
            return None
        caller, hooked = frame_of(1), eval_frame_callback()
        cells = tuple(map(frame_locals.pop, names))
        if caller.f_globals is not site.globals or not same_cells(closure, cells):
            return frame.serving().copied(site, caller.f_globals, cells or None, frame_locals, hooked)
        if caller.f_code is not site.code and not frame.serving().is_in(site, caller.f_code):
            return None
        return frame.serving().skipped(site, entrypoint, frame_locals, hooked)

    torch_frames.leave_untraced(dispatch, below=False)
    return dispatch


def _what_is_followed() -> Callable[[], Any]:
    """The function that says what follows the lines of this thread, such as a debugger or coverage; None for
    nothing."""
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on
    if monitoring is None:
        return sys.gettrace
    gettrace, get_tool = sys.gettrace, monitoring.get_tool
    debugger, coverage = monitoring.DEBUGGER_ID, monitoring.COVERAGE_ID

    def followed() -> Any:
        trace = gettrace()
        return trace if trace is not None else get_tool(debugger) or get_tool(coverage)

    torch_frames.leave_untraced(followed, below=True)
    return followed


followed = _what_is_followed()

_numbers = count()

# Code that does nothing.
_NOTHING = (lambda: None).__code__

# The cells of free variables among the locals of a frame; no name of a variable.
CELLS = "<cells>"

# What a prologue calls with the arguments and cells of a call.
Dispatcher = Callable[[dict[str, Any]], Callable[..., Any] | None]


def unanswered(site: Site, frame_locals: dict[str, Any], *, under_compile: bool) -> None:
    """A miss that nobody can explain. Raises PrecompileError with on-miss = "error"."""
    for owner in site.frame.owners:
        if owner.on_miss == "error":
            raise PrecompileError(f"{owner.name} serves no call: its package is damaged, or gone")


class _Gone:
    """In the place of serving.py where the package is gone: functions run as they are."""

    @staticmethod
    def serve(site: Site, frame_locals: dict[str, Any], hooked: Any = None) -> None:
        unanswered(site, frame_locals, under_compile=hooked is not None)

    under_compile = missed = serve

    @staticmethod
    def skipped(site: Site, entrypoint: Entrypoint, frame_locals: dict[str, Any], hooked: Any) -> None:
        unanswered(site, frame_locals, under_compile=hooked is not None)

    @staticmethod
    def copied(*_: Any) -> None:
        return None

    @staticmethod
    def is_in(*_: Any) -> bool:
        return False


class _Coming(_Gone):
    """In the place of serving.py in the middle of its import: the handler of a signal calls."""

    @staticmethod
    def serve(site: Site, frame_locals: dict[str, Any], hooked: Any = None) -> None:
        return None

    under_compile = missed = serve

    @staticmethod
    def skipped(*_: Any) -> None:
        return None


def same_cells(closure: tuple[Any, ...], cells: tuple[Any, ...] | None) -> bool:
    return cells is not None and all(map(is_, closure, cells))


def _fill_in(frame_locals: dict[str, Any], names: tuple[str, ...], cells: tuple[Any, ...]) -> None:
    """Put the values of free variables where dynamo's guards look for them, as far as they have one."""
    for name, cell in zip(names, cells, strict=True):
        with suppress(ValueError):  # an empty cell
            frame_locals[name] = cell.cell_contents
    frame_locals[CELLS] = cells


torch_frames.leave_untraced(same_cells, below=True)
torch_frames.leave_untraced(Frame.serving, below=True)
torch_frames.leave_untraced(_fill_in, below=True)


_AROUND_FUNCTIONS = (MethodType, classmethod, staticmethod)


def _function(value: Any) -> FunctionType:
    """The plain function behind a method; what is none has no prologue."""
    if issubclass(type(value), _AROUND_FUNCTIONS):
        value = value.__func__
    if type(value) is not FunctionType:
        raise Stale(f"a {type(value).__qualname__} is in the place of a function")
    return value


def _in_use(code: CodeType, builtins: dict[str, Any]) -> CodeType:
    """Code without the prologues of entrypoints that were uninstalled, of any wheel."""
    while original(code) is not code and code.co_names and code.co_names[-1] not in builtins:
        code = code.co_consts[-1]
    return code


def _replace_constant(function: FunctionType, path: list[int], constant: CodeType) -> Callable[[], None]:
    """Put code among the constants of a function's code, or of code in it; returns what undoes it."""
    before = function.__code__

    def replaced(code: CodeType, path: list[int]) -> CodeType:
        index, *rest = path
        return with_constants(code, index, replaced(code.co_consts[index], rest) if rest else constant)

    after = function.__code__ = replaced(before, path)

    def undo() -> None:
        if function.__code__ is after:
            function.__code__ = before

    return undo


class Entrypoint:
    """A declared target in this process. Making one raises Stale if the target is gone."""

    def __init__(self, installation: Installation, record: dict[str, Any]) -> None:
        self.installation = installation
        self.name: str = record["name"]
        self.record = record
        self.frames: list[Frame] = [installation.frames[number] for number in record["frames"]]
        self.on_miss = "error" if installation.mode == "strict" else record["on_miss"]
        module, steps = record["home"]
        try:
            self.value = resolve(module, steps)
        except Stale:
            raise Stale(f"{record['target'].replace(':', '.')} is gone") from None
        self._skipped: Site | None = None
        self.misses: dict[Frame, int] = {}
        """Calls of this entrypoint that no entry took. A frame's may be another entrypoint's, too."""

    def activate(self) -> None:
        """Give the functions of the frames, and a target that was skipped, their prologues. Raises Stale."""
        for frame in self.frames:
            frame.owners.append(self)
            if frame.record.get("resume") is not None:
                continue  # the entry that leads to it brings it
            try:
                frame.find()
            except Stale as error:
                if frame is self.frames[0]:
                    raise
                self.installation.leave_out(frame, frame.record, error)
        if self.record["activate"] == "call":
            own = [frame for frame in self.frames if self.owns(frame)]
            for frame in own:
                frame.served = True
            if not own:
                self._activate_skipped()

    @property
    def calls_others(self) -> bool:
        """Whether compiled functions are called below the target, which are not served otherwise."""
        return any(frame.record.get("resume") is None and not self.owns(frame) for frame in self.frames)

    def deactivate(self) -> None:
        for frame in self.frames:
            frame.owners.remove(self)
        if self._skipped is not None:
            self._skipped.retire()
            self._skipped = None

    def function(self) -> Any:
        """The Python function whose frame the entries are for, or the outermost wrapper around it."""
        value = self.value.forward if isinstance(self.value, type) else self.value  # type: ignore[attr-defined]
        return getattr(value, "__func__", value)

    def owns(self, frame: Frame) -> bool:
        """Whether a frame is the target's own: where that was skipped, the first is of what it calls."""
        function = self.function()
        for site in frame.sites:
            if site.function is not None and site.function is function and function.__code__ is site.code:
                return True
        return bool(frame.sites) and function_with(function, frame.code) is not None

    def _activate_skipped(self) -> None:
        """Of the target itself nothing was compiled: it runs as it is, and what it calls is served."""
        function = self.function()
        if type(function) is FunctionType:
            site = Site(self.frames[0], function.__code__, function)
            site.call_at_start(dispatcher_of_skipped(site, self))
            function.__code__ = site.code
            self._skipped = site


WHOLE = True
