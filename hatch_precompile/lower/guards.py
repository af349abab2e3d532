"""Guard tree to guard function: one readable Python function over a frame's locals, per entry.

The function answers what dynamo's C++ tree would answer, or refuses more: where dynamo walks with
`PyDict_GetItem`, which ignores an overridden `__getitem__`, the generated code first pins the type.
A raise is a refusal. Names in the generated code: `L` the locals, `G` the frame's globals, `c3` a
constant found again at load time, `T0` a group of tensors checked in one C++ call.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import math
import re
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from hatch_precompile.capture.guardtree import GuardNode, Leaf, Relation
from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.names import Namer, is_plain

__all__ = ["LoweredGuards", "TensorSpec", "lower_guards"]

_FUNCTION_PARTS = {"code": "__code__", "closure": "__closure__", "func_defaults": "__defaults__"}
_DICTS_BY_NATURE = {"get_generic_dict", "globals_dict", "type_dict", "func_kwdefaults"}
_MARKS = (
    "_dynamo_dynamic_indices",
    "_dynamo_weak_dynamic_indices",
    "_dynamo_unbacked_indices",
    "_dynamo_strict_unbacked_indices",
    "_dynamo_static_indices",
    "_dynamo_shape_ids",
    "_dynamo_unbacked_bounds",
)
# What symbolic-shape and aliasing expressions may name, besides locals, globals and our own.
_EXPRESSION_NAMES = {"L", "G", "math"} | {
    *("min", "max", "abs", "len", "int", "float", "round"),
    *("type", "list", "dict", "object", "getattr"),
}


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """What one tensor of a group must look like; sizes and strides hold None where they may vary."""

    parameter: bool
    type: Any  # a constant: the tensor's exact class
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    dispatch_keys: int
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]

    def encoded(self) -> tuple[Any, ...]:
        return tuple(getattr(self, spec.name) for spec in dataclasses.fields(self))


@dataclasses.dataclass(frozen=True)
class LoweredGuards:
    """A guard function and what it needs: see docs/bundle-format.md for how each is stored."""

    source: str
    constants: tuple[Any, ...]
    tensors: tuple[tuple[TensorSpec, ...], ...]
    state: str
    checks: int
    rebound: int
    by_kind: dict[str, int]


def lower_guards(root: GuardNode, frame_globals: dict[str, Any], injected: dict[str, Any]) -> LoweredGuards:
    """Generate the guard function of one recorded tree.

    `injected` maps the names dynamo put into the frame's globals to their values. Raises
    `Unsupported`, with dynamo's words for the check and its source line, for any it cannot carry.
    """
    return _Writer(root, frame_globals, injected).write()


class _Writer:
    def __init__(self, root: GuardNode, frame_globals: dict[str, Any], injected: dict[str, Any]) -> None:
        self.root = root
        self.frame_globals = frame_globals
        self.injected = injected
        self.namer = Namer(frame_globals)
        self.lines: list[str] = []
        self.constants: list[Any] = []
        self.notes: list[str] = []
        self.rebound = 0
        self.by_kind: dict[str, int] = {}
        self.state = ""
        self._required: set[str] = set()
        self._constant_index: dict[str, int] = {}
        self._variables: dict[int, str] = {}
        self._by_source: dict[str, str] = {}
        self._tensors: list[tuple[GuardNode, Leaf, str]] = []

    def write(self) -> LoweredGuards:
        self._root_leaves()
        locals_first = sorted(self.root.children, key=_cost)
        for child in locals_first:
            self._visit(child)
        groups = self._tensor_groups()
        for relation in self.root.relations:
            self._relation(relation)
        for leaf in self.root.epilogue:
            self._expression_leaf(leaf)
        body = "\n".join(f"        {line}" for line in self.lines)
        header = "\n".join(f"# {note}" for note in self.notes)
        source = (
            f"{header}\n\n\ndef guard(L):\n    try:\n{body}\n        entry.hits += 1\n        return True\n"
            "    except Exception:\n        return False\n"
        )
        return LoweredGuards(
            source=source,
            constants=tuple(self.constants),
            tensors=groups,
            state=self.state,
            checks=sum(self.by_kind.values()),
            rebound=self.rebound,
            by_kind=dict(sorted(self.by_kind.items())),
        )

    # -- writing ---------------------------------------------------------------------------------

    def _require(self, condition: str, kind: str, leaf: Leaf | None = None) -> None:
        """A check: the frame is refused unless `condition` holds."""
        if condition in self._required:
            return
        self._required.add(condition)
        self.by_kind[kind] = self.by_kind.get(kind, 0) + 1
        comment = _user_line(leaf)
        self.lines.append(f"if not ({condition}): return False" + (f"  # {comment}" if comment else ""))

    def _constant(self, value: Any, node: GuardNode | None, where: str) -> str:
        """An expression for a value: a literal, or the name of a constant found at load time."""
        if is_plain(value) and _has_literal(value):
            return repr(value)
        if _builtin_name(value):
            return _builtin_name(value)
        return self._named(self.namer.constant(value, node, where))

    def _named(self, encoded: Any) -> str:
        key = repr(encoded)
        index = self._constant_index.get(key)
        if index is None:
            index = self._constant_index[key] = len(self.constants)
            self.constants.append(encoded)
            self.notes.append(f"c{index}: {_note(encoded)}")
        self.rebound += type(encoded) is list and encoded[0] == "ref"
        return f"c{index}"

    # -- the tree --------------------------------------------------------------------------------

    def _visit(self, node: GuardNode) -> None:
        replaced = self._replaced_global(node)
        if replaced is not None:
            variable = replaced
        else:
            variable = f"v{len(self._variables)}"
            self.lines.append(f"{variable} = {self._access(node)}")
            if type(node.value) is FunctionType and _is_global(node):
                # An activated entrypoint, of this wheel or another, stands in a wrapper of ours.
                self.lines.append(f"if {variable}.__dict__: {variable} = plain_function({variable})")
        self._variables[id(node)] = variable
        if node.source:
            self._by_source.setdefault(node.source, variable)
        self._container_type(node, variable)
        for leaf in node.leaves:
            self._leaf(node, leaf, variable)
        if node.epilogue or node.relations:
            raise self._unsupported(node, None, "an epilogue guard below the root")
        for child in sorted(node.children, key=_cost):
            self._visit(child)

    def _replaced_global(self, node: GuardNode) -> str | None:
        """Dynamo's own additions to the globals are constants to us: modules, builtins, objects."""
        if node.parent is None or node.parent.accessor != "globals_dict":
            return None
        if node.key not in self.injected:
            return None
        return self._constant(node.value, None, "")

    def _access(self, node: GuardNode) -> str:
        parent = node.parent
        assert parent is not None
        accessor, key = node.accessor, node.key
        base = self._variables.get(id(parent), "")
        if accessor == "framelocals":
            return f"L[{key[0]!r}]"
        if accessor == "globals_dict":
            if key is not self.frame_globals:
                raise self._unsupported(node, None, "a guard on another module's globals")
            return "G"
        if accessor in ("getattr", "generic_getattr"):
            if accessor == "generic_getattr":
                return f"object.__getattribute__({base}, {key!r})"
            return f"{base}.{key}" if key.isidentifier() else f"getattr({base}, {key!r})"
        if accessor in ("get_generic_dict", "type_dict"):
            return f"{base}.__dict__"
        if accessor in _FUNCTION_PARTS or accessor == "func_kwdefaults":
            return f"{base}.{_FUNCTION_PARTS.get(accessor, '__kwdefaults__')}"
        if accessor == "type":
            return f"type({base})"
        if accessor == "type_mro":
            return f"{base}.__mro__"
        if accessor in ("dict_getitem", "list_getitem", "tuple_getitem", "getitem"):
            index = self._constant(key, None, node.source)
            if accessor == "dict_getitem" and self._overrides_getitem(parent):
                return f"dict.__getitem__({base}, {index})"
            return f"{base}[{index}]"
        if accessor == "get_key":
            return f"{base}_keys[{key}]"
        if accessor == "get_value":
            return f"dict.__getitem__({base}, {base}_keys[{key}])"
        if accessor in ("weakref_call", "call_function_no_args"):
            return f"{base}()"
        if accessor == "grad":
            return f"{base}.grad"
        if accessor == "tensor_property_size":
            return f"{base}.size({key})"
        if accessor == "tensor_property_storage_offset":
            return f"{base}.storage_offset()"
        if accessor == "lambda" and parent is self.root and _is_module(node.value):
            return self._constant(node.value, None, node.source)  # an import inside the traced code
        raise self._unsupported(node, None, f"the guard accessor {accessor!r}")

    def _overrides_getitem(self, node: GuardNode) -> bool:
        return (
            node.accessor not in _DICTS_BY_NATURE
            and isinstance(node.value, dict)
            and type(node.value).__getitem__ not in (dict.__getitem__, OrderedDict.__getitem__)
        )

    def _container_type(self, node: GuardNode, variable: str) -> None:
        """Pin the type of what is walked into, as dynamo's typed C++ accessors do."""
        accessors = {child.accessor for child in node.children}
        if node.keyed or accessors & {"get_key", "get_value"}:
            if not isinstance(node.value, dict):
                raise self._unsupported(node, None, f"key order of a {type(node.value).__name__}")
            type_name = self._constant(type(node.value), None, node.source)
            self._require(f"type({variable}) is {type_name}", "DICT_ORDER")
            self._require(f"dict.__len__({variable}) == {len(node.value)}", "DICT_ORDER")
            self.lines.append(f"{variable}_keys = list(dict.keys({variable}))")
        elif node.accessor in _DICTS_BY_NATURE:
            return
        elif accessors & {"dict_getitem", "list_getitem", "tuple_getitem"} or (
            any(leaf.kind in ("dict_contains_guard", "dict_length_check_guard") for leaf in node.leaves)
        ):
            type_name = self._constant(type(node.value), None, node.source)
            self._require(f"type({variable}) is {type_name}", "TYPE_MATCH")
        elif accessors & {"code", "closure", "func_defaults", "func_kwdefaults"}:
            if type(node.value) not in (FunctionType, MethodType):
                raise self._unsupported(node, None, "a guard on the code of something not a function")
            type_name = self._constant(type(node.value), None, node.source)
            self._require(f"type({variable}) is {type_name}", "TYPE_MATCH")

    # -- checks ----------------------------------------------------------------------------------

    def _leaf(self, node: GuardNode, leaf: Leaf, variable: str) -> None:
        writer = _LEAVES.get(leaf.kind)
        if writer is None:
            raise self._unsupported(node, leaf, f"the guard {leaf.kind!r}")
        writer(self, node, leaf, variable)

    def _type_match(self, node: GuardNode, leaf: Leaf, variable: str) -> None:
        cls = type(node.value)
        if id(cls) != leaf.args[0]:
            raise self._unsupported(node, leaf, "a type guard on something else than the value's type")
        name = self._constant(cls, None, _user_line(leaf))
        self._require(f"type({variable}) is {name}", "TYPE_MATCH", leaf)

    def _id_match(self, node: GuardNode, leaf: Leaf, variable: str) -> None:
        if id(node.value) != leaf.args[0]:
            raise self._unsupported(node, leaf, "an identity guard on something else than the value")
        if node.value is None or isinstance(node.value, bool):
            self._require(f"{variable} is {node.value!r}", "ID_MATCH", leaf)
            return
        name = self._named(self.namer.reference(node.value, node, _user_line(leaf)))
        if name != variable:  # a module that dynamo reached by its own alias is a constant already
            self._require(f"{variable} is {name}", "ID_MATCH", leaf)

    def _equals_match(self, node: GuardNode, leaf: Leaf, variable: str) -> None:
        value = leaf.args[0]
        expected = self._constant(value, node, _user_line(leaf))
        kind = self._constant(type(value), None, _user_line(leaf))
        self._require(f"type({variable}) is {kind} and {variable} == {expected}", "EQUALS_MATCH", leaf)

    def _tensor_match(self, node: GuardNode, leaf: Leaf, variable: str) -> None:
        self._tensors.append((node, leaf, variable))

    def _marking(self, node: GuardNode, leaf: Leaf, variable: str) -> None:
        """`mark_dynamic` and its kin leave attributes on a tensor; nearly every tensor has none."""
        expected, absent, dependent = leaf.args[:3]
        wanted = {name: frozenset(value) for name, value in expected.items()}
        if dependent:
            raise self._unsupported(node, leaf, "a tensor marked unbacked")
        known = set(_MARKS)
        unknown = (set(expected) | set(absent)) - known
        if unknown:
            raise self._unsupported(node, leaf, f"the dimension marking {sorted(unknown)}")
        allowed = self._constant({name: wanted[name] for name in sorted(wanted)}, None, "")
        refused = self._constant(tuple(sorted(absent)), None, "")
        self._require(
            f"not {variable}.__dict__ or marks_agree({variable}.__dict__, {allowed}, {refused})",
            "DIMENSION_MARKING",
        )

    def _dict_contains(self, node: GuardNode, leaf: Leaf, variable: str) -> None:
        present, key = leaf.args[:2]
        name = self._constant(key, None, _user_line(leaf))
        self._require(f"{name} {'in' if present else 'not in'} {variable}", "DICT_CONTAINS", leaf)

    def _set_contains(self, node: GuardNode, leaf: Leaf, variable: str) -> None:
        present, key = leaf.args[:2]
        name = self._constant(key, None, _user_line(leaf))
        kind = self._constant(type(node.value), None, _user_line(leaf))
        inside = "in" if present else "not in"
        self._require(f"type({variable}) is {kind} and {name} {inside} {variable}", "SET_CONTAINS", leaf)

    def _mapping_keys(self, node: GuardNode, leaf: Leaf, variable: str) -> None:
        keys = self._constant(list(leaf.args[0].keys()), None, _user_line(leaf))
        self._require(f"list({variable}.keys()) == {keys}", "MAPPING_KEYS", leaf)

    # -- tensors ---------------------------------------------------------------------------------

    def _tensor_groups(self) -> tuple[tuple[TensorSpec, ...], ...]:
        """Tensors that must be distinct objects form one group; a group is one C++ call.

        TensorGuards refuses an object it meets twice. For dynamo's own no-aliasing set that is the
        check itself; parameters that were one object at the build are kept in groups apart.
        """
        distinct = {
            id(node)
            for relation in self.root.relations
            if relation.kind == "no_tensor_aliasing_guard"
            for group in relation.nodes
            for node in group
        }
        groups: list[list[tuple[GuardNode, Leaf, str]]] = []
        for item in self._tensors:
            apart = id(item[0]) in distinct
            for group in groups:
                same_kind = (id(group[0][0]) in distinct) == apart
                if same_kind and all(other.value is not item[0].value for other, _, _ in group):
                    group.append(item)
                    break
            else:
                groups.append([item])
        groups.sort(key=lambda group: id(group[0][0]) not in distinct)
        for index, group in enumerate(groups):
            arguments = ", ".join(variable for _, _, variable in group)
            self._require(f"T{index}.check({arguments})", "TENSOR_MATCH")
            self.by_kind["TENSOR_MATCH"] += len(group) - 1
        return tuple(tuple(self._tensor_spec(node, leaf) for node, leaf, _ in group) for group in groups)

    def _tensor_spec(self, node: GuardNode, leaf: Leaf) -> TensorSpec:
        value, sizes, strides = leaf.args[:3]
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise self._unsupported(node, leaf, f"a tensor of the subclass {type(value).__qualname__}")
        if value.layout is not torch.strided:
            raise self._unsupported(node, leaf, f"a tensor with the layout {value.layout}")
        keys = next(arg for arg in leaf.args if isinstance(arg, torch._C.DispatchKeySet))
        return TensorSpec(
            parameter=type(value) is torch.nn.Parameter,
            type=self.namer.reference(type(value)),
            size=tuple(value.size()),
            stride=tuple(value.stride()),
            dtype=str(value.dtype).removeprefix("torch."),
            device=str(value.device),
            requires_grad=value.requires_grad,
            dispatch_keys=keys.raw_repr(),
            sizes=tuple(sizes),
            strides=tuple(strides),
        )

    def _relation(self, relation: Relation) -> None:
        variables = [[self._variables[id(node)] for node in group] for group in relation.nodes]
        if relation.kind == "no_tensor_aliasing_guard":
            covered = {id(node) for node, _, _ in self._tensors}
            if any(id(node) not in covered for group in relation.nodes for node in group):
                raise Unsupported(f"a no-aliasing guard on something not a tensor: {relation.text}")
        elif relation.kind == "object_aliasing_guard":
            first, *rest = [name for group in variables for name in group]
            for other in rest:
                self._require(f"{first} is {other}", "OBJECT_ALIASING")
        else:
            raise Unsupported(
                f"the guard {relation.kind!r}: {relation.text}",
                advice="Inputs that share storage in part are not supported; pass separate tensors.",
            )

    # -- the root --------------------------------------------------------------------------------

    def _root_leaves(self) -> None:
        self._require("standing_by()", "STAND_ASIDE")
        for leaf in self.root.leaves:
            if leaf.kind == "global_state_guard":
                self.state = leaf.args[0].__getstate__()
                self._require("state.check() or state.rebase()", "GLOBAL_STATE")
            elif leaf.kind == "torch_function_mode_stack_guard":
                if leaf.args[0]:
                    raise self._unsupported(self.root, leaf, "an active TorchFunctionMode")
                self._require("function_mode_depth() == 0", "TORCH_FUNCTION_STATE")
            elif leaf.kind == "default_device_guard":
                device = torch.utils._device.CURRENT_DEVICE
                expected = self._constant(device, None, "")
                test = "is None" if device is None else f"== {expected}"
                self._require(f"device_state.CURRENT_DEVICE {test}", "DEFAULT_DEVICE")
            elif leaf.kind == "dual_level_match_guard":
                self._require(f"forward_ad._current_level == {leaf.args[0]!r}", "DUAL_LEVEL")
            elif leaf.kind == "lambda_guard" and "top_saved_tensors_hooks ids == None" in leaf.text:
                self._require("saved_tensors_hooks(True) is None", "SAVED_TENSORS_HOOKS")
            else:
                raise self._unsupported(self.root, leaf, f"the guard {leaf.kind!r} on torch's state")

    def _expression_leaf(self, leaf: Leaf) -> None:
        """Symbolic shapes and aliasing come as Python expressions over L and G."""
        if leaf.expressions is None:
            raise self._unsupported(self.root, leaf, "a guard whose expression is not known")
        for text in leaf.expressions:
            kind = "OBJECT_ALIASING" if " is " in text else "SHAPE_ENV"
            self._require(self._rewrite(text, leaf), kind)

    def _rewrite(self, text: str, leaf: Leaf) -> str:
        writer = self

        class Rewrite(ast.NodeTransformer):
            def visit(self, node: ast.AST) -> Any:
                if isinstance(node, ast.expr):
                    variable = writer._by_source.get(ast.unparse(node))
                    if variable is not None:
                        return ast.Name(variable, ast.Load())
                return super().visit(node)

            def visit_Subscript(self, node: ast.Subscript) -> Any:
                if isinstance(node.value, ast.Name) and node.value.id == "G":
                    key = ast.literal_eval(node.slice)
                    if key in writer.injected:
                        return ast.Name(writer._constant(writer.injected[key], None, text), ast.Load())
                return self.generic_visit(node)

            def visit_Name(self, node: ast.Name) -> Any:
                if node.id not in _EXPRESSION_NAMES and not re.fullmatch(r"[vc]\d+", node.id):
                    raise writer._unsupported(writer.root, leaf, f"{node.id!r} in the guard {text!r}")
                return node

        return ast.unparse(Rewrite().visit(ast.parse(text, mode="eval").body))

    def _unsupported(self, node: GuardNode, leaf: Leaf | None, construct: str) -> Unsupported:
        reached = f" on {node.source}" if node.source else ""
        text = leaf.text if leaf is not None else ""
        return Unsupported(
            f"{construct}{reached} cannot be carried in a wheel" + (f" ({text})" if text else ""),
            _user_line(leaf) if leaf is not None else "",
        )


def _simple(template: str, kind: str) -> Callable[[_Writer, GuardNode, Leaf, str], None]:
    """A check that is one expression over the value and, where it has one, the leaf's argument."""

    def write(writer: _Writer, node: GuardNode, leaf: Leaf, variable: str) -> None:
        argument = leaf.args[0] if leaf.args and not isinstance(leaf.args[0], list) else None
        writer._require(template.format(v=variable, arg=repr(argument)), kind, leaf)

    return write


_LEAVES: dict[str, Callable[[_Writer, GuardNode, Leaf, str], None]] = {
    "type_match_guard": _Writer._type_match,
    "id_match_guard": _Writer._id_match,
    "equals_match_guard": _Writer._equals_match,
    "tensor_match_guard": _Writer._tensor_match,
    "dimension_marking_guard": _Writer._marking,
    "dict_contains_guard": _Writer._dict_contains,
    "set_contains_guard": _Writer._set_contains,
    "mapping_keys_guard": _Writer._mapping_keys,
    "dict_length_check_guard": _simple("dict.__len__({v}) == {arg}", "DICT_LENGTH"),
    "length_check_guard": _simple("len({v}) == {arg}", "LENGTH"),
    "true_match_guard": _simple("{v} is True", "EQUALS_MATCH"),
    "false_match_guard": _simple("{v} is False", "EQUALS_MATCH"),
    "none_match_guard": _simple("{v} is None", "EQUALS_MATCH"),
    "not_none_guard": _simple("{v} is not None", "EQUALS_MATCH"),
    "no_hasattr_guard": _simple("not hasattr({v}, {arg})", "NO_HASATTR"),
    "float_is_nan_guard": _simple("type({v}) is float and {v} != {v}", "EQUALS_MATCH"),
}


def _is_global(node: GuardNode) -> bool:
    """Reached by name from a module or a class: where an entrypoint's wrapper may have been put."""
    parent = node.parent
    return parent is not None and (
        parent.accessor in ("globals_dict", "type_dict") or isinstance(parent.value, (type, type(math)))
    )


def _cost(node: GuardNode) -> tuple[int, int]:
    """Cheap and discriminating first: constants and tensors among the locals, then deeper trees."""
    order = {"framelocals": 0, "lambda": 2, "globals_dict": 3}.get(node.accessor, 1)
    return order, _size(node)


def _size(node: GuardNode) -> int:
    return 1 + sum(_size(child) for child in node.children)


def _is_module(value: Any) -> bool:
    return type(value) is type(math)


def _builtin_name(value: Any) -> str:
    """The name of a builtin class, which needs no reference."""
    name = getattr(value, "__name__", "") if isinstance(value, type) else ""
    return name if vars(builtins).get(name) is value else ""


def _has_literal(value: Any) -> bool:
    """Whether repr gives Python source for the value: not so for inf, nan and sets."""
    if isinstance(value, tuple):
        return all(_has_literal(item) for item in value)
    if isinstance(value, (float, complex)):
        return math.isfinite(value.real) and math.isfinite(value.imag)
    return not isinstance(value, frozenset)


def _user_line(leaf: Leaf | None) -> str:
    """The user's source line that made dynamo add a check: `x.gelu()  # toy.py:10 in forward`."""
    if leaf is None:
        return ""
    _, marker, comment = leaf.text.partition("  # ")
    return " ".join(comment.split(" and ")[0].split()) if marker else ""


def _note(encoded: Any) -> str:
    if type(encoded) is list and encoded[0] == "ref":
        from hatch_precompile.runtime_package import runtime

        return str(runtime("references").spell(encoded[1], encoded[2]))
    return repr(encoded)
