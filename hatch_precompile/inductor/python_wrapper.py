"""Inductor's Python wrapper of a graph, made fit for a process that has no inductor.

The C++ wrapper refuses a few kinds of graphs. The Python one is a module whose kernels are C++ sources in
calls of `async_compile.cpp_pybinding`; here they become libraries that are there already.
Seen in torch 2.13.0 (torch/_inductor/codegen/wrapper.py).
"""

from __future__ import annotations

import ast
import re
from typing import Any, TypeGuard

import torch

__all__ = ["NotPortable", "portable_wrapper"]

# Functions that only a person who runs the module by itself needs.
_BENCHMARKS = {"get_args", "benchmark_compiled_module"}

# Torch 2.15 looks at what an operator returns with a function of inductor's.
_CHECK = "assert_tensor_metadata"
# The last argument of these is inductor's name for the operation whose result they look at.
_CHECKS = {_CHECK, "assert_size_stride", "assert_alignment"}
_CHECKED = """
if {0} is not None:
    assert {0}.dtype == {3}, {4}
    torch._C._dynamo.guards.assert_size_stride({0}, {1}, {2}, {4})
"""


class NotPortable(Exception):
    """The wrapper needs something of inductor's at run time; the text is its name."""


def portable_wrapper(source: str, extern_kernels: Any) -> str:
    """The source of a module with a function `call` that needs torch, a list `kernels` and the constants.

    kernels: what the sources in the wrapper compile to, in their order. extern_kernels: inductor's namespace
    of operators that are called as they are. Raises NotPortable.
    """
    module = ast.parse(source)
    defined = {name: statement for statement in module.body for name in _defines(statement)}
    needed: set[ast.stmt] = set()
    names = ["call"]
    while names:
        name = names.pop()
        statement = defined.get(name)
        if statement is None or statement in needed:
            continue
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("torch._inductor"):
            if name not in ("extern_kernels", _CHECK):  # both are rewritten
                raise NotPortable(f"{statement.module}.{name}")
            continue
        needed.add(statement)
        names += [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    rewrite = _Rewrite(extern_kernels)
    rewritten = [(statement, rewrite.visit(statement)) for statement in module.body]
    body = [after for before, after in rewritten if before in needed]
    module = ast.fix_missing_locations(ast.Module(body, []))
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and f"{ast.unparse(node)}.".startswith("torch._inductor."):
            raise NotPortable(ast.unparse(node))
    return ast.unparse(module)


class _Rewrite(ast.NodeTransformer):
    """Kernels by their number, operators by torch's name for them."""

    def __init__(self, extern_kernels: Any) -> None:
        self.extern_kernels = extern_kernels
        self.kernels = 0

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _CHECKS:
            *arguments, words = call.args
            if isinstance(words, ast.Constant) and isinstance(words.value, str):
                call.args = [*arguments, ast.Constant(_without_addresses(words.value))]
            if call.func.id == _CHECK:
                return ast.parse(_CHECKED.format(*map(ast.unparse, call.args))).body[0]
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if not _is_attribute_of(node.func, "async_compile"):
            return self.generic_visit(node)
        if node.func.attr == "wait":
            return node
        if node.func.attr != "cpp_pybinding":
            raise NotPortable(f"async_compile.{node.func.attr}")
        self.kernels += 1
        return ast.Subscript(ast.Name("kernels", ast.Load()), ast.Constant(self.kernels - 1), ast.Load())

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not _is_attribute_of(node, "extern_kernels"):
            return self.generic_visit(node)
        function = getattr(self.extern_kernels, node.attr)
        if getattr(torch, node.attr, None) is not function:
            raise NotPortable(f"extern_kernels.{node.attr}")
        return ast.Attribute(ast.Name("torch", ast.Load()), node.attr, ast.Load())


def _without_addresses(words: str) -> str:
    """A name for an operation may have a function in it, and where that was in the process that builds."""
    return re.sub(r" at 0x[0-9a-f]+", "", words)


def _is_attribute_of(node: ast.expr, name: str) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name


def _defines(statement: ast.stmt) -> list[str]:
    """The names that a statement of the module's binds, less those that must not be carried."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name] if statement.name not in _BENCHMARKS else []
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name for alias in statement.names]
    if isinstance(statement, ast.Assign):
        return [
            node.id
            for target in statement.targets
            for node in ast.walk(target)
            if isinstance(node, ast.Name) and node.id != "async_compile"
        ]
    return []
