"""Records dynamo's guard tree, with the live value behind every node, while dynamo builds it.

Dynamo's guards live in C++ and cannot be read back. What can be seen is how they are built: every
accessor and every leaf is one method call on a pybind class. `GuardRecorder` wraps those methods for
the length of a capture and keeps, for each root, the same tree as plain data. A call it does not know
becomes an `unknown` leaf, which lowering refuses: nothing that dynamo checks is lost in silence.

Methods as seen in torch 2.13 to 2.15 (torch/csrc/dynamo/guards.cpp).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch

from hatch_precompile.static_lookup import is_a
from hatch_precompile.tracing import guard_builder, guard_manager_classes, relational_guards

__all__ = ["GuardNode", "GuardRecorder", "Leaf", "Relation"]

# method name -> (the name of the key argument, or None)
ACCESSORS: dict[str, str | None] = {
    "framelocals_manager": "key",
    "globals_dict_manager": "f_globals",
    "dict_getitem_manager": "key",
    "list_getitem_manager": "key",
    "tuple_getitem_manager": "key",
    "set_getitem_manager": "index",
    "getitem_manager": "key",
    "getattr_manager": "attr",
    "generic_getattr_manager": "attr",
    "get_generic_dict_manager": None,
    "func_defaults_manager": None,
    "func_kwdefaults_manager": None,
    "tuple_iterator_getitem_manager": "index",
    "weakref_call_manager": None,
    "call_function_no_args_manager": None,
    "global_weakref_manager": "global_name",
    "type_manager": None,
    "type_dict_manager": None,
    "type_mro_manager": None,
    "code_manager": None,
    "closure_manager": None,
    "grad_manager": None,
    "tensor_property_size_manager": "idx",
    "tensor_property_stride_manager": "idx",
    "tensor_property_storage_offset_manager": "idx",
    "indexed_manager": "idx",
    "lambda_manager": "python_lambda",
    "get_key_manager": "index",
    "get_value_manager": "index",
}


@dataclass
class Leaf:
    """One check on a node: the method that added it, its arguments, and dynamo's words for it."""

    kind: str
    args: tuple[Any, ...]
    expressions: list[str] | None = None

    @property
    def text(self) -> str:
        """Dynamo's own rendering of the check, with the user's source line where it knows one."""
        for arg in self.args:
            if isinstance(arg, list) and arg and all(isinstance(part, str) for part in arg):
                return " and ".join(arg)
        return self.kind


@dataclass(eq=False)
class GuardNode:
    """A value dynamo guards on: how it is reached from its parent, its example, and its checks."""

    accessor: str
    key: Any
    source: str
    value: Any
    parent: GuardNode | None
    keyed: bool = False  # dynamo guards on this dict's keys and their order
    leaves: list[Leaf] = field(default_factory=list)
    children: list[GuardNode] = field(default_factory=list)
    epilogue: list[Leaf] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)

    def nodes(self) -> Iterator[GuardNode]:
        """This one and all below it."""
        pending = [self]
        while pending:
            node = pending.pop()
            pending += node.children
            yield node

    def root(self) -> GuardNode:
        return self if self.parent is None else self.parent.root()


@dataclass
class Relation:
    """A check over several nodes, kept on the root."""

    kind: str
    nodes: list[list[GuardNode]]
    args: tuple[Any, ...]

    @property
    def text(self) -> str:
        return Leaf(self.kind, self.args).text


class GuardRecorder:
    """Keeps a `GuardNode` tree for every guard manager built while `recording()` is active."""

    def __init__(self) -> None:
        self._nodes: dict[int, GuardNode] = {}
        # pybind hands out the same Python object for a manager only while one is alive.
        self._alive: list[Any] = []
        # The Python expressions of the lambda guard being built; the pybind call has only their prose.
        self._expressions: list[str] | None = None

    def tree(self, root: Any) -> GuardNode:
        """The recorded tree of a RootGuardManager."""
        return self._node(root)

    def _node(self, manager: Any) -> GuardNode:
        node = self._nodes.get(id(manager))
        if node is None:
            node = GuardNode("root", None, "", None, None)
            self._nodes[id(manager)] = node
            self._alive.append(manager)
        return node

    def _record_accessor(self, name: str, manager: Any, result: Any, kwargs: dict[str, Any]) -> None:
        if id(result) in self._nodes:
            return
        key_name = ACCESSORS.get(name)
        parent = self._node(manager)
        node = GuardNode(
            accessor=name.removesuffix("_manager"),
            key=kwargs[key_name] if key_name else None,
            source=kwargs.get("source") or "",
            value=kwargs.get("example_value"),
            parent=parent,
            keyed=getattr(kwargs.get("guard_manager_enum"), "name", "") == "DICT_GUARD_MANAGER",
        )
        parent.children.append(node)
        self._nodes[id(result)] = node
        self._alive.append(result)

    def _wrap_method(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        recorder = self

        def accessor(manager: Any, *args: Any, **kwargs: Any) -> Any:
            result = method(manager, *args, **kwargs)
            names = _positional_names(name)
            recorder._record_accessor(
                name, manager, result, {**dict(zip(names, args, strict=False)), **kwargs}
            )
            return result

        def leaf(manager: Any, *args: Any, **kwargs: Any) -> Any:
            node = recorder._node(manager)
            recorded = Leaf(name.removeprefix("add_"), (*args, *kwargs.values()), recorder._expressions)
            if _is_switched_off(node):
                return method(manager, *args, **kwargs)
            (node.epilogue if "epilogue" in name else node.leaves).append(recorded)
            return method(manager, *args, **kwargs)

        return accessor if name.endswith("_manager") else leaf

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Wrap the guard manager classes and the relational guards for the length of the block."""
        with contextlib.ExitStack() as stack:
            for cls in guard_manager_classes():
                for name, method in list(vars(cls).items()):
                    # An accessor or leaf of another torch version is recorded too; lowering refuses it.
                    is_accessor = name.endswith("_manager") and name != "clone_manager"
                    if is_accessor or name.startswith("add_"):
                        stack.enter_context(patch.object(cls, name, self._wrap_method(name, method)))
            module, relations = relational_guards()
            for name in relations:
                wrapped = self._wrap_relation(name, getattr(module, name))
                stack.enter_context(patch.object(module, name, wrapped))
            builder, name = guard_builder(), "add_python_lambda_leaf_guard_to_root"
            stack.enter_context(patch.object(builder, name, self._wrap_lambda(getattr(builder, name))))
            yield

    def _wrap_lambda(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def add_lambda(builder: Any, code_parts: list[str], *args: Any, **kwargs: Any) -> Any:
            self._expressions = list(code_parts)
            try:
                return method(builder, code_parts, *args, **kwargs)
            finally:
                self._expressions = None

        return add_lambda

    def _wrap_relation(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def install(*args: Any) -> Any:
            groups: list[list[GuardNode]] = []
            rest: list[Any] = []
            for arg in args:
                if isinstance(arg, list) and all(id(item) in self._nodes for item in arg):
                    groups.append([self._nodes[id(item)] for item in arg])
                elif id(arg) in self._nodes:
                    groups.append([self._nodes[id(arg)]])
                else:
                    rest.append(arg)
            root = next(node for group in groups for node in group).root()
            root.relations.append(Relation(name.removeprefix("install_"), groups, tuple(rest)))
            return function(*args)

        return install


def _is_switched_off(node: GuardNode) -> bool:
    """Whether it is the flag of torch.distributions that says whether arguments are checked, and no class's
    own. It is on in eager code, and torch.compile switches it off for good when a process first compiles."""
    if node.key != "_validate_args" or node.value is not False or node.parent is None:
        return False
    holder = node.parent.parent if node.parent.accessor == "type_dict" else node.parent
    cls: Any = holder.value if holder is not None else None
    if not is_a(cls, type):
        return False
    whose = next((base for base in cls.__mro__ if node.key in vars(base)), None)
    return whose is torch.distributions.Distribution


def _positional_names(name: str) -> tuple[str, ...]:
    key = ACCESSORS.get(name)
    rest = ("source", "example_value", "guard_manager_enum")
    return (key, *rest) if key else rest
