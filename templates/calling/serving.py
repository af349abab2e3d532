"""What a call needs beside what an import puts in place: the entry that serves it, and what runs it.

It comes in with the first call of a compiled function: an import has no use for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from ..errors import raised_by_signal
from ..graphs.callers import GraphFailed
from ..loading.entries import heads
from ..torch_internals import torch_private
from ..values.references import original
from .activation import CELLS, current, unanswered
from .prologue import arguments_of, is_simple, with_prologue

if TYPE_CHECKING:
    from ..loading.entries import Entry
    from .activation import Entrypoint, Frame, Site

__all__ = [
    "call_of",
    "copied",
    "enclosing",
    "is_in",
    "is_refusal",
    "jitted",
    "load",
    "missed",
    "runner",
    "serve",
    "skipped",
    "under_compile",
]


# -- an entry for a call -------------------------------------------------------------------------


def serve(site: Site, frame_locals: dict[str, Any]) -> Callable[..., Any] | None:
    """What serves a call; None for the function's own body."""
    found = _find_entry(site.frame, frame_locals)
    return missed(site, frame_locals) if found is None else runner(site, found, frame_locals)


def under_compile(site: Site, frame_locals: dict[str, Any], hooked: Any) -> Callable[..., Any]:
    """Under a torch.compile of the user's: an entry, or else the function as it is, for that to compile."""
    torch_private.set_eval_frame(None)
    try:
        found = _find_entry(site.frame, frame_locals)
        if found is not None:
            torch_private.count_as_compiled()
            return runner(site, found, frame_locals)
        missed(site, frame_locals, under_compile=True)
        return call_of(site, eager(site, frame_locals), frame_locals)
    finally:
        torch_private.set_eval_frame(hooked)


def copied(
    site: Site, module_globals: dict[str, Any], cells: Any, frame_locals: dict[str, Any], hooked: Any
) -> Callable[..., Any] | None:
    """What runs for a function that somebody made of this site's code, which entries do not fit: under a
    torch.compile of the user's the function as it is, for that to compile; else None, for its own body."""
    if hooked is None:
        return None
    torch_private.set_eval_frame(None)
    try:
        function = FunctionType(site.body, module_globals, site.body.co_name, None, cells)
        return call_of(site, function, frame_locals)
    finally:
        torch_private.set_eval_frame(hooked)


def load(frame: Frame) -> None:
    """Read the heads of a frame's entries: what each asks before the rest of it is loaded."""
    installation = frame.installation
    with installation.lock:
        if frame.loaded or installation.uninstalled:
            return
        found = heads(frame)
    # Not under the lock: this may import, and an import waits for other threads' imports.
    with torch_private.at_work():
        entries = [entry for head in found if (entry := head()) is not None]
    with installation.lock:
        if not frame.loaded and not installation.uninstalled:
            frame.entries = frame.latest = entries
            # Last: a thread that sees it set goes on to what is there.
            frame.loaded = True


def _find_entry(frame: Frame, frame_locals: dict[str, Any]) -> Entry | None:
    """The first entry that accepts a call; one that is met for the first time is loaded, between its guards
    and not inside them."""
    if not frame.loaded:
        load(frame)
    for entry in frame.latest:
        if _accepts(entry, frame_locals):
            return entry
    return None


def _accepts(entry: Entry, frame_locals: dict[str, Any]) -> bool:
    while True:
        guard = entry.guard
        try:
            if not guard(frame_locals):
                return False
        except Exception as error:
            if is_refusal(error, guard, frame_locals):
                return False
            raise
        if guard is not entry.stub:
            return True
        # What it makes at its load must not be part of a transform, or seen by a mode.
        if not torch_private.may_serve() or not entry.load():
            return False


# What a guard raises by itself where something is not as it was.
_NATURAL = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, torch_private.Refused)


def is_refusal(error: Exception, guard: Any, frame_locals: dict[str, Any]) -> bool:
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


def missed(
    site: Site, frame_locals: dict[str, Any], *, under_compile: bool = False
) -> Callable[..., Any] | None:
    """What serves a call that no entry takes, or None. Raises PrecompileError where `on-miss` says so."""
    installation = site.frame.installation
    if installation.uninstalled or not torch_private.may_serve():
        return None
    if installation.reason and installation.mode != "strict":
        return None  # what does not fit at all is as if it had never been installed
    if torch_private.is_traced_symbolically() or current.instead:
        return None
    answer = installation.answer or installation.find_answer(unanswered)
    return answer(site, frame_locals, under_compile=under_compile)


# -- what runs -----------------------------------------------------------------------------------


def runner(site: Site, entry: Entry, frame_locals: dict[str, Any]) -> Callable[..., Any]:
    """What runs an entry's bytecode in the place of a site's body."""
    if site.by_cells:
        return call_of(site, _run(entry, site, _cells(site, frame_locals)), frame_locals)
    run = site.runs.get(entry)
    if run is None:
        run = site.runs[entry] = _run(entry, site, site.closure)
    return call_of(site, run, frame_locals)


def _run(entry: Entry, site: Site, closure: tuple[Any, ...] | None) -> Callable[..., Any]:
    """What a call of the site runs in the place of its body.

    Where a graph fails, nothing has happened yet, unless it changes its inputs: the body runs instead,
    and raises what it raises.
    """
    compiled = FunctionType(entry.code, site.globals, entry.code.co_name, None, closure)
    owner = next((owner for owner in entry.frame.owners if owner.calls_others), None)
    call = compiled if owner is None else enclosing(owner, compiled)
    if not entry.record["graphs"]:
        return call

    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except GraphFailed as error:
            # Not the error itself: this frame, which has the inputs, is in its traceback.
            instead = None if error.rerun else error.instead
        if instead is not None:
            try:
                raise instead
            finally:
                del instead
        before, current.instead = current.instead, True
        try:
            with torch_private.without_compiling():
                return eager(site, by_cells)(*args, **kwargs)
        finally:
            current.instead = before

    by_cells = {CELLS: closure} if site.by_cells else None
    torch_private.leave_untraced(run, below=False)
    return run


def eager(site: Site, frame_locals: dict[str, Any] | None = None) -> FunctionType:
    """A site's function as it is without us. frame_locals: where the cells are, if it is made of them."""
    function = site.function
    if function is None:
        cells = _cells(site, frame_locals)
        return FunctionType(site.body, site.globals, site.body.co_name, None, cells)
    if site.twin is None:
        site.twin = _copy(site, function)
    return site.twin


def _copy(site: Site, function: FunctionType) -> FunctionType:
    twin = FunctionType(site.body, site.globals, function.__name__, function.__defaults__, site.closure)
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__qualname__ = function.__qualname__
    twin.__dict__ = function.__dict__  # the very same attributes
    return twin


def jitted(site: Site, frame_locals: dict[str, Any] | None = None) -> Callable[..., Any]:
    """The same under torch.compile, as if there were no bundle."""
    if site.jitted is None or site.by_cells:
        import torch

        site.jitted = torch.compile(eager(site, frame_locals))
    compiled: Callable[..., Any] = site.jitted
    return compiled


def _cells(site: Site, frame_locals: dict[str, Any] | None) -> tuple[Any, ...] | None:
    return (frame_locals or {}).get(CELLS) if site.by_cells else None


def call_of(site: Site, run: Callable[..., Any], frame_locals: dict[str, Any]) -> Callable[..., Any]:
    """What the prologue calls in order to have `run` called with the frame's arguments."""
    return run if is_simple(site.body) else _with_arguments(run, site.body, frame_locals)


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


# -- whose code it is ----------------------------------------------------------------------------


def is_in(site: Site, code: CodeType) -> bool:
    """Whether code is a site's with prologues of others around it."""
    if site.around.get(id(code)) is code:
        return True
    found = _leads_to(code, site.code)
    if found:
        site.around[id(code)] = code
    return found


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


# -- targets that were skipped -------------------------------------------------------------------


def skipped(
    site: Site, entrypoint: Entrypoint, frame_locals: dict[str, Any], hooked: Any
) -> Callable[..., Any]:
    """What runs in the place of a target of which nothing was compiled, so that what it calls is served."""
    torch_private.set_eval_frame(None)
    try:
        run: Callable[..., Any] = eager(site)
        return call_of(site, enclosing(entrypoint, run) if hooked is None else run, frame_locals)
    finally:
        torch_private.set_eval_frame(hooked)


def enclosing(entrypoint: Entrypoint, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, during which what it calls of an entrypoint is served."""
    return _Enclosed(entrypoint, function).call


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


for _function in (under_compile, copied, skipped, _Enclosed.call):
    torch_private.leave_untraced(_function, below=False)
torch_private.leave_untraced(is_in, below=True)

WHOLE = True
