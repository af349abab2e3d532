"""Mechanical changes to a source: each gives the text of a file with one thing in it changed.

They splice text in, so that all other lines stay as they are, numbers included, unless that is the change.
"""

from __future__ import annotations

import ast
import builtins
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tests.truth.catalogue import SOURCES, Program
from tests.truth.reach import Definition, reachable

__all__ = ["Mutation", "mutations_of"]


@dataclass(frozen=True)
class Mutation:
    """`harmless`: nothing changes that a call could come to."""

    kind: str
    what: str
    file: str
    text: str
    harmless: bool = False


Edit = tuple[str, str, str, bool]
"""Kind, words, the new text of the file, harmless."""


def mutations_of(program: Program) -> list[Mutation]:
    """Of every definition that a call can come to, in the package and in the dependency."""
    found: dict[tuple[str, str], Mutation] = {}
    files: set[str] = set()
    for definition in reachable(program):
        source = Source((SOURCES / definition.file).read_text())
        edits = list(_edits(source, definition))
        if definition.file not in files:
            edits += _around(source, definition.node)
        files.add(definition.file)
        for kind, words, text, harmless in edits:
            try:
                ast.parse(text)
            except SyntaxError:
                continue
            if text != source.text:
                what = f"{definition.file}: {definition.name}: {words}"
                found.setdefault(
                    (definition.file, text), Mutation(kind, what, definition.file, text, harmless)
                )
    return list(found.values())


class Source:
    """The text of a file, by the positions of its nodes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.AST) -> tuple[int, int]:
        start = self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def of(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def replaced(self, node: ast.AST, text: str) -> str:
        start, end = self.span(node)
        return self.text[:start] + text + self.text[end:]

    def inserted_above(self, line: int, text: str) -> str:
        """Before the line of that number."""
        place = self._starts[line - 1]
        return self.text[:place] + text + self.text[place:]

    def inserted_below(self, line: int, text: str) -> str:
        return self.inserted_above(line + 1, text)

    def without_lines(self, first: int, last: int) -> str:
        return self.text[: self._starts[first - 1]] + self.text[self._starts[last] :]


def _edits(source: Source, definition: Definition) -> Iterator[Edit]:
    node = definition.node
    docstrings = _docstrings(node)
    for inner in ast.walk(node):
        if id(inner) in docstrings:
            continue
        for make in (_constant, _operator, _name_of_torch, _call, _branch, _comprehension):
            for kind, words, replaced, text in make(source, inner):
                yield kind, f"line {replaced.lineno}: {words}", text, False  # type: ignore[attr-defined]
        if isinstance(inner, (ast.FunctionDef, ast.If, ast.For, ast.With, ast.Try)):
            yield from _statements(source, inner.body)
        if isinstance(inner, ast.FunctionDef):
            yield from _function(source, inner)
            yield from _builtins(source, inner)
        if isinstance(inner, ast.ClassDef):
            yield from _class(source, inner)


def _docstrings(node: ast.AST) -> set[int]:
    return {
        id(inner.value)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant)
    }


Found = Iterator[tuple[str, str, ast.AST, str]]

_WORDS = {"sin": "cos", "tanh": "sin", "first": "second", "relu": "gelu", "a": "b", "low": "high", "b": "a"}


def _constant(source: Source, node: ast.AST) -> Found:
    if not isinstance(node, ast.Constant):
        return
    value, before = node.value, source.of(node)
    others: list[str] = []
    if isinstance(value, bool):
        others, kind = [repr(not value)], "a flag"
    elif isinstance(value, (int, float)):
        others, kind = (
            [repr(value + 1), repr(value * 2.5 if isinstance(value, float) else value * 3)],
            "a number",
        )
    elif isinstance(value, str) and before[:1] in "'\"":
        others, kind = [repr(_WORDS.get(value, value + "_"))], "a string"
    for other in others:
        if other != before:
            yield kind, f"{before} becomes {other}", node, source.replaced(node, other)


_OPERATORS = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.Pow: ("**", "*"),
    ast.BitOr: ("|", "&"),
    ast.BitAnd: ("&", "|"),
    ast.MatMult: ("@", "+"),
}
_COMPARISONS = {
    ast.Lt: ("<", ">="),
    ast.LtE: ("<=", ">"),
    ast.Gt: (">", "<="),
    ast.GtE: (">=", "<"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}


def _between(source: Source, left: ast.AST, right: ast.AST, before: str, after: str) -> str:
    """The operator between two nodes, replaced."""
    start, end = source.span(left)[1], source.span(right)[0]
    gap = source.text[start:end]
    return source.text[:start] + gap.replace(before, after, 1) + source.text[end:]


def _operator(source: Source, node: ast.AST) -> Found:
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        before, after = _OPERATORS[type(node.op)]
        text = _between(source, node.left, node.right, before, after)
        yield "an operator", f"`{source.of(node)}` with {after} for {before}", node, text
        yield (
            "an operand",
            f"`{source.of(node)}` becomes its left side",
            node,
            source.replaced(node, source.of(node.left)),
        )
    elif isinstance(node, ast.AugAssign) and type(node.op) in _OPERATORS:
        before, after = _OPERATORS[type(node.op)]
        text = _between(source, node.target, node.value, before, after)
        yield "an operator", f"`{source.of(node)}` with {after} for {before}", node, text
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        before, after = _COMPARISONS[type(node.ops[0])]
        text = _between(source, node.left, node.comparators[0], before, after)
        yield "a comparison", f"`{source.of(node)}` with {after} for {before}", node, text
    elif isinstance(node, ast.BoolOp):
        before, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        text = _between(source, node.values[0], node.values[1], before, after)
        yield "an operator", f"`{source.of(node)}` with {after} for {before}", node, text
    elif isinstance(node, ast.UnaryOp):
        yield (
            "an operator",
            f"`{source.of(node)}` without it",
            node,
            source.replaced(node, source.of(node.operand)),
        )


_TORCH = {
    "sin": "cos",
    "cos": "sin",
    "tanh": "sigmoid",
    "sigmoid": "tanh",
    "relu": "tanh",
    "abs": "neg",
    "float32": "float64",
    "float64": "float32",
    "float16": "bfloat16",
    "bfloat16": "float16",
    "int64": "int32",
    "int32": "int64",
    "zeros_like": "ones_like",
    "ones": "zeros",
    "zeros": "ones",
    "gelu": "silu",
    "square": "abs",
    "ReLU": "Tanh",
    "GELU": "ReLU",
    "Tanh": "Sigmoid",
    "max_pool2d": "avg_pool2d",
    "mean": "sum",
    "sum": "mean",
    "match": "search",
}


def _name_of_torch(source: Source, node: ast.AST) -> Found:
    if isinstance(node, ast.Attribute) and node.attr in _TORCH:
        after = f"{source.of(node.value)}.{_TORCH[node.attr]}"
        yield "a function", f"{source.of(node)} becomes {after}", node, source.replaced(node, after)


def _call(source: Source, node: ast.AST) -> Found:
    if not isinstance(node, ast.Call):
        return
    for keyword in node.keywords:
        start, end = source.span(keyword)
        rest = source.text[end:]
        cut = source.text[:start].rstrip()
        text = (cut[:-1] if cut.endswith(",") else cut) + rest
        yield "an argument", f"`{source.of(node)}` without {keyword.arg}", node, text
    if len(node.args) == 1 and not node.keywords and isinstance(node.func, ast.Name):
        yield (
            "a call",
            f"`{source.of(node)}` becomes its argument",
            node,
            source.replaced(node, source.of(node.args[0])),
        )


def _branch(source: Source, node: ast.AST) -> Found:
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        for value in ("True", "False"):
            if isinstance(node, ast.While) and value == "True":
                continue
            words = f"`{source.of(node.test)}` becomes {value}"
            yield "a branch", words, node.test, source.replaced(node.test, value)


def _comprehension(source: Source, node: ast.AST) -> Found:
    iterators = [node.iter] if isinstance(node, ast.For) else []
    if isinstance(node, (ast.ListComp, ast.DictComp, ast.GeneratorExp, ast.SetComp)):
        iterators = [generator.iter for generator in node.generators]
    for iterator in iterators:
        words = f"`{source.of(iterator)}` becomes its first"
        yield "a loop", words, iterator, source.replaced(iterator, f"list({source.of(iterator)})[:1]")
        words = f"`{source.of(iterator)}` is reversed"
        yield "a loop", words, iterator, source.replaced(iterator, f"list({source.of(iterator)})[::-1]")


def _statements(source: Source, body: list[ast.stmt]) -> Iterator[Edit]:
    own = [
        statement
        for statement in body
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    ]
    for statement in own:
        if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            words = f"line {statement.lineno}: `{source.of(statement).splitlines()[0]}` is dropped"
            yield "a statement", words, source.replaced(statement, "pass"), False
    for one, other in itertools.pairwise(own):
        if isinstance(other, ast.Return):
            continue
        (start, end), (then, last) = source.span(one), source.span(other)
        text = source.text
        swapped = text[:start] + text[then:last] + text[end:then] + text[start:end] + text[last:]
        yield "statements swapped", f"lines {one.lineno} and {other.lineno} are swapped", swapped, False


def _function(source: Source, node: ast.FunctionDef) -> Iterator[Edit]:
    yield from _decorators(source, node)
    inner = " " * (node.body[0].col_offset)
    first = node.body[0]
    words = f"{node.name} gets"
    if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
        text = source.inserted_above(first.lineno, f'{inner}"""Says what it does."""\n')
        yield "a docstring", f"{words} a docstring", text, True
    yield "a comment", f"{words} a comment", source.inserted_above(first.lineno, f"{inner}# why\n"), True
    text = source.inserted_above(first.lineno, f"{inner}unused = 5\n")
    yield "an unused variable", f"{words} a variable that nobody reads", text, False
    plain = [arg for arg in node.args.args if arg.annotation is None and arg.arg not in ("self", "cls")]
    if plain and not any("custom_op" in source.of(each) for each in node.decorator_list):
        text = source.replaced(plain[0], f"{plain[0].arg}: object")
        yield "an annotation", f"{words} an annotation", text, True
    name = next((arg.arg for arg in plain if arg.arg == "x"), None)
    if name and isinstance(node.body[-1], ast.Return):
        text = source.inserted_above(node.body[-1].lineno, f"{' ' * node.body[-1].col_offset}x = x * 1.5\n")
        yield "a statement", f"{words} `x = x * 1.5` before its end", text, False


def _builtins(source: Source, node: ast.FunctionDef) -> Iterator[Edit]:
    """A module may come to have a function of its own by the name of a builtin."""
    called = [inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    for function in called:
        if isinstance(function, ast.Name) and function.id in vars(builtins):
            name = function.id
            text = f"{source.text}\n\ndef {name}(*args, **kwargs):\n    return 3\n"
            yield "a builtin", f"the module has a {name} of its own", text, False


def _decorators(source: Source, node: ast.FunctionDef | ast.ClassDef) -> Iterator[Edit]:
    for decorator in node.decorator_list:
        words = f"{node.name} without @{source.of(decorator)}"
        yield "a decorator", words, source.without_lines(decorator.lineno, decorator.end_lineno or 0), False
        if isinstance(decorator, ast.Call) and source.of(decorator.func) == "dataclass":
            text = source.replaced(decorator, "dataclass")
            yield "a decorator", f"{node.name} with @dataclass alone", text, False


_HARMLESS_MEMBERS = {
    "an unrelated method": "def never_called(self):\n{i}    return 12345\n",
    "an unrelated attribute": "never_read = 12345\n",
    "an unrelated class method": "@classmethod\n{i}def never_made(cls):\n{i}    return cls\n",
    "an unrelated property": "@property\n{i}def never_asked(self):\n{i}    return 12345\n",
    "a comment": "# nothing to see\n",
    "a __repr__": "def __repr__(self):\n{i}    return 'short'\n",
}

_MEMBERS = {
    "a __getattribute__": (
        "def __getattribute__(self, name):\n"
        "{i}    value = object.__getattribute__(self, name)\n"
        "{i}    return value * 2.0 if type(value) is float else value\n"
    ),
    "a __getattr__": "def __getattr__(self, name):\n{i}    raise AttributeError(name + ' is not here')\n",
    "a __setattr__": (
        "def __setattr__(self, name, value):\n"
        "{i}    object.__setattr__(self, name, value * 2.0 if type(value) is float else value)\n"
    ),
}


def _class(source: Source, node: ast.ClassDef) -> Iterator[Edit]:
    yield from _decorators(source, node)
    yield from _bases(source, node)
    indent = " " * node.body[0].col_offset
    last = node.end_lineno or 0
    enumeration = any("num" in source.of(base) or "Flag" in source.of(base) for base in node.bases)

    def added(member: str) -> str:
        return source.inserted_below(last, "\n" + indent + member.replace("{i}", indent))

    for what, member in _HARMLESS_MEMBERS.items():
        if not (enumeration and what == "an unrelated attribute"):
            yield "an unrelated member", f"{node.name} gets {what}", added(member), True
    if enumeration:
        yield "a member", f"{node.name} gets one more member", added("ANOTHER = 64\n"), False
        return
    for what, member in _MEMBERS.items():
        yield "a member", f"{node.name} gets {what}", added(member), False
    decorators = " ".join(source.of(each) for each in node.decorator_list)
    if "dataclass" in decorators:
        field = next(each.target.id for each in node.body if isinstance(each, ast.AnnAssign))
        member = f"def __post_init__(self):\n{indent}    object.__setattr__(self, '{field}', 9.0)\n"
        yield "a member", f"{node.name} gets a __post_init__", added(member), False
    for name in _inherited(source, node):
        member = f"def {name}(self, *args, **kwargs):\n{indent}    return args[0] * 7.0\n"
        yield "an override", f"{node.name} overrides {name}", added(member), False
    if any(source.of(base).startswith("nn.") for base in node.bases):
        member = (
            f"def __call__(self, *args, **kwargs):\n{indent}    return super().__call__(*args, **kwargs)\n"
        )
        yield "an override", f"{node.name} overrides __call__", added(member), False
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            first = min([item.lineno, *(each.lineno for each in item.decorator_list)])
            text = source.without_lines(first, item.end_lineno or 0)
            if len(node.body) == 1:
                text = source.text[: source.span(item)[0]] + "pass\n" + source.text[source.span(item)[1] :]
            yield "a method", f"{node.name} without {item.name}", text, False
            text = source.text.replace(f"def {item.name}(", f"def {item.name}_(", 1)
            yield "a method", f"{node.name}.{item.name} is renamed", text, False


def _inherited(source: Source, node: ast.ClassDef) -> list[str]:
    """Methods that a base of ours has and the class does not, and forward of a base of torch."""
    own = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    found = []
    for base in node.bases:
        name = source.of(base)
        for path in SOURCES.rglob("*.py"):
            for other in ast.parse(path.read_text()).body:
                if isinstance(other, ast.ClassDef) and other.name == name:
                    found += [item.name for item in other.body if isinstance(item, ast.FunctionDef)]
        if name.startswith("nn."):
            found.append("forward")
    return [name for name in dict.fromkeys(found) if name not in own and not name.startswith("__")]


def _bases(source: Source, node: ast.ClassDef) -> Iterator[Edit]:
    names = [source.of(base) for base in node.bases]
    if len(names) > 1:
        (start, _), (_, end) = source.span(node.bases[0]), source.span(node.bases[-1])
        text = source.text[:start] + ", ".join(reversed(names)) + source.text[end:]
        yield "a base", f"{node.name}({', '.join(reversed(names))})", text, False
    for base in node.bases:
        rest = [source.of(other) for other in node.bases if other is not base]
        (start, _), (_, end) = source.span(node.bases[0]), source.span(node.bases[-1])
        text = source.text[:start] + (", ".join(rest) or "object") + source.text[end:]
        yield "a base", f"{node.name} without its base {source.of(base)}", text, False
    methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
    inherited = [name for name in ("forward", "run", "finish") if name in {item.name for item in methods}]
    line = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    if names and not any("num" in name or "Flag" in name for name in names):
        name = "prepare" if "Base" in names else "forward" if "nn.Module" not in names else "never"
        mixin = f"class Added:\n    def {name}(self, *args, **kwargs):\n        return args[0] * 7.0\n\n\n"
        start = source.span(node.bases[0])[0]
        text = source.text[:start] + "Added, " + source.text[start:]
        text = Source(text).inserted_above(line, mixin)
        yield "a base", f"{node.name} gets a mixin that has {name}", text, name == "never" and not inherited


def _around(source: Source, node: ast.stmt) -> Iterator[Edit]:
    """Next to a definition: what has nothing to do with it."""
    decorators = getattr(node, "decorator_list", [])
    line = min([node.lineno, *(each.lineno for each in decorators)])
    unrelated: dict[str, str] = {
        "an unrelated function": "def never_called(x):\n    return x * 12345\n\n\n",
        "an unrelated constant": "NEVER_READ = 12345\n",
        "an unrelated import": "import colorsys\n",
        "an unrelated class": "class NeverMade:\n    pass\n\n\n",
        "a comment": "# nothing to see here\n",
        "empty lines": "\n\n\n",
    }
    for what, text in unrelated.items():
        yield what, f"{what} above it", source.inserted_above(line, text), True
    yield (
        "a docstring",
        "the module's docstring is another",
        '"""Another."""\n' + source.text.partition("\n")[2],
        True,
    )
