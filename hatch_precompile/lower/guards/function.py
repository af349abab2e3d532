"""Guard tree to guard function: one readable Python function over a frame's locals, per entry.

The function answers what dynamo's C++ tree would answer, or refuses more: where dynamo walks with
`PyDict_GetItem`, which ignores an overridden `__getitem__`, the generated code first pins the type.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from types import CodeType, ModuleType
from typing import Any

import torch

from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.guards.access import access, is_activated, require_container
from hatch_precompile.lower.guards.inputs import (
    require_apart,
    require_hooks,
    require_inputs,
    require_lacking,
    require_memory,
)
from hatch_precompile.lower.guards.leaves import require_leaf
from hatch_precompile.lower.guards.modules import is_late, require_if_imported
from hatch_precompile.lower.guards.subclasses import are_checked_by_names
from hatch_precompile.lower.guards.tensors import CheckedTensor, TensorGroup, distinguish, require_tensors
from hatch_precompile.lower.guards.text import GuardText, unsupported
from hatch_precompile.lower.inputs.writer import Inputs
from hatch_precompile.lower.names import Namer
from hatch_precompile.tracing import is_compiler
from hatch_precompile.tracing.guardtree import GuardNode, Leaf, Relation
from hatch_precompile.tracing.tensors import default_device

__all__ = ["LoweredGuards", "function_codes", "lower_guards"]

# What symbolic-shape and aliasing expressions may name, besides locals, globals and our own.
_EXPRESSION_NAMES = {"L", "G", "math"} | {
    *("min", "max", "abs", "len", "int", "float", "round"),
    *("type", "list", "dict", "object", "getattr"),
}

# What torch calls what numbers have by another name: sizes are numbers when a guard is asked.
_OF_NUMBERS = {
    "torch.sym_float": "float",
    "torch.sym_int": "int",
    "torch.sym_max": "max",
    "torch.sym_min": "min",
    "torch._sym_sqrt": "math.sqrt",
}

# Values below one of the frame's locals: up to so many, it is looked at before anything else.
_SMALL = 16


@dataclasses.dataclass(frozen=True)
class LoweredGuards:
    """A guard function and what it needs: see docs/bundle-format.md for how each is stored."""

    source: str
    stub: str
    constants: tuple[Any, ...]
    tensors: tuple[TensorGroup, ...]
    state: str
    checks: int
    dropped: int
    rebound: int
    by_kind: dict[str, int]


def lower_guards(
    root: GuardNode,
    frame_globals: dict[str, Any],
    injected: dict[str, Any],
    inputs: Inputs | None = None,
    numbers: Sequence[str] = (),
) -> LoweredGuards:
    """Generate the guard function of one recorded tree.

    `injected` maps the names dynamo put into the frame's globals to their values; `inputs`: what dynamo took
    for constant and may change between calls; `numbers`: conditions on those that were traced for any value.
    Raises `Unsupported`, with dynamo's words for the check and its
    source line, for any it cannot carry.
    """
    return _Writer(root, frame_globals, injected, inputs or Inputs(), numbers).write()


def function_codes(source: str, filename: str) -> tuple[CodeType, ...]:
    """The code of each function that a source defines."""
    module = compile(source, filename, "exec", dont_inherit=True)
    return tuple(constant for constant in module.co_consts if isinstance(constant, CodeType))


class _Writer:
    """Walks one tree. Variables are kept by node, and by dynamo's name for the value."""

    def __init__(
        self,
        root: GuardNode,
        frame_globals: dict[str, Any],
        injected: dict[str, Any],
        inputs: Inputs,
        numbers: Sequence[str],
    ) -> None:
        self.root = root
        self.numbers = numbers
        self.inputs = inputs
        self.frame_globals = frame_globals
        self.injected = injected
        self.text = GuardText(Namer(frame_globals, injected), inputs.variadic)
        self.state = ""
        self._variables: dict[int, str] = {}
        self._by_source: dict[str, str] = {}
        self._tensors: list[CheckedTensor] = []
        self._distinguishing = True
        self._written: set[int] = set()  # leaves of the epilogue
        self.carried = 0  # of dynamo's checks

    def write(self) -> LoweredGuards:
        # First what tells the entries of one frame apart at little cost: the frame's smaller locals. Any
        # read of a tensor's attribute would be seen by a TorchFunctionMode, so that is asked before.
        self._function_modes()
        children = sorted(self.root.children, key=_cost)
        small = [child for child in children if child.accessor == "framelocals" and _size(child) <= _SMALL]
        for child in small:
            self._visit(child)
        self._distinguishing = False
        self._sizes_first()
        self.text.end_stub()
        self._torch_state()
        require_inputs(self.text, self.inputs)
        for child in children:
            if id(child) not in set(map(id, small)):
                self._visit(child)
        if self.inputs.called:
            require_hooks(self.text, self.root, self._variables, self.inputs.called)
        tensors = require_tensors(self.text, self._tensors, self.root.relations)
        for relation in self.root.relations:
            self._relation(relation)
        for leaf in self.root.epilogue:
            if id(leaf) not in self._written:
                self._expression(leaf)
        for text in self.numbers:
            self.text.require(self._rewrite(text, None), "NUMBERS")
        require_apart(self.text, self.inputs, self._by_source)
        require_memory(self.text, self.inputs, self._by_source)
        require_lacking(self.text, self.inputs, self.frame_globals)
        return LoweredGuards(
            source=self.text.source(),
            stub=self.text.stub(),
            constants=tuple(self.text.constants),
            tensors=tensors,
            state=self.state,
            checks=sum(self.text.by_kind.values()),
            dropped=_checks(self.root) - self.carried,
            rebound=self.text.rebound,
            by_kind=dict(sorted(self.text.by_kind.items())),
        )

    def _visit(self, node: GuardNode) -> None:
        assert node.parent is not None
        if is_late(node):
            self.carried += require_if_imported(self.text, node)
            return
        if are_checked_by_names(node):
            self.carried += _checks(node)
            return
        if node.parent.accessor == "globals_dict" and node.key in self.injected:
            # Dynamo's own additions to the globals are constants to us: modules, builtins, objects.
            variable = self.text.constant(node.value, None, "")
        else:
            variable = f"v{len(self._variables)}"
            base = self._variables.get(id(node.parent), "")
            self.text.add(f"{variable} = {access(self.text, node, base, self.frame_globals)}")
            if is_activated(node):
                # An activated entrypoint, of this wheel or another, stands in a wrapper of ours.
                self.text.add(f"if {variable}.__dict__: {variable} = plain_function({variable})")
        self._variables[id(node)] = variable
        if node.source:
            self._by_source.setdefault(node.source, variable)
        with self.text.block(variable):
            require_container(self.text, node, variable)
            for leaf in node.leaves:
                if leaf.kind == "tensor_match_guard":
                    self._tensors.append((node, leaf, variable))
                    if self._distinguishing:
                        distinguish(self.text, leaf, variable)
                else:
                    require_leaf(self.text, node, leaf, variable)
                self.carried += 1
            if node.epilogue or node.relations:
                raise unsupported("an epilogue guard below the root", node)
            for child in sorted(node.children, key=_cost):
                self._visit(child)

    def _sizes_first(self) -> None:
        """Conditions on sizes of tensors whose class and dimensions were asked for: they tell calls apart,
        and cost less than what follows."""
        kinds = (torch.Tensor, torch.nn.Parameter)
        plain = {variable for node, _, variable in self._tensors if type(node.value) in kinds}
        for leaf in self.root.epilogue:
            expressions = leaf.expressions or ()
            if not expressions or any(" is " in text or "G[" in text for text in expressions):
                continue
            trees = [ast.parse(self._rewrite(text, leaf)) for text in expressions]
            names = {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
            if names <= plain:
                self._written.add(id(leaf))
                self._expression(leaf)

    def _function_modes(self) -> None:
        for leaf in self.root.leaves:
            if leaf.kind == "torch_function_mode_stack_guard":
                if leaf.args[0]:
                    raise unsupported("an active TorchFunctionMode", self.root, leaf)
                self.text.require("function_mode_depth() == 0", "TORCH_FUNCTION_STATE")
                self.carried += 1

    def _torch_state(self) -> None:
        self.text.require("may_serve()", "STAND_ASIDE")
        for leaf in self.root.leaves:
            if leaf.kind == "global_state_guard":
                self.state = _without_threads(leaf.args[0].__getstate__())
                self.text.require("state.check() or state.rebase()", "GLOBAL_STATE")
                # Not in dynamo's state but in the dispatch keys it compares tensors with.
                inference = torch.is_inference_mode_enabled()
                self.text.require(f"inference_mode() is {inference}", "GLOBAL_STATE")
            elif leaf.kind == "torch_function_mode_stack_guard":
                continue
            elif leaf.kind == "default_device_guard":
                device = default_device()
                expected = self.text.constant(device, None, "")
                test = "is None" if device is None else f"== {expected}"
                self.text.require(f"default_device() {test}", "DEFAULT_DEVICE")
            elif leaf.kind == "dual_level_match_guard":
                self.text.require(f"forward_ad._current_level == {leaf.args[0]!r}", "DUAL_LEVEL")
            elif leaf.kind == "lambda_guard" and "top_saved_tensors_hooks ids == None" in leaf.text:
                self.text.require("saved_tensors_hooks(True) is None", "SAVED_TENSORS_HOOKS")
            elif leaf.kind == "lambda_guard" and "compare_functorch_state([])" in leaf.text:
                pass  # no functorch transform is active: may_serve has asked for that
            else:
                raise unsupported(f"the guard {leaf.kind!r} on torch's state", self.root, leaf)
            self.carried += 1

    def _relation(self, relation: Relation) -> None:
        variables = [[self._variables[id(node)] for node in group] for group in relation.nodes]
        if relation.kind == "no_tensor_aliasing_guard":
            covered = {id(node) for node, _, _ in self._tensors}
            if any(id(node) not in covered for group in relation.nodes for node in group):
                raise Unsupported(f"a no-aliasing guard on something not a tensor: {relation.text}")
        elif relation.kind == "object_aliasing_guard":
            first, *rest = [name for group in variables for name in group]
            for other in rest:
                self.text.require(f"{first} is {other}", "OBJECT_ALIASING")
        else:
            raise Unsupported(
                f"the guard {relation.kind!r}: {relation.text}",
                advice="Inputs that share storage in part are not supported; pass separate tensors.",
            )
        self.carried += 1

    def _expression(self, leaf: Leaf) -> None:
        """Symbolic shapes and aliasing come as Python expressions over L and G."""
        if leaf.expressions is None:
            raise unsupported("a guard whose expression is not known", self.root, leaf)
        for text in leaf.expressions:
            kind = "OBJECT_ALIASING" if " is " in text else "SHAPE_ENV"
            self.text.require(self._rewrite(text, leaf), kind)
        self.carried += 1

    def parts_of_compiler(self, node: ast.expr) -> Iterator[Any]:
        """The object, if any, that an expression finds in a module which the target does not import.

        That it is there is asked if the module is imported (modules.py); here it stands for itself.
        """
        names = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "G":
            value = self.injected.get(ast.literal_eval(node.slice))
            if type(value) is ModuleType and is_compiler(value):
                for name in reversed(names):
                    value = getattr(value, name)
                yield value

    def _rewrite(self, text: str, leaf: Leaf | None) -> str:
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
                        return ast.Name(writer.text.constant(writer.injected[key], None, text), ast.Load())
                return self.generic_visit(node)

            def visit_Attribute(self, node: ast.Attribute) -> Any:
                if name := _OF_NUMBERS.get(ast.unparse(node)):
                    return ast.parse(name, mode="eval").body
                for value in writer.parts_of_compiler(node):
                    return ast.Name(writer.text.constant(value, None, text), ast.Load())
                return self.generic_visit(node)

            def visit_Name(self, node: ast.Name) -> Any:
                if node.id not in _EXPRESSION_NAMES and not re.fullmatch(r"[vc]\d+", node.id):
                    raise unsupported(f"{node.id!r} in the guard {text!r}", writer.root, leaf)
                return node

        return ast.unparse(Rewrite().visit(ast.parse(text, mode="eval").body))


def _checks(node: GuardNode) -> int:
    """How many checks dynamo's tree has at and below a node."""
    own = len(node.leaves) + len(node.epilogue) + len(node.relations)
    return own + sum(_checks(child) for child in node.children)


def _cost(node: GuardNode) -> tuple[int, int]:
    """Cheap and discriminating first: constants and tensors among the locals, then deeper trees."""
    order = {"framelocals": 0, "lambda": 2, "globals_dict": 3}.get(node.accessor, 1)
    return order, _size(node)


def _size(node: GuardNode) -> int:
    return 1 + sum(_size(child) for child in node.children)


def _without_threads(state: str) -> str:
    """The state of torch, with a count of threads that is no machine's: each process has its own in there."""
    return json.dumps({**json.loads(state), "num_threads": 1}, separators=(",", ":"))
