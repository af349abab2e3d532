"""`float32-matmul-precision`: which layers multiply in bfloat16, for which processors, and how far off."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from hatch_precompile.backends.base import Variant
from hatch_precompile.backends.x86_64.levels import needed
from hatch_precompile.bundle.reader import entrypoints_of, find
from hatch_precompile.inductor import CompiledGraph, compile_graph
from hatch_precompile.runtime import runtime
from hatch_precompile.verify.parent import require_hits, run_samples
from tests.conftest import Site, build_entrypoints
from tests.support.graphs import OPERATORS
from tests.support.hardware import a_variant, about_x86
from tests.support.headers import settings_of_a_build

pytestmark = [
    pytest.mark.skipif(
        not torch.backends.mkldnn.is_available() or not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
        reason="oneDNN does not multiply bfloat16 on this processor",
    ),
    about_x86("layers made bfloat16,"),
]

HERE = tuple(name for name, value in torch.cpu.get_capabilities().items() if value is True)
# Without AMX, whose products test_panels.py has: what is looked at here is what oneDNN multiplies.
_PLAIN = {name for name in HERE if not name.startswith("amx")} - {"avx512_bf16"}
WITHOUT = a_variant("without", _PLAIN)
WITH = a_variant("with", (*_PLAIN, "avx512_bf16"))


class Block(nn.Module):
    """Layers with what is fused into them, one that is too small, and a product of two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(128, 512), nn.Linear(512, 128, bias=False)
        self.small = nn.Linear(128, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.narrow(F.gelu(self.wide(x))) + x
        return y, self.small(y), y @ y.t()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            layer(x).view(2, 128, 2, 32).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        return F.scaled_dot_product_attention(query, key, value)


class Compiled:
    """What compile_graph makes of a model: its graph, its answer, and what oneDNN multiplied for that."""

    def __init__(
        self,
        capfd: pytest.CaptureFixture[str],
        model: nn.Module,
        x: torch.Tensor,
        *,
        precision: str = "medium",
        fixed: bool = True,
        variants: Sequence[Variant] = (WITH,),
        dynamic: bool = False,
        train: bool = False,
    ) -> None:
        graphs: list[CompiledGraph] = []

        def backend(gm: Any, example_inputs: Any) -> Any:
            call, graph = compile_graph(
                gm, example_inputs, variants, OPERATORS, fixed_weights=fixed, matmul_precision=precision
            )
            graphs.append(graph)
            return call

        sys.modules[OPERATORS] = runtime("graphs.callers")
        torch._dynamo.reset()
        call = torch.compile(model, backend=backend, fullgraph=True, dynamic=dynamic)
        with torch.set_grad_enabled(train), settings_of_a_build():
            self.answer = call(x)
            capfd.readouterr()
            with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
                call(x)
                if train:
                    self.answer.sum().backward()
        said = capfd.readouterr().out.splitlines()
        ran = [line for line in said if re.search(",exec,cpu,(inner_product|matmul),", line)]
        # The type of the weights, what is fused, and the sizes.
        self.types = [re.search("wei[:_]([a-z0-9]+)", line)[1] for line in ran]  # type: ignore[index]
        self.ran = ran
        (self.graph,) = graphs
        assert not self.graph.obstacle and not self.graph.record.why_python
        self.steps = {
            variant: [name for name, *_ in prepack.steps]
            for variant, prepack in self.graph.prepack_graphs.items()
        }


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Of the root mean square of what is expected, that of the difference."""
    found, expected = found.detach(), expected.detach()
    return float((found - expected).square().mean().sqrt() / expected.square().mean().sqrt())


def require_narrow(found: Any, expected: Any) -> None:
    """As near as bfloat16, and no nearer."""
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        assert 1e-4 < apart(one, other) < 1e-2


@pytest.fixture
def model() -> Block:
    torch.manual_seed(0)
    return Block().eval()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(160, 128, generator=torch.Generator().manual_seed(1))


def eager(model: nn.Module, x: torch.Tensor) -> Any:
    with torch.no_grad():
        return model(x)


def test_fixed_weights_are_kept_in_bfloat16(
    capfd: pytest.CaptureFixture[str], model: Block, x: torch.Tensor
) -> None:
    found = Compiled(capfd, model, x)
    assert found.steps == {"with": ["aten._to_copy.default", "mkldnn._reorder_linear_weight.default"] * 2}
    assert found.types == ["bf16"] * 3
    assert "eltwise_gelu_erf" in found.ran[0]
    assert "attr-post-ops" not in found.ran[1], "what is added is float32, and stays it"
    require_narrow(found.answer, eager(model, x))


def test_weights_that_are_read_are_rounded_where_there_are_many_rows(
    capfd: pytest.CaptureFixture[str], model: Block, x: torch.Tensor
) -> None:
    found = Compiled(capfd, model, x, fixed=False)
    assert found.steps == {}
    assert found.types == ["bf16"] * 3
    require_narrow(found.answer, eager(model, x))
    few = Compiled(capfd, model, x[:32], fixed=False)
    assert "bf16" not in few.types
    torch.testing.assert_close(few.answer, eager(model, x[:32]), rtol=1e-4, atol=1e-4)


def test_any_number_of_rows_is_enough_for_fixed_weights_alone(
    capfd: pytest.CaptureFixture[str], model: Block, x: torch.Tensor
) -> None:
    found = Compiled(capfd, model, x, dynamic=True)
    assert found.types[:2] == ["bf16"] * 2
    assert "bf16" not in Compiled(capfd, model, x, dynamic=True, fixed=False).types


def test_query_key_and_value_stay_one_layer(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, x = Attention().eval(), torch.randn(2, 128, 64)
    found = Compiled(capfd, model, x)
    assert [each for each in found.types if each == "bf16"] == ["bf16"]
    assert any("mb256ic64oc192" in line for line in found.ran)
    require_narrow([found.answer], [eager(model, x)])


def test_a_variant_without_bfloat16_stays_as_it_is(
    capfd: pytest.CaptureFixture[str], model: Block, x: torch.Tensor
) -> None:
    found = Compiled(capfd, model, x, variants=(WITHOUT, WITH))  # the first one is called
    assert "bf16" not in found.types
    torch.testing.assert_close(found.answer, eager(model, x), rtol=1e-4, atol=1e-4)
    assert set(found.graph.libraries) == {"without", "with"}
    assert found.graph.record.rounded == {"with": "bfloat16"}
    assert found.steps == {
        "without": ["mkldnn._reorder_linear_weight.default"] * 2,
        "with": ["aten._to_copy.default", "mkldnn._reorder_linear_weight.default"] * 2,
    }


def test_high_changes_nothing(capfd: pytest.CaptureFixture[str], model: Block, x: torch.Tensor) -> None:
    found = Compiled(capfd, model, x, precision="high")
    assert "bf16" not in found.types
    torch.testing.assert_close(found.answer, eager(model, x), rtol=1e-4, atol=1e-4)


def test_a_model_that_is_bfloat16_has_its_weights_packed(
    capfd: pytest.CaptureFixture[str], model: Block, x: torch.Tensor
) -> None:
    model, x = model.bfloat16(), x.bfloat16()
    found = Compiled(capfd, model, x, precision="highest", variants=(WITH, WITHOUT))
    assert found.steps == {"with": ["mkldnn._reorder_linear_weight.default"] * 2}
    assert found.types == ["bf16"] * len(found.types) and "eltwise_gelu_erf" in found.ran[0]
    for one, other in zip(found.answer, eager(model, x), strict=True):
        assert one.dtype == torch.bfloat16
        assert apart(one.float(), other.float()) < 1e-2


@pytest.mark.parametrize("bias", [True, False])
def test_so_have_its_convolutions_with_their_norms_folded(
    capfd: pytest.CaptureFixture[str], *, bias: bool
) -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(16)
    for each in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
        assert each is not None
        each.data.uniform_(0.5, 2)
    model = (
        nn.Sequential(nn.Conv2d(8, 16, 3, bias=bias), norm, nn.ReLU(), nn.Conv2d(16, 8, 3)).eval().bfloat16()
    )
    x = torch.randn(4, 8, 32, 32, dtype=torch.bfloat16)
    found = Compiled(capfd, model, x, precision="highest")
    assert found.steps["with"].count("mkldnn._reorder_convolution_weight.default") == 2
    root = "aten.rsqrt.default" if torch.__version__ >= (2, 14) else "aten.sqrt.default"
    assert root in found.steps["with"]
    assert found.answer.dtype == torch.bfloat16
    exact = eager(copy.deepcopy(model).float(), x.float())
    assert apart(found.answer.float(), exact) < 1e-2
    assert apart(found.answer.float(), eager(model, x).float()) < 1e-2
    # What a variant packs has the strides of what another does not.
    others = Compiled(capfd, model, x, precision="highest", variants=(WITH, WITHOUT)).steps
    reorder = "mkldnn._reorder_convolution_weight.default"
    assert [others.get(name, []).count(reorder) for name in ("with", "without")] == [2, 0]


def test_gradients_are_multiplied_so_too(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(128, 256), nn.Tanh(), nn.Linear(256, 128)), torch.randn(96, 128)
    model(x).sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    found = Compiled(capfd, model, x, train=True)
    assert found.types.count("bf16") >= 4
    require_narrow([found.answer], [eager(model, x)])
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        assert parameter.grad is not None and parameter.grad.dtype == torch.float32
        assert apart(parameter.grad, gradient) < 1e-2


def test_convolutions_are_no_products_of_matrices(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, x = nn.Conv2d(8, 16, 3).eval(), torch.randn(4, 8, 32, 32)
    found = Compiled(capfd, model, x)
    torch.testing.assert_close(found.answer, eager(model, x), rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def said() -> list[str]:
    return []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> Site:
    table = {
        "target": "steady.model:Narrow",
        "instance": "steady.model:narrow",
        "samples": "steady.model:samples",
        "weights": "fixed",
        "float32-matmul-precision": "medium",
    }
    variants = [name for name in ("x86-64-v4", "x86-64-v4-bf16") if set(HERE) >= set(needed(name))]
    work = tmp_path_factory.mktemp("precision") / "work"
    return build_entrypoints(
        "steady", [table], Path(__file__).parent / "src", work, said.append, variants=variants
    )


needs_bfloat16 = pytest.mark.skipif("avx512_bf16" not in HERE, reason="this processor has no bfloat16")


@needs_bfloat16
def test_a_wheel_multiplies_so_where_the_processor_does(site: Site) -> None:
    seen = site.play("precision.on_a_processor", lacking=[])
    assert (seen["variant"], seen["rounded"], seen["hits"]) == ("x86-64-v4-bf16", "bfloat16", 2)
    assert all(1e-4 < hidden < 1e-2 for hidden, _ in seen["far"])
    assert all(image < 1e-5 for _, image in seen["far"]), "a convolution"
    without = site.play("precision.on_a_processor", lacking=["avx512_bf16"])
    assert (without["variant"], without["rounded"], without["hits"]) == ("x86-64-v4", None, 2)
    assert all(far < 1e-5 for each in without["far"] for far in each)
    assert 0 < seen["kept"][0] == seen["kept"][1] < 0.6 * without["kept"][0]


@needs_bfloat16
def test_a_wheel_is_verified_as_near_as_its_precision(
    site: Site, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    differences = {
        variant: float(difference)
        for variant, difference in re.findall(r"verify (\S+): .*difference from eager (\S+)", "\n".join(said))
    }
    assert differences["x86-64-v4"] < 1e-5 < 1e-4 < differences["x86-64-v4-bf16"]
    monkeypatch.syspath_prepend(site.directory)
    ((_, entrypoint),) = entrypoints_of(find("steady"), "narrow")
    results = run_samples(
        entrypoint,
        "steady",
        paths=[site.directory],
        work=tmp_path / "verify",
        timeout=60,
        on_event=lambda event: None,
    )
    require_hits(entrypoint, results)
    assert all(result.difference > 1e-4 for result in results if result.difference is not None)


def test_a_build_says_where_it_has_no_effect(tmp_path: Path) -> None:
    table = {
        "target": "broken.models:Fine",
        "samples": "broken.models:one",
        "float32-matmul-precision": "medium",
    }
    said: list[str] = []
    sources = Path(__file__).parents[1] / "broken"
    build_entrypoints("broken", [table], sources, tmp_path / "work", said.append, variants=["x86-64"])
    (line,) = [line for line in said if "no effect" in line]
    assert line == (
        'fine: float32-matmul-precision = "medium" has no effect: no variant makes layers '
        'bfloat16; "x86-64-v4-bf16" does'
    )
