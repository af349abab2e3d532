"""An entry's files: what the runtime reads first (`head`), the rest (`data`), what an explanation says of the
guard (`.words`), and the guard for people (`source`).

A head is a tuple, and the bundle has the heads of a frame's entries in one file:

1. the code of the stub, a function `guard(L)` with the first checks, which ends with `return load(L)`
2. the frame's bytecode, with renamed globals
3. pairs (path, encoded constant) for what marshal cannot hold; a path is of positions in `co_consts`
4. the modules that references in these start from

The data is a dict:

- `guard`: the code of the functions in the readable source: repeated parts, then `guard(L)`
- `native`: number in the library of guards, dotted names in the guard's namespace, and values: its constants
- `constants`: encoded constants (templates/values/constants.py): `c0`, `c1`, ... in the guard
- `tensors`: groups `T0`, `T1`, ... in the guard: see `TensorGroup`
- `state`: JSON of torch's `GlobalStateGuard`, but for its `num_threads`
- `dispatch`: dispatch keys added and left out in the captured call, raw; tensors are checked under them
- `globals`: what names in the bytecode stand for: see `LoweredCode`
- `inputs`: records of what the entry depends on: see dependencies/kinds.py
- `modules`: those imported before references are followed, except torch's compiler
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hatch_precompile.lower.bytecode import LoweredCode
from hatch_precompile.lower.dependencies.kinds import Dependency, modules_referred_to
from hatch_precompile.lower.guards.explanation_data import words_of
from hatch_precompile.lower.guards.lowering import LoweredGuards, function_codes
from hatch_precompile.lower.guards.native.library import NativeGuards
from hatch_precompile.records import GUARDS, MARSHAL, CapturedEntry

__all__ = ["LoweredEntry", "modules_named", "write_entry"]


@dataclass(frozen=True)
class LoweredEntry:
    """An entry in the terms of this project.

    number: among the entries of its entrypoint; function: the qualified name of the frame's function;
    graphs: the numbers of those it calls
    """

    number: int
    function: str
    sample: int
    guards: LoweredGuards
    code: LoweredCode
    dependencies: tuple[Dependency, ...]
    graphs: list[int]


def write_entry(
    entry: LoweredEntry,
    directory: Path,
    entrypoint: str,
    dispatch: tuple[int, int],
    native_guards: NativeGuards,
) -> CapturedEntry:
    """Write the files of an entry below a directory. dispatch: the keys of the thread that was traced;
    native_guards: gets its guard."""
    guards, code = entry.guards, entry.code
    place = f"entries/{entry.number}"
    text = f"# Guards of {entry.function}, sample {entry.sample + 1} of {entrypoint}.\n{guards.source}"
    name = f"<guards of {entry.function}>"
    native = native_guards.add(guards.functions)
    head = (
        function_codes(guards.stub.text(), name)[0],
        code.code,
        code.constants,
        modules_named(code.constants),
    )
    data = {
        "guard": function_codes(text, name),
        "native": native,
        "constants": guards.constants,
        "tensors": tuple(group.encoded() for group in guards.tensors),
        "state": guards.state,
        "dispatch": dispatch,
        "globals": code.globals,
        "inputs": tuple(each.encoded() for each in entry.dependencies),
        "modules": modules_named(
            guards.constants, list(code.globals.values()), dependencies=entry.dependencies
        ),
    }
    record = CapturedEntry(
        data=f"{place}.entry",
        head=f"{place}.head",
        source=f"{place}.guards.txt",
        guards=GUARDS if native is not None else "",
        graphs=entry.graphs,
        sample=entry.sample,
        checks=guards.checks,
        dropped=guards.dropped,
        rebound=guards.rebound,
        by_kind=guards.by_kind,
        native=code.native,
    )
    (directory / record.source).write_text(text)
    words = words_of(guards.functions, guards.notes)
    (directory / f"{place}.words").write_bytes(marshal.dumps(words, MARSHAL))
    (directory / record.data).write_bytes(marshal.dumps(data, MARSHAL))
    (directory / record.head).write_bytes(marshal.dumps(head, MARSHAL))
    return record


def modules_named(*constants: Any, dependencies: Iterable[Dependency] = ()) -> tuple[str, ...]:
    """Every module that a reference in encoded constants starts from, and those of dependencies."""
    return tuple(sorted(modules_referred_to(constants).union(*(each.modules() for each in dependencies))))
