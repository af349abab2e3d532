"""What varied in the calls of an entrypoint: modes, dimensions, numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from hatch_precompile.config import Dimension, Entrypoint
from hatch_precompile.traffic.reading import Call

__all__ = ["widened"]

_SEVERAL_NUMBERS = 3
"""Of fewer values each gets a sample: code for one value is sure to be right for it."""

_NAMES = ("batch", "length")


def widened(entrypoint: Entrypoint, calls: Sequence[Call], *, rare: float) -> Entrypoint:
    """The entrypoint with the modes, dynamic dimensions and numbers that serve these calls; what it has of
    them stays. rare: the share of calls below which a mode is left out."""
    modes = _modes(entrypoint, calls, rare)
    usable = [call for call in calls if call.mode in modes and not call.content.get("too_large")]
    return msgspec.structs.replace(
        entrypoint,
        mode=modes[0] if len(modes) == 1 else modes,
        dynamic_shapes=_shapes(entrypoint, usable),
        dynamic_numbers=_numbers(entrypoint, usable),
    )


def _modes(entrypoint: Entrypoint, calls: Sequence[Call], rare: float) -> tuple[str, ...]:
    """Those configured and those used; "train" stands alone, and is not for who forgot torch.no_grad()."""
    if "train" in entrypoint.modes:
        return entrypoint.modes
    counts = Counter[str]()
    for call in calls:
        counts[call.mode] += call.count
    least = rare * counts.total()
    used = [mode for mode in ("no_grad", "inference") if counts[mode] and counts[mode] >= least]
    return tuple(dict.fromkeys([*entrypoint.modes, *used]))


# -- dimensions --------------------------------------------------------------------------------------


@dataclass
class _Group:
    """Dimensions that had one size in every call. `sizes`: by the number of the call."""

    places: list[tuple[str, int]] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    name: str = ""


def _shapes(entrypoint: Entrypoint, calls: Sequence[Call]) -> dict[str, dict[int, Dimension]]:
    groups: list[_Group] = []
    for (argument, index), sizes in _sizes(calls).items():
        configured = entrypoint.dynamic_shapes.get(argument, {}).get(index)
        varied = len({size for size in sizes.values() if size > 1}) > 1
        if varied or configured is not None:
            _put(groups, (argument, index), sizes, configured.name if configured is not None else "")
    _give_names(
        groups, taken={each.name for dims in entrypoint.dynamic_shapes.values() for each in dims.values()}
    )
    shapes = {argument: dict(dimensions) for argument, dimensions in entrypoint.dynamic_shapes.items()}
    for group in groups:
        dimension = _range(group, entrypoint)
        for argument, index in group.places:
            shapes.setdefault(argument, {})[index] = dimension
    # Several groups may have one configured name, and so one range.
    return _with_one_range(shapes)


def _sizes(calls: Sequence[Call]) -> dict[tuple[str, int], dict[int, int]]:
    """(argument, dimension) to its size in each call, for arguments that are tensors of one rank wherever
    they are given."""
    seen: dict[str, dict[int, list[int]]] = {}
    others: set[str] = set()
    for number, call in enumerate(calls):
        for name, value in call.named.items():
            if isinstance(value, dict) and "size" in value:
                seen.setdefault(name, {})[number] = value["size"]
            elif value is not None:
                others.add(name)
    return {
        (name, index): {number: size[index] for number, size in sizes.items()}
        for name, sizes in seen.items()
        if name not in others and name.isidentifier() and len(set(map(len, sizes.values()))) == 1
        for index in range(len(next(iter(sizes.values()))))
    }


def _put(groups: list[_Group], place: tuple[str, int], sizes: dict[int, int], name: str) -> None:
    for group in groups:
        common = group.sizes.keys() & sizes.keys()
        same = bool(common) and all(group.sizes[number] == sizes[number] for number in common)
        if same and (not name or not group.name or name == group.name):
            group.places.append(place)
            group.sizes |= sizes
            group.name = group.name or name
            return
    groups.append(_Group([place], dict(sizes), name))


def _give_names(groups: list[_Group], taken: set[str]) -> None:
    for group in groups:
        if not group.name:
            argument, index = group.places[0]
            usual = _NAMES[index] if index < len(_NAMES) else ""
            group.name = usual if usual and usual not in taken else f"{argument}_{index}"
            while group.name in taken:
                group.name += "_"
        taken.add(group.name)


def _range(group: _Group, entrypoint: Entrypoint) -> Dimension:
    """What was seen and what is configured; no limit where none is configured."""
    configured = [
        entrypoint.dynamic_shapes[argument][index]
        for argument, index in group.places
        if index in entrypoint.dynamic_shapes.get(argument, {})
    ]
    seen = [size for size in group.sizes.values() if size > 1]
    lows = [each.min for each in configured] + ([min(seen)] if seen else [])
    highs = [each.max for each in configured] + ([max(seen)] if seen else [])
    return Dimension(
        group.name,
        None if None in lows else min(each for each in lows if each is not None),
        None if None in highs else max(each for each in highs if each is not None),
    )


def _with_one_range(shapes: dict[str, dict[int, Dimension]]) -> dict[str, dict[int, Dimension]]:
    ranges: dict[str, Dimension] = {}
    for each in [each for dimensions in shapes.values() for each in dimensions.values()]:
        known = ranges.get(each.name, each)
        low = None if known.min is None or each.min is None else min(known.min, each.min)
        high = None if known.max is None or each.max is None else max(known.max, each.max)
        ranges[each.name] = Dimension(each.name, low, high)
    return {
        argument: {index: ranges[each.name] for index, each in sorted(dimensions.items())}
        for argument, dimensions in shapes.items()
    }


# -- numbers -----------------------------------------------------------------------------------------


def _numbers(entrypoint: Entrypoint, calls: Sequence[Call]) -> tuple[str, ...]:
    values: dict[str, set[float]] = {}
    others: set[str] = set()
    for call in calls:
        for name, value in call.named.items():
            if type(value) in (int, float):
                values.setdefault(name, set()).add(value)
            else:
                others.add(name)
    varied = [
        name
        for name, found in values.items()
        if name not in others and name.isidentifier() and len(found) >= _SEVERAL_NUMBERS
    ]
    return tuple(dict.fromkeys([*entrypoint.dynamic_numbers, *varied]))
