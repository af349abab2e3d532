"""Makes a guard function short: what it asks of several values in the same words becomes a function.

A model of many layers repeats itself, and so do the checks on it. The text is a tree of blocks, one per
value; two blocks are the same if they differ only in the names of their variables. Only the length
changes: the same checks are made in the same order.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

__all__ = ["Block", "Item", "Part", "flat", "function_text", "share_parts"]

_VARIABLE = re.compile(r"\bv\d+(?=\b|_keys\b|_flat\b)")
# Below that a call would cost more than it saves.
_WORTH_LINES = 4


@dataclasses.dataclass
class Block:
    """Lines about the value in one variable, with a block for each value reached from it."""

    variable: str
    items: list[Item]


Item = str | Block


@dataclasses.dataclass
class Part:
    """A function for blocks that are the same. It gives what is used later, or False for a refusal.

    Its variables are those of the first of the blocks.
    """

    name: str
    parameter: str
    items: list[Item]

    @property
    def lines(self) -> list[str]:
        return flat(self.items)


def function_text(name: str, parameter: str, lines: Sequence[str]) -> str:
    return f"def {name}({parameter}):\n" + "".join(f"    {line}\n" for line in lines)


def flat(items: Sequence[Item]) -> list[str]:
    """All lines in their order."""
    lines: list[str] = []
    for item in items:
        if isinstance(item, Block):
            lines += flat(item.items)
        else:
            lines.append(item)
    return lines


def share_parts(items: list[Item]) -> tuple[list[str], list[Part]]:
    """The lines of a function with repeated blocks replaced by calls, and the functions they call.

    Larger blocks go first; of blocks that are the same, the inside of one is looked at further.
    """
    # Below all blocks: the check of all tensors, aliasing and shapes.
    used_later = {name for item in items if isinstance(item, str) for name in _VARIABLE.findall(item)}
    by_size: dict[int, list[Block]] = defaultdict(list)
    for block in _blocks(items):
        by_size[len(flat(block.items))].append(block)
    parts: list[Part] = []
    gone: set[int] = set()
    for size in sorted((size for size in by_size if size >= _WORTH_LINES), reverse=True):
        same: dict[tuple[str, ...], list[tuple[Block, list[str]]]] = defaultdict(list)
        # A value with no check of its own has the very lines of the one value that is reached from it.
        inside = {id(inner) for block in by_size[size] for inner in _blocks(block.items)}
        for block in by_size[size]:
            if id(block) not in gone | inside:
                lines, names = _renamed(block)
                if names is not None:
                    same[lines].append((block, names))
        for blocks in same.values():
            if len(blocks) > 1:
                for block, _ in blocks[1:]:
                    gone.update(map(id, _blocks(block.items)))
                parts.append(_share(f"p{len(parts)}", blocks, used_later))
    return flat(items), parts


def _share(name: str, blocks: list[tuple[Block, list[str]]], used_later: set[str]) -> Part:
    """Make the function and put a call of it into each block."""
    first, ours = blocks[0]
    given = [n for n in range(1, len(ours)) if any(names[n] in used_later for _, names in blocks)]
    # What the function gives may come from a block inside it that becomes a function too.
    used_later.update(ours[n] for n in given)
    result = _tuple([ours[n] for n in given]) if given else "True"
    part = Part(name, first.variable, [*first.items, f"return {result}"])
    for block, names in blocks:
        call = f"{name}({block.variable})"
        if given:
            targets = _tuple([names[n] for n in given])
            block.items = [f"if (r := {call}) is False: return False", f"{targets} = r"]
        else:
            block.items = [f"if not {call}: return False"]
    return part


def _tuple(names: list[str]) -> str:
    return f"({', '.join(names)},)"


def _blocks(items: Sequence[Item]) -> Iterator[Block]:
    for item in items:
        if isinstance(item, Block):
            yield item
            yield from _blocks(item.items)


def _renamed(block: Block) -> tuple[tuple[str, ...], list[str] | None]:
    """A block's lines with variables named by their order, and their own names in that order.

    None for the names where the block uses a variable from outside, other than its own value.
    """
    lines = flat(block.items)
    assigned = {block.variable} | {
        name
        for line in lines
        if not line.startswith("if not ") and " = " in line
        for name in _VARIABLE.findall(line.partition(" = ")[0])
    }
    numbers = {block.variable: 0}
    text = tuple(
        _VARIABLE.sub(lambda match: f"v{numbers.setdefault(match[0], len(numbers))}", line) for line in lines
    )
    return text, list(numbers) if set(numbers) <= assigned else None
