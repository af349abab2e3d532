"""A guard function as C: the same checks in the same order as its Python text, without an interpreter.

What a function names that it does not assign is a constant, found in the guard's namespace when it is made. A
guard with anything that is not known here stays Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hatch_precompile.lower.guards.checks import Accept, Assign, CallPart, Check, Function, Statement, Unwrap
from hatch_precompile.lower.guards.expressions import (
    AllOf,
    AnyOf,
    Attribute,
    Binary,
    Call,
    Compare,
    Constant,
    Display,
    Expression,
    Literal,
    Name,
    Negation,
    Subscript,
    TensorsAgree,
    Unary,
    Variable,
)

__all__ = ["Translation", "Untranslatable"]

_EXACT = {
    "dict": "PyDict_Type",
    "list": "PyList_Type",
    "tuple": "PyTuple_Type",
    "str": "PyUnicode_Type",
    "int": "PyLong_Type",
    "float": "PyFloat_Type",
    "bool": "PyBool_Type",
    "set": "PySet_Type",
}
_COMPARISONS = {"==": "Py_EQ", "!=": "Py_NE", "<": "Py_LT", "<=": "Py_LE", ">": "Py_GT", ">=": "Py_GE"}
_OPERATIONS = {
    "+": "PyNumber_Add",
    "-": "PyNumber_Subtract",
    "*": "PyNumber_Multiply",
    "//": "PyNumber_FloorDivide",
    "%": "PyNumber_Remainder",
    "/": "PyNumber_TrueDivide",
}
# Checks of one tensor among many that torch's check makes, too.
_MADE_BY_TORCH = {"TENSOR_DTYPE", "TENSOR_RANK", "TENSOR_SIZE"}


class Untranslatable(Exception):
    """There is something in a guard that is not known here. It says what."""


class Translation:
    """The functions of one guard, which share constants. Raises Untranslatable.

    names: dotted, of the constants that the namespace has; literals: the values of the others
    """

    def __init__(self, prefix: str, functions: Sequence[Function]) -> None:
        self.prefix = prefix
        self.names: list[str] = []
        self.literals: list[object] = []
        self.classes = 0  # that are asked for names
        self._keys: dict[str, int] = {}
        gives = {
            each.name: len(last.given) for each in functions for last in each.body if isinstance(last, Accept)
        }
        for call in [each for function in functions for each in function.body if isinstance(each, CallPart)]:
            if gives.get(call.part) != len(call.given):
                raise Untranslatable(f"what {call.part} gives")
        self._bodies = [_Function(self, function) for function in functions]

    def source(self) -> str:
        heads = [function.head() + ";" for function in self._bodies]
        # Literals come after all names.
        first = f"enum {{ {self.prefix}_literals = {len(self.names)} }};"
        seen = f"static uint64_t {self.prefix}_seen[{self.classes or 1}];"
        return "\n".join([first, seen, *heads, *(function.source() for function in self._bodies)])

    def name(self, dotted: str) -> str:
        if dotted not in self.names:
            self.names.append(dotted)
        return f"K[{self.names.index(dotted)}]"

    def literal(self, value: object) -> str:
        if value is None or isinstance(value, bool):
            return f"Py_{value}"
        key = f"{type(value)} {value!r}"
        if key not in self._keys:
            self._keys[key] = len(self.literals)
            self.literals.append(value)
        return f"K[{self.prefix}_literals + {self._keys[key]}]"


class _Function:
    """One function: its variables are kept until it ends, temporary values until their statement does."""

    def __init__(self, guard: Translation, function: Function) -> None:
        self.guard = guard
        self.function = function
        self.is_guard = function.name == "guard"
        self.places = {variable: f"v[{place}]" for place, variable in enumerate(_assigned(function))}
        if function.parameter in map(str, self.places):
            raise Untranslatable(f"another value for {function.parameter}")
        self._set_before: set[Variable] = set()
        self.lines: list[str] = []
        self._temporaries = 0
        self._sizes: dict[Expression, str] = {}  # what a statement has asked for, and where it is
        self._repeated = _weights_checked(function)
        self._most = 0
        self._labels = 0
        for statement in function.body:
            self._translate(statement)

    def head(self) -> str:
        parameter = self.function.parameter
        if self.is_guard:
            return f"static PyObject *{self.guard.prefix}(PyObject *self, PyObject *{parameter})"
        name = f"{self.guard.prefix}_{self.function.name}"
        return f"static int {name}(PyObject *const *K, PyObject *{parameter}, PyObject **given)"

    def source(self) -> str:
        # Arrays, because a compiler takes long for so many variables that live to the end.
        declared = f"    PyObject *v[{len(self.places) or 1}] = {{NULL}}, *t[{self._most or 1}] = {{NULL}};\n"
        if self.is_guard:
            declared += "    PyObject *const *K = ((PyTupleObject *)self)->ob_item;\n    PyObject *result;\n"
            ends = {"accept": "Py_True", "refuse": "Py_False"}
            answers = "".join(
                f"{label}:\n    result = kept({value});\n    goto end;\n" for label, value in ends.items()
            )
            answers += "fail:\n    result = ended_by_exception();\n    goto end;\n"
        else:
            declared += "    int result;\n"
            numbers = {"accept": 1, "refuse": 0, "fail": -1}
            answers = "".join(
                f"{label}:\n    result = {value};\n    goto end;\n" for label, value in numbers.items()
            )
        dropped = "".join(
            f"    drop({name}, {count});\n"
            for name, count in (("v", len(self.places)), ("t", self._most))
            if count
        )
        body = "".join(f"    {line}\n" for line in self.lines)
        return f"{self.head()} {{\n{declared}{body}{answers}end:\n{dropped}    return result;\n}}\n"

    # -- statements ------------------------------------------------------------------------------

    def _translate(self, statement: Statement) -> None:
        match statement:
            case Check(kind=kind, condition=condition):
                with self._statement():
                    if kind not in _MADE_BY_TORCH or not self._repeated.intersection(statement.variables()):
                        self._branch(condition, "refuse", False)
            case Assign(target=target, value=value):
                with self._statement():
                    self._assign(target, value)
            case Unwrap(variable=variable):
                with self._statement():
                    skip = self._label()
                    self._branch(variable.attribute("__dict__"), skip, False)
                    self._assign(variable, Name("plain_function").call(variable))
                    self.lines.append(f"{skip}:;")
            case CallPart(part=part, argument=argument, given=given):
                with self._statement():
                    self._call_part(part, self._value(argument), given)
            case Accept(given=given, hit=hit):
                if hit:
                    with self._statement():
                        self._count()
                with self._statement():
                    kept = [f"given[{n}] = kept({self._value(each)});" for n, each in enumerate(given)]
                    self.lines += [*kept, "goto accept;"]
            case _:
                raise Untranslatable(str(statement))

    def _assign(self, target: Variable, value: Expression) -> None:
        place = self.places[target]
        found = self._value(value, "" if target in self._set_before else place)
        if found != place:
            self.lines.append(f"set(&{place}, kept({found}));")
        self._set_before.add(target)

    def _count(self) -> None:
        entry, name = self.guard.name("entry"), self.guard.literal("hits")
        before = self._keep(f"PyObject_GetAttr({entry}, {name})")
        after = self._keep(f"PyNumber_InPlaceAdd({before}, {self.guard.literal(1)})")
        self.lines.append(f"if (PyObject_SetAttr({entry}, {name}, {after}) < 0) goto fail;")

    def _call_part(self, part: str, argument: str, given: tuple[Variable, ...]) -> None:
        self.lines.append(f"PyObject *given_here[{max(len(given), 1)}];")
        self.lines.append(
            f"int found = {self.guard.prefix}_{part}(K, {argument}, given_here); "
            "if (found < 0) goto fail; if (!found) goto refuse;"
        )
        for number, variable in enumerate(given):
            self.lines.append(f"set(&{self.places[variable]}, given_here[{number}]);")

    @contextmanager
    def _statement(self) -> Iterator[None]:
        self.lines.append("{")
        yield
        self.lines += [f"drop(t, {self._temporaries});"] if self._temporaries else []
        self.lines.append("}")
        self._temporaries = 0
        self._sizes = {}

    # -- conditions ------------------------------------------------------------------------------

    def _branch(self, test: Expression, label: str, when: bool) -> None:
        """Go to a label if the truth of an expression is `when`. Temporaries live on: the statement's end, or
        the function's, drops them."""
        match test:
            case Negation(of=of):
                self._branch(of, label, not when)
            case AnyOf(parts=parts) | AllOf(parts=parts):
                decides = isinstance(test, AnyOf)  # the truth of one that is the truth of all
                if when == decides:
                    for part in parts:
                        self._branch(part, label, when)
                else:
                    skip = self._label()
                    for part in parts[:-1]:
                        self._branch(part, skip, decides)
                    self._branch(parts[-1], label, when)
                    self.lines.append(f"{skip}:;")
            case Compare(left=left, rest=rest) if len(rest) > 1:
                lefts = [left, *(each for _, each in rest)]
                pairs = (each.compared(how, right) for each, (how, right) in zip(lefts, rest, strict=False))
                self._branch(AllOf(tuple(pairs)), label, when)
            case _:
                self.lines.append(
                    f"{{ int truth = {self._truth(test)}; if (truth < 0) goto fail; "
                    f"if (truth == {int(when)}) goto {label}; }}"
                )

    def _truth(self, test: Expression) -> str:
        """A C expression: 1, 0, or -1 for an exception."""
        match test:
            case Compare():
                return self._comparison(*test.single)
            case Attribute(of=of, name="__dict__"):
                return f"has_attributes({self._value(of)})"
            case Call(function=Attribute(of=Call() as keys, name="isdisjoint"), given=(names,)):
                if (mapping := keys.argument_of("dict.keys")) is not None:
                    return f"dict_lacks({self._value(mapping)}, {self._value(names)}, {_number_of(names)})"
            case Call(function=Name(name="class_lacks"), given=(cls, Literal(value=count), names)):
                return f"class_lacks({self._value(cls)}, {count}, {self._value(names)}, {self._seen()})"
            case Call(function=Name(name="class_has"), given=(cls, special, names)):
                among = self._value(special)
                return f"class_has({self._value(cls)}, {among}, {self._value(names)}, {self._seen()})"
            case Call(function=Name(name="alike"), given=(one, other)):
                both = f"{self._value(one)}, {self._value(other)}"
                return f"alike({self.guard.name('alike')}, {both})"
            case TensorsAgree(group=group, tensors=tensors):
                given = ", ".join(self._value(tensor) for tensor in tensors)
                check = self.guard.name(f"T{group}.unsafe")
                return f"tensors_agree({check}, (PyObject *[]){{{given}}}, {len(tensors)})"
        return f"PyObject_IsTrue({self._value(test)})"

    def _seen(self) -> str:
        self.guard.classes += 1
        return f"&{self.guard.prefix}_seen[{self.guard.classes - 1}]"

    def _comparison(self, left: Expression, how: str, right: Expression) -> str:
        if how in ("is", "is not"):
            return f"({self._identity(left)} {'==' if how == 'is' else '!='} {self._identity(right)})"
        if how in ("in", "not in"):
            inside = f"PySequence_Contains({self._value(right)}, {self._value(left)})"
            return inside if how == "in" else f"({inside} ^ 1)"
        if how == "==" and isinstance(left, Call) and (number := _count_of(right)) is not None:
            if (inner := left.argument_of("len")) is not None:
                return f"is_size(PyObject_Size({self._value(inner)}), {number})"
            if (inner := left.argument_of("dict.__len__")) is not None:
                return f"is_size(size_of_dict({self._value(inner)}), {number})"
        return f"compared({self._value(left)}, {self._value(right)}, {_COMPARISONS[how]})"

    def _identity(self, value: Expression) -> str:
        if isinstance(value, Call) and (kind := value.argument_of("type")) is not None:
            return f"(PyObject *)Py_TYPE({self._value(kind)})"
        if isinstance(value, Name) and value.name in _EXACT:
            return f"(PyObject *)&{_EXACT[value.name]}"
        return self._value(value)

    # -- values ----------------------------------------------------------------------------------

    def _value(self, node: Expression, place: str = "") -> str:
        """A C expression for a borrowed reference: to a variable, a constant or a temporary. place: where a
        value that is made anew may go at once"""
        known, value = _literal_of(node)
        if known:
            return self.guard.literal(value)
        match node:
            case Variable() if node in self.places:
                return self.places[node]
            case Variable() | Constant() | Name():
                name = str(node)
                return name if name == self.function.parameter else self.guard.name(name)
            case Attribute(of=of, name="__dict__"):
                return self._keep(f"dict_of({self._value(of)})", place)
            case Attribute(of=of, name=name):
                return self._keep(f"PyObject_GetAttr({self._value(of)}, {self.guard.literal(name)})", place)
            case Subscript(of=Call(function=Attribute(of=tensor, name="size"), given=()), key=key) if (
                _count_of(key) is not None
            ):
                return self._size_of(node, tensor, key)
            case Subscript(of=of, key=key):
                base, at = self._value(of), self._value(key)
                if (number := _count_of(key)) is not None:
                    return self._keep(f"item_at({base}, {number}, {at})", place)
                return self._keep(f"item({base}, {at})", place)
            case Call():
                return self._call(node, place)
            case Display(parts=parts, brackets="()"):
                elements = "".join(f", {self._value(part)}" for part in parts)
                return self._keep(f"PyTuple_Pack({len(parts)}{elements})", place)
            case Display(parts=parts, brackets="{}"):
                return self._set(parts)
            case Binary(left=left, sign="**", right=right):
                sides = f"{self._value(left)}, {self._value(right)}"
                return self._keep(f"PyNumber_Power({sides}, Py_None)", place)
            case Binary(left=left, sign=sign, right=right) if sign in _OPERATIONS:
                sides = f"{self._value(left)}, {self._value(right)}"
                return self._keep(f"{_OPERATIONS[sign]}({sides})", place)
            case Unary(sign="-", of=of):
                return self._keep(f"PyNumber_Negative({self._value(of)})", place)
        raise Untranslatable(str(node))

    def _call(self, node: Call, place: str) -> str:
        if (kind := node.argument_of("type")) is not None:
            return self._keep(f"kept((PyObject *)Py_TYPE({self._value(kind)}))", place)
        if isinstance(node.function, Attribute):
            name = self.guard.literal(node.function.name)
            values = [self._value(each) for each in (node.function.of, *node.given)]
            given = f"(PyObject *[]){{{', '.join(values)}}}"
            return self._keep(f"PyObject_VectorcallMethod({name}, {given}, {len(values)}, NULL)", place)
        function = self._value(node.function)
        given = ", ".join(["NULL", *map(self._value, node.given)])
        count = f"{len(node.given)} | PY_VECTORCALL_ARGUMENTS_OFFSET"
        return self._keep(
            f"PyObject_Vectorcall({function}, (PyObject *[]){{{given}}} + 1, {count}, NULL)", place
        )

    def _size_of(self, node: Expression, tensor: Expression, dimension: Expression) -> str:
        """`v1.size()[0]`, which a statement may ask for several times, without a tuple of all sizes."""
        given = f"(PyObject *[]){{{self._value(tensor)}, {self._value(dimension)}}}"
        asked = f"PyObject_VectorcallMethod({self.guard.literal('size')}, {given}, 2, NULL)"
        if node not in self._sizes:
            self._sizes[node] = self._keep(asked)
        else:  # where it stands first may have been jumped over
            place = self._sizes[node]
            self.lines.append(f"if (!{place} && !({place} = {asked})) goto fail;")
        return self._sizes[node]

    def _set(self, elements: Sequence[Expression]) -> str:
        made = self._keep("PySet_New(NULL)")
        for element in elements:
            self.lines.append(f"if (PySet_Add({made}, {self._value(element)}) < 0) goto fail;")
        return made

    def _keep(self, expression: str, place: str = "") -> str:
        """Where the value of a C expression is: in the place, or else a temporary."""
        if not place:
            place = f"t[{self._temporaries}]"
            self._temporaries += 1
            self._most = max(self._most, self._temporaries)
        self.lines.append(f"if (!({place} = {expression})) goto fail;")
        return place

    def _label(self) -> str:
        self._labels += 1
        return f"skip{self._labels}"


def _assigned(function: Function) -> list[Variable]:
    reached = [each.target for each in function.body if isinstance(each, Assign)]
    given = [variable for each in function.body if isinstance(each, CallPart) for variable in each.given]
    return list(dict.fromkeys([*reached, *given]))


def _weights_checked(function: Function) -> set[Variable]:
    """The variables of weights that torch's check looks at further on in the same function."""
    weights: set[Variable] = set()
    tables: set[Expression] = set()
    checked: set[Expression] = set()
    for statement in function.body:
        match statement:
            case Assign(target=target, value=Subscript(key=Literal(value="_parameters" | "_buffers"))):
                tables.add(target)
            case Assign(target=target, value=Subscript(of=table)) if table in tables:
                weights.add(target)
            case Check(condition=TensorsAgree(tensors=tensors)):
                checked.update(tensors)
    return weights & checked


def _number_of(keys: Expression) -> str:
    """A number for literal keys, the same for the same ones; 0 for others."""
    if not _literal_of(keys)[0]:
        return "0"
    return f"0x{hashlib.sha256(str(keys).encode()).hexdigest()[:16]}ull"


def _count_of(node: Expression) -> int | None:
    """The number, if it is one that a C int holds and counts something."""
    value = node.value if isinstance(node, Literal) else None
    return value if type(value) is int and 0 <= value < 1 << 31 else None


def _literal_of(node: Expression) -> tuple[bool, Any]:
    """Whether a tree is a literal of what need not be made anew each time, and its value."""
    match node:
        case Literal(value=value):
            return True, value
        case Unary(sign="-", of=Literal(value=value)) if type(value) in (int, float, complex):
            return True, -value
        case Display(parts=parts, brackets="()"):
            found = [_literal_of(part) for part in parts]
            return all(known for known, _ in found), tuple(value for _, value in found)
    return False, None
