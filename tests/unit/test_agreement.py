"""Whether an answer of the bundle agrees with eager code's: what counts, what does not, what is said."""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime
import enum
import math
from collections.abc import Callable
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import register_pytree_node

from hatch_precompile.errors import VerifyError
from hatch_precompile.verify.agreement import Agreement, compare, run_backward
from hatch_precompile.verify.gradient_noise import noise_of_gradients

T = torch.tensor
ULP = 1.0000001


def agree(ours: Any, theirs: Any, **how: Any) -> Agreement:
    return compare({"output": ours}, {"output": theirs}, "sample 1/1", **how)


def disagreement(ours: Any, theirs: Any, **how: Any) -> str:
    with pytest.raises(VerifyError) as caught:
        agree(ours, theirs, **how)
    assert str(caught.value).startswith("sample 1/1: output")
    return str(caught.value).removeprefix("sample 1/1: ")


@dataclasses.dataclass
class Record:
    hidden: Any
    more: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    hidden: Any


class Pair(collections.namedtuple("Pair", "left right")):
    pass


class Registered:
    """A container that torch knows, as transformers makes its outputs known."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


register_pytree_node(Registered, lambda value: (list(value.parts), None), lambda parts, _: Registered(*parts))


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Subclass(torch.Tensor):
    pass


class Cache:
    """Equal to nothing but itself, with tensors inside, as a cache of keys and values is."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self.layers = [SimpleNamespace(keys=tensor) for tensor in tensors]
        self.me = self


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self.x == other.x

    __hash__ = None  # type: ignore[assignment]


class Contrary:
    def __eq__(self, other: object) -> bool:
        raise TypeError("not today")

    __hash__ = None  # type: ignore[assignment]


def jagged(*values: float) -> torch.Tensor:
    parts = [torch.full((2,), values[0]), torch.full((3,), values[-1])]
    return torch.nested.nested_tensor(parts, layout=torch.jagged)


# Each makes a value; given another number, it makes one that is not to be taken for the first.
MAKERS: dict[str, Callable[[float], Any]] = {
    "tensor": lambda v: T([1.0, v]),
    "double": lambda v: T([1.0, v], dtype=torch.float64),
    "half": lambda v: T([1.0, v], dtype=torch.bfloat16),
    "float8": lambda v: T([1.0, v]).to(torch.float8_e4m3fn),
    "integers": lambda v: T([1, int(v)]),
    "booleans": lambda v: T([True, v > 2.5]),
    "complex tensor": lambda v: T([1j * v]),
    "parameter": lambda v: torch.nn.Parameter(T([v])),
    "subclass": lambda v: T([v]).as_subclass(Subclass),
    "sparse": lambda v: T([[0.0, v], [0.0, 1.0]]).to_sparse(),
    "sparse csr": lambda v: T([[0.0, v], [0.0, 1.0]]).to_sparse_csr(),
    "jagged": lambda v: jagged(1.0, v),
    "nested": lambda v: torch.nested.nested_tensor([T([1.0]), T([v, v])]),
    "quantized": lambda v: torch.quantize_per_tensor(T([v]), 0.1, 0, torch.qint8),
    "float": lambda v: v,
    "complex": lambda v: 1 + 1j * v,
    "int": int,
    "str": str,
    "bytes": lambda v: str(v).encode(),
    "bytearray": lambda v: bytearray(str(v).encode()),
    "range": lambda v: range(int(v)),
    "set": lambda v: {1.0, v},
    "enum": lambda v: Colour(int(v) - 1),
    "size": lambda v: torch.Size([int(v)]),
    "dtype": lambda v: torch.float32 if v > 2.5 else torch.float16,
    "date": lambda v: datetime.date(2020, 1, int(v)),
    "object with ==": lambda v: Point(int(v)),
    "array": lambda v: np.array([1.0, v]),
    "float32 array": lambda v: np.array([1.0, v], dtype=np.float32)[::-1],
    "big-endian array": lambda v: np.array([1.0, v], dtype=">f4"),
    "long double array": lambda v: np.array([1.0, v], dtype=np.longdouble),
    "complex array": lambda v: np.array([1j * v]),
    "integer array": lambda v: np.array([1, int(v)], dtype=np.uint16),
    "string array": lambda v: np.array(["a", str(v)]),
    "object array": lambda v: np.array([None, Point(int(v))], dtype=object),
    "structured array": lambda v: np.array([(1, v)], dtype=[("a", int), ("b", float)]),
    "dates": lambda v: np.array(["NaT", f"2020-01-0{int(v)}"], dtype="M8[D]"),
    "numpy scalar": np.float32,
    "numpy integer": np.int64,
    "list": lambda v: [T([1.0]), T([v])],
    "tuple in dict": lambda v: {"a": (1, T([v]))},
    "named tuple": lambda v: Pair(1, T([v])),
    "deque": lambda v: collections.deque([T([v])]),
    "ordered dict": lambda v: collections.OrderedDict(a=T([v])),
    "mapping": lambda v: MappingProxyType({"a": T([v])}),
    "user dict": lambda v: collections.UserDict({"a": v}),
    "return type": lambda v: T([[v]]).max(dim=0),
    "dataclass": lambda v: Record(1, [Frozen(T([v]))]),
    "registered": lambda v: Registered(T([1.0]), T([v])),
    "dataclass in list": lambda v: [[Frozen(v)]],
    "object": lambda v: Cache(T([1.0]), T([v])),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
class TestKinds:
    def test_what_is_equal_agrees(self, make: Callable[[float], Any]) -> None:
        assert agree(make(2.0), make(2.0)).largest == 0.0

    def test_what_is_not_does_not(self, make: Callable[[float], Any]) -> None:
        assert disagreement(make(3.0), make(2.0))

    def test_where_values_do_not_count_it_agrees(self, make: Callable[[float], Any]) -> None:
        agree(make(3.0), make(2.0), values=False)

    def test_another_kind_does_not_agree(self, make: Callable[[float], Any]) -> None:
        text = disagreement(make(2.0), None)
        assert text == f"output is a {type(make(2.0)).__qualname__}, with eager a NoneType"
        assert disagreement([make(2.0)], [make(2.0)] * 2).startswith(
            "output has 1 items, with eager 2: number 2 is nothing, with eager [1]"
        )


class TestTolerances:
    @pytest.mark.parametrize(
        "make",
        [
            lambda v: v,
            lambda v: 1j * v,
            T,
            np.float32,
            lambda v: [Frozen({"a": v})],
        ],
    )
    def test_one_step_of_a_float32_is_no_difference(self, make: Callable[[float], Any]) -> None:
        assert 0 < agree(make(ULP), make(1.0)).largest < 2e-7

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("make", [lambda v: v, lambda v: T([v]), lambda v: np.array([v]), np.float64])
    def test_what_is_no_number_agrees_with_itself_alone(
        self, make: Callable[[float], Any], value: float
    ) -> None:
        assert agree(make(value), make(value)).largest == 0.0
        assert disagreement(make(value), make(1.0))

    def test_the_largest_difference_is_told(self) -> None:
        found = agree([T([1.0]), T([2.0, 3.0])], [T([1.0]), T([2.0, 3.0 + 3e-6])])
        assert found.largest == pytest.approx(3e-6, rel=0.2)
        assert agree(T([1j]), T([1j + 1e-6])).largest == pytest.approx(1e-6, rel=0.2)

    @pytest.mark.parametrize(
        ("dtype", "near"), [(torch.float32, 1e-5), (torch.float16, 1e-3), (torch.bfloat16, 1e-2)], ids=str
    )
    def test_a_large_tensor_is_also_compared_as_a_whole(self, dtype: torch.dtype, near: float) -> None:
        noise = torch.Generator().manual_seed(0)
        exact = torch.randn(64, 64, generator=noise).double()
        error = torch.randn(64, 64, generator=noise).double()
        exact[0, 0] = 0.0  # near zero nothing is near by its own size
        agree((exact + near * error).to(dtype), exact.to(dtype))
        said = disagreement((exact + 20 * near * error).to(dtype), exact.to(dtype))
        assert "Of the root mean square of the values, that of the difference is " in said
        one = exact.clone()
        one[3, 4] += 100 * near
        assert "of the largest value, the largest difference " in disagreement(one.to(dtype), exact.to(dtype))

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_few_elements_of_half_precision_are_too(self, dtype: torch.dtype) -> None:
        """One near zero is as far off as the others; and what is far off for all of them is not near."""
        exact = T([1.5, -2.25, 0.0625, 0.75]).to(dtype)
        step = T([0, 0, torch.finfo(dtype).eps, 0], dtype=dtype)
        assert agree(exact + step, exact).largest > 0
        assert "differs from eager" in disagreement(exact + 64 * step, exact)
        assert "differs from eager" in disagreement((exact + step)[2:3], exact[2:3])

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
    def test_large_numbers_of_a_mask_hide_nothing(self, dtype: torch.dtype) -> None:
        noise = torch.Generator().manual_seed(0)
        exact = torch.randn(64, 64, generator=noise)
        mask = torch.where(torch.arange(64) % 4 == 0, torch.finfo(dtype).min, 0.0)
        other = torch.randn(64, 64, generator=noise)
        assert "root mean square" in disagreement((other + mask).to(dtype), (exact + mask).to(dtype))
        agree((exact + 1e-6 * other + mask).to(dtype), (exact + mask).to(dtype))
        moved = (exact + mask).to(dtype)
        moved[3, 4] /= 2
        disagreement(moved, (exact + mask).to(dtype))

    def test_float32_of_rounded_factors_is_as_near_as_those(self) -> None:
        noise = torch.Generator().manual_seed(0)
        exact, error = torch.randn(64, 64, generator=noise), torch.randn(64, 64, generator=noise)
        near, far = exact + 1e-2 * error, exact + 1e-1 * error
        assert agree(near, exact, rounded="bfloat16").largest > 1e-2
        assert "float32-matmul-precision" not in disagreement(near, exact)
        assert 'float32-matmul-precision = "medium"' in disagreement(far, exact, rounded="bfloat16")
        agree(exact + 4e-2 * error, exact, rounded="int8")
        assert "to int8" in disagreement(far, exact, rounded="int8")
        # Of a few, one may be much smaller than what it is a sum of.
        agree(exact[0, :2] * 1.05, exact[0, :2], rounded="bfloat16")
        agree(float(exact[0, 0]) * 1.05, float(exact[0, 0]), rounded="bfloat16")
        disagreement(exact[0, :2] * 1.5, exact[0, :2], rounded="bfloat16")
        # What is not float32 is as near as ever.
        disagreement(near.double(), exact.double(), rounded="bfloat16")
        disagreement(T([1, 2]), T([1, 3]), rounded="bfloat16")

    def test_not_so_a_small_one_nor_what_is_no_number(self) -> None:
        exact = torch.linspace(-1.0, 1.0, 64)
        assert "root mean square" not in disagreement(exact + 1.5e-5, exact)
        exact = torch.linspace(-1.0, 1.0, 1024)
        for other in (math.nan, math.inf):
            broken = exact.clone()
            broken[7] = other
            disagreement(broken + 1e-6, exact)
            agree(broken, broken.clone())
        up, down = exact.clone(), exact.clone()
        up[7], down[7] = math.inf, -math.inf
        disagreement(up, down)

    @pytest.mark.parametrize("empty", [torch.empty(0, 3), np.empty((0, 3)), [], {}, (), set(), ""])
    def test_nothing_agrees_with_nothing(self, empty: Any) -> None:
        assert agree(empty, type(empty)(empty) if not hasattr(empty, "shape") else empty + 0) == Agreement()


class TestTensors:
    @pytest.mark.parametrize(
        ("ours", "theirs", "text"),
        [
            (torch.ones(2), torch.ones(3), "output has shape (2,), with eager (3,)"),
            (
                torch.ones(2),
                torch.ones(2).double(),
                "output has dtype torch.float32, with eager torch.float64",
            ),
            (torch.ones(2), torch.ones(2, device="meta"), "output has device cpu, with eager meta"),
            (
                torch.eye(2),
                torch.eye(2).to_sparse(),
                "output has layout torch.strided, with eager torch.sparse_coo",
            ),
            (
                torch.ones(2),
                torch.ones(2, requires_grad=True),
                "output needs no gradient, with eager it does",
            ),
            (
                torch.ones(2),
                torch.nn.Parameter(torch.ones(2)),
                "output is a Tensor, with eager a Parameter",
            ),
            (
                np.ones(2),
                np.ones(2, dtype=np.float32),
                "output has dtype float64, with eager float32",
            ),
            (np.ones(2), np.ones((2, 1)), "output has shape (2,), with eager (2, 1)"),
            (1, True, "output is a int, with eager a bool"),
            (1, 1.0, "output is a int, with eager a float"),
            ({"a": 1}, {"b": 1}, "output has 1 items, with eager 1: number 1 is ['a'], with eager ['b']"),
        ],
    )
    @pytest.mark.parametrize("values", [True, False])
    def test_the_difference_is_a_sentence(self, ours: Any, theirs: Any, text: str, values: bool) -> None:
        assert disagreement(ours, theirs, values=values) == text

    def test_a_value_within_an_object_is_one(self) -> None:
        ours, theirs = Frozen([1, 2]), Frozen([1, 3])
        assert disagreement(ours, theirs, values=True) == "output.hidden[1] is 2, with eager 3"
        agree(ours, theirs, values=False)

    def test_of_values_it_is_what_torch_testing_says(self) -> None:
        text = disagreement({"a": T([1.0, 2.0])}, {"a": T([1.0, 4.0])})
        assert text.startswith("output['a'] differs from eager: Tensor-likes are not close!")
        assert "Mismatched elements: 1 / 2" in text

    def test_other_strides_are_said_and_agree(self) -> None:
        found = agree(torch.ones(2, 3), torch.ones(3, 2).t())
        assert found.notes == ["output has strides (3, 1), with eager (1, 2)"]
        # Where no element is elsewhere for it, they are the same.
        assert agree(torch.ones(1, 3).as_strided((1, 3), (7, 1)), torch.ones(1, 3)).notes == []

    def test_an_uncoalesced_tensor_agrees_with_its_sum(self) -> None:
        parts = torch.sparse_coo_tensor(T([[0, 0]]), T([1.0, 2.0]), (2,))
        assert agree(parts, torch.sparse_coo_tensor(T([[0]]), T([3.0]), (2,))).notes == []

    def test_a_tensor_without_values_is_said(self) -> None:
        found = agree([torch.ones(2, device="meta")], [torch.ones(2, device="meta")])
        assert found.notes == ["output[0] is on the meta device and has no values to compare"]

    def test_inside_tensors_that_wrap_others(self) -> None:
        from torch.testing._internal.two_tensor import TwoTensor

        assert agree(TwoTensor(T([1.0]), T([2.0])), TwoTensor(T([1.0]), T([2.0]))).notes == []
        text = disagreement(TwoTensor(T([1.0]), T([2.0])), TwoTensor(T([1.0]), T([3.0])))
        assert text.startswith("output.b differs from eager")


class TestNotCompared:
    def test_an_object_is_said_with_its_type_and_place(self) -> None:
        found = agree({"a": [object()]}, {"a": [object()]})
        assert found.notes == ["output['a'][0] is a object, which was not compared with eager"]

    def test_one_that_holds_tensors_has_those_compared(self) -> None:
        found = agree(Cache(T([1.0])), Cache(T([1.0])))
        assert found.notes == ["output is a Cache, of which only the tensors were compared with eager"]
        text = disagreement(Cache(T([1.0])), Cache(T([2.0])))
        assert text.startswith("output.layers[0].keys differs from eager: ")
        text = disagreement(Cache(T([1.0])), Cache())
        assert "holds 1 tensors, with eager 0: number 1 is output.layers[0].keys, with eager nothing" in text

    def test_the_same_object_is_no_news(self) -> None:
        for same in (object(), len, math, Cache(T([1.0])), torch.nn.Linear):
            assert agree(same, same) == Agreement()

    def test_one_whose_comparison_raises_is_said(self) -> None:
        (note,) = agree(Contrary(), Contrary()).notes
        assert note == "output is a Contrary, which was not compared: its == raised TypeError: not today"

    def test_generators_and_functions_are_said(self) -> None:
        found = agree([(x for x in "a"), lambda: 1], [(x for x in "a"), lambda: 1])
        assert [note.partition(",")[0] for note in found.notes] == [
            "output[0] is a generator",
            "output[1] is a function",
        ]

    def test_a_class_of_each_call_is_the_same_kind(self) -> None:
        def make(value: float) -> Any:
            return collections.namedtuple("Local", "x", module="m")(T([value]))

        def local(value: float) -> Any:
            @dataclasses.dataclass
            class Local:
                x: Any

            return Local(T([value]))

        assert agree(local(1.0), local(1.0)).notes == []
        assert disagreement(local(1.0), local(2.0)).startswith("output.x differs")


def test_transformers_outputs_are_looked_into() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")

    def output(value: float) -> Any:
        return outputs.BaseModelOutput(last_hidden_state=T([1.0]), hidden_states=(T([value]),))

    assert agree(output(1.0), output(1.0)) == Agreement()
    assert disagreement(output(2.0), output(1.0)).startswith("output['hidden_states'][0] differs from eager")


class TestBackward:
    def test_from_every_output_that_needs_a_gradient(self) -> None:
        x = torch.ones(3, requires_grad=True)
        run_backward({"a": [x * 2, Frozen(x * 3)], "b": x.detach(), "c": torch.complex(x, x), "d": 5})
        assert torch.equal(x.grad, torch.full((3,), 2.0 + 3.0 + 2.0))

    def test_without_any_nothing_happens(self) -> None:
        run_backward({"a": torch.ones(3), "b": None})


class TestGradients:
    """A parameter without a gradient has one of 0; and a gradient may be as far off as rounding brings it."""

    def test_zeros_are_as_good_as_none(self) -> None:
        found = gradients({"a": T([0.0]), "b": T([1.0])}, {"b": T([1.0])})
        assert found.notes == ["gradients['a'] is 0 with the wheel, and not there otherwise"]
        found = gradients({}, {"a": T([0.0])})
        assert found.notes == ["gradients['a'] is 0 with eager code, and not there otherwise"]

    def test_others_are_not(self) -> None:
        with pytest.raises(VerifyError, match=r"gradients\['a'\] is there only with the wheel, and is not 0"):
            gradients({"a": T([1.0])}, {})

    def test_what_rounding_brings_about_is_allowed(self) -> None:
        ours, theirs = {"a": T([1e-3]), "b": T([3e-3])}, {"a": T([-1e-3]), "b": T([0.0])}
        found = gradients(ours, theirs, {"a": 2.5e-3, "b": 4e-3})
        assert found.notes == ["the gradients of a and 1 more are as far from eager as rounding brings them"]

    @pytest.mark.parametrize("noise", [{}, {"a": 1.5e-3}])
    def test_more_than_that_is_not(self, noise: dict[str, float]) -> None:
        with pytest.raises(VerifyError, match=r"gradients\['a'\] differs from eager"):
            gradients({"a": T([1e-3])}, {"a": T([-1e-3])}, noise)

    def test_noise_is_that_of_the_numbers_that_were_added_up(self) -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
        x = torch.randn(2, 3, 8, 8)

        def run(module: torch.nn.Module) -> dict[str, torch.Tensor]:
            module.zero_grad()
            module(x).square().sum().backward()
            return {name: p.grad.clone() for name, p in module.named_parameters()}

        expected = run(copy.deepcopy(model))
        noise = noise_of_gradients(model, expected, copy.deepcopy, run)
        # The gradient of the bias is 0 but for rounding; that of the scale is not.
        assert float(expected["0.bias"].abs().max()) <= noise["0.bias"] < 1e-2
        assert noise["1.weight"] < 1e-2 * float(expected["1.weight"].abs().max())
        assert not model[0]._forward_hooks

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
    def test_noise_is_that_of_the_type(self, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)).to(dtype)
        x, seen = torch.randn(4, 8, dtype=dtype), set()

        def run(module: torch.nn.Module) -> dict[str, torch.Tensor]:
            answer = module(x)
            seen.add(answer.dtype)
            answer.square().sum().backward()
            return {name: p.grad.clone() for name, p in module.named_parameters()}

        noise = noise_of_gradients(model, run(copy.deepcopy(model)), copy.deepcopy, run)
        assert seen == {dtype}
        step = torch.finfo(dtype).eps
        assert 0.1 * step < noise["1.bias"] < 1e4 * step


def gradients(ours: Any, theirs: Any, noise: dict[str, float] | None = None) -> Agreement:
    return compare({"gradients": ours}, {"gradients": theirs}, "sample 1/1", noise=lambda: noise or {})


def test_few_elements_that_nobody_chose_are_judged_as_a_whole() -> None:
    eager = torch.tensor([1.0, -2.0, 3e-4, 0.5])
    ours = eager.clone()
    ours[2] = 3.2e-4
    with pytest.raises(VerifyError):
        compare({"output": ours}, {"output": eager}, "sample 1")
    compare({"output": ours}, {"output": eager}, "sample 1", few=True)
    with pytest.raises(VerifyError):
        compare({"output": eager * 1.2}, {"output": eager}, "sample 1", few=True)
