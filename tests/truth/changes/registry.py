"""The table of changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CHANGES", "Apply", "Change", "add", "change"]

Apply = Callable[[Any], None]


@dataclass(frozen=True)
class Change:
    """What happens to a program between build and call.

    harmless: nothing that the program depends on changes, so that a miss would be needless; aside: who
    asks for this wants no compiled code; only: the kinds of program it is for ("module", "method",
    "function"), or the names of programs; reads: words that, in a program's source, make it not harmless;
    environment: what the process is started with; warm: torch._dynamo is imported beforehand, to save
    time; compiler: it shows or restricts what torch's compiler does, so it is not for a program whose eager
    code compiles; listed: False for one that is only used with a parameter.
    """

    name: str
    kind: str
    apply: Apply
    harmless: bool = False
    aside: bool = False
    only: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    warm: bool = False
    compiler: bool = False
    listed: bool = True
    limit: float = 40.0


CHANGES: dict[str, Change] = {}


def add(name: str, kind: str, apply: Apply, **facts: Any) -> None:
    assert name not in CHANGES, name
    CHANGES[name] = Change(name, kind, apply, **facts)


def change(name: str, kind: str, **facts: Any) -> Callable[[Apply], Apply]:
    def register(function: Apply) -> Apply:
        add(name, kind, function, **facts)
        return function

    return register
