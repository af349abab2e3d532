"""All that an import puts in place: functions with a prologue that asks for their entries.

One module, and nothing in it that only a call needs: finding a module costs an import more than running it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from operator import is_
from sys import _getframe as frame_of
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from . import torch_private
from .errors import Unfit, raised_by_signal
from .prologue import arguments_of, is_simple, with_constants, with_prologue
from .references import CODE_CONSTANT, Stale, check, function_with, original, resolve

if TYPE_CHECKING:
    from .entries import Entry
    from .installation import Installation

__all__ = ["CELLS", "Entrypoint", "Frame", "Site", "current"]


class _Current(threading.local):
    """The entrypoints whose compiled code, or whose skipped target, is on this thread's stack."""

    inside: tuple[Entrypoint, ...] = ()


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
        """Whether a call is served that nobody compiles and that no entrypoint makes."""
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
        self.sites.append(Site(self, function.__code__, function))
        function.__code__ = self.sites[-1].code

    def _activate_constant(self, place: Any) -> None:
        """The same for what functions are made of at run time: a constant of another function's code."""
        module, steps, _ = place
        split = next(index for index, (kind, _) in enumerate(steps) if kind == CODE_CONSTANT)
        outer = _function(resolve(module, steps[: split - 1]))
        path = [key for _, key in steps[split:]]
        site = Site(self, self.code, None)
        self.sites.append(site)
        site.undo = _replace_constant(outer, path, site.code)

    def resumed(self, code: CodeType, module_globals: dict[str, Any]) -> CodeType:
        """The code to make a resume function of, with this frame's entries."""
        if not self.sites:
            self.code, self.globals = code, module_globals
            self.sites.append(Site(self, code, None))
        return self.sites[0].code

    def retire(self) -> None:
        for site in self.sites:
            site.undo()
        for entry in self.entries:
            entry.retire()

    def load(self) -> None:
        """Read the heads of the entries: what each asks before the rest of it is loaded."""
        installation = self.installation
        with installation.lock:  # our own modules, too: a fork waits until they are in
            if self.loaded or installation.uninstalled:
                return
            try:
                from .entries import heads
            except (ImportError, OSError) as error:  # the package is gone since it was imported
                if raised_by_signal(error):
                    raise
                self.loaded = True
                installation.leave_out(self, self.record, Unfit(str(error)))
                return
            found = heads(self)
        # Not under the lock: this may import, and an import waits for other threads' imports.
        entries = [entry for head in found if (entry := head()) is not None]
        with installation.lock:
            if not self.loaded and not installation.uninstalled:
                self.entries = self.latest = entries
                # Last: a thread that sees it set goes on to what is there.
                self.loaded = True

    # -- at a call -------------------------------------------------------------------------------

    def find_entry(self, frame_locals: dict[str, Any]) -> Entry | None:
        """The first entry that accepts a call; one that is met for the first time is loaded, between its
        guards and not inside them."""
        if not self.loaded:
            self.load()
        for entry in self.latest:
            if self._accepts(entry, frame_locals):
                return entry
        return None

    def _accepts(self, entry: Entry, frame_locals: dict[str, Any]) -> bool:
        while True:
            guard = entry.guard
            try:
                if not guard(frame_locals):
                    return False
            except Exception as error:
                if _is_refusal(error, guard, frame_locals):
                    return False
                raise
            if guard is not entry.stub:
                return True
            # What it makes at its load must not be part of a transform, or seen by a mode.
            if not torch_private.may_serve() or not entry.load():
                return False

    def missed(
        self, site: Site, frame_locals: dict[str, Any], *, under_compile: bool = False
    ) -> Callable[..., Any] | None:
        """What serves a call that no entry takes, or None. Raises PrecompileError where `on-miss` says so."""
        if self.installation.uninstalled or not torch_private.may_serve():
            return None
        if torch_private.is_traced_symbolically():
            return None
        answer = self.installation.answer or self.installation.find_answer()
        return answer(self, site, frame_locals, under_compile=under_compile)

    def is_inside(self) -> bool:
        """Whether an entrypoint that this frame belongs to is running on this thread."""
        return any(entrypoint in self.owners for entrypoint in current.inside)


class Site:
    """A function with a frame's code, or without one the code itself, of which functions are made."""

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
        self._runs: dict[Any, Any] = {}
        self._around: dict[int, CodeType] = {}
        self._twin: FunctionType | None = None
        self._jitted: Any = None
        # Not one name for a.b and a_b.
        package = frame.installation.package.replace("_", "_u").replace(".", "_d")
        names = map(f"__precompiled_{package}_{{}}".format, _numbers)
        self.name = next(name for name in names if name not in self.builtins)
        try:
            self.code = with_prologue(body, self.name)
        except ValueError as error:
            raise Stale(str(error)) from None
        torch_private.leave_untraced_code(self.code)
        # Not among the module's own names: a copy of the function may have others, or be sent elsewhere.
        try:
            self.builtins[self.name] = self._dispatcher()
        except TypeError as error:  # a mapping that cannot be changed
            raise Stale(f"nothing can be added to its builtins ({error})") from None

        self.undo: Callable[[], None] = self._give_back

    def _give_back(self) -> None:
        """Give the function the code back that it had. If somebody has given it another since, the prologue
        in that one is marked, and goes when they give theirs back."""
        self.builtins[self.name]._precompiled_retired = True
        if self.function is not None and self.function.__code__ is self.code:
            self.function.__code__ = _in_use(self.body, self.builtins)

    def eager(self, frame_locals: dict[str, Any] | None = None) -> FunctionType:
        """The function as it is without us. frame_locals: where the cells are, if it is made of them."""
        function = self.function
        if function is None:
            return FunctionType(self.body, self.globals, self.body.co_name, None, self._cells(frame_locals))
        if self._twin is None:
            self._twin = self._copy(function)
        return self._twin

    def _copy(self, function: FunctionType) -> FunctionType:
        twin = FunctionType(self.body, self.globals, function.__name__, function.__defaults__, self.closure)
        twin.__kwdefaults__ = function.__kwdefaults__
        twin.__qualname__ = function.__qualname__
        twin.__dict__ = function.__dict__  # the very same attributes
        return twin

    def jitted(self, frame_locals: dict[str, Any] | None = None) -> Callable[..., Any]:
        """The function as it is without us, under torch.compile, as if there were no bundle."""
        if self._jitted is None or self.by_cells:
            import torch

            self._jitted = torch.compile(self.eager(frame_locals))
        return self._jitted

    def is_in(self, code: CodeType) -> bool:
        """Whether code is another wheel's, around this one's."""
        if self._around.get(id(code)) is code:
            return True
        found = _leads_to(code, self.code)
        if found:
            self._around[id(code)] = code
        return found

    def call_of(self, run: Callable[..., Any], frame_locals: dict[str, Any]) -> Callable[..., Any]:
        """What the prologue calls in order to have `run` called with the frame's arguments."""
        return run if is_simple(self.body) else _with_arguments(run, self.body, frame_locals)

    def runner(self, entry: Entry, frame_locals: dict[str, Any]) -> Callable[..., Any]:
        """What runs an entry's bytecode in the place of the body."""
        if self.by_cells:
            return self.call_of(entry.runner(self, self._cells(frame_locals)), frame_locals)
        run = self._runs.get(entry)
        if run is None:
            run = self._runs[entry] = entry.runner(self, self.closure)
        return self.call_of(run, frame_locals)

    def _cells(self, frame_locals: dict[str, Any] | None) -> tuple[Any, ...] | None:
        return (frame_locals or {}).get(CELLS) if self.by_cells else None

    def _dispatcher(self) -> Callable[[dict[str, Any]], Callable[..., Any] | None]:
        """The function that the prologue calls: arguments in, what serves the call out, or None."""
        frame, site, runs = self.frame, self, self._runs
        is_compiling = torch_private.is_compiling
        hook = torch_private.eval_frame_callback
        tracing = torch_private.tracing_state
        simple = is_simple(self.body)
        names = self.body.co_freevars
        closure, own_globals, own_code = self.closure, self.globals, self.code
        depth = 1 if frame.installation.recorder is None else frame.installation.recorder.depth

        def dispatch(frame_locals: dict[str, Any]) -> Callable[..., Any] | None:
            if is_compiling():
                return None  # dynamo is tracing through this: it goes on with the body
            hooked = hook()
            if hooked is None and not frame.served and not frame.is_inside():
                return None
            if tracing() is not None:
                return None  # guards would be recorded, and warned about
            caller = frame_of(depth)
            cells = tuple(map(frame_locals.pop, names)) if names else None
            if caller.f_globals is not own_globals or (closure is not None and not _same(closure, cells)):
                # A function was made of this one's code: guards and entry know other variables.
                return _copied(site, caller.f_globals, cells, frame_locals, hooked)
            if caller.f_code is not own_code and not site.is_in(caller.f_code):
                return None  # somebody has rewritten it
            if cells is not None:
                _fill_in(frame_locals, names, cells)
            if hooked is not None:
                return _under_compile(site, frame_locals, hooked)
            entries = frame.latest
            try:
                for entry in entries:
                    guard = entry.guard
                    if guard(frame_locals):
                        if guard is entry.stub:
                            break
                        if entry is not entries[0]:
                            # The next call is likely to be of this kind; dynamo does so, too. A new list:
                            # threads go through the one that they have.
                            frame.latest = [entry, *(other for other in entries if other is not entry)]
                        if simple and entry in runs:
                            return runs[entry]
                        return site.runner(entry, frame_locals)
            except Exception as error:
                if not _is_refusal(error, guard, frame_locals):
                    raise
            # One is not loaded, or a guard did not come to its end, or none accepts.
            found = frame.find_entry(frame_locals)
            if found is None:
                return frame.missed(site, frame_locals)
            return site.runner(found, frame_locals)

        torch_private.leave_untraced(dispatch, below=False)
        recorder = frame.installation.recorder
        return dispatch if recorder is None else recorder.watching(frame, dispatch)


_numbers = count()

# Code that does nothing.
_NOTHING = (lambda: None).__code__

# The cells of free variables among the locals of a frame; no name of a variable.
CELLS = "<cells>"


def _leads_to(code: CodeType, own: CodeType) -> bool:
    """Whether code is that of another wheel, around what it found."""
    while code is not own:
        inner = original(code, 1)
        if inner is code or not _is_made_of(code, inner):
            return False
        code = inner
    return True


def _is_made_of(code: CodeType, inner: CodeType) -> bool:
    if code.replace(co_consts=inner.co_consts) == inner:  # a constant is another
        return True
    return bool(code.co_names) and code == with_prologue(inner, code.co_names[-1])


def _same(closure: tuple[Any, ...], cells: tuple[Any, ...] | None) -> bool:
    return cells is not None and all(map(is_, closure, cells))


def _fill_in(frame_locals: dict[str, Any], names: tuple[str, ...], cells: tuple[Any, ...]) -> None:
    """Put the values of free variables where dynamo's guards look for them, as far as they have one."""
    for name, cell in zip(names, cells, strict=True):
        with suppress(ValueError):  # an empty cell
            frame_locals[name] = cell.cell_contents
    frame_locals[CELLS] = cells


def _under_compile(site: Site, frame_locals: dict[str, Any], hooked: Any) -> Callable[..., Any]:
    """Under a torch.compile of the user's: an entry, or else the function as it is, for that to compile."""
    frame = site.frame
    torch_private.set_eval_frame(None)
    try:
        found = frame.find_entry(frame_locals)
        if found is not None:
            torch_private.count_as_compiled()
            return site.runner(found, frame_locals)
        frame.missed(site, frame_locals, under_compile=True)
        return site.call_of(site.eager(frame_locals), frame_locals)
    finally:
        torch_private.set_eval_frame(hooked)


def _copied(
    site: Site, module_globals: dict[str, Any], cells: Any, frame_locals: dict[str, Any], hooked: Any
) -> Callable[..., Any] | None:
    """The same for a function that somebody made of this one's code; None: its body."""
    if hooked is None:
        return None
    torch_private.set_eval_frame(None)
    try:
        function = FunctionType(site.body, module_globals, site.body.co_name, None, cells)
        return site.call_of(function, frame_locals)
    finally:
        torch_private.set_eval_frame(hooked)


def _with_arguments(
    run: Callable[..., Any], code: CodeType, frame_locals: dict[str, Any]
) -> Callable[[], Any]:
    """A function with the arguments of a frame, as the code's signature has them."""
    names = list(arguments_of(code))
    positional = [frame_locals[name] for name in names[: code.co_argcount]]
    last = code.co_argcount + code.co_kwonlyargcount
    keywords = {name: frame_locals[name] for name in names[code.co_argcount : last]}
    for name in names[last:]:
        value = frame_locals[name]
        if type(value) is tuple:
            positional += value
        else:
            keywords.update(value)
    return partial(run, *positional, **keywords)


torch_private.leave_untraced(_under_compile, below=False)
torch_private.leave_untraced(_copied, below=False)
torch_private.leave_untraced(_same, below=True)
torch_private.leave_untraced(Site.is_in, below=True)
torch_private.leave_untraced(_fill_in, below=True)


# What a guard raises by itself where something is not as it was.
_NATURAL = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, torch_private.Refused)


def _is_refusal(error: Exception, guard: Any, frame_locals: dict[str, Any]) -> bool:
    """Whether an exception means that something a guard looks for is not there, as opposed to one that came
    from outside: a signal's handler, another thread. What comes from outside does not come twice."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    in_guard = innermost is not None and innermost.tb_frame.f_code.co_filename.startswith("<guards of ")
    if in_guard and isinstance(error, _NATURAL):
        return True
    if raised_by_signal(error):
        return False  # also where the guard goes on to refuse, with an exception of the same type
    try:
        guard(frame_locals)
    except type(error) as again:
        if raised_by_signal(again):
            raise
        return True
    return False


def _function(value: Any) -> FunctionType:
    """The plain function behind a method; what is none has no prologue."""
    value = getattr(value, "__func__", value)
    if type(value) is not FunctionType:
        raise Stale(f"{value!r} is not a function")
    return value


def _in_use(code: CodeType, builtins: dict[str, Any]) -> CodeType:
    """Code without the prologues of entrypoints that were uninstalled, of any wheel."""
    while original(code) is not code:
        dispatcher = builtins.get(code.co_names[-1]) if code.co_names else None
        if not getattr(dispatcher, "_precompiled_retired", False):
            break
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
            self._skipped.undo()

    def function(self) -> Any:
        """The Python function whose frame the entries are for, or the outermost wrapper around it."""
        value = self.value.forward if isinstance(self.value, type) else self.value  # type: ignore[attr-defined]
        return getattr(value, "__func__", value)

    def owns(self, frame: Frame) -> bool:
        """Whether a frame is the target's own: where that was skipped, the first is of what it calls."""
        return bool(frame.sites) and function_with(self.function(), frame.code) is not None

    def enclosing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, during which what it calls of this entrypoint is served."""
        return _Enclosed(self, function).call

    def _activate_skipped(self) -> None:
        """Of the target itself nothing was compiled: it runs as it is, and what it calls is served."""
        function = self.function()
        if type(function) is FunctionType:
            site = _SkippedSite(self.frames[0], function.__code__, function)
            site.entrypoint = self
            function.__code__ = site.code
            self._skipped = site


class _SkippedSite(Site):
    """A target that was skipped."""

    entrypoint: Entrypoint

    def _dispatcher(self) -> Callable[[dict[str, Any]], Callable[..., Any] | None]:
        is_compiling, hook = torch_private.is_compiling, torch_private.eval_frame_callback
        names, closure = self.body.co_freevars, self.closure or ()

        def dispatch(frame_locals: dict[str, Any]) -> Callable[..., Any] | None:
            if is_compiling():
                return None
            caller, hooked = frame_of(1), hook()
            cells = tuple(map(frame_locals.pop, names))
            if caller.f_globals is not self.globals or not _same(closure, cells):
                return _copied(self, caller.f_globals, cells or None, frame_locals, hooked)
            if caller.f_code is not self.code and not self.is_in(caller.f_code):
                return None
            torch_private.set_eval_frame(None)
            try:
                run: Callable[..., Any] = self.eager()
                if hooked is None:
                    run = self.entrypoint.enclosing(run)
                return self.call_of(run, frame_locals)
            finally:
                torch_private.set_eval_frame(hooked)

        torch_private.leave_untraced(dispatch, below=False)
        return dispatch


class _Enclosed:
    """A function during which an entrypoint counts as running."""

    def __init__(self, entrypoint: Entrypoint, function: Callable[..., Any]) -> None:
        self._entrypoint = entrypoint
        self._function = function

    def call(self, *args: Any, **kwargs: Any) -> Any:
        now = current
        outer = now.inside
        now.inside = (*outer, self._entrypoint)
        try:
            return self._function(*args, **kwargs)
        finally:
            now.inside = outer


torch_private.leave_untraced(_Enclosed.call, below=False)
