"""The programs: what the modules of tests/truth/sources/specimens declare, read without importing them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PACKAGE", "SOURCES", "Program", "all_programs"]

SOURCES = Path(__file__).parent / "sources"
PACKAGE = "specimens"


@dataclass(frozen=True)
class Program:
    """One entrypoint of the package. `target`: the name in its module; `warm`: that imports dynamo;
    `compiles`: its eager code compiles, as torch.cond does; `signals`: whether they may come at
    any time; `table`: more keys of it."""

    name: str
    module: str
    target: str
    samples: str
    instance: str | None
    mode: str
    warm: bool
    compiles: bool
    signals: bool
    table: dict[str, Any]

    @property
    def source(self) -> Path:
        return SOURCES / PACKAGE / f"{self.module}.py"

    @property
    def kind(self) -> str:
        """Of its target: "module" (a class), "method" or "function"."""
        if "." in self.target:
            return "method"
        return "module" if self.target[0].isupper() else "function"

    @property
    def entrypoint(self) -> dict[str, Any]:
        """As the table of a pyproject has it."""
        place = f"{PACKAGE}.{self.module}:"
        entrypoint = {"target": place + self.target, "name": self.name, "samples": place + self.samples}
        if self.instance:
            entrypoint["instance"] = place + self.instance
        return {**entrypoint, "mode": self.mode, **self.table}


def all_programs() -> list[Program]:
    """In the order of their modules; a program is named for its target."""
    programs = []
    for path in sorted((SOURCES / PACKAGE).glob("[!_]*.py")):
        # What one function of a module is decorated with imports dynamo for all of them.
        all_warm = any(declared.get("warm") for declared in _declared(path))
        for declared in _declared(path):
            rest = dict(declared)
            target, samples = rest.pop("target"), rest.pop("samples")
            instance, mode = rest.pop("instance", None), rest.pop("mode", "no_grad")
            compiles, signals = rest.pop("compiles", False), rest.pop("signals", True)
            warm = rest.pop("warm", all_warm or compiles)
            places = (target, path.stem, target, samples, instance)
            programs.append(Program(*places, mode, warm, compiles, signals, rest))
    names = [program.name for program in programs]
    assert len(set(names)) == len(names), "two programs have one name"
    return programs


def _declared(path: Path) -> list[dict[str, Any]]:
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "PROGRAMS":
            return list(ast.literal_eval(statement.value))
    raise AssertionError(f"{path} declares no PROGRAMS")
