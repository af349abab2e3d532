"""What a check computes, as a tree. Python text, C and words are made of it.

A tree has what guards need and no more; what an author's expression has beside that is refused by
`from_python`. `tokens` gives the text in pieces, with variables and constants as what they are.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "AllOf",
    "AnyOf",
    "Attribute",
    "Binary",
    "Call",
    "Compare",
    "Constant",
    "Display",
    "Expression",
    "IfElse",
    "Subscript",
    "Keyword",
    "Literal",
    "Name",
    "Negation",
    "TensorsAgree",
    "Token",
    "Unary",
    "Variable",
    "all_of",
    "display",
    "from_python",
    "lacks",
    "literal",
]

# How strongly an operator binds what is beside it.
_OR, _AND, _NOT, _COMPARED, _BITS, _FACTOR, _POWER, _ATOM = 1, 2, 3, 4, 5, 11, 12, 13
_BINDS = {"|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10}


@dataclass(frozen=True)
class Expression:
    """A node of the tree."""

    def attribute(self, name: str) -> Attribute:
        return Attribute(self, name)

    def item(self, key: Expression) -> Subscript:
        return Subscript(self, key)

    def call(self, *given: Expression) -> Call:
        return Call(self, given)

    def compared(self, how: str, other: Expression) -> Compare:
        return Compare(self, ((how, other),))

    def is_(self, other: Expression) -> Compare:
        return self.compared("is", other)

    def equals(self, other: Expression) -> Compare:
        return self.compared("==", other)

    def tokens(self, binds: int = 0) -> Iterator[Token]:
        """The text in pieces. binds: how strongly what is around it does."""
        own, pieces = self._pieces()
        yield from ("(", *pieces, ")") if own < binds else pieces

    def _pieces(self) -> tuple[int, list[Token]]:
        raise NotImplementedError

    def nodes(self) -> Iterator[Expression]:
        """All of the tree, the whole first."""
        yield self
        waiting = list(self.__dict__.values())
        while waiting:
            value = waiting.pop(0)
            if isinstance(value, Expression):
                yield from value.nodes()
            elif isinstance(value, tuple):
                waiting[:0] = value

    def __str__(self) -> str:
        return "".join(map(str, self.tokens()))


@dataclass(frozen=True)
class _Leaf(Expression):
    def tokens(self, binds: int = 0) -> Iterator[Token]:
        yield self  # type: ignore[misc]


@dataclass(frozen=True)
class Variable(_Leaf):
    """A value reached on the way, or with a suffix something made of it once."""

    number: int
    suffix: str = ""

    def __str__(self) -> str:
        return f"v{self.number}{self.suffix}"


@dataclass(frozen=True)
class Constant(_Leaf):
    """What is found again when an entry is loaded."""

    index: int

    def __str__(self) -> str:
        return f"c{self.index}"


Token = str | Variable | Constant


@dataclass(frozen=True)
class Name(Expression):
    """What a guard's namespace or Python has under a name, which may have dots. It never changes."""

    name: str

    def tokens(self, binds: int = 0) -> Iterator[Token]:
        yield self.name


@dataclass(frozen=True)
class Literal(Expression):
    text: str
    value: Any = field(compare=False)

    def tokens(self, binds: int = 0) -> Iterator[Token]:
        yield self.text


@dataclass(frozen=True)
class Attribute(Expression):
    of: Expression
    name: str

    def _pieces(self) -> tuple[int, list[Token]]:
        return _ATOM, [*self.of.tokens(_ATOM), f".{self.name}"]


@dataclass(frozen=True)
class Subscript(Expression):
    of: Expression
    key: Expression

    def _pieces(self) -> tuple[int, list[Token]]:
        return _ATOM, [*self.of.tokens(_ATOM), "[", *self.key.tokens(), "]"]


@dataclass(frozen=True)
class Call(Expression):
    function: Expression
    given: tuple[Expression, ...]

    def _pieces(self) -> tuple[int, list[Token]]:
        return _ATOM, [*self.function.tokens(_ATOM), "(", *_joined(self.given), ")"]

    def argument_of(self, function: str) -> Expression | None:
        """What a function of that name is called with, if it is this one, and one thing."""
        return self.given[0] if self.function == Name(function) and len(self.given) == 1 else None


@dataclass(frozen=True)
class Keyword(Expression):
    """Among what a function is called with."""

    name: str
    value: Expression

    def _pieces(self) -> tuple[int, list[Token]]:
        return _ATOM, [f"{self.name}=", *self.value.tokens()]


@dataclass(frozen=True)
class TensorsAgree(Expression):
    """Torch's check of the tensors of a group, in one call."""

    group: int
    tensors: tuple[Expression, ...]

    def _pieces(self) -> tuple[int, list[Token]]:
        return _ATOM, [f"T{self.group}.check(", *_joined(self.tensors), ")"]


@dataclass(frozen=True)
class Compare(Expression):
    """`left < a <= b`"""

    left: Expression
    rest: tuple[tuple[str, Expression], ...]

    def _pieces(self) -> tuple[int, list[Token]]:
        rest = [token for how, each in self.rest for token in (f" {how} ", *each.tokens(_BITS))]
        return _COMPARED, [*self.left.tokens(_BITS), *rest]

    @property
    def single(self) -> tuple[Expression, str, Expression]:
        """Left, operator and right of one that compares two."""
        ((how, right),) = self.rest
        return self.left, how, right


@dataclass(frozen=True)
class _Several(Expression):
    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class AllOf(_Several):
    def _pieces(self) -> tuple[int, list[Token]]:
        return _AND, _joined(self.parts, " and ", _NOT)


@dataclass(frozen=True)
class AnyOf(_Several):
    def _pieces(self) -> tuple[int, list[Token]]:
        return _OR, _joined(self.parts, " or ", _AND)


@dataclass(frozen=True)
class Negation(Expression):
    of: Expression

    def _pieces(self) -> tuple[int, list[Token]]:
        return _NOT, ["not ", *self.of.tokens(_NOT)]


@dataclass(frozen=True)
class Unary(Expression):
    sign: str
    of: Expression

    def _pieces(self) -> tuple[int, list[Token]]:
        return _FACTOR, [self.sign, *self.of.tokens(_FACTOR)]


@dataclass(frozen=True)
class Binary(Expression):
    left: Expression
    sign: str
    right: Expression

    def _pieces(self) -> tuple[int, list[Token]]:
        if self.sign == "**":
            return _POWER, [*self.left.tokens(_POWER + 1), " ** ", *self.right.tokens(_POWER)]
        own = _BINDS[self.sign]
        return own, [*self.left.tokens(own), f" {self.sign} ", *self.right.tokens(own + 1)]


@dataclass(frozen=True)
class Display(_Several):
    """A tuple, a list or a set, by its brackets."""

    brackets: str

    def _pieces(self) -> tuple[int, list[Token]]:
        comma = [","] if self.brackets == "()" and len(self.parts) == 1 else []
        return _ATOM, [self.brackets[0], *_joined(self.parts), *comma, self.brackets[1]]


@dataclass(frozen=True)
class IfElse(Expression):
    then: Expression
    test: Expression
    otherwise: Expression

    def _pieces(self) -> tuple[int, list[Token]]:
        parts = [*self.then.tokens(1), " if ", *self.test.tokens(1), " else ", *self.otherwise.tokens()]
        return 0, parts


def literal(value: Any) -> Literal:
    """A value whose `repr` is Python source for it."""
    return Literal(repr(value), value)


def display(parts: Iterable[Expression], brackets: str = "()") -> Display:
    return Display(tuple(parts), brackets)


def all_of(*conditions: Expression) -> Expression:
    """All of them at once, each asked once."""
    parts = [part for each in conditions for part in (each.parts if isinstance(each, AllOf) else (each,))]
    distinct = tuple(dict.fromkeys(parts))
    return AllOf(distinct) if len(distinct) > 1 else distinct[0]


def lacks(mapping: Expression, keys: Expression) -> Expression:
    """That a dict has none of some keys."""
    return Name("dict.keys").call(mapping).attribute("isdisjoint").call(keys)


def _joined(parts: Iterable[Expression], between: str = ", ", binds: int = 0) -> list[Token]:
    return [token for part in parts for token in (between, *part.tokens(binds))][1:]


_SIGNS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.USub: "-",
    ast.UAdd: "+",
    ast.Invert: "~",
}
_BRACKETS: dict[type[ast.AST], str] = {ast.Tuple: "()", ast.List: "[]", ast.Set: "{}"}


def from_python(node: ast.expr, known: Callable[[ast.expr], Expression | None]) -> Expression:
    """The tree of an expression in Python. known: what stands for a part of it, if anything does.

    Raises ValueError for a part that no guard has.
    """
    found = known(node)
    if found is not None:
        return found
    tree = functools.partial(from_python, known=known)
    match node:
        case ast.Constant(value=value):
            return literal(value)
        case ast.Name(id=name):
            return Name(name)
        case ast.Attribute(value=of, attr=name):
            return Attribute(tree(of), name)
        case ast.Subscript(value=of, slice=key):
            return Subscript(tree(of), tree(key))
        case ast.Call(func=function, args=given, keywords=named) if all(each.arg for each in named):
            keywords = (Keyword(str(each.arg), tree(each.value)) for each in named)
            return Call(tree(function), (*map(tree, given), *keywords))
        case ast.Compare(left=left, ops=ops, comparators=others):
            rest = ((_SIGNS[type(how)], tree(each)) for how, each in zip(ops, others, strict=True))
            return Compare(tree(left), tuple(rest))
        case ast.BoolOp(op=op, values=values):
            return (AllOf if isinstance(op, ast.And) else AnyOf)(tuple(map(tree, values)))
        case ast.UnaryOp(op=ast.Not(), operand=of):
            return Negation(tree(of))
        case ast.UnaryOp(op=op, operand=of):
            return Unary(_SIGNS[type(op)], tree(of))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGNS:
            return Binary(tree(left), _SIGNS[type(op)], tree(right))
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return display(map(tree, parts), _BRACKETS[type(node)])
        case ast.IfExp(test=test, body=then, orelse=otherwise):
            return IfElse(tree(then), tree(test), tree(otherwise))
    raise ValueError(ast.unparse(node))
