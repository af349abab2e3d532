"""Which sizes an entry serves: its conditions on the dimensions that the author declared, as predicates."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType

import torch

from hatch_precompile.tracing.guardtree import GuardNode, Leaf

__all__ = ["Declared", "SizeCondition", "size_conditions"]

Declared = Mapping[tuple[int, int], str]
"""By the id of a tensor and a dimension's number: the key it is declared by, as in `x.2`."""

_GLOBALS = {"math": math, "torch": torch}
_NAME = re.compile(r"\bd(\d+)\b")


@dataclass(frozen=True)
class SizeCondition:
    """One condition. `keys`: the dimensions it is about; `where`: the line that brought it in, or empty."""

    keys: tuple[str, ...]
    expression: str
    code: CodeType = field(compare=False)
    where: str = field(default="", compare=False)

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether these sizes, one for each key, fulfil it."""
        try:
            values = {f"d{number}": sizes[key] for number, key in enumerate(self.keys)}
            return bool(eval(self.code, dict(_GLOBALS), values))
        except (ArithmeticError, KeyError, ValueError):
            return False

    def spelled(self, names: Mapping[str, str]) -> str:
        """The condition with a name for each key."""
        return _NAME.sub(lambda match: names[self.keys[int(match[1])]], self.expression)


def size_conditions(
    tree: GuardNode, declared: Declared, fixed_at: Mapping[str, str] | None = None
) -> list[SizeCondition]:
    """The conditions of one recorded tree that are about nothing but declared dimensions.

    fixed_at: by the source of a size, the line of the code that made it a constant
    """
    tensors = dict(_tensors(tree))
    found = []
    for source, (tensor, leaf) in tensors.items():
        for index, size in enumerate(leaf.args[1] if leaf is not None else ()):
            key = declared.get((id(tensor), index))
            if key is not None and size is not None:
                line = (fixed_at or {}).get(f"{source}.size()[{index}]", "")
                found.append(_condition(ast.parse(f"d0 == {size}", mode="eval").body, (key,), line))
    for leaf in tree.epilogue:
        for expression, line in zip(leaf.expressions or (), _lines(leaf), strict=False):
            for part in _parts(ast.parse(expression, mode="eval").body):
                keys: list[str] = []
                rewritten = _Rewriter(tensors, declared, keys).visit(part)
                if keys and not _Rewriter.is_about_more(rewritten):
                    found.append(_condition(rewritten, tuple(keys), line))
    return list({(each.keys, each.expression): each for each in reversed(found)}.values())[::-1]


def _condition(expression: ast.expr, keys: tuple[str, ...], where: str) -> SizeCondition:
    text = ast.unparse(expression)
    return SizeCondition(keys, text, compile(text, "<condition>", "eval"), where)


def _tensors(node: GuardNode) -> Iterator[tuple[str, tuple[torch.Tensor, Leaf | None]]]:
    """Each tensor that is looked at, by its source as `ast.unparse` has it, and dynamo's check of it."""
    for child in node.children:
        if isinstance(child.value, torch.Tensor) and child.source:
            checks = [leaf for leaf in child.leaves if leaf.kind == "tensor_match_guard"]
            source = ast.unparse(ast.parse(child.source, mode="eval").body)
            yield source, (child.value, checks[0] if checks else None)
        yield from _tensors(child)


def _parts(expression: ast.expr) -> Iterator[ast.expr]:
    """What has to hold at once, one by one."""
    if isinstance(expression, ast.BoolOp) and isinstance(expression.op, ast.And):
        for value in expression.values:
            yield from _parts(value)
    elif isinstance(expression, ast.Compare) and len(expression.ops) > 1:
        terms = [expression.left, *expression.comparators]
        for left, operator, right in zip(terms, expression.ops, terms[1:], strict=False):
            yield ast.Compare(left, [operator], [right])
    else:
        yield expression


class _Rewriter(ast.NodeTransformer):
    """Puts `d0`, `d1`, ... for declared dimensions, and numbers for the sizes of other tensors."""

    def __init__(
        self, tensors: Mapping[str, tuple[torch.Tensor, Leaf | None]], declared: Declared, keys: list[str]
    ) -> None:
        self.tensors = tensors
        self.declared = declared
        self.keys = keys

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        call, index = node.value, node.slice
        if (
            isinstance(index, ast.Constant)
            and isinstance(index.value, int)
            and isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "size"
            and (known := self.tensors.get(ast.unparse(call.func.value))) is not None
        ):
            tensor, _ = known
            key = self.declared.get((id(tensor), index.value))
            if key is None:
                return ast.Constant(tensor.size(index.value))
            if key not in self.keys:
                self.keys.append(key)
            return ast.Name(f"d{self.keys.index(key)}", ast.Load())
        return node

    @staticmethod
    def is_about_more(expression: ast.AST) -> bool:
        """Whether it names what is no size: strides, numbers, objects."""
        known = {*_GLOBALS, "min", "max", "abs", "int", "float", "round"}
        return any(
            isinstance(node, ast.Name) and node.id not in known and not _NAME.fullmatch(node.id)
            for node in ast.walk(expression)
        )


def _lines(leaf: Leaf) -> list[str]:
    """For each expression of a leaf the line of code that brought it in, where dynamo says it."""
    number = len(leaf.expressions or ())
    words = next((arg for arg in leaf.args if isinstance(arg, list) and len(arg) == number), [])
    return [_line(str(each)) for each in words] or [""] * number


def _line(words: str) -> str:
    """`return F.conv2d(  # conv.py:560 in _conv_forward`, of what dynamo writes behind a condition."""
    found = re.match(r"[^#]*  # (?P<code>.*?# )(?:\S*/)?(?P<place>[^\s/]+:\d+ in \S+)", words)
    return " ".join(f"{found['code']}{found['place']}".split()) if found else ""
