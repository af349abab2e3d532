"""Products of int8 matrices where torch has no fast ones: exact for any sizes, signs and threads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hatch_precompile.backends import variants_for_this_machine
from hatch_precompile.backends.x86_64.layers import integers
from hatch_precompile.backends.x86_64.levels import Instructions
from hatch_precompile.errors import ConfigError
from tests.support.graphs import load_graph, other_processors, save_graph
from tests.support.hardware import about_x86
from tests.support.layers import require_int_mm

pytestmark = about_x86("products of int8")

FUNCTION = b"aoti_torch_cpu_precompiled_int_mm"
OTHERS = b"aoti_torch_cpu__int_mm"


def requirements(name: str) -> tuple[str, ...]:
    try:
        (variant,) = variants_for_this_machine([name])
    except ConfigError as error:
        pytest.skip(str(error))
    return variant.requires


@pytest.fixture(params=["torch is slow", "torch is fast"])
def processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    fast = "true" if request.param == "torch is fast" else "false"
    text = f"#define PRECOMPILED_INT8_IS_FAST {fast}\n{integers._FUNCTION}"
    monkeypatch.setattr(integers, "_FUNCTION", text)
    return str(request.param)


def product(x, w):  # type: ignore[no-untyped-def]
    return torch._int_mm(x, w.t())


def numbers(m: int, k: int, n: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """With the largest and the smallest numbers among them, of which two products fill 16 bits."""
    info = torch.iinfo(dtype)
    x = torch.randint(info.min, info.max + 1, (m, k), dtype=dtype)
    w = torch.randint(-128, 128, (n, k), dtype=torch.int8)
    x[0], w[0] = info.max, -128
    x[-1], w[-1] = info.min, -128
    return {"x": x, "w": w}


def exact(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x.double() @ w.double().t()).int()


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
def test_any_count_of_rows_is_exact(tmp_path: Path, name: str, dtype: torch.dtype, processor: str) -> None:
    require_int_mm(dtype)
    torch.manual_seed(0)
    counts = {"one": 1, "few": 5, "block": 6, "more": 7, "part": 47, "parts": 97}
    several = {key: numbers(m, 300, 137, dtype)["x"] for key, m in counts.items()}
    w = numbers(1, 300, 137, dtype)["w"]

    def products(w, one, few, block, more, part, parts):  # type: ignore[no-untyped-def]
        return [torch._int_mm(x, w.t()) for x in (one, few, block, more, part, parts)]

    inputs = {"w": w, **several}
    save_graph(tmp_path, products, inputs, requires=requirements(name))
    for x, answer in zip(several.values(), load_graph(tmp_path)(**inputs), strict=True):
        assert torch.equal(answer, exact(x, w))


@pytest.mark.parametrize(("k", "n"), [(1, 1), (15, 2), (16, 33), (17, 3), (64, 64), (1027, 31), (4096, 65)])
def test_any_width_is_exact_for_any_threads(tmp_path: Path, k: int, n: int) -> None:
    torch.manual_seed(0)
    inputs = numbers(70, k, n, torch.int8)
    save_graph(tmp_path, product, inputs, requires=requirements("x86-64-v3"))
    call, threads = load_graph(tmp_path), torch.get_num_threads()
    try:
        for count in (1, 2, 7):
            torch.set_num_threads(count)
            (answer,) = call(**inputs)
            assert torch.equal(answer, exact(**inputs))
    finally:
        torch.set_num_threads(threads)


def test_a_weight_is_part_of_another(tmp_path: Path, processor: str) -> None:
    torch.manual_seed(0)
    inputs = numbers(19, 64, 32, torch.int8)
    w = torch.stack([inputs["w"], inputs["w"].flip(0), inputs["w"].flip(1), -inputs["w"] // 3])

    def parts(x, w):  # type: ignore[no-untyped-def]
        return torch._int_mm(x, w[1].t()), torch._int_mm(x, w[2].t())

    save_graph(tmp_path, parts, {"x": inputs["x"], "w": w}, requires=requirements("x86-64-v3"))
    answers = load_graph(tmp_path)(x=inputs["x"], w=w)
    for answer, part in zip(answers, w[1:3], strict=True):
        assert torch.equal(answer, exact(inputs["x"], part))


@pytest.mark.parametrize(("size", "is_little"), [(64, True), (2048, False)])
def test_verification_runs_the_other_one_too(
    tmp_path: Path, processor: str, monkeypatch: pytest.MonkeyPatch, size: int, is_little: bool
) -> None:
    """Of large products not torch's where that is slow: it would take minutes."""
    before, last = integers._FUNCTION.rsplit("*result = owner.release();", 1)
    text = f"{before}sums[0] = 12345; *result = owner.release();{last}"  # of our own
    monkeypatch.setattr(integers, "_FUNCTION", text)
    inputs = numbers(19, size, size, torch.int8)
    save_graph(tmp_path, product, inputs, requires=requirements("x86-64-v3"))
    others, call = other_processors(tmp_path), load_graph(tmp_path)

    def is_own() -> bool:
        (answer,) = call(**inputs)
        return int(answer[0, 0]) == 12345

    own_here = processor == "torch is slow"
    assert is_own() is own_here
    with others.deciding():
        assert is_own() is (not own_here or not is_little)
    assert is_own() is own_here


def test_rows_that_are_not_known(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = numbers(9, 64, 32, torch.int8)
    torch._dynamo.mark_dynamic(inputs["x"], 0)
    save_graph(tmp_path, product, inputs, requires=requirements("x86-64-v3"))
    call = load_graph(tmp_path)
    for rows in (2, 3, 30, 500):
        inputs = numbers(rows, 64, 32, torch.int8)
        assert torch.equal(call(**inputs, size=rows)[0], exact(**inputs))


def test_other_layouts_are_left_to_torch(tmp_path: Path) -> None:
    def untransposed(x, w):  # type: ignore[no-untyped-def]
        return torch._int_mm(x, w)

    inputs = numbers(9, 64, 64, torch.int8)
    save_graph(tmp_path, untransposed, inputs, requires=requirements("x86-64-v3"))
    library = next(tmp_path.glob("files/*.so")).read_bytes()
    assert FUNCTION not in library
    assert torch.equal(load_graph(tmp_path)(**inputs)[0], exact(inputs["x"], inputs["w"].t()))


@pytest.mark.parametrize("requires", [("sse", "sse2"), ("avx2", "fma3", "avx512_f", "avx512_vnni")])
def test_variants_without_avx2_or_with_vnni_are_left_to_torch(requires: tuple[str, ...]) -> None:
    with integers.int8_products_by_processor(Instructions(requires)):
        from torch._inductor.lowering import lowerings

        assert lowerings[torch.ops.aten._int_mm.default].__module__.startswith("torch.")
