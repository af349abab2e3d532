"""A project's nn.Module classes, found by griffe in its source; nothing is imported."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import griffe
from griffe import ParameterKind

from hatch_precompile.runtime import RUNTIME_PACKAGE

__all__ = ["ModelClass", "Sources", "find_models", "read_sources"]

# Classes of other packages that are modules, and have no forward. Any other class of torch.nn has one.
_BARE = frozenset(
    {
        "lightning.LightningModule",
        "lightning.pytorch.LightningModule",
        "pytorch_lightning.LightningModule",
        "torch.nn.Module",
        "torch.nn.modules.module.Module",
        "transformers.PreTrainedModel",
        "transformers.modeling_utils.PreTrainedModel",
    }
)
_PASSED_OVER = ("tests", "test", RUNTIME_PACKAGE)
_STARS: dict[ParameterKind | None, str] = {ParameterKind.var_positional: "*", ParameterKind.var_keyword: "**"}


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


class Sources(griffe.ModulesCollection):
    """The modules of a project. `unread`: its files that are no valid Python."""

    def __init__(self) -> None:
        super().__init__()
        self.unread: list[str] = []
        self.code = _Code()
        self._modules: list[griffe.Module] = []
        self._hidden: dict[str, griffe.Object | griffe.Alias] = {}

    def read(self, folder: Path, parent: griffe.Module | None = None) -> None:
        """A package and its modules. griffe's loader does not tell what it cannot read, and it runs git."""
        package = self._visit(folder.name, folder / "__init__.py", parent)
        if package is None:
            package = griffe.Module(folder.name, filepath=[folder], parent=parent, modules_collection=self)
        self._add(package)
        for file in sorted(folder.iterdir()):
            if file.suffix == ".py" and file.stem != "__init__":
                module = self._visit(file.stem, file, package)
                if module is not None:
                    self._add(module)
            elif file.is_dir() and not file.is_symlink() and file.name not in _PASSED_OVER:
                self.read(file, package)

    def _visit(self, name: str, file: Path, parent: griffe.Module | None) -> griffe.Module | None:
        if not file.is_file():  # nothing, or a pipe, which would be waited for
            return None
        try:
            with tokenize.open(file) as opened:
                text = opened.read()
            code = griffe.Extensions(self.code)
            return griffe.visit(name, file, text, extensions=code, parent=parent, modules_collection=self)
        # The last two: of what is nested too deeply for the parser.
        except (SyntaxError, ValueError, OSError, RecursionError, MemoryError) as error:
            self.unread.append(f"{file}: {error}")
            return None

    def _add(self, module: griffe.Module) -> None:
        owner = module.parent or self
        # After `from .encoder import encoder` the name is the function, but griffe has only the module.
        if module.name in owner.members:
            self._hidden[module.path] = owner.members[module.name]
        owner.set_member(module.name, module)
        self._modules.append(module)

    def get_member(self, key: str | Sequence[str]) -> Any:
        return self._hidden[key] if isinstance(key, str) and key in self._hidden else super().get_member(key)

    def all(self, kind: type[_Kind]) -> Iterator[_Kind]:
        """The classes, or the functions, that stand in the modules themselves."""
        for module in self._modules:
            for member in module.members.values():
                if isinstance(member, kind):
                    yield member

    def find(self, path: str) -> griffe.Object | str:
        """What a full name stands for: in other packages it is a name."""
        try:
            found = self.get_member(path)
        except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
            owner, _, name = path.rpartition(".")
            outside = self.find(owner) if owner else ""
            return f"{outside}.{name}" if outside and isinstance(outside, str) else path
        try:
            return found.final_target if isinstance(found, griffe.Alias) else found
        except griffe.AliasResolutionError as error:
            return error.alias.target_path
        except griffe.CyclicAliasError:
            return path

    def classes_in(self, scope: griffe.Object, parts: Iterable[ast.AST]) -> set[str]:
        """The classes of the project that these parts of the code of a class or function name."""
        imported = _imported(self.code.nodes[scope], scope.module)
        found = set()
        for dotted in {_dotted(part) for part in parts} - {""}:
            first, _, rest = dotted.partition(".")
            try:
                path = imported.get(first) or scope.resolve(first)
            except griffe.NameResolutionError:
                continue
            named = self.find(f"{path}.{rest}" if rest else path)
            if isinstance(named, griffe.Class):
                found.add(named.path)
        return found


_Kind = TypeVar("_Kind", griffe.Class, griffe.Function)


class _Code(griffe.Extension):
    """Keeps the code of classes and functions: griffe does not look into a function's body."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[griffe.Object, ast.ClassDef | ast.FunctionDef] = {}

    def on_class_instance(self, *, node: Any, cls: griffe.Class, **more: Any) -> None:
        self.nodes[cls] = node

    def on_function_instance(self, *, node: Any, func: griffe.Function, **more: Any) -> None:
        self.nodes[func] = node


def read_sources(packages: Iterable[Path]) -> Sources:
    """The packages in these folders."""
    sources = Sources()
    for package in packages:
        sources.read(package)
    loader = griffe.GriffeLoader(modules_collection=sources, allow_inspection=False)
    for module in sources.members.values():
        loader.expand_exports(module)
        loader.expand_wildcards(module, external=False)
    return sources


def find_models(sources: Sources) -> list[ModelClass]:
    """The module classes that can be called: they have a forward, or a base that brings one."""
    models = [each for each in sources.all(griffe.Class) if _is_model(sources, each)]
    used = {each.path: _used_in(sources, each) for each in models}
    factories = _factories(sources)
    return [
        ModelClass(
            module=each.module.path,
            name=each.name,
            file=Path(str(each.filepath)),
            line=sources.code.nodes[each].lineno,
            required=_required(_parameters(each, "__init__") or []),
            forward=_written(forward) if (forward := _parameters(each, "forward")) is not None else ["..."],
            factory=factories.get(each.path),
            inner=any(each.path in uses for user, uses in used.items() if user != each.path),
        )
        for each in models
    ]


def _is_model(sources: Sources, each: griffe.Class) -> bool:
    bases = [
        base if isinstance(base, str) else base.canonical_path for one in _lineage(each) for base in one.bases
    ]
    outside = [found for base in bases if isinstance(found := sources.find(base), str)]
    callable_ = [
        name for name in outside if name.startswith("torch.nn.") and name.rpartition(".")[2][:1].isupper()
    ]
    has_forward = _parameters(each, "forward") is not None
    return any(name not in _BARE for name in callable_) or (has_forward and not _BARE.isdisjoint(outside))


def _lineage(each: griffe.Class) -> list[griffe.Class]:
    try:
        return [each, *each.mro()]
    except ValueError:  # its bases have no order, and Python would not make this class
        return [each]


def _parameters(each: griffe.Class, method: str) -> list[griffe.Parameter] | None:
    """Those of a method as the class has it, without the object."""
    for one in _lineage(each):
        found = one.members.get(method)
        if isinstance(found, griffe.Function):
            return list(found.parameters)[1:]
    return None


def _used_in(sources: Sources, each: griffe.Class) -> set[str]:
    """The classes of the project that a class's body names."""
    parts = [part for statement in sources.code.nodes[each].body for part in ast.walk(statement)]
    return sources.classes_in(each, parts)


def _factories(sources: Sources) -> dict[str, str]:
    """By class, a function without required parameters that returns a new instance."""
    made: dict[str, str] = {}
    for each in sources.all(griffe.Function):
        if _required(each.parameters):
            continue
        returned = [part.value for part in ast.walk(sources.code.nodes[each]) if isinstance(part, ast.Return)]
        for path in sources.classes_in(
            each, [value.func for value in returned if isinstance(value, ast.Call)]
        ):
            made.setdefault(path, f"{each.module.path}:{each.name}")
    return made


def _imported(node: ast.AST, module: griffe.Module) -> dict[str, str]:
    """What the names stand for that are imported in a function."""
    found = {}
    for part in ast.walk(node):
        if isinstance(part, ast.Import):
            for alias in part.names:
                top = alias.name.partition(".")[0]
                found[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(part, ast.ImportFrom):
            for alias in part.names:
                found[alias.asname or alias.name] = griffe.relative_to_absolute(part, alias, module)
    return found


def _dotted(code: ast.AST) -> str:
    """The name that an expression is; empty for what is none."""
    if isinstance(code, ast.Subscript):  # Base[T]
        return _dotted(code.value)
    if isinstance(code, ast.Attribute):
        owner = _dotted(code.value)
        return f"{owner}.{code.attr}" if owner else ""
    return code.id if isinstance(code, ast.Name) else ""


def _required(parameters: Iterable[griffe.Parameter]) -> list[str]:
    """The parameters a call has to give."""
    return [each.name for each in parameters if each.required and each.kind not in _STARS]


def _written(parameters: list[griffe.Parameter]) -> list[str]:
    """The parameters as they are written, without annotations."""
    written = []
    kinds = [each.kind for each in parameters]
    for number, each in enumerate(parameters):
        first = each.kind not in kinds[:number]
        if each.kind is ParameterKind.keyword_only and first and ParameterKind.var_positional not in kinds:
            written.append("*")
        default = "" if each.kind in _STARS or each.required else f"={each.default}"
        written.append(f"{_STARS.get(each.kind, '')}{each.name}{default}")
        if each.kind is ParameterKind.positional_only and each.kind not in kinds[number + 1 :]:
            written.append("/")
    return written
