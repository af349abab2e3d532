"""What the report of a build says an entry asks of a call, from trees as dynamo's guards are recorded."""

from __future__ import annotations

from typing import Any

import torch

from hatch_precompile.lower.conditions import conditions_of
from hatch_precompile.records import FixedValue, TensorInput
from hatch_precompile.tracing.guardtree import GuardNode, Leaf


def root() -> GuardNode:
    return GuardNode("root", None, "", None, None)


def below(parent: GuardNode, source: str, value: Any, accessor: str, *leaves: Leaf) -> GuardNode:
    node = GuardNode(accessor, None, source, value, parent, leaves=list(leaves))
    parent.children.append(node)
    return node


def argument(parent: GuardNode, name: str, value: Any, *leaves: Leaf) -> GuardNode:
    return below(parent, f"L['{name}']", value, "framelocals", *leaves)


def matches(value: torch.Tensor, *sizes: int | None) -> Leaf:
    return Leaf("tensor_match_guard", (value, list(sizes), [None] * len(sizes)))


def test_a_tensor_has_its_fixed_and_its_free_sizes() -> None:
    tree, ids = root(), torch.zeros(8, 16, dtype=torch.long)
    argument(tree, "ids", ids, matches(ids, None, 16))
    assert conditions_of(tree).inputs == [TensorInput("ids", "int64", [8, 16], [False, True])]


def test_weights_are_no_inputs_but_tensors_in_a_list_are() -> None:
    tree, x = root(), torch.zeros(3)
    model = argument(tree, "self", torch.nn.Linear(3, 3))
    below(model, "L['self']._parameters['weight']", x, "dict_getitem", matches(x, 3))
    several = argument(tree, "several", [x], Leaf("length_check_guard", (1, ["len(L['several']) == 1"])))
    below(several, "L['several'][0]", x, "list_getitem", matches(x, 3))
    found = conditions_of(tree)
    assert [tensor.name for tensor in found.inputs] == ["several[0]"]
    assert found.values == [FixedValue("len(several)", "1", True)]


def test_values_of_the_model_are_told_from_those_of_the_call() -> None:
    tree = root()
    argument(tree, "pooling", "mean", Leaf("equals_match_guard", ("mean", ["..."])))
    argument(tree, "mask", None, Leaf("none_match_guard", (["..."],)))
    model = argument(tree, "self", torch.nn.Linear(3, 3))
    layer = below(model, "L['self']._modules['layers']._modules['1']", torch.nn.Dropout(), "dict_getitem")
    below(layer, layer.source + ".p", 0.1, "dict_getitem", Leaf("equals_match_guard", (0.1, ["..."])))
    below(layer, layer.source + ".training", False, "dict_getitem", Leaf("false_match_guard", (["..."],)))
    assert conditions_of(tree).values == [
        FixedValue("pooling", "'mean'", True),
        FixedValue("mask", "None", True),
        FixedValue("self.layers[1].p", "0.1", False),
        FixedValue("self.layers[1].training", "False", False),
    ]


def test_conditions_on_sizes_are_in_the_words_of_the_arguments() -> None:
    tree = root()
    text = "2 <= L['ids'].size()[0] <= 64"
    tree.epilogue += [
        Leaf("lambda_guard", (), [text, "L['a'] is L['b']"]),
        Leaf("lambda_guard", (), [text]),
    ]
    assert conditions_of(tree).sizes == ["2 <= ids.size()[0] <= 64"]


def test_globals_and_torchs_state_are_neither() -> None:
    tree = root()
    below(tree, "G", {}, "globals_dict", Leaf("equals_match_guard", (1, ["..."])))
    tree.leaves.append(Leaf("global_state_guard", ()))
    assert conditions_of(tree) == conditions_of(root())
