"""Makes a guard function short: what it asks of several values in the same words becomes a function.

A model of many layers repeats itself, and so do the checks on it. Statements stand in a tree of blocks, one
per value; two blocks are the same if they differ only in their variables. Only the length changes: the same
checks are made in the same order.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence

from hatch_precompile.lower.guards.checks import Accept, Assign, CallPart, Check, Function, Statement
from hatch_precompile.lower.guards.expressions import Constant, Variable

__all__ = ["Block", "Line", "flat", "share_parts"]

# Below that a call would cost more than it saves.
_WORTH_LINES = 4


@dataclasses.dataclass
class Block:
    """Statements about one value, with a block for each value reached from it."""

    value: Variable | Constant
    items: list[Line]


Line = Statement | Block


@dataclasses.dataclass
class _Part:
    """A function for blocks that are the same. Its variables are those of the first of them."""

    name: str
    value: Variable | Constant
    items: list[Line]


def flat(items: Sequence[Line]) -> list[Statement]:
    """All statements in their order."""
    statements: list[Statement] = []
    for item in items:
        statements += flat(item.items) if isinstance(item, Block) else [item]
    return statements


def share_parts(items: list[Line]) -> tuple[list[Statement], list[Function]]:
    """The statements of a function with repeated blocks replaced by calls, and the functions they call.

    Larger blocks go first; of blocks that are the same, the inside of one is looked at further.
    """
    # Below all blocks: the check of all tensors, aliasing and shapes.
    used_later = {_base(each) for item in items if isinstance(item, Statement) for each in item.variables()}
    by_size: dict[int, list[Block]] = defaultdict(list)
    for block in _blocks(items):
        by_size[len(flat(block.items))].append(block)
    parts: list[_Part] = []
    gone: set[int] = set()
    for size in sorted((size for size in by_size if size >= _WORTH_LINES), reverse=True):
        same: dict[tuple[str | int, ...], list[tuple[Block, list[Variable]]]] = defaultdict(list)
        # A value with no check of its own has the very statements of the one value that is reached from it.
        inside = {id(inner) for block in by_size[size] for inner in _blocks(block.items)}
        for block in by_size[size]:
            if id(block) not in gone | inside:
                pieces, own = _numbered(block)
                if own is not None:
                    same[pieces].append((block, own))
        for blocks in same.values():
            if len(blocks) > 1:
                for block, _ in blocks[1:]:
                    gone.update(map(id, _blocks(block.items)))
                parts.append(_share(f"p{len(parts)}", blocks, used_later))
    return flat(items), [Function(part.name, str(part.value), flat(part.items)) for part in parts]


def _share(name: str, blocks: list[tuple[Block, list[Variable]]], used_later: set[Variable]) -> _Part:
    """Make the function and put a call of it into each block."""
    first, ours = blocks[0]
    given = [n for n in range(len(ours)) if any(own[n] in used_later for _, own in blocks)]
    # What the function gives may come from a block inside it that becomes a function too.
    used_later.update(ours[n] for n in given)
    part = _Part(name, first.value, [*first.items, Accept(tuple(ours[n] for n in given))])
    for block, own in blocks:
        block.items = [CallPart(name, block.value, tuple(own[n] for n in given))]
    return part


def _blocks(items: Sequence[Line]) -> Iterator[Block]:
    for item in items:
        if isinstance(item, Block):
            yield item
            yield from _blocks(item.items)


def _base(variable: Variable) -> Variable:
    """The variable that holds what another was made of."""
    return Variable(variable.number)


def _numbered(block: Block) -> tuple[tuple[str | int, ...], list[Variable] | None]:
    """A block's text and the kinds of its checks, in pieces with a number for each variable, and the
    variables by their numbers, but for the block's own.

    None for these where the block uses a variable from outside, other than its own value.
    """
    statements = flat(block.items)
    assigned = {block.value, *(each.target for each in statements if isinstance(each, Assign))}
    numbers: dict[Variable | Constant, int] = {block.value: 0}
    pieces: list[str | int] = []
    for statement in statements:
        pieces.append(statement.kind if isinstance(statement, Check) else "")
        for line in statement.lines():
            for token in line:
                if isinstance(token, Variable):
                    pieces += [numbers.setdefault(_base(token), len(numbers)), token.suffix]
                else:
                    pieces.append(str(token))
            pieces.append("\n")
    known = {_base(each) if isinstance(each, Variable) else each for each in assigned}
    own = [each for each in numbers if isinstance(each, Variable) and each != block.value]
    return tuple(pieces), own if set(numbers) <= known else None
