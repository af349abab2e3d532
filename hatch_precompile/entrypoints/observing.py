"""Has the calls of a function go through another, while the function stays the object that it is.

It gets a prologue, as the runtime gives one to what it serves. Who holds the function, and what is made of it
meanwhile, holds nothing of ours.
"""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

from hatch_precompile.runtime import prologue

__all__ = ["Call", "IsOf", "calls_observed"]

IsOf = Callable[[tuple[Any, ...]], bool]
"""Whether a call with these positional arguments is one of those that are observed."""

Call = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Makes a call: gets the function, which it may call, and the arguments."""

_numbers = itertools.count()


@contextmanager
def calls_observed(function: FunctionType, is_of: IsOf, call: Call) -> Iterator[None]:
    """Have `call` make the calls of a function, but for those that it makes itself."""
    before = function.__code__
    given = _Arguments(function)
    simple = prologue.is_simple(before)
    now = threading.local()

    def made(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        def once(*args: Any, **kwargs: Any) -> Any:
            now.inside = True  # until the prologue asks
            try:
                return function(*args, **kwargs)
            finally:
                now.inside = False

        return call(once, args, kwargs)

    def dispatch(frame_locals: dict[str, Any]) -> Callable[..., Any] | None:
        if getattr(now, "inside", False):
            now.inside = False
            return None
        args, kwargs = given.of(frame_locals)
        if not is_of(args):
            return None
        return (lambda *_: made(args, kwargs)) if simple else (lambda: made(args, kwargs))

    name = f"__hatch_precompile_observer_{next(_numbers)}"
    of_function: Any = function
    builtins: dict[str, Any] = of_function.__builtins__
    observed = prologue.with_prologue(before, name)
    builtins[name] = dispatch
    function.__code__ = observed
    try:
        yield
    finally:
        if function.__code__ is observed:
            function.__code__ = before
        del builtins[name]  # a copy of the code that somebody has goes on with the body


class _Arguments:
    """Of the locals of a function's frame, the arguments that a caller would pass: no defaults."""

    def __init__(self, function: FunctionType) -> None:
        code = function.__code__
        names = prologue.arguments_of(code)
        self._positional = names[: code.co_argcount]
        self._only = code.co_posonlyargcount
        last = code.co_argcount + code.co_kwonlyargcount
        self._keywords = names[code.co_argcount : last]
        starred = list(names[last:])
        self._args = starred.pop(0) if code.co_flags & inspect.CO_VARARGS else ""
        self._kwargs = starred.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else ""
        values = function.__defaults__ or ()
        named = self._positional[len(self._positional) - len(values) :]
        self._defaults = {**dict(zip(named, values, strict=True)), **(function.__kwdefaults__ or {})}

    def of(self, frame_locals: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        rest = frame_locals[self._args] if self._args else ()
        passed = [name for name in self._positional if not self._is_default(name, frame_locals)]
        count = 0
        while count < len(self._positional) and (rest or self._positional[count] in passed):
            count += 1
        # A positional-only argument is passed with all that stand before it.
        only = [number for number, name in enumerate(self._positional[: self._only], 1) if name in passed]
        count = max(count, *only, 0)
        keywords = [name for name in self._positional[count:] if name in passed]
        keywords += [name for name in self._keywords if not self._is_default(name, frame_locals)]
        kwargs = {name: frame_locals[name] for name in keywords}
        kwargs |= frame_locals[self._kwargs] if self._kwargs else {}
        return (*(frame_locals[name] for name in self._positional[:count]), *rest), kwargs

    def _is_default(self, name: str, frame_locals: dict[str, Any]) -> bool:
        return name in self._defaults and frame_locals[name] is self._defaults[name]
