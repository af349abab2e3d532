"""What of a program's sources a call of it can come to: its target, and what that names, and so on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.truth.catalogue import PACKAGE, SOURCES, Program

__all__ = ["Definition", "reachable"]


@dataclass(frozen=True)
class Definition:
    """A statement of a module's top level. `file`: relative to the sources; `name`: what it defines."""

    file: str
    name: str
    node: ast.stmt

    @property
    def module(self) -> str:
        return self.file.removesuffix(".py").replace("/", ".")


def reachable(program: Program) -> list[Definition]:
    """In the order of the files; samples are left out."""
    waiting = [(f"{PACKAGE}/{program.module}.py", program.target.partition(".")[0])]
    if program.instance:
        waiting.append((waiting[0][0], program.instance))
    seen: set[tuple[str, str]] = set()
    found: list[Definition] = []
    while waiting:
        file, name = waiting.pop(0)
        if (file, name) in seen or name == program.samples:
            continue
        seen.add((file, name))
        module = ast.parse((SOURCES / file).read_text())
        for node in module.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("parts"):
                if any(alias.name == name for alias in node.names):
                    waiting.append((f"{(node.module or '').replace('.', '/')}.py", name))
            elif name in _defines(node):
                found.append(Definition(file, name, node))
                waiting += [(file, used) for used in _names(node)]
    return sorted(found, key=lambda each: (Path(each.file).parts, each.node.lineno))


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name, *_registers(node)]
    if isinstance(node, ast.Assign):
        # An assignment to an attribute belongs to the object that gets it.
        targets = [target.value if isinstance(target, ast.Attribute) else target for target in node.targets]
        return [target.id for target in targets if isinstance(target, ast.Name) and target.id != "PROGRAMS"]
    return []


def _registers(node: ast.FunctionDef | ast.ClassDef) -> list[str]:
    """Of `@halve.register_fake` it is halve."""
    return [
        decorator.value.id
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Attribute) and isinstance(decorator.value, ast.Name)
        if decorator.value.id not in ("torch", "functools", "enum")
    ]


def _names(node: ast.stmt) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
