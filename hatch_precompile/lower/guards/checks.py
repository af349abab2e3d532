"""A guard function as data. A `Check` is one condition of an entry, from dynamo's guard tree to the bundle.

Python text, C (lower/guards/native) and words (explanation_data.py) are renderings of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from hatch_precompile.lower.guards.expressions import (
    AllOf,
    Call,
    Compare,
    Constant,
    Expression,
    Token,
    Variable,
)

__all__ = ["Accept", "Assign", "CallPart", "Check", "Function", "Kind", "Load", "Statement", "Unwrap"]


Kind = Literal[
    "ABSENT_GLOBAL",
    "ABSENT_IN_CLASS",
    "ARRAY_WRITEABLE",
    "CHECKPOINT",
    "CONSTANT_SUBCLASS_MATCH",
    "COPIED",
    "COUNT",
    "DEFAULT_DEVICE",
    "DICT_CONTAINS",
    "DICT_LACKS",
    "DICT_LENGTH",
    "DICT_ORDER",
    "DICT_VERSION",
    "DIMENSION_MARKING",
    "DUAL_LEVEL",
    "ENVIRONMENT",
    "EQUALS_MATCH",
    "GLOBAL_STATE",
    "GPU",
    "GPU_SETTINGS",
    "GRADIENT",
    "HOOKS",
    "IDENTITY",
    "ID_MATCH",
    "INFERENCE_MODE",
    "LENGTH",
    "MAPPING_KEYS",
    "MEMORY",
    "NO_HASATTR",
    "NUMBERS",
    "OBJECT_ALIASING",
    "PROCESS_STATE",
    "SAVED_TENSORS_HOOKS",
    "SET_CONTAINS",
    "SHAPE_ENV",
    "SPECIAL_METHODS",
    "STAND_ASIDE",
    "STRIDES",
    "TENSOR_CLASS",
    "TENSOR_DEVICE",
    "TENSOR_DTYPE",
    "TENSOR_MATCH",
    "TENSOR_RANK",
    "TENSOR_SIZE",
    "TENSOR_SUBCLASS_METADATA_MATCH",
    "TORCH_FUNCTION_STATE",
    "TRAINING",
    "TYPE_MATCH",
]
"""What is asked, mostly by dynamo's name for it. Advice hangs on it (templates/explaining/advice.py)."""


@dataclass(frozen=True)
class Statement:
    """Of a guard function."""

    def lines(self) -> list[list[Token]]:
        """Its text, each line in pieces."""
        raise NotImplementedError

    def variables(self) -> Iterator[Variable]:
        """Those that it names, in the order of its text."""
        return (token for line in self.lines() for token in line if isinstance(token, Variable))


@dataclass(frozen=True)
class Check(Statement):
    """The call is refused unless a condition holds.

    where: the user's line that made dynamo ask, or empty
    """

    kind: Kind
    condition: Expression
    where: str = ""

    def lines(self) -> list[list[Token]]:
        comment = [f"  # {self.where}"] if self.where else []
        return [["if not (", *self.condition.tokens(), "): return False", *comment]]

    @property
    def comparison(self) -> Compare | None:
        """The first of the conditions, if it compares two values: what is there, and what is expected."""
        first = self.condition.parts[0] if isinstance(self.condition, AllOf) else self.condition
        return first if isinstance(first, Compare) and len(first.rest) == 1 else None

    @property
    def typed(self) -> Expression | None:
        """The value whose class the first condition checks, if it does."""
        place = self.comparison.left if self.comparison else None
        return place.argument_of("type") if isinstance(place, Call) else None


@dataclass(frozen=True)
class Assign(Statement):
    """A value that is reached."""

    target: Variable
    value: Expression

    def lines(self) -> list[list[Token]]:
        return [[self.target, " = ", *self.value.tokens()]]


@dataclass(frozen=True)
class Unwrap(Statement):
    """Takes a function out of our wrapper, in which an entrypoint activated by any wheel stands."""

    variable: Variable

    def lines(self) -> list[list[Token]]:
        it = self.variable
        return [["if ", it, ".__dict__: ", it, " = plain_function(", it, ")"]]


@dataclass(frozen=True)
class CallPart(Statement):
    """The checks of another function, which gives values that are used later."""

    part: str
    argument: Variable | Constant
    given: tuple[Variable, ...]

    def lines(self) -> list[list[Token]]:
        call = [f"{self.part}(", self.argument, ")"]
        if not self.given:
            return [["if not ", *call, ": return False"]]
        return [["if (r := ", *call, ") is False: return False"], [*_tuple(self.given), " = r"]]


@dataclass(frozen=True)
class Accept(Statement):
    """The end of a function. given: what a part gives; hit: whether the guard has been passed."""

    given: tuple[Variable, ...] = ()
    hit: bool = False

    def lines(self) -> list[list[Token]]:
        counted: list[list[Token]] = [["entry.hits += 1"]] if self.hit else []
        return [*counted, ["return ", *(_tuple(self.given) if self.given else ["True"])]]


@dataclass(frozen=True)
class Load(Statement):
    """The end of a stub."""

    def lines(self) -> list[list[Token]]:
        return [["return load(L)"]]


@dataclass(frozen=True)
class Function:
    """`guard`, or a part of it. parameter: `L`, the frame's locals, or the value that a part is about."""

    name: str
    parameter: str
    body: Sequence[Statement]

    def text(self) -> str:
        lines = ("".join(map(str, line)) for statement in self.body for line in statement.lines())
        return f"def {self.name}({self.parameter}):\n" + "".join(f"    {line}\n" for line in lines)


def _tuple(variables: Sequence[Variable]) -> list[Token]:
    pieces: list[Token] = ["("]
    for number, variable in enumerate(variables):
        pieces += [", ", variable] if number else [variable]
    return [*pieces, ",)"]
