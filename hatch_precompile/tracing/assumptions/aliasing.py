"""Notes the objects that a trace has met in more than one place, and those that it has written to.

Seen in torch 2.11.0 and 2.13.0, read in 2.14.1.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType
from typing import Any

from hatch_precompile.tracing.assumptions.comparisons import constants_apart
from hatch_precompile.tracing.assumptions.identities import apart, keep_in_tree, same
from hatch_precompile.tracing.assumptions.notes import assumed, stop

__all__ = ["objects_apart", "watch_sharing"]


def watch_sharing(watch: Callable[..., None]) -> None:
    """Have `watch` put each of the functions below around dynamo's."""
    from torch._dynamo.side_effects import SideEffects
    from torch._dynamo.variables import builder, functions

    for name in ("_track_obj", "track_mutable"):
        watch(SideEffects, name, _met)
    watch(SideEffects, "track_cell_existing", _cell_met)
    watch(functions.UserFunctionVariable, "bind_args", _closure)
    for name in ("mutation", "store_attr"):
        watch(SideEffects, name, _written)
    watch(builder, "make_dupe_guard", _met_again)


def _met(self: Any, item: Any, variable: Any, *args: Any, own: Any, **kwargs: Any) -> Any:
    result = own(self, item, variable, *args, **kwargs)
    if variable.source is not None:
        assumed().met[id(item)] = item, variable
    return result


def _cell_met(self: Any, source: Any, cell: Any, contents: Any, *, own: Any) -> Any:
    from torch._dynamo.source import LocalCellSource

    result = own(self, source, cell, contents)
    # The frame's own cannot be asked for.
    if source is not None and not isinstance(source, LocalCellSource):
        assumed().met[id(cell)] = cell, result
    return result


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _closure(self: Any, parent: Any, *args: Any, own: Any, **kwargs: Any) -> Any:
    """A cell that two functions share has one variable, and of the second place no guard."""
    from torch._dynamo.source import (
        CellContentsSource,
        ClosureSource,
        GetItemSource,
        LocalCellSource,
        LocalSource,
    )

    result = own(self, parent, *args, **kwargs)
    source = self.get_source()
    for index, cell in enumerate((self.fn.__closure__ or ()) if source is not None else ()):
        variable = parent.output.side_effects.id_to_variable.get(id(cell))
        before = variable.source if variable is not None else None
        here = GetItemSource(ClosureSource(source), index)
        if isinstance(before, LocalCellSource):
            assumed().shared.add(before.local_name)
            if _is_filled(cell):
                own_variable = LocalSource(before.local_name, is_derefed_cell_contents=True)
                same(own_variable, CellContentsSource(here, "cell_contents"))
        elif before is not None and before != here:
            same(before, here)
    return result


def _met_again(here: Any, before: Any, *, own: Any) -> Any:
    """An object that comes from two places has one variable. That it has to be one is guarded where both are
    below the frame's variables, or both below its globals."""
    from torch._dynamo.guards import GuardBuilder, install_guard
    from torch._dynamo.source import is_from_skip_guard_source

    guard = own(here, before)
    if guard is None and before is not None and before != here:
        places = [each for each in (before, here) if not is_from_skip_guard_source(each)]
        if len(places) == 1:  # the other is the standard library's, and taken for constant
            install_guard(places[0].make_guard(GuardBuilder.ID_MATCH))
        elif places:
            same(before, here)
    return guard


def _written(self: Any, variable: Any, *args: Any, own: Any, **kwargs: Any) -> Any:
    if variable.source is not None:
        # Not by its name: a cell of the frame's own, which a `nonlocal` is written to, has none.
        assumed().written[variable.source] = variable
    return own(self, variable, *args, **kwargs)


def objects_apart(frame: Any) -> None:
    """At the end of a trace, note that each object it wrote to is none of the others of its type that it met:
    these would show what was written. frame: dynamo's translator of the outermost frame"""
    found = assumed()
    by_type: dict[type, list[Any]] = {}
    for item, variable in found.met.values():
        by_type.setdefault(type(item), []).append(variable)
    for item, variable in found.met.values():
        # Of an object of a class derived from dict, list or set, the variable of its dict is written to.
        if variable.source in found.written:
            for other in by_type[type(item)]:
                if other is not variable:
                    apart(variable, other)
    _own_cells_apart(frame)
    constants_apart()


def _own_cells_apart(frame: Any) -> None:
    """No guard reaches the frame's own cells, but guards reach their contents: cells with different contents
    are different cells."""
    from torch._dynamo.resume_execution import TORCH_DYNAMO_RESUME_IN_PREFIX
    from torch._dynamo.source import CellContentsSource, LocalCellSource, LocalSource

    # What one that goes on after a graph break shares, the call before the break has made.
    if frame.f_code.co_name.startswith(TORCH_DYNAMO_RESUME_IN_PREFIX):
        return
    found = assumed()
    cells = [(item, variable) for item, variable in found.met.values() if type(item) is CellType]
    for source in found.written:
        if not isinstance(source, LocalCellSource) or source.local_name not in frame.f_code.co_freevars:
            continue
        name = source.local_name
        own = frame.f_locals.get(name)
        filled = [(cell.cell_contents, variable) for cell, variable in cells if _is_filled(cell)]
        if name in found.shared or any(contents is own for contents, _ in filled):
            stop(
                f"the variable {name!r}, which the traced function writes, and others may have",
                "Keep it in an attribute.",
            )
            continue
        here = LocalSource(name, is_derefed_cell_contents=True)
        for _, variable in filled:
            there = CellContentsSource(variable.source, "cell_contents")
            keep_in_tree(here)
            keep_in_tree(there)
            found.apart.add((here.name, there.name))
