"""A project's nn.Module classes, found by reading its source; nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hatch_precompile.runtime import RUNTIME_PACKAGE

__all__ = ["ModelClass", "Source", "find_models", "read_sources"]

# Bases from other packages that are modules. Any class of torch.nn is one, too.
_KNOWN_BASES = frozenset(
    {
        "lightning.LightningModule",
        "lightning.pytorch.LightningModule",
        "pytorch_lightning.LightningModule",
        "transformers.PreTrainedModel",
        "transformers.modeling_utils.PreTrainedModel",
    }
)


@dataclass(frozen=True)
class ModelClass:
    """One class. `inner`: another one uses it, and is compiled together with it."""

    module: str
    name: str
    file: Path
    line: int
    required: list[str]
    """The parameters that making an instance needs."""
    forward: list[str]
    """The parameters of a call, as they are written."""
    factory: str | None
    """A function of the project that takes no argument and returns an instance, as `module:name`."""
    inner: bool


@dataclass
class Source:
    """One module of the project: what stands at its top level, and what its names stand for."""

    name: str
    file: Path
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    imported: dict[str, str] = field(default_factory=dict)


def read_sources(packages: Iterable[Path]) -> tuple[dict[str, Source], list[str]]:
    """The modules of the packages in these folders, by dotted name; and which files are no valid Python."""
    sources, unread = {}, []
    for package in packages:
        for file in sorted(package.rglob("*.py")):
            relative = file.relative_to(package.parent)
            if {"tests", "test", RUNTIME_PACKAGE} & set(relative.parts):
                continue
            parts = relative.with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            try:
                tree = ast.parse(file.read_bytes(), str(file))
            except (SyntaxError, ValueError) as error:
                unread.append(f"{file}: {error}")
                continue
            sources[name] = _source(name, file, tree)
    return sources, unread


def _source(name: str, file: Path, tree: ast.Module) -> Source:
    source = Source(name, file)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            source.classes[node.name] = node
        elif isinstance(node, ast.FunctionDef):
            source.functions[node.name] = node
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for part in ast.walk(tree):
        if isinstance(part, ast.Import):
            for alias in part.names:
                top = alias.name.partition(".")[0]
                source.imported[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(part, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - part.level + 1] if part.level else []
            origin = ".".join([*above, *([part.module] if part.module else [])])
            for alias in part.names:
                source.imported[alias.asname or alias.name] = f"{origin}.{alias.name}"
    return source


def find_models(sources: dict[str, Source]) -> list[ModelClass]:
    """The module classes that can be called: they have a forward, or a base that brings one."""
    known = _Classes(sources)
    models = [each for each in known.all() if known.is_model(each) and known.forward(each)]
    used = {(source.name, node.name): known.used_in(source, node) for source, node in models}
    found = []
    for source, node in models:
        key = (source.name, node.name)
        forward = known.forward((source, node))
        assert forward is not None
        found.append(
            ModelClass(
                module=source.name,
                name=node.name,
                file=source.file,
                line=node.lineno,
                required=_required(known.method((source, node), "__init__")),
                forward=_parameters(forward) if isinstance(forward, ast.FunctionDef) else ["..."],
                factory=known.factory(key),
                inner=any(key in uses for user, uses in used.items() if user != key),
            )
        )
    return found


_Class = tuple[Source, ast.ClassDef]


class _Classes:
    """Follows names through the project's modules to the classes they stand for."""

    def __init__(self, sources: dict[str, Source]) -> None:
        self.sources = sources

    def all(self) -> Iterator[_Class]:
        for source in self.sources.values():
            for node in source.classes.values():
                yield source, node

    def is_model(self, each: _Class) -> bool:
        return any(base in _KNOWN_BASES or _is_torch_nn(base) for base in self._outside_bases(each, set()))

    def method(self, each: _Class, name: str) -> ast.FunctionDef | None:
        """A method as the class has it: its own, or the first one that a base in the project has."""
        for _, node in self._lineage(each, set()):
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == name:
                    return item
        return None

    def forward(self, each: _Class) -> ast.FunctionDef | str | None:
        """Its forward, or the base outside of the project that brings one."""
        own = self.method(each, "forward")
        if own is not None:
            return own
        outside = self._outside_bases(each, set())
        bare = {"torch.nn.Module", "torch.nn.modules.module.Module", *_KNOWN_BASES}
        return next((base for base in outside if base not in bare and _is_torch_nn(base)), None)

    def used_in(self, source: Source, node: ast.ClassDef) -> set[tuple[str, str]]:
        """The classes of the project that a class's body names."""
        found = set()
        for statement in node.body:
            for part in ast.walk(statement):
                if isinstance(part, (ast.Name, ast.Attribute)):
                    other = self._find(self._dotted(source, part))
                    if other is not None:
                        found.add((other[0].name, other[1].name))
        return found

    def factory(self, key: tuple[str, str]) -> str | None:
        """A function without required parameters that returns a new instance."""
        for source in self.sources.values():
            for function in source.functions.values():
                if _required(function, bound=False):
                    continue
                for part in ast.walk(function):
                    if isinstance(part, ast.Return) and isinstance(part.value, ast.Call):
                        made = self._find(self._dotted(source, part.value.func))
                        if made is not None and (made[0].name, made[1].name) == key:
                            return f"{source.name}:{function.name}"
        return None

    def _lineage(self, each: _Class, seen: set[str]) -> Iterator[_Class]:
        source, node = each
        if f"{source.name}.{node.name}" in seen:
            return
        seen.add(f"{source.name}.{node.name}")
        yield each
        for base in node.bases:
            other = self._find(self._dotted(source, base))
            if other is not None:
                yield from self._lineage(other, seen)

    def _outside_bases(self, each: _Class, seen: set[str]) -> list[str]:
        return [
            dotted
            for source, node in self._lineage(each, seen)
            for base in node.bases
            if (dotted := self._dotted(source, base)) and self._find(dotted) is None
        ]

    def _dotted(self, source: Source, node: ast.expr) -> str:
        """What an expression names, in full; empty for what is no name."""
        if isinstance(node, ast.Subscript):  # Base[T]
            return self._dotted(source, node.value)
        if isinstance(node, ast.Attribute):
            owner = self._dotted(source, node.value)
            return f"{owner}.{node.attr}" if owner else ""
        if not isinstance(node, ast.Name):
            return ""
        if node.id in source.classes:
            return f"{source.name}.{node.id}"
        return source.imported.get(node.id, "")

    def _find(self, dotted: str) -> _Class | None:
        """The class of the project behind a full name, through the modules that import it from others."""
        for _ in range(20):
            module, _, name = dotted.rpartition(".")
            source = self.sources.get(module)
            if source is None:
                return None
            if name in source.classes:
                return source, source.classes[name]
            if name not in source.imported:
                return None
            dotted = source.imported[name]
        return None


def _is_torch_nn(dotted: str) -> bool:
    return dotted.startswith("torch.nn.") and dotted.rpartition(".")[2][:1].isupper()


def _required(function: ast.FunctionDef | None, *, bound: bool = True) -> list[str]:
    """The parameters a call has to give, without the object."""
    if function is None:
        return []
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    needed = positional[: len(positional) - len(spec.defaults)][1 if bound else 0 :]
    keywords = [
        argument
        for argument, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
        if default is None
    ]
    return [argument.arg for argument in (*needed, *keywords)]


def _parameters(function: ast.FunctionDef) -> list[str]:
    """The parameters as they are written, without annotations and without the object."""
    plain = ast.parse(ast.unparse(function)).body[0]
    assert isinstance(plain, ast.FunctionDef)
    spec = plain.args
    for argument in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg):
        if argument is not None:
            argument.annotation = None
    text = ast.unparse(spec)
    return [part for part in text.split(", ")[1:] if part]
