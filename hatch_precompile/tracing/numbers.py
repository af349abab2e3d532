"""Which numbers a graph computes right: Python's have no bounds, those of compiled code have 64 bits.

An argument that was traced for any value is a symbol, and so is a size. What a graph computes of them is at
hand as expressions, of which some raise in Python, or give what a library cannot hold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import sympy
import torch

__all__ = ["conditions_on_numbers"]

_LEAST, _MOST = -(2**63), 2**63 - 1

# Inductor prints the power of a number as `1 << n`, whose type is int.
_MOST_OF_POWERS = 2**30

# It divides as numbers of type double, which hold integers up to here.
_EXACT = 2**53

# A dimension of a tensor in memory.
_MOST_OF_SIZES = 2**31 - 1

_RAISING = {
    *("FloorDiv", "Mod", "PythonMod", "ModularIndexing", "CleanDiv", "PowByNatural"),
    *("IntTrueDiv", "FloatTrueDiv", "FloatPow", "TruncToInt", "FloorToInt", "CeilToInt", "RoundToInt"),
    *("RoundDecimal", "TruncToFloat", "LShift", "RShift"),
}
# How torch writes functions of `math` in guards.
_OF_TORCH = re.compile(r"\btorch\._sym_(?=[a-z]\w*\()")

_RING = (sympy.Add, sympy.Mul, sympy.Pow)

# What computes with the elements of tensors and a number, by names without underscores.
_ELEMENTWISE_WORDS = (
    "add sub subtract rsub mul multiply div divide truedivide truediv floordiv floordivide mod "
    "remainder fmod pow radd rmul rtruediv rfloordiv rmod rpow iadd isub imul itruediv ifloordiv imod "
    "ipow clamp clip clampmin clampmax eq ne lt le gt ge maximum minimum where maskedfill fill full "
    "lerp fulllike newfull addcmul addcdiv scalartensor"
)
_WITH_ELEMENTS = frozenset(_ELEMENTWISE_WORDS.split())


def conditions_on_numbers(output: Any) -> list[str]:
    """Python expressions over L, each true where a frame's graph computes what eager code does. One that
    raises counts as false.

    output: dynamo's OutputGraph of the frame, whose guards are about to be built
    """
    graph = output.graph
    if graph is None:
        return []
    found = _Conditions(output.shape_env)
    for node in graph.nodes:
        for expression in _expressions(node.meta.get("example_value")):
            found.require(expression)
        if node.op in ("call_function", "call_method"):
            found.require_to_fit(node)
    return list(found.texts)


def _expressions(value: Any) -> Iterator[sympy.Basic]:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        expression = value.node.expr
        if isinstance(expression, sympy.Basic):
            yield expression
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _expressions(item)


class _Conditions:
    """Collects conditions, in their order. `shape_env`: knows where a symbol comes from, and its range."""

    def __init__(self, shape_env: Any) -> None:
        from torch.fx.experimental.symbolic_shapes import ShapeGuardPythonPrinter
        from torch.utils._sympy.value_ranges import ValueRanges

        sources = {symbol: named for symbol, named in shape_env.var_to_sources.items() if named}
        self._printer = ShapeGuardPythonPrinter(sources, _name, sources)
        self._numbers = {symbol for symbol, named in sources.items() if not _is_of_tensor(named[0])}
        self._ranges: dict[Any, Any] = {}
        self._known: dict[Any, Any] = {}
        for symbol in sources:
            known = shape_env.var_to_range[symbol]
            self._known[symbol] = known
            if symbol.is_integer:
                is_number = symbol in self._numbers
                most = ValueRanges(_LEAST, _MOST) if is_number else ValueRanges(0, _MOST_OF_SIZES)
                known = known & most
            self._ranges[symbol] = known
        self._seen: set[sympy.Basic] = set()
        self.texts: dict[str, None] = {}

    def require(self, expression: sympy.Basic, *, in_ring: bool = False) -> None:
        """That an expression, and all that it is made of, is what Python makes of it.

        in_ring: it is a part of an integer sum or product, which is right even if its parts wrap, as long as
        the whole is in range
        """
        if not expression.free_symbols or not expression.free_symbols <= self._ranges.keys():
            return  # a constant, or what only data tells
        kind = type(expression)
        if expression not in self._seen and not (in_ring and kind in _RING):
            self._seen.add(expression)
            self._require_one(expression)
        ring = kind in _RING and bool(getattr(expression, "is_integer", False))
        for part in expression.args:
            self.require(part, in_ring=ring)

    def _require_one(self, expression: Any) -> None:
        kind = type(expression).__name__
        if expression.is_Symbol:
            if expression.is_integer and expression in self._numbers:
                self._within(expression, _LEAST, _MOST, self._known[expression])
        elif isinstance(expression, sympy.logic.boolalg.Boolean):
            return
        elif kind == "PowByNatural":
            # The exponent is looked at: Python would take long to compute the power of a large one.
            base, exponent = expression.args
            most = int(math.log(_MOST_OF_POWERS, int(base))) if base.is_Integer and base > 1 else 0
            self._within(exponent, 0, most, self._bounds(exponent))
        elif expression.is_integer:
            raising = kind in _RAISING and not self._divides_by_constant(expression)
            self._within(expression, _LEAST, _MOST, None if raising else self._bounds(expression))
        elif kind in _RAISING or kind.startswith("OpaqueUnaryFn_"):
            # Neither complex, which has no order, nor nan.
            self._add(f"{self._text(expression)} <= math.inf")
        if kind == "IntTrueDiv":
            for part in expression.args:
                if part.free_symbols:
                    self._within(part, -_EXACT, _EXACT, self._bounds(part))

    def _divides_by_constant(self, expression: Any) -> bool:
        divides = type(expression).__name__ in ("FloorDiv", "Mod", "PythonMod", "ModularIndexing", "CleanDiv")
        return divides and not any(part.free_symbols for part in expression.args[1:])

    def _bounds(self, expression: Any) -> Any:
        from torch.utils._sympy.value_ranges import bound_sympy

        try:
            return bound_sympy(expression, self._ranges)
        except Exception:  # torch does not know bounds of everything: then it is asked at each call
            return None

    def _within(self, expression: Any, least: int, most: int, bounds: Any) -> None:
        if bounds is not None and bounds.lower >= least and bounds.upper <= most:
            return
        self._add(f"{least} <= {self._text(expression)} <= {most}")

    def require_to_fit(self, node: torch.fx.Node) -> None:
        """That a number fits the type of the elements it is computed with: it raises in eager code."""
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        if name.replace("_", "") not in _WITH_ELEMENTS:
            return
        values = [node.meta.get("example_value")]
        values += [each.meta.get("example_value") for each in node.all_input_nodes]
        dtypes = {value.dtype for value in values if isinstance(value, torch.Tensor)}
        for value in values[1:]:
            for expression in _expressions(value):
                if expression.free_symbols and expression.free_symbols <= self._ranges.keys():
                    for dtype in sorted(dtypes, key=str):
                        self._fit(expression, dtype)

    def _fit(self, expression: Any, dtype: torch.dtype) -> None:
        if dtype is torch.bool or dtype.is_complex:
            return
        if not dtype.is_floating_point:
            if expression.is_integer:
                limits = torch.iinfo(dtype)
                self._within(expression, limits.min, limits.max, self._bounds(expression))
        elif dtype is not torch.float64:
            most = torch.finfo(dtype).max
            if not expression.is_integer:
                text = self._text(expression)
                self._add(f"abs({text}) <= {most!r} or abs({text}) == math.inf")
            elif most < _MOST:
                self._within(expression, -math.floor(most), math.floor(most), self._bounds(expression))

    def _text(self, expression: Any) -> str:
        text = self._printer.doprint(expression).replace("torch.sym_float(", "float(")
        return _OF_TORCH.sub("math.", text)

    def _add(self, text: str) -> None:
        self.texts[text] = None


def _name(source: Any) -> str:
    """As guards spell it. A property in some versions of torch, a method in others."""
    name = source.name
    return str(name() if callable(name) else name)


def _is_of_tensor(source: Any) -> bool:
    from torch._dynamo.source import TensorPropertySource

    return isinstance(source, TensorPropertySource)
