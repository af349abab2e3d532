"""What dynamo checks and a wheel cannot: each such check stops a build with a sentence.

docs/limits.md lists them, with the tests here.
"""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy
import pytest
import torch

from hatch_precompile.errors import Unsupported
from hatch_precompile.inductor import capture_settings
from hatch_precompile.lower.conditions import require_free
from hatch_precompile.lower.dependencies.writer import Dependencies
from hatch_precompile.lower.guards.lowering import lower_guards
from hatch_precompile.tracing import tracing_frames
from hatch_precompile.tracing.guardtree import GuardNode, GuardRecorder, Leaf, Relation

HERE = "test_refused_guards.py:"


def refusal(call: Callable[..., Any], *args: Any, backend: Any = "eager", numbers: Sequence[str] = ()) -> str:
    """The sentence for one call's guards; that there is none is a failure of the test."""
    torch._dynamo.reset()
    recorder = GuardRecorder()
    said: list[str] = []

    def on_frame(trace: Any) -> None:
        try:
            require_free(recorder.tree(trace.root), numbers)
            lower_guards(recorder.tree(trace.root), trace.frame_globals, trace.injected)
        except Unsupported as error:
            said.append(str(error))

    with capture_settings({}, 1, numbers), recorder.recording(), tracing_frames(on_frame, lambda *_: None):
        torch.compile(call, backend=backend)(*args)
    torch._dynamo.reset()
    assert len(said) == 1, said
    return said[0]


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_inputs_that_overlap_in_memory() -> None:
    def adds(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x + y

    base = torch.zeros(6)
    inputs = base[:4], base[2:]
    for x in inputs:
        torch._dynamo.mark_dynamic(x, 0)
    with torch.no_grad():
        said = refusal(adds, *inputs, backend="aot_eager")
    assert said.startswith("the guard 'storage_overlapping_guard'")
    assert "pass separate tensors" in said


def test_a_torch_function_mode() -> None:
    from torch.overrides import BaseTorchFunctionMode

    with BaseTorchFunctionMode():
        said = refusal(doubled, torch.ones(3))
    assert said.startswith("an active TorchFunctionMode cannot be carried in a wheel")


KEY = object()
CHOOSES = operator.itemgetter(KEY)


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="this torch breaks the graph there")
def test_a_getter_of_an_object() -> None:
    def chooses(x: torch.Tensor) -> Any:
        return CHOOSES({KEY: x}) * 2

    said = refusal(chooses, torch.ones(3))
    assert said.startswith("operator.itemgetter of an object")


def test_hooks_on_saved_tensors() -> None:
    pack = torch.fx.symbolic_trace(doubled)
    with torch.autograd.graph.saved_tensors_hooks(pack, pack):
        said = refusal(doubled, torch.ones(3))
    assert said.startswith("the guard 'lambda_guard' on torch's state cannot be carried in a wheel")


def test_a_size_marked_unbacked() -> None:
    x = torch.ones(3)
    torch._dynamo.decorators.mark_unbacked(x, 0)
    said = refusal(doubled, x)
    assert said.startswith("a tensor marked unbacked on L['x'] cannot be carried in a wheel")


@pytest.mark.parametrize("value", [3, 2.5])
def test_a_declared_number_that_the_code_fixes(value: float) -> None:
    def branches(x: torch.Tensor, number: float) -> torch.Tensor:
        return x * 2 if number == value else x

    said = refusal(branches, torch.ones(3), value, numbers=["number"])
    assert said.startswith("dynamic-numbers: the code fixes number to the sample's value")
    assert "give a sample for each value" in said


def test_the_position_of_an_iterator() -> None:
    def adds(x: torch.Tensor, numbers: Iterator[int]) -> torch.Tensor:
        return x + next(numbers)

    said = refusal(adds, torch.ones(3), iter((1, 2)))
    assert said.startswith("the guard")
    assert "cannot be carried in a wheel" in said


def test_the_order_of_a_set_of_functions() -> None:
    def applies(x: torch.Tensor, functions: set[Any]) -> torch.Tensor:
        for function in functions:
            x = function(x)
        return x

    said = refusal(applies, torch.ones(3), {torch.sin, torch.cos})
    assert said.startswith("the order of a set with other elements than numbers on ")


def test_an_array_of_a_subclass() -> None:
    """Dynamo itself does not take one; if it did, it would look at the tensor alone."""

    class Mine(numpy.ndarray):
        pass

    array = numpy.ones(2).view(Mine)
    root = GuardNode("root", None, "", None, None)
    local = GuardNode("framelocals", ("a", 0), "L['a']", array, root)
    root.children.append(local)
    local.children.append(
        GuardNode("lambda", None, "___from_numpy(L['a'])", torch.from_numpy(numpy.ones(2)), local)
    )
    with pytest.raises(Unsupported, match=r"an array of the class .*Mine on .* cannot be carried in a wheel"):
        lower_guards(root, globals(), {})


def test_the_gradient_of_a_result() -> None:
    def adds(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.grad is None else x + x.grad

    x = torch.ones(3, requires_grad=True) * 2
    x.retain_grad()
    assert refusal(adds, x).startswith("the gradient of a tensor that is no leaf on ")


def test_globals_that_are_no_modules() -> None:
    """A function whose globals no other process could find."""
    spaces: dict[str, Any] = {"__builtins__": __builtins__, "SCALE": 3.0}
    exec("def scaled(x): return x * SCALE", spaces)
    scaled = spaces["scaled"]

    def calls(x: torch.Tensor) -> torch.Tensor:
        return scaled(x)

    said = refusal(calls, torch.ones(3))
    assert (
        "cannot be carried in a wheel" in said or "has no name that another process could find it by" in said
    )


# -- what no program is known to lead to -----------------------------------------------------------


def test_an_object_that_must_be_another_one_and_is_not_reached() -> None:
    root, _ = tree({"n": 1.0})
    with pytest.raises(Unsupported, match=r"whether .* is the same object as others counts in the trace"):
        lower_guards(root, globals(), {}, Dependencies(apart=(("L['x']", "L['y']"),)))


def tree(
    value: Any, *leaves: Leaf, accessor: str = "framelocals", key: Any = ("x", 0)
) -> tuple[GuardNode, GuardNode]:
    """A guard tree with one value in it."""
    root = GuardNode("root", None, "", None, None)
    node = GuardNode(accessor, key, "L['x']", value, root, leaves=list(leaves))
    root.children.append(node)
    return root, node


def sentence(root: GuardNode) -> str:
    with pytest.raises(Unsupported) as caught:
        lower_guards(root, globals(), {})
    return str(caught.value)


WORDS = ["dynamo's words  # return x  # /home/someone/model.py:3 in forward"]


def test_a_layout_that_is_not_strided() -> None:
    sparse = torch.eye(3).to_sparse()
    root, _ = tree(sparse, Leaf("tensor_match_guard", (sparse, [3, 3], [3, 1], WORDS)))
    said = sentence(root)
    assert said.startswith("a tensor with the layout torch.sparse_coo on L['x'] cannot be carried in a wheel")


def test_a_check_of_a_new_torch() -> None:
    root, _ = tree(1, Leaf("phase_of_the_moon_guard", (1, WORDS)))
    said = sentence(root)
    assert said.startswith(
        "the guard 'phase_of_the_moon_guard' on L['x'] cannot be carried in a wheel (dynamo's words"
    )
    assert said.endswith("\n  at return x # model.py:3 in forward")


def test_the_version_of_a_dict_that_is_not_pytrees() -> None:
    root, _ = tree({}, Leaf("dict_version_guard", (7, WORDS)))
    assert sentence(root).startswith("the guard 'dict_version_guard' on L['x'] cannot be carried in a wheel")


def test_a_part_of_torchs_compiler_that_is_no_name() -> None:
    import torch._dynamo as module

    root, node = tree(module)
    node.children.append(GuardNode("getattr", "config", "L['x'].config", module.config, node))
    node.children[0].leaves.append(Leaf("length_check_guard", (1, WORDS)))
    assert sentence(root).startswith(
        "the guard 'length_check_guard' on a part of torch's compiler on L['x'].config cannot be carried"
    )
    node.children[0] = GuardNode("by_telephone", None, "L['x'].config", module.config, node)
    assert sentence(root).startswith(
        "the guard accessor 'by_telephone' on a part of torch's compiler on L['x'].config cannot be carried"
    )


def test_a_way_of_a_new_torch() -> None:
    root, _ = tree(1, accessor="by_telephone")
    assert sentence(root).startswith("the guard accessor 'by_telephone' on L['x'] cannot be carried")


def test_a_state_of_a_new_torch() -> None:
    root, _ = tree(1)
    root.leaves.append(Leaf("mood_guard", (WORDS,)))
    assert sentence(root).startswith("the guard 'mood_guard' on torch's state cannot be carried")


def test_the_globals_of_another_module() -> None:
    root, _ = tree(vars(types), accessor="globals_dict", key=vars(types))
    assert sentence(root).startswith("a guard on another module's globals on L['x'] cannot be carried")


def test_the_order_of_a_mapping_that_is_no_dict() -> None:
    root, node = tree(collections.UserDict(a=1))
    node.children.append(GuardNode("get_key", 0, "", "a", node))
    assert sentence(root).startswith("key order of a UserDict on L['x'] cannot be carried")


def test_the_order_of_a_dict_of_dynamos_own() -> None:
    root, node = tree(globals(), accessor="globals_dict", key=globals())
    node.children.append(GuardNode("dict_getitem", "__injected", "G['__injected']", {"a": 1}, node))
    inner = node.children[0]
    inner.children.append(GuardNode("get_key", 0, "", "a", inner))
    with pytest.raises(
        Unsupported, match="a guard on the order of the keys of a dict that dynamo itself has put there"
    ):
        lower_guards(root, globals(), {"__injected": {"a": 1}})


def test_the_code_of_what_is_no_function() -> None:
    root, node = tree(doubled.__code__)
    node.children.append(GuardNode("code", None, "", doubled.__code__, node))
    assert sentence(root).startswith(
        "a guard on the code of something not a function on L['x'] cannot be carried"
    )


@pytest.mark.parametrize(
    ("leaf", "construct"),
    [
        (Leaf("type_match_guard", (0, WORDS)), "a type guard on something else than the value's type"),
        (Leaf("id_match_guard", (0, WORDS)), "an identity guard on something else than the value"),
        (
            Leaf("dimension_marking_guard", ({"_dynamo_new_mark": {0}}, [], {}, WORDS)),
            "the dimension marking ['_dynamo_new_mark']",
        ),
    ],
)
def test_a_known_check_in_a_form_that_is_not(leaf: Leaf, construct: str) -> None:
    root, _ = tree(1, leaf)
    assert sentence(root).startswith(f"{construct} on L['x'] cannot be carried in a wheel")


def test_a_check_after_all_others_at_another_place() -> None:
    root, node = tree(1)
    node.epilogue.append(Leaf("lambda_guard", (WORDS,)))
    assert sentence(root).startswith("an epilogue guard below the root on L['x'] cannot be carried")


def test_distinct_objects_that_are_no_tensors() -> None:
    root, node = tree(1)
    root.relations.append(Relation("no_tensor_aliasing_guard", [[node]], (["a", "b"],)))
    assert sentence(root).startswith("a no-aliasing guard on something not a tensor: ")


def test_an_expression_that_is_not_known() -> None:
    root, _ = tree(1)
    root.epilogue.append(Leaf("lambda_guard", (WORDS,)))
    assert sentence(root).startswith("a guard whose expression is not known cannot be carried in a wheel")


def test_an_expression_with_a_name_that_is_not_known() -> None:
    root, _ = tree(1)
    root.epilogue.append(Leaf("lambda_guard", (WORDS,), ["weather(L['x']) == 1"]))
    assert sentence(root).startswith("'weather' in the guard \"weather(L['x']) == 1\" cannot be carried")
