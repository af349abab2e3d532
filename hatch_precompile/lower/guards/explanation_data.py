"""What an explanation needs of a guard, as data: what each line asks, of what.

It lies in a file of its own, because only a call that is explained needs it. `words_of` says what is in it. A
line that checks has the fields of `Check` in templates/explaining/refusal.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hatch_precompile.lower.guards.checks import Accept, Assign, CallPart, Check, Function, Unwrap
from hatch_precompile.lower.guards.expressions import (
    AllOf,
    Attribute,
    Call,
    Compare,
    Constant,
    Display,
    Expression,
    Literal,
    Name,
    Subscript,
    TensorsAgree,
    Token,
    Variable,
)

__all__ = ["words_of"]

# Text and names by turns, text first: `("", "v1", " is ", "c2", "")`. A name behind `=` stands for its value.
Pieces = tuple[str, ...]


def words_of(functions: Sequence[Function], notes: Sequence[str]) -> tuple[Any, ...]:
    """The notes on constants, and for each function its parameter, how its variables are reached, and its
    lines."""
    given = {function.name: _given(function) for function in functions}
    return tuple(notes), {function.name: _of_function(function, given) for function in functions}


def _given(function: Function) -> list[str]:
    ends = (statement for statement in function.body if isinstance(statement, Accept))
    return [str(variable) for end in ends for variable in end.given]


def _of_function(function: Function, given: dict[str, list[str]]) -> tuple[Any, ...]:
    ways: dict[str, tuple[Any, ...]] = {}
    lines: list[tuple[Any, ...] | None] = []
    for statement in function.body:
        said: tuple[Any, ...] | None = None
        match statement:
            case Check():
                said = ("check", *_of_check(statement))
            case Assign(target=target, value=value):
                ways[str(target)] = _way(value)
                said = ("reach", str(target), _pieces(statement.lines()[0]))
            case Unwrap(variable=variable):  # which has no such attribute if it is no function
                needed = _pieces(variable.attribute("__dict__").tokens())
                line = _pieces(statement.lines()[0])
                said = ("check", "TYPE_MATCH", "", line, (str(variable),), None, needed)
            case CallPart(part=part, argument=argument, given=targets):
                names = zip(map(str, targets), given[part], strict=True)
                ways |= {target: ("given", part, str(argument), name) for target, name in names}
                said = ("part", str(argument))
        lines += [said, *[None] * (len(statement.lines()) - 1)]
    return function.parameter, ways, tuple(lines)


def _way(value: Expression) -> tuple[Any, ...]:
    """How a value is reached: a step that is spelled as an author writes it, else the expression's text."""
    match value:
        case Subscript(of=Name(name="L"), key=Literal(value=name)):
            return "local", name
        case Attribute(of=Variable() as base, name="__dict__"):
            return "attributes", str(base)
        case Subscript(of=Variable() as base, key=Literal(value=key)) if type(key) is str and not base.suffix:
            return "item", str(base), key
        case Call(
            given=(Variable() as base, Subscript(of=Variable(suffix="_keys"), key=Literal(text=place)))
        ):
            return "place", str(base), place
    return "text", _pieces(value.tokens())


def _of_check(check: Check) -> tuple[Any, ...]:
    """Kind, the user's line, the condition, the names of what is asked about, what is expected, and what is
    needed where that is other words than the condition."""
    pieces = _pieces(check.condition.tokens())
    places, expected = _asked(check)
    return check.kind, check.where, pieces, places, expected, _needed(check.condition)


def _asked(check: Check) -> tuple[Pieces, Any]:
    match check.condition:
        case TensorsAgree(group=group):
            return _names(check.condition), f"T{group}"
        case Call(function=Attribute(of=Call(given=(of,)), name="isdisjoint"), given=(keys,)):
            return (str(of),), _value(keys) if _is_literal(keys) else None
        case Call(function=Name(name="class_lacks"), given=(cls, count, names)):
            return (str(cls),), (_value(count), _value(names))
        case Call(function=Name(name="class_has"), given=(cls, special, names)):
            return (str(cls), str(special)), _value(names)
        case Compare(left=Call(function=Name(name="environment"), given=(name,))):
            return (), _value(name)
        case Compare(left=Call(function=Attribute(name="size"), given=(dimension,)), rest=((_, size),)):
            return _names(check.condition), (_value(dimension), _value(size))
        case Compare(rest=((_, expected),)):
            return _names(check.condition), _value(expected)
    return _names(check.condition), None


def _names(condition: Expression) -> Pieces:
    """The variables and constants that a condition is about, each once."""
    return tuple(dict.fromkeys(str(token) for token in condition.tokens() if not isinstance(token, str)))


def _is_literal(expression: Expression) -> bool:
    """Whether its value is known without looking anything up."""
    whole = isinstance(expression, Display) and all(map(_is_literal, expression.parts))
    return whole or isinstance(expression, Literal)


def _value(expression: Expression) -> Any:
    """A literal's value, a tuple of these for a display, else the expression's text."""
    if isinstance(expression, Literal):
        return expression.value
    return tuple(map(_value, expression.parts)) if hasattr(expression, "parts") else str(expression)


def _needed(condition: Expression) -> Pieces:
    """Of a condition that something is like a value: that value; that some keys are not there: these keys."""
    match condition.parts[-1] if isinstance(condition, AllOf) else condition:
        case Call(function=Name(name="alike"), given=(here, expected)):
            *before, last = _pieces([*here.tokens(), " == "])
            if isinstance(expected, Constant):
                return (*before, last, f"={expected}", ", of the same types")
            return (*before, f"{last}{expected}, of the same types")
        case Call(function=Attribute(name="isdisjoint"), given=(keys,)) if not _is_literal(keys):
            return _pieces(keys.tokens())
    return ()


def _pieces(tokens: Iterable[Token]) -> Pieces:
    pieces = [""]
    for token in tokens:
        if isinstance(token, str):
            pieces[-1] += token
        else:
            pieces += [str(token), ""]
    return tuple(pieces)
