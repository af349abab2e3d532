"""A guard function as C, from its Python text: the same checks in the same order, without an interpreter.

The text is the one that people read and that `explain` runs; what is translated here is its syntax tree.
Names that it does not assign are constants, found in the guard's namespace when it is made. A text with
anything that is not known here stays Python.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

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
_COMPARISONS = {
    ast.Eq: "Py_EQ",
    ast.NotEq: "Py_NE",
    ast.Lt: "Py_LT",
    ast.LtE: "Py_LE",
    ast.Gt: "Py_GT",
    ast.GtE: "Py_GE",
}
_OPERATIONS = {
    ast.Add: "PyNumber_Add",
    ast.Sub: "PyNumber_Subtract",
    ast.Mult: "PyNumber_Multiply",
    ast.FloorDiv: "PyNumber_FloorDivide",
    ast.Mod: "PyNumber_Remainder",
    ast.Div: "PyNumber_TrueDivide",
}


class Untranslatable(Exception):
    """There is something in a guard's text that is not known here. It says what."""


class Translation:
    """The functions of one guard's text, which share constants. Raises Untranslatable.

    names: dotted, of the constants that the namespace has; literals: the values of the others
    """

    def __init__(self, prefix: str, tree: ast.Module) -> None:
        self.prefix = prefix
        self.functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        self.parts = {node.name: _given(node) for node in self.functions if node.name != "guard"}
        self.names: list[str] = []
        self.literals: list[object] = []
        self.classes = 0  # that are asked for names
        self._keys: dict[str, int] = {}
        self._bodies = [_Function(self, node) for node in self.functions]

    def source(self) -> str:
        heads = [function.head() + ";" for function in self._bodies]
        seen = f"static uint64_t {self.prefix}_seen[{self.classes or 1}];"
        source = "\n".join([seen, *heads, *(function.source() for function in self._bodies)])
        # Literals come after all names, whose number is known now.
        return re.sub(r"K_LITERAL\[(\d+)\]", lambda match: f"K[{len(self.names) + int(match[1])}]", source)

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
        return f"K_LITERAL[{self._keys[key]}]"


def _given(function: ast.FunctionDef) -> int:
    """How many values a part gives."""
    last = function.body[-1]
    if not isinstance(last, ast.Return):
        raise Untranslatable("a part without a result")
    return len(last.value.elts) if isinstance(last.value, ast.Tuple) else 0


class _Function:
    """One function: its variables are kept until it ends, temporary values until their statement does."""

    def __init__(self, text: Translation, node: ast.FunctionDef) -> None:
        self.text = text
        self.node = node
        (self.parameter,) = (argument.arg for argument in node.args.args)
        self.is_guard = node.name == "guard"
        stored = {
            inner.id: None
            for inner in ast.walk(node)
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store) and inner.id != "r"
        }
        self.places = {name: f"v[{place}]" for place, name in enumerate(stored)}
        self._set_before: set[str] = set()
        if self.parameter in stored:
            raise Untranslatable(f"another value for {self.parameter}")
        self.lines: list[str] = []
        self._temporaries: list[str] = []
        self._sizes: dict[str, str] = {}  # what a statement has asked for, and where it is
        self._repeated = _weights_checked(node)
        self._most = 0
        self._labels = 0
        self._statements(node.body)

    def head(self) -> str:
        if self.is_guard:
            return f"static PyObject *{self.text.prefix}(PyObject *self, PyObject *{self.parameter})"
        name = f"{self.text.prefix}_{self.node.name}"
        return f"static int {name}(PyObject *const *K, PyObject *{self.parameter}, PyObject **given)"

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

    def _statements(self, body: Sequence[ast.stmt]) -> None:
        waiting = list(body)
        while waiting:
            statement = waiting.pop(0)
            part = _asks_part(statement)
            if part is not None:
                self._part(part, waiting.pop(0))
            else:
                with self._statement():
                    self._translate(statement)

    def _translate(self, statement: ast.stmt) -> None:
        if _is_of_metadata(statement, self._repeated):
            return
        if isinstance(statement, ast.If) and not statement.orelse and len(statement.body) == 1:
            (inner,) = statement.body
            if isinstance(inner, ast.Return) and _is_constant(inner.value, False):
                self._branch(statement.test, "refuse", True)
                return
            skip = self._label()
            self._branch(statement.test, skip, False)
            self._translate(inner)
            self.lines.append(f"{skip}:;")
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self._assign(statement.targets[0], statement.value)
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
            self._increase(statement)
        elif isinstance(statement, ast.Return):
            self._return(statement.value)
        else:
            raise Untranslatable(ast.unparse(statement))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if not isinstance(target, ast.Name):
            raise Untranslatable(ast.unparse(target))
        place = self.places[target.id]
        found = self._value(value)
        if self.lines[-1].startswith(f"if (!({found} = ") and target.id not in self._set_before:
            # What was made last was made for it.
            self._temporaries.pop()
            self.lines.append(self.lines.pop().replace(f"({found} = ", f"({place} = "))
        else:
            self.lines.append(f"set(&{place}, kept({found}));")
        self._set_before.add(target.id)

    def _increase(self, statement: ast.AugAssign) -> None:
        if not isinstance(statement.target, ast.Attribute):
            raise Untranslatable(ast.unparse(statement))
        base = self._value(statement.target.value)
        name = self.text.literal(statement.target.attr)
        before = self._keep(f"PyObject_GetAttr({base}, {name})")
        after = self._keep(f"PyNumber_InPlaceAdd({before}, {self._value(statement.value)})")
        self.lines.append(f"if (PyObject_SetAttr({base}, {name}, {after}) < 0) goto fail;")

    def _return(self, value: ast.expr | None) -> None:
        if isinstance(value, ast.Tuple):
            for number, element in enumerate(value.elts):
                self.lines.append(f"given[{number}] = kept({self._value(element)});")
        elif not _is_constant(value, True):
            raise Untranslatable(f"return {ast.unparse(value) if value else ''}")
        self.lines.append("goto accept;")

    def _part(self, call: ast.Call, unpacked: ast.stmt) -> None:
        """`if (r := p0(v1)) is False: return False`, and the line after it."""
        targets = unpacked.targets[0] if isinstance(unpacked, ast.Assign) else None
        if not isinstance(targets, ast.Tuple):
            raise Untranslatable(ast.unparse(unpacked))
        with self._statement():
            self._call_part(call, len(targets.elts))
            for number, target in enumerate(targets.elts):
                self.lines.append(f"set(&{self.places[ast.unparse(target)]}, given_here[{number}]);")

    def _call_part(self, call: ast.Call, gives: int) -> None:
        assert isinstance(call.func, ast.Name)
        if gives != self.text.parts[call.func.id] or len(call.args) != 1:
            raise Untranslatable(ast.unparse(call))
        argument = self._value(call.args[0])
        self.lines.append(f"PyObject *given_here[{max(gives, 1)}];")
        self.lines.append(
            f"int found = {self.text.prefix}_{call.func.id}(K, {argument}, given_here); "
            "if (found < 0) goto fail; if (!found) goto refuse;"
        )

    @contextmanager
    def _statement(self) -> Iterator[None]:
        self.lines.append("{")
        yield
        self.lines += [f"drop(t, {len(self._temporaries)});"] if self._temporaries else []
        self.lines.append("}")
        self._temporaries = []
        self._sizes = {}

    # -- conditions ------------------------------------------------------------------------------

    def _branch(self, test: ast.expr, label: str, when: bool) -> None:
        """Go to a label if the truth of an expression is `when`. Temporary values stay for who cleans up."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._branch(test.operand, label, not when)
        elif isinstance(test, ast.BoolOp):
            decides = isinstance(test.op, ast.Or)  # the truth of one that is the truth of all
            if when == decides:
                for value in test.values:
                    self._branch(value, label, when)
            else:
                skip = self._label()
                for value in test.values[:-1]:
                    self._branch(value, skip, decides)
                self._branch(test.values[-1], label, when)
                self.lines.append(f"{skip}:;")
        elif isinstance(test, ast.Compare) and len(test.ops) > 1:
            sides = [test.left, *test.comparators]
            parts: list[ast.expr] = [
                ast.Compare(left, [how], [right])
                for left, how, right in zip(sides, test.ops, sides[1:], strict=False)
            ]
            self._branch(ast.BoolOp(ast.And(), parts), label, when)
        elif _is_part(test, self.text.parts):
            if when or label != "refuse":
                raise Untranslatable(ast.unparse(test))
            assert isinstance(test, ast.Call)
            self._call_part(test, 0)
        else:
            self.lines.append(
                f"{{ int truth = {self._truth(test)}; if (truth < 0) goto fail; "
                f"if (truth == {int(when)}) goto {label}; }}"
            )

    def _truth(self, test: ast.expr) -> str:
        """A C expression: 1, 0, or -1 for an exception."""
        if isinstance(test, ast.Compare):
            return self._comparison(test.left, test.ops[0], test.comparators[0])
        if isinstance(test, ast.Attribute) and test.attr == "__dict__":
            return f"has_attributes({self._value(test.value)})"
        if isinstance(test, ast.Call) and (lacking := self._lacking(test)) is not None:
            return lacking
        if isinstance(test, ast.Call) and ast.unparse(test.func) == "alike":
            one, other = (self._value(argument) for argument in test.args)
            return f"alike({self.text.name('alike')}, {one}, {other})"
        if (group := _checks_tensors(test)) and isinstance(test, ast.Call):
            tensors = ", ".join(self._value(argument) for argument in test.args)
            check = self.text.name(f"{group}.unsafe")
            return f"tensors_agree({check}, (PyObject *[]){{{tensors}}}, {len(test.args)})"
        return f"PyObject_IsTrue({self._value(test)})"

    def _comparison(self, left: ast.expr, how: ast.cmpop, right: ast.expr) -> str:
        if isinstance(how, (ast.Is, ast.IsNot)):
            sign = "==" if isinstance(how, ast.Is) else "!="
            return f"({self._identity(left)} {sign} {self._identity(right)})"
        if isinstance(how, (ast.In, ast.NotIn)):
            inside = f"PySequence_Contains({self._value(right)}, {self._value(left)})"
            return inside if isinstance(how, ast.In) else f"({inside} ^ 1)"
        size = self._size(left) if isinstance(how, ast.Eq) and _is_count(right) else None
        if size is not None:
            return f"is_size({size}, {ast.unparse(right)})"
        return f"compared({self._value(left)}, {self._value(right)}, {_COMPARISONS[type(how)]})"

    def _lacking(self, test: ast.Call) -> str | None:
        """`dict.keys(v1).isdisjoint(('a',))`, `class_lacks(c1, 2, ('a',))`, `class_has(c1, c2, ('a',))`"""
        if isinstance(test.func, ast.Attribute) and test.func.attr == "isdisjoint":
            of = _argument_of(test.func.value, "dict.keys")
            if of is None:
                return None
            (keys,) = test.args
            return f"dict_lacks({self._value(of)}, {self._value(keys)}, {_number_of(keys)})"
        if isinstance(test.func, ast.Name) and test.func.id in ("class_lacks", "class_has"):
            self.text.classes += 1
            seen = f"&{self.text.prefix}_seen[{self.text.classes - 1}]"
            cls, of_what, names = test.args
            asked = ast.unparse(of_what) if test.func.id == "class_lacks" else self._value(of_what)
            return f"{test.func.id}({self._value(cls)}, {asked}, {self._value(names)}, {seen})"
        return None

    def _identity(self, value: ast.expr) -> str:
        kind = _argument_of(value, "type")
        if kind is not None:
            return f"(PyObject *)Py_TYPE({self._value(kind)})"
        if isinstance(value, ast.Name) and value.id in _EXACT:
            return f"(PyObject *)&{_EXACT[value.id]}"
        return self._value(value)

    def _size(self, value: ast.expr) -> str | None:
        if (inner := _argument_of(value, "len")) is not None:
            return f"PyObject_Size({self._value(inner)})"
        if (inner := _argument_of(value, "dict.__len__")) is not None:
            return f"size_of_dict({self._value(inner)})"
        return None

    # -- values ----------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> str:
        """A C expression for a value that somebody keeps: a variable, a constant, a temporary."""
        try:
            return self.text.literal(_literal(node))
        except ValueError:
            pass
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Subscript) and (tensor := _asked_for_size(node)) is not None:
            return self._size_of(node, tensor)
        if isinstance(node, ast.Subscript):
            base, key = self._value(node.value), self._value(node.slice)
            if _is_count(node.slice):
                return self._keep(f"item_at({base}, {ast.unparse(node.slice)}, {key})")
            return self._keep(f"item({base}, {key})")
        if isinstance(node, ast.Call) and not node.keywords:
            return self._call(node)
        if isinstance(node, ast.Tuple):
            elements = "".join(f", {self._value(element)}" for element in node.elts)
            return self._keep(f"PyTuple_Pack({len(node.elts)}{elements})")
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
            sides = f"{self._value(node.left)}, {self._value(node.right)}"
            return self._keep(f"{_OPERATIONS[type(node.op)]}({sides})")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            return self._keep(f"PyNumber_Power({self._value(node.left)}, {self._value(node.right)}, Py_None)")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self._keep(f"PyNumber_Negative({self._value(node.operand)})")
        if isinstance(node, ast.Set):
            return self._set(node)
        raise Untranslatable(ast.unparse(node))

    def _name(self, name: str) -> str:
        if name in self.places:
            return self.places[name]
        return name if name == self.parameter else self.text.name(name)

    @staticmethod
    def _is_name(node: ast.Attribute) -> bool:
        """Whether it is a constant by its dotted name: nobody gives these another value."""
        dotted = ast.unparse(node)
        of_builtins = dotted.partition(".")[0] in ("dict", "list") and _is_dotted(node)
        return of_builtins or _is_of_torch(dotted) or dotted == "state.check"

    def _attribute(self, node: ast.Attribute) -> str:
        if self._is_name(node):
            return self.text.name(ast.unparse(node))
        base = self._value(node.value)
        if node.attr == "__dict__":
            return self._keep(f"dict_of({base})")
        return self._keep(f"PyObject_GetAttr({base}, {self.text.literal(node.attr)})")

    def _call(self, node: ast.Call) -> str:
        kind = _argument_of(node, "type")
        if kind is not None:
            return self._keep(f"kept((PyObject *)Py_TYPE({self._value(kind)}))")
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            raise Untranslatable(ast.unparse(node))
        if isinstance(node.func, ast.Attribute) and not self._is_name(node.func):
            name = self.text.literal(node.func.attr)
            values = [self._value(each) for each in (node.func.value, *node.args)]
            given = f"(PyObject *[]){{{', '.join(values)}}}"
            return self._keep(f"PyObject_VectorcallMethod({name}, {given}, {len(values)}, NULL)")
        function = self._value(node.func)
        arguments = [self._value(argument) for argument in node.args]
        given = f"(PyObject *[]){{{', '.join(['NULL', *arguments])}}} + 1"
        count = f"{len(arguments)} | PY_VECTORCALL_ARGUMENTS_OFFSET"
        return self._keep(f"PyObject_Vectorcall({function}, {given}, {count}, NULL)")

    def _size_of(self, node: ast.Subscript, tensor: ast.expr) -> str:
        """`v1.size()[0]`, which a statement may ask for several times, without a tuple of all sizes."""
        text = ast.unparse(node)
        values = f"{self._value(tensor)}, {self._value(node.slice)}"
        asked = f"PyObject_VectorcallMethod({self.text.literal('size')}, (PyObject *[]){{{values}}}, 2, NULL)"
        if text not in self._sizes:
            self._sizes[text] = self._keep(asked)
        else:  # where it stands first may have been jumped over
            place = self._sizes[text]
            self.lines.append(f"if (!{place} && !({place} = {asked})) goto fail;")
        return self._sizes[text]

    def _set(self, node: ast.Set) -> str:
        made = self._keep("PySet_New(NULL)")
        for element in node.elts:
            self.lines.append(f"if (PySet_Add({made}, {self._value(element)}) < 0) goto fail;")
        return made

    def _keep(self, expression: str) -> str:
        """A temporary with the value of a C expression."""
        name = f"t[{len(self._temporaries)}]"
        self._temporaries.append(name)
        self._most = max(self._most, len(self._temporaries))
        self.lines.append(f"if (!({name} = {expression})) goto fail;")
        return name

    def _label(self) -> str:
        self._labels += 1
        return f"skip{self._labels}"


def _weights_checked(function: ast.FunctionDef) -> set[str]:
    """The variables of weights that torch's check looks at further on in the same function."""
    weights: set[str] = set()
    tables: set[str] = set()
    for statement in function.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Subscript):
            continue
        base, key, target = statement.value.value, statement.value.slice, statement.targets[0]
        if isinstance(key, ast.Constant) and key.value in ("_parameters", "_buffers"):
            tables.add(ast.unparse(target))
        elif ast.unparse(base) in tables:
            weights.add(ast.unparse(target))
    checked = {
        ast.unparse(argument)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and _checks_tensors(call)
        for argument in call.args
    }
    return weights & checked


def _is_of_metadata(statement: ast.stmt, variables: set[str]) -> bool:
    """Whether it refuses one of these tensors for its dtype, its dimensions or a size.

    Torch's check does so, too. A call that is accepted, as most are by then, need not be asked both.
    """
    test = statement.test if isinstance(statement, ast.If) else None
    compared = test.operand if isinstance(test, ast.UnaryOp) else None
    asked = compared.left if isinstance(compared, ast.Compare) else None
    attribute = asked.func if isinstance(asked, ast.Call) else asked
    return (
        isinstance(attribute, ast.Attribute)
        and attribute.attr in ("dtype", "dim", "size")
        and ast.unparse(attribute.value) in variables
    )


def _asked_for_size(node: ast.Subscript) -> ast.expr | None:
    """The tensor in `v1.size()[0]`."""
    call = node.value
    if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Attribute):
        return None
    return call.func.value if call.func.attr == "size" and _is_count(node.slice) else None


def _asks_part(statement: ast.stmt) -> ast.Call | None:
    """The call in `if (r := p0(v1)) is False: return False`."""
    test = statement.test if isinstance(statement, ast.If) else None
    named = test.left if isinstance(test, ast.Compare) else None
    call = named.value if isinstance(named, ast.NamedExpr) else None
    return call if isinstance(call, ast.Call) else None


def _number_of(keys: ast.expr) -> str:
    """A number for literal keys, the same for the same ones; 0 for others."""
    try:
        _literal(keys)
    except ValueError:
        return "0"
    return f"0x{hashlib.sha256(ast.unparse(keys).encode()).hexdigest()[:16]}ull"


def _checks_tensors(test: ast.expr) -> str:
    """The name of the group of tensors in `T0.check(v1, v2)`, "" for all else."""
    called = ast.unparse(test.func) if isinstance(test, ast.Call) and not test.keywords else ""
    group, _, method = called.partition(".")
    return group if method == "check" and re.fullmatch(r"T\d+", group) else ""


def _is_part(test: ast.expr, parts: dict[str, int]) -> bool:
    return isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id in parts


def _argument_of(node: ast.expr, function: str) -> ast.expr | None:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == function and len(node.args) == 1:
        return node.args[0]
    return None


def _is_dotted(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _is_of_torch(dotted: str) -> bool:
    """Whether it is one of the dtypes and classes that checks of tensors name."""
    name = dotted.removeprefix("torch.")
    return dotted == "torch.nn.Parameter" or (
        name != dotted and isinstance(getattr(torch, name, None), (torch.dtype, type))
    )


def _is_constant(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _is_count(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value < 1 << 31


def _literal(node: ast.expr) -> object:
    """The value of a literal. Raises ValueError for anything else."""
    if isinstance(node, (ast.Set, ast.List, ast.Dict, ast.Call)):
        raise ValueError("made anew each time")
    return ast.literal_eval(node)
