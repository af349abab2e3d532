"""What leaves a graph whose weights are fixed, and what is fused into what stays."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from hatch_precompile.inductor import CompiledGraph, compile_graph
from hatch_precompile.inductor.prepacking.steps import depends_on
from hatch_precompile.runtime import runtime
from tests.support.graphs import OPERATORS
from tests.support.hardware import a_variant, about_x86
from tests.support.headers import settings_of_a_build

pytestmark = [
    pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN"),
    about_x86("weights packed for oneDNN,"),
]


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(128, 512), nn.Linear(512, 128)
        self.small = nn.Linear(128, 2)
        self.places = nn.Parameter(torch.randn(32, 128))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.places * 2
        y: torch.Tensor = self.small(self.narrow(F.gelu(self.wide(x))) + x)
        return y


class Attention(nn.Module):
    """With fewer heads of keys and values than of queries; a layer of the same input beside them."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(64, 32 * heads, bias) for heads in (4, 2, 2))
        self.beside, self.out = nn.Linear(64, 128, bias), nn.Linear(128, 64, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = (layer(x).view(*x.shape[:-1], -1, 32) for layer in (self.query, self.key, self.value))
        query, key, value = (part.transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
        z: torch.Tensor = self.out(y.transpose(1, 2).flatten(2) * torch.sigmoid(self.beside(x)))
        return z


class Keeping(nn.Module):
    """Returns keys and values, as for a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.value = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(layer(x).view(3, 128, 2, 32).transpose(1, 2) for layer in (self.key, self.value))


class LookingAlike(nn.Module):
    """Two layers of one tensor that cannot be one: they see it as rows of other lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64, bias=False), nn.Linear(32, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = self.first(x).view(1024, 2, 32)
        return one.sum(0) + self.second(x.view(2048, 32)).view(2048, 2, 32).sum(0)


class Picture(nn.Module):
    """A block of a residual network."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.other = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        for norm in (self.norm, self.other):
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.other(self.second(F.relu(self.norm(self.first(x))))) + x)


class Counting(nn.Module):
    """Changes a buffer, and uses a weight in more than one way."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.layer = nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        y: torch.Tensor = self.layer(x) * self.calls + self.layer.weight.sum()
        return y


def compiled(model: nn.Module, *inputs: torch.Tensor) -> tuple[CompiledGraph, Any, list[str]]:
    """The graph of a call, the call's answer from it, and what oneDNN ran for that, in words."""
    graphs: list[CompiledGraph] = []
    # Layers of float32 are oneDNN's, then: our own are in test_panels.py.
    without_vectors = a_variant("here", ("sse", "sse2"))

    def backend(gm: Any, example_inputs: Any) -> Any:
        call, graph = compile_graph(gm, example_inputs, [without_vectors], OPERATORS, fixed_weights=True)
        graphs.append(graph)
        return call

    sys.modules[OPERATORS] = runtime("graphs.callers")
    torch._dynamo.reset()
    with torch.no_grad(), settings_of_a_build():
        answer = torch.compile(model.eval(), backend=backend, fullgraph=True)(*inputs)
    (graph,) = graphs
    assert not graph.obstacle and not graph.record.why_python
    (prepack,) = graph.prepack_graphs.values()
    return graph, answer, [name for name, *_ in prepack.steps]


def test_linear_layers_are_packed_and_what_follows_is_fused(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, x = Layers(), torch.randn(2, 32, 128)
    capfd.readouterr()
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
        graph, answer, steps = compiled(model, x)
    ran = [line for line in capfd.readouterr().out.splitlines() if ",exec,cpu,inner_product," in line]
    assert steps == ["aten.mul.Tensor", *["mkldnn._reorder_linear_weight.default"] * 2]
    assert len(graph.prepack_graphs["here"].outputs) == 3
    assert len(ran) == 2
    assert "eltwise_gelu_erf" in ran[0] and "binary_add" in ran[1]
    with torch.no_grad():
        torch.testing.assert_close(answer, model(x))


@pytest.mark.parametrize("bias", [True, False])
def test_query_key_and_value_are_one_layer(bias: bool, capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, x = Attention(bias), torch.randn(3, 128, 64)
    capfd.readouterr()
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
        _, answer, steps = compiled(model, x)
    ran = [line for line in capfd.readouterr().out.splitlines() if ",exec,cpu,inner_product," in line]
    assert steps.count("aten.cat.default") == (2 if bias else 1)
    # The three at once, what is beside them, and the last.
    assert steps.count("mkldnn._reorder_linear_weight.default") == 3
    assert sorted(line.split(",")[-2] for line in ran) == [
        "mb384ic128oc64",
        "mb384ic64oc128",
        "mb384ic64oc256",
    ]
    with torch.no_grad():
        torch.testing.assert_close(answer, model(x))


def test_what_a_call_returns_is_apart_and_has_the_strides_of_eager_code() -> None:
    torch.manual_seed(0)
    model, x = Keeping(), torch.randn(3, 128, 64)
    _, answer, _ = compiled(model, x)
    with torch.no_grad():
        expected = model(x)
    torch.testing.assert_close(answer, expected)
    assert [part.stride() for part in answer] == [part.stride() for part in expected]
    key, value = (part.untyped_storage() for part in answer)
    assert key.data_ptr() != value.data_ptr()


def test_layers_that_see_one_tensor_otherwise_are_not() -> None:
    torch.manual_seed(0)
    model, x = LookingAlike(), torch.randn(1024, 64)
    _, answer, steps = compiled(model, x)
    assert steps == ["mkldnn._reorder_linear_weight.default"] * 2
    with torch.no_grad():
        torch.testing.assert_close(answer, model(x), rtol=1e-4, atol=1e-4)


def test_batch_norms_are_folded_and_sums_are_fused(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, x = Picture(), torch.randn(2, 8, 6, 6)
    capfd.readouterr()
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
        _, answer, steps = compiled(model, x)
    ran = [line for line in capfd.readouterr().out.splitlines() if ",exec,cpu,convolution," in line]
    assert steps.count("mkldnn._reorder_convolution_weight.default") == 2
    assert len(ran) == 2
    assert not any("eltwise" in line for line in ran), "oneDNN's own relu loses NaN"
    assert "sum" in ran[1] or "binary_add" in ran[1]
    with torch.no_grad():
        torch.testing.assert_close(answer, model(x))


class Features(nn.Module):
    """Returns what convolutions give: one as it is and in parts, others seen in other ways."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 16, 3, stride=2)
        self.third = nn.Conv2d(16, 1, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = F.relu(self.first(x))
        second = self.second(first)
        third = self.third(second)
        windows = torch.as_strided(self.second(first + 1), (16, 3), (4, 1))
        return (
            *(first, first[:, 2:5], first.flatten(2).transpose(1, 2)),
            *(second.permute(0, 2, 3, 1), F.relu(second), second[0].squeeze(1)),
            *(third.squeeze(1), third.flatten(1), windows, x, x.transpose(1, 2), third.sum()),
            *(self.second(first + 2)[:, 3:7], *self.second(first + 3).split(8, 1)),
        )


@pytest.mark.parametrize("dynamic", [(), (0,), (0, 2, 3)])
def test_what_convolutions_give_lies_in_memory_as_in_eager_code(dynamic: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model, x = Features(), torch.randn(2, 8, 9, 12)
    for dimension in dynamic:
        torch._dynamo.mark_dynamic(x, dimension)
    _, answer, steps = compiled(model, x)
    packed = ("mkldnn._reorder_convolution_weight.default", "x86_64:in_panels")
    fewer = torch.__version__ < (2, 13) and len(dynamic) == 3  # before, one of them is left as it is
    assert sum(map(steps.count, packed)) == (2 if fewer else 3)
    with torch.no_grad():
        expected = model(x)
    torch.testing.assert_close(answer, expected)
    assert [part.stride() for part in answer] == [part.stride() for part in expected]
    assert [part.storage_offset() for part in answer] == [part.storage_offset() for part in expected]

    def shared(parts: tuple[torch.Tensor, ...]) -> list[bool]:
        places = [part.untyped_storage().data_ptr() for part in parts]
        return [one == other for one in places for other in places]

    assert shared(answer) == shared(expected)


class Returning(nn.Module):
    """Returns what depends on its weights alone, and uses views of them in two ways."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 256)
        self.table = nn.Parameter(torch.randn(4, 256))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        turned = self.layer.weight.t()
        table = (self.table * 2).exp()
        parts = (self.table * 3).chunk(2)
        others = (self.table[:1] * 5).squeeze(), (self.table * 7).diagonal(), (self.table * 9).unfold(1, 2, 2)
        added = parts[0].sum() + others[0].sum() + x
        return self.layer(x), table.t(), x @ turned + (turned * 3).sum(), table + 1, added, *parts, *others


def test_what_a_call_returns_is_the_callers_to_change() -> None:
    torch.manual_seed(0)
    model, x = Returning().eval(), torch.randn(64, 256)
    _, _, steps = compiled(model, x)
    assert "aten.exp.default" not in steps
    assert "mkldnn._reorder_linear_weight.default" in steps

    def backend(gm: Any, example_inputs: Any) -> Any:
        capabilities = tuple(name for name, value in torch.cpu.get_capabilities().items() if value is True)
        variants = [a_variant("here", capabilities)]
        return compile_graph(gm, example_inputs, variants, OPERATORS, fixed_weights=True)[0]

    torch._dynamo.reset()
    with torch.no_grad(), settings_of_a_build():
        call = torch.compile(model, backend=backend, fullgraph=True)
        for _ in range(2):
            found, expected = call(x), model(x)
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
                one.fill_(7)


class Contracting(nn.Module):
    """Products with weights as they lie, which some write as a permutation that moves nothing; and with a
    part of one."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.square = nn.Parameter(torch.randn(256, 128)), nn.Parameter(torch.randn(256, 256))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        whole = torch.tensordot(x, self.wide, dims=1), x @ self.square.permute(0, 1), x @ self.square.mT
        return *whole, x @ self.square[:, ::2], F.linear(x[:, :128].contiguous(), self.square[:, 1::2])


def test_a_layers_weight_may_lie_in_any_way(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, x = Contracting(), torch.randn(64, 256)
    capfd.readouterr()
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
        _, answer, steps = compiled(model, x)
    ran = [line for line in capfd.readouterr().out.splitlines() if ",exec,cpu,inner_product," in line]
    assert steps.count("mkldnn._reorder_linear_weight.default") == len(ran) == 5
    with torch.no_grad():
        torch.testing.assert_close(answer, model(x), atol=1e-3, rtol=1e-4)


class Computing(nn.Module):
    """Layers whose weights are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.weight = nn.Parameter(torch.randn(256, 1)), nn.Parameter(torch.randn(256, 256) / 16)
        self.up, self.down = nn.Parameter(torch.randn(256, 64) / 8), nn.Parameter(torch.randn(256, 64) / 8)
        self.picture, self.conv = nn.Parameter(torch.randn(1, 8, 16, 16)), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor, picture: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scaled = F.linear(x, self.weight * self.scale)
        picture = picture + self.conv(self.picture) * self.conv.bias[0]
        return F.linear(scaled, self.up @ self.down.t()), picture


def test_computed_weights_are_kept_once_and_as_layers_need_them() -> None:
    torch.manual_seed(0)
    model, inputs = Computing(), (torch.randn(64, 256), torch.randn(2, 8, 16, 16))
    graph, answer, steps = compiled(model, *inputs)
    (prepack,) = graph.prepack_graphs.values()
    assert steps.count("mkldnn._reorder_linear_weight.default") == 2
    assert {"aten.mm.default", "aten.convolution.default"} <= set(steps)
    assert len(prepack.outputs) == 3
    with torch.no_grad():
        torch.testing.assert_close(answer, model(*inputs), atol=1e-4, rtol=1e-4)


def test_a_graph_may_be_deep_and_branch_at_each_node() -> None:
    graph = torch.fx.Graph()
    weight, x = graph.placeholder("weight"), graph.placeholder("x")
    for start, is_fixed in ((weight, True), (x, False)):
        node = start
        node.meta["val"] = torch.zeros(2)
        for _ in range(3000):
            node = graph.call_function(torch.ops.aten.add.Tensor, (node, node))
            node.meta["val"] = torch.zeros(2)
        assert depends_on(node, {weight}) is is_fixed


def test_what_the_graph_changes_is_not_fixed() -> None:
    torch.manual_seed(0)
    model, x = Counting(), torch.randn(64, 256)
    _, answer, steps = compiled(model, x)
    assert steps == ["mkldnn._reorder_linear_weight.default", "aten.sum.default"]
    expected = Counting()
    expected.load_state_dict({**model.state_dict(), "calls": torch.zeros(1)})
    with torch.no_grad():
        torch.testing.assert_close(answer, expected(x))
    assert model.calls.item() == 1
