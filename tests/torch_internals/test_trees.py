"""What containers, tensor subclasses and torchao's weights say of themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo
import torch._dynamo.config
import torch._functorch.config
import torch._inductor.config
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

from hatch_precompile.tracing import pytrees, torchao


class TestTrees:
    """What verification looks into answers with."""

    def test_a_container_that_torch_knows_is_taken_apart_one_level_deep(self) -> None:
        assert pytrees.children({"a": [1, 2], "b": None}) == [("['a']", [1, 2]), ("['b']", None)]
        assert pytrees.children([(1,), 2]) == [("[0]", (1,)), ("[1]", 2)]
        values = torch.ones(2).max(dim=0)
        assert [child for _, child in pytrees.children(values) or ()] == list(values)
        assert pytrees.children([]) == []

    @pytest.mark.parametrize("leaf", [5, "text", None, torch.ones(1), object()])
    def test_anything_else_is_not(self, leaf: Any) -> None:
        assert pytrees.children(leaf) is None

    def test_tensors_that_wrap_others_say_which(self) -> None:
        from torch.testing._internal.two_tensor import TwoTensor

        found = pytrees.inner_tensors(TwoTensor(torch.ones(1), torch.ones(1)))
        assert found is not None
        assert found[0] == ["a", "b"]
        assert pytrees.inner_tensors(torch.ones(1)) is None

    def test_a_subclass_is_seen_without_what_it_overrides(self) -> None:
        class Loud(torch.Tensor):
            @classmethod
            def __torch_function__(cls, *_: Any, **__: Any) -> Any:
                raise AssertionError("called")

        loud = torch.Tensor._make_subclass(Loud, torch.ones(1))
        assert type(pytrees.plain(loud)) is torch.Tensor
        assert type(pytrees.plain(torch.nn.Parameter(torch.ones(1)))) is torch.Tensor
        assert pytrees.plain(torch.eye(2).to_sparse()).is_sparse

    def test_what_torchaos_tensors_say_is_in_their_attributes(self) -> None:
        weight = quantized()
        found = torchao.flattened_by_names(weight)
        assert found is not None
        assert found.tensors["zero_point"]
        assert not found.tensors["act_pre_scale"]
        names, said = weight.__tensor_flatten__()
        assert names == ["qdata", "scale", "zero_point"]
        assert {**found.attributes, "dtype": torch.float32} == said

    @pytest.mark.parametrize(
        "changes",
        [
            {"__tensor_flatten__": lambda self: (["qdata"], {})},
            {"dtype": torch.float64},
            {"__torch_function__": classmethod(lambda cls, *_: None)},
            {"__metadata_guard__": classmethod(lambda cls, *_: True)},
        ],
        ids=lambda changes: next(iter(changes)),
    )
    def test_a_class_that_says_otherwise_is_asked(self, changes: dict[str, Any]) -> None:
        weight = quantized()
        weight.__class__ = type("Own", (type(weight),), changes)
        assert torchao.flattened_by_names(weight) is None

    def test_so_is_one_that_overrides_what_torch_knows(self) -> None:
        weight = quantized()
        own = type("Own", (type(weight),), {})
        own._TORCH_FN_TABLE[own] = {torch.Tensor.dtype.__get__: lambda *_: torch.float64}
        weight.__class__ = own
        assert weight.dtype == torch.float64
        assert torchao.flattened_by_names(weight) is None
        assert torchao.flattened_by_names(torch.ones(1)) is None


def quantized() -> Any:
    layer = torch.nn.Sequential(torch.nn.Linear(8, 8))
    quantize_(layer, Int8DynamicActivationInt8WeightConfig())
    return layer[0].weight
