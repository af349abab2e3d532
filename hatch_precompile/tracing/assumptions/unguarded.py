"""Notes what a trace has found and not looked at.

Dynamo makes the guards of a value when something asks what it is. What the traced code only finds, as in
`try: model.gain` before an `except AttributeError`, has none: in another process it may be gone. It is asked
that it is there.

Seen in torch 2.11.0, 2.13.0, 2.14.1 and 2.15.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hatch_precompile.static_lookup import dict_of, is_a
from hatch_precompile.tracing.assumptions.notes import assumed, value_of

__all__ = ["guard_what_was_found", "note_found", "watch_found"]


def watch_found(watch: Callable[..., None]) -> None:
    """Have `watch` put a function around the one that puts a value where the traced code sees it."""
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase

    watch(InstructionTranslatorBase, "push", _pushed)


def _pushed(self: Any, variable: Any, *, own: Any) -> None:
    note_found(variable)
    own(self, variable)


def note_found(variable: Any) -> None:
    """Keep a variable of dynamo's that nothing has looked at so far."""
    if not variable.is_realized():
        if variable.source is not None:  # else it is text that the trace has made
            assumed().found[variable.source] = variable
    elif (of_class := _source_of_method(variable)) is not None:
        assumed().found[of_class] = variable


def _source_of_method(variable: Any) -> Any:
    """Where the class has a method from; None for what is none. Its function is apart since torch 2.15."""
    held = vars(variable)
    return held["im_func"].source if "im_func" in held else held.get("source_fn")


def guard_what_was_found(frame: Any) -> None:
    """At the end of a trace, have dynamo guard that what nothing has looked at is there.

    frame: dynamo's translator of the outermost one
    """
    found = [source for source, variable in assumed().found.items() if not _is_looked_at(variable)]
    looked_at = set(_guarded()) if found else set()
    for source in found:
        if source not in looked_at:
            _guard(source, frame)


def _is_looked_at(variable: Any) -> bool:
    # Of a method, which is compared if it was called
    function = vars(vars(variable).get("im_func", variable)).get("fn")
    return variable.is_realized() if function is None else function in assumed().functions


def _guarded() -> Iterator[Any]:
    """Where the values are from that guards reach already."""
    from torch._guards import TracingContext

    for guard in TracingContext.get().guards_context.dynamo_guards:
        yield from _ways(guard.originating_source)


def _ways(source: Any) -> Iterator[Any]:
    while source is not None:
        yield source
        source = getattr(source, "base", None)


def _guard(source: Any, frame: Any) -> None:
    from torch._dynamo.guards import install_guard
    from torch._dynamo.source import AttrSource, DictGetItemSource, LocalSource
    from torch._guards import GuardSource

    if source.is_ephemeral() or source.guard_source is GuardSource.CONSTANT:
        return  # that is no place
    if type(source) is LocalSource and source.local_name not in frame.f_code.co_freevars:
        return  # the frame has it
    if type(source) is AttrSource:
        own = dict_of(value_of(source.base, frame))
        if is_a(own, dict) and source.member in own:  # where it is gone, its class may answer for it
            source = DictGetItemSource(AttrSource(source.base, "__dict__"), source.member)
    install_guard(source.make_guard(_reach))


def _reach(builder: Any, guard: Any) -> None:
    """A guard that asks nothing of a value: to reach it is all."""
    builder.get_guard_manager(guard)
