"""A guard function from its text, for tests that write one by hand."""

from __future__ import annotations

import ast
import re

from hatch_precompile.lower.guards.checks import (
    Accept,
    Assign,
    CallPart,
    Check,
    Function,
    Kind,
    Statement,
    Unwrap,
)
from hatch_precompile.lower.guards.expressions import (
    Constant,
    Expression,
    Name,
    TensorsAgree,
    Variable,
    from_python,
)

_DOTTED = re.compile(r"(dict|list)\.\w+|torch\.\w+|torch\.nn\.Parameter|state\.check")


def functions_of(text: str, kind: Kind = "EQUALS_MATCH") -> list[Function]:
    """The functions that a guard's text defines, with checks of one kind. Raises ValueError for what no guard
    has."""
    return [_function(node, kind) for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]


def expression_of(text: str) -> Expression:
    return _tree(ast.parse(text, mode="eval").body)


def _function(node: ast.FunctionDef, kind: Kind) -> Function:
    body: list[Statement] = []
    for statement in node.body:
        match statement:
            case ast.If(test=ast.UnaryOp(operand=ast.Call(func=ast.Name(id=name)) as call)) if re.fullmatch(
                r"p\d+", name
            ):
                body.append(CallPart(name, _variable(call.args[0]), ()))
            case ast.If(test=ast.Compare(left=ast.NamedExpr(value=ast.Call(func=ast.Name(id=name)) as call))):
                body.append(CallPart(name, _variable(call.args[0]), ()))
            case ast.If(test=ast.UnaryOp(operand=condition)):
                body.append(Check(kind, _tree(condition)))
            case ast.If(test=ast.Attribute(value=value)):
                body.append(Unwrap(_variable(value)))
            case ast.Assign(targets=[ast.Tuple(elts=names)]):
                part = body.pop()
                assert isinstance(part, CallPart)
                body.append(CallPart(part.part, part.argument, tuple(map(_variable, names))))
            case ast.Assign(targets=[target], value=value):
                body.append(Assign(_variable(target), _tree(value)))
            case ast.AugAssign():
                body.append(Accept(hit=True))
            case ast.Return(value=ast.Tuple(elts=names)):
                body.append(Accept(tuple(map(_variable, names))))
            case ast.Return() if not isinstance(body[-1], Accept):
                body.append(Accept())
    return Function(node.name, node.args.args[0].arg, body)


def _tree(node: ast.expr) -> Expression:
    return from_python(node, _known)


def _known(node: ast.expr) -> Expression | None:
    match node:
        case ast.Name(id=name) if re.fullmatch(r"v\d+(_keys|_flat)?|c\d+", name):
            return _variable(node) if name[0] == "v" else Constant(int(name[1:]))
        case ast.Attribute() if _DOTTED.fullmatch(ast.unparse(node)):
            return Name(ast.unparse(node))
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="check")) if name[0] == "T":
            return TensorsAgree(int(name[1:]), tuple(map(_tree, node.args)))
    return None


def _variable(node: ast.expr) -> Variable:
    name = ast.unparse(node)
    number = re.match(r"v(\d+)", name)
    assert number is not None, name
    return Variable(int(number[1]), name[number.end() :])
