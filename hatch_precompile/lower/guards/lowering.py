"""Guard tree to guard function: checks over a frame's locals, as one function per entry.

The function answers what dynamo's C++ tree would answer, or refuses more: where dynamo walks with
`PyDict_GetItem`, which ignores an overridden `__getitem__`, the generated code first pins the type.
"""

from __future__ import annotations

import ast
import dataclasses
import json
from collections.abc import Iterator, Sequence
from types import CodeType, ModuleType
from typing import Any

import torch

from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.dependencies.writer import Dependencies
from hatch_precompile.lower.guards.access import access, is_activated, require_container
from hatch_precompile.lower.guards.builder import GuardText, unsupported
from hatch_precompile.lower.guards.checks import Assign, Function, Kind, Unwrap
from hatch_precompile.lower.guards.dependencies import (
    require_apart,
    require_dependencies,
    require_hooks,
    require_lacking,
    require_memory,
    require_same,
)
from hatch_precompile.lower.guards.dict_keys import ask_for_keys_alone
from hatch_precompile.lower.guards.expressions import (
    AnyOf,
    Attribute,
    Constant,
    Expression,
    Name,
    Variable,
    from_python,
    literal,
)
from hatch_precompile.lower.guards.leaves import require_leaf
from hatch_precompile.lower.guards.modules import is_late, require_if_imported
from hatch_precompile.lower.guards.subclasses import are_checked_by_names
from hatch_precompile.lower.guards.tensors import CheckedTensor, TensorGroup, distinguish, require_tensors
from hatch_precompile.lower.names import Namer
from hatch_precompile.runtime import torch_private
from hatch_precompile.static_lookup import dict_of
from hatch_precompile.tracing import is_compiler
from hatch_precompile.tracing.guardtree import GuardNode, Leaf, Relation

__all__ = ["LoweredGuards", "function_codes", "lower_guards"]

# What symbolic-shape and aliasing expressions may name, besides locals, globals and our own.
_EXPRESSION_NAMES = {"L", "G", "math"} | {
    *("min", "max", "abs", "len", "int", "float", "round"),
    *("type", "list", "dict", "object", "getattr"),
}

# Torch's functions of symbolic numbers -> those of plain ones, which sizes are when a guard runs.
_OF_NUMBERS = {
    "torch.sym_float": Name("float"),
    "torch.sym_int": Name("int"),
    "torch.sym_max": Name("max"),
    "torch.sym_min": Name("min"),
    "torch._sym_sqrt": Name("math").attribute("sqrt"),
}

# A local of the frame is looked at first if its part of the guard tree has no more nodes than this.
_SMALL = 16


@dataclasses.dataclass(frozen=True)
class LoweredGuards:
    """A guard function and what it needs: see entries.py for how each is stored."""

    functions: tuple[Function, ...]
    stub: Function
    notes: tuple[str, ...]
    constants: tuple[Any, ...]
    tensors: tuple[TensorGroup, ...]
    state: str
    checks: int
    dropped: int
    rebound: int
    by_kind: dict[str, int]

    @property
    def source(self) -> str:
        """The functions as Python, behind what their constants are."""
        notes = "".join(f"# c{index}: {note}\n" for index, note in enumerate(self.notes))
        return "\n\n".join([notes or "\n", *(function.text() for function in self.functions)])


def lower_guards(
    root: GuardNode,
    frame_globals: dict[str, Any],
    injected: dict[str, Any],
    dependencies: Dependencies | None = None,
    numbers: Sequence[str] = (),
    *,
    on_gpu: bool = False,
) -> LoweredGuards:
    """Generate the guard function of one recorded tree.

    `injected` maps the names dynamo put into the frame's globals to their values; `dependencies`: what dynamo
    took for constant and may change between calls; `numbers`: conditions on those that were traced for any
    value; `on_gpu`: whether the call was traced for a GPU. Raises `Unsupported`, with dynamo's words for the
    check and its source line, for one that it cannot carry.
    """
    dependencies = dependencies or Dependencies()
    ask_for_keys_alone(root, dependencies.asked)
    return _Writer(root, frame_globals, injected, dependencies, numbers, on_gpu).write()


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
        dependencies: Dependencies,
        numbers: Sequence[str],
        on_gpu: bool,
    ) -> None:
        self.root = root
        self.on_gpu = on_gpu
        self.numbers = numbers
        self.dependencies = dependencies
        self.frame_globals = frame_globals
        self.injected = injected
        self.text = GuardText(Namer(frame_globals, injected), dependencies.variadic)
        self.state = ""
        self._variables: dict[int, Variable | Constant] = {}
        self._by_source: dict[str, Variable | Constant] = {}
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
        require_dependencies(self.text, self.dependencies)
        for child in children:
            if id(child) not in set(map(id, small)):
                self._visit(child)
        if self.dependencies.called:
            require_hooks(self.text, self.root, self._variables, self.dependencies.called)
        tensors = require_tensors(self.text, self._tensors, on_gpu=self.on_gpu)
        if self.on_gpu:
            torch_private.settle_gpu_settings()
            settings = Name("gpu_settings").call()
            expected = literal(torch_private.gpu_settings())
            self.text.require(settings.equals(expected), "GPU_SETTINGS")
        for relation in self.root.relations:
            self._relation(relation)
        for leaf in self.root.epilogue:
            if id(leaf) not in self._written:
                self._expression(leaf)
        for text in self.numbers:
            self.text.require(self._tree(text, None), "NUMBERS")
        require_same(self.text, self.dependencies, self._by_source)
        require_apart(self.text, self.dependencies, self._by_source)
        require_memory(self.text, self.dependencies, self._by_source)
        require_lacking(self.text, self.dependencies, self.frame_globals)
        return LoweredGuards(
            functions=tuple(self.text.functions()),
            stub=self.text.stub(),
            notes=tuple(self.text.notes),
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
            variable: Variable | Constant = self.text.found(node.value)
        else:
            base = self._variables.get(id(node.parent))
            variable = reached = Variable(len(self._variables))
            self.text.add(Assign(reached, access(self.text, node, base, self.frame_globals)))
            if is_activated(node):
                self.text.add(Unwrap(reached))
        self._variables[id(node)] = variable
        if node.source:
            self._by_source.setdefault(node.source, variable)
        with self.text.block(variable):
            require_container(self.text, node, variable)
            for leaf in node.leaves:
                if leaf.kind == "tensor_match_guard":
                    if dict_of(node.value).get("_dynamo_unbacked_indices"):
                        # Torch 2.11 compares no such mark.
                        raise unsupported("a tensor marked unbacked", node, leaf)
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
            nodes = (node for text in expressions for node in self._tree(text, leaf).nodes())
            if {node for node in nodes if isinstance(node, (Variable, Constant, Name))} <= plain:
                self._written.add(id(leaf))
                self._expression(leaf)

    def _function_modes(self) -> None:
        for leaf in self.root.leaves:
            if leaf.kind == "torch_function_mode_stack_guard":
                if leaf.args[0]:
                    raise unsupported("an active TorchFunctionMode", self.root, leaf)
                depth = Name("function_mode_depth").call()
                self.text.require(depth.equals(literal(0)), "TORCH_FUNCTION_STATE")
                self.carried += 1

    def _torch_state(self) -> None:
        self.text.require(Name("may_serve").call(), "STAND_ASIDE")
        for leaf in self.root.leaves:
            if leaf.kind == "global_state_guard":
                self.state = _without_threads(leaf.args[0].__getstate__())
                same = Name("state.check").call(), Name("state").attribute("rebase").call()
                self.text.require(AnyOf(same), "GLOBAL_STATE")
                # Not in dynamo's state but in the dispatch keys it compares tensors with.
                inference = literal(torch.is_inference_mode_enabled())
                self.text.require(Name("inference_mode").call().is_(inference), "INFERENCE_MODE")
            elif leaf.kind == "torch_function_mode_stack_guard":
                continue
            elif leaf.kind == "default_device_guard":
                device = torch_private.default_device()
                expected = self.text.constant(device, None, "")
                how = "is" if device is None else "=="
                asked = Name("default_device").call().compared(how, expected)
                self.text.require(asked, "DEFAULT_DEVICE")
            elif leaf.kind == "dual_level_match_guard":
                level = Name("forward_ad").attribute("_current_level")
                self.text.require(level.equals(literal(leaf.args[0])), "DUAL_LEVEL")
            elif leaf.kind == "lambda_guard" and "top_saved_tensors_hooks ids == None" in leaf.text:
                hooks = Name("saved_tensors_hooks").call(literal(True))
                self.text.require(hooks.is_(literal(None)), "SAVED_TENSORS_HOOKS")
            elif leaf.kind == "lambda_guard" and "compare_functorch_state([])" in leaf.text:
                pass  # no functorch transform is active: may_serve has asked for that
            else:
                raise unsupported(f"the guard {leaf.kind!r} on torch's state", self.root, leaf)
            self.carried += 1

    def _relation(self, relation: Relation) -> None:
        variables = [[self._variable_of(node, relation) for node in group] for group in relation.nodes]
        if relation.kind == "no_tensor_aliasing_guard":
            covered = {id(node) for node, _, _ in self._tensors}
            if any(id(node) not in covered for group in relation.nodes for node in group):
                raise Unsupported(f"a no-aliasing guard on something not a tensor: {relation.text}")
        elif relation.kind == "object_aliasing_guard":
            first, *rest = [name for group in variables for name in group]
            for other in rest:
                self.text.require(first.is_(other), "OBJECT_ALIASING")
        else:
            raise Unsupported(
                f"the guard {relation.kind!r}: {relation.text}",
                advice="Inputs that share storage in part are not supported; pass separate tensors.",
            )
        self.carried += 1

    def _variable_of(self, node: GuardNode, relation: Relation) -> Expression:
        """What was reached at a node. Below a module of torch's compiler, where nothing is reached, a value
        stands for itself, as in expressions (parts_of_compiler)."""
        variable = self._variables.get(id(node))
        if variable is not None:
            return variable
        above = node.parent
        while above is not None and not is_late(above):
            above = above.parent
        if above is None:
            raise unsupported(f"the guard {relation.kind!r} on what is compared by names", node)
        return self.text.constant(node.value, node, relation.text)

    def _expression(self, leaf: Leaf) -> None:
        """Symbolic shapes and aliasing come as Python expressions over L and G."""
        if leaf.expressions is None:
            raise unsupported("a guard whose expression is not known", self.root, leaf)
        for text in leaf.expressions:
            tree = self._tree(text, leaf)
            self.text.require(tree, "OBJECT_ALIASING" if " is " in text else _kind_of_shapes(tree))
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

    def _tree(self, text: str, leaf: Leaf | None) -> Expression:
        """An expression over L and G, with variables for what has been reached."""

        def known(node: ast.expr) -> Expression | None:
            variable = self._by_source.get(ast.unparse(node))
            if variable is not None:
                return variable
            if (number := _in_a_tensor(node)) is not None:
                return from_python(number, known)
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "G":
                key = ast.literal_eval(node.slice)
                return self.text.constant(self.injected[key], None, text) if key in self.injected else None
            if isinstance(node, ast.Attribute):
                if name := _OF_NUMBERS.get(ast.unparse(node)):
                    return name
                for value in self.parts_of_compiler(node):
                    return self.text.constant(value, None, text)
            if isinstance(node, ast.Name) and node.id not in _EXPRESSION_NAMES:
                raise unsupported(f"{node.id!r} in the guard {text!r}", self.root, leaf)
            return None

        try:
            return from_python(ast.parse(text, mode="eval").body, known)
        except ValueError as error:
            raise unsupported(f"{error} in the guard {text!r}", self.root, leaf) from None


def _in_a_tensor(node: ast.expr) -> ast.expr | None:
    """The number that torch 2.11 makes a tensor of, in all its digits, and takes out of there again."""
    match node:
        case ast.Call(ast.Attribute(ast.Call(ast.Name("___as_tensor"), [number]), "item"), []):
            return number
    return None


def _kind_of_shapes(condition: Expression) -> Kind:
    """What an expression of symbolic shapes is about: strides, sizes, or numbers alone."""
    names = {node.name for node in condition.nodes() if isinstance(node, Attribute)}
    if names & {"stride", "storage_offset"}:
        return "STRIDES"
    return "SHAPE_ENV" if "size" in names else "NUMBERS"


def _checks(node: GuardNode) -> int:
    """How many checks dynamo's tree has at and below a node."""
    return sum(len(each.leaves) + len(each.epilogue) + len(each.relations) for each in node.nodes())


def _cost(node: GuardNode) -> tuple[int, int]:
    """Cheap and discriminating first: constants and tensors among the locals, then deeper trees."""
    order = {"framelocals": 0, "lambda": 2, "globals_dict": 3}.get(node.accessor, 1)
    return order, _size(node)


def _size(node: GuardNode) -> int:
    return 1 + sum(_size(child) for child in node.children)


def _without_threads(state: str) -> str:
    """The state of torch with `num_threads` set to 1: each process puts its own number there."""
    return json.dumps({**json.loads(state), "num_threads": 1}, separators=(",", ":"))
