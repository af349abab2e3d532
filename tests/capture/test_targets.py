"""What an entrypoint's configuration names is found, or the error says which key names what is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hatch_precompile.config import Dimension, Entrypoint
from hatch_precompile.entrypoints.call import mode_context
from hatch_precompile.entrypoints.dynamic import mark_dynamic
from hatch_precompile.entrypoints.finding import find_declared, find_target, require_own_frame
from hatch_precompile.entrypoints.samples import samples_of
from hatch_precompile.errors import CaptureError

MODELS = "broken.models"


@pytest.fixture(autouse=True, scope="module")
def sources() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(Path(__file__).parents[1] / "broken"))
    yield
    patch.undo()


def entrypoint(target: str = "fine", samples: str = "one", **keys: Any) -> Entrypoint:
    if "instance" in keys:
        keys["instance"] = f"{MODELS}:{keys['instance']}"
    return Entrypoint(target=f"{MODELS}:{target}", samples=f"{MODELS}:{samples}", name="it", **keys)


class TestTargets:
    def test_a_class_is_instantiated_and_in_eval_mode(self) -> None:
        target = find_target(entrypoint("Fine"))
        assert (target.kind, target.call.training) == ("module class", False)
        assert list(target.signature.parameters) == ["x", "scale"]

    def test_for_training_it_stays_in_training_mode(self) -> None:
        assert find_target(entrypoint("Fine", mode="train")).call.training is True

    def test_a_function_and_a_method_are_called_as_users_call_them(self) -> None:
        x = torch.ones(2)
        assert torch.equal(find_target(entrypoint("fine")).call(x), torch.sin(x) + 1)
        method = find_target(entrypoint("Plain.method"))
        assert (method.kind, list(method.signature.parameters)) == ("method", ["x"])
        assert torch.equal(method.call(x), x + 1)

    @pytest.mark.parametrize(
        ("keys", "text"),
        [
            ({"target": "Missing"}, f'target = "{MODELS}:Missing": {MODELS} has no Missing'),
            ({"target": "Fine.missing"}, f'target = "{MODELS}:Fine.missing": {MODELS} has no Fine.missing'),
            (
                {"target": "pretended"},
                "is an object of Pretended; a target is an nn.Module class, a method or a Python function",
            ),
            (
                {"target": "CONSTANT"},
                "is an object of int; a target is an nn.Module class, a method or a Python function",
            ),
            (
                {"target": "Plain"},
                f'no torch.nn.Module; name one of its methods, as in "{MODELS}:Plain.method"',
            ),
            ({"target": "Fine.forward"}, f'name the class, "{MODELS}:Fine", so that calling the module runs'),
            (
                {"target": "later"},
                'later" is asynchronous, which torch.compile does not take; name a function',
            ),
            ({"target": "piecewise"}, 'piecewise" is a generator, which torch.compile does not take'),
            ({"target": "Needy"}, "Needy() raised TypeError: Needy.__init__() missing 1 required positional"),
            ({"target": "Needy"}, 'name a callable that makes one with the key "instance"'),
            (
                {"target": "Fine", "instance": "make_none"},
                f'instance = "{MODELS}:make_none" raised RuntimeError: no',
            ),
            ({"target": "Fine", "instance": "make_other"}, "returned a Linear, not a Fine"),
            (
                {"target": "Fine", "instance": "missing"},
                f'instance = "{MODELS}:missing": {MODELS} has no missing',
            ),
            (
                {"target": "fine", "instance": "make_other"},
                f'instance is set, but the target "{MODELS}:fine" is a',
            ),
        ],
    )
    def test_what_cannot_be_a_target_is_a_sentence(self, keys: dict[str, Any], text: str) -> None:
        with pytest.raises(CaptureError) as caught:
            find_target(entrypoint(**keys))
        assert text in str(caught.value)

    @pytest.mark.parametrize("name", ["alias", "static", "of_class"])
    def test_a_method_is_a_function(self, name: str) -> None:
        given = entrypoint(f"Odd.{name}")
        require_own_frame(find_declared(given), given)

    @pytest.mark.parametrize(
        ("target", "text"),
        [
            ("Odd.wrapper", "wrapper of Odd is an object of Pretended"),
            ("Odd.wrapper_in_static", "wrapper_in_static of Odd is an object of Pretended"),
            ("Odd.cached", "cached of Odd is an object of _lru_cache_wrapper"),
            ("Odd.partial", "partial of Odd is an object of partialmethod"),
            ("Odd.dispatched", "dispatched of Odd is an object of singledispatchmethod"),
            ("Odd.looked_up", "looked_up of Odd is an object of property"),
            ("OddForward", "forward of OddForward is an object of property"),
        ],
    )
    def test_what_only_calls_a_function_is_none(self, target: str, text: str) -> None:
        given = entrypoint(target)
        with pytest.raises(CaptureError) as raised:
            find_declared(given)
        advice = "not a Python function; name the method or function that it calls"
        assert str(raised.value) == f'target = "{MODELS}:{target}": {text}, {advice}'

    def test_a_module_that_cannot_be_imported_is_named_with_the_reason(self) -> None:
        missing = Entrypoint(target="broken.nowhere:f", samples="broken.models:one", name="it")
        with pytest.raises(
            CaptureError, match=r"cannot import broken\.nowhere \(No module named 'broken\.nowhere'\)"
        ):
            find_target(missing)


class TestSamples:
    def test_the_three_forms(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import broken.models  # type: ignore[import-not-found]

        forms = [(1, 2), {"a": 3}, ((4,), {"b": 5}), ((6,), 7)]
        monkeypatch.setattr(broken.models, "one", lambda: iter(forms))
        found = [(sample.args, sample.kwargs) for sample in samples_of(entrypoint())]
        assert found == [((1, 2), {}), ((), {"a": 3}), ((4,), {"b": 5}), (((6,), 7), {})]

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("missing", f'samples = "{MODELS}:missing": {MODELS} has no missing'),
            ("none", f'samples = "{MODELS}:none" returned no sample'),
            ("failing", f'samples = "{MODELS}:failing" raised LookupError: no data'),
            (
                "bare",
                "sample 1 is a Tensor; a sample is a tuple (args), a dict (kwargs) or a pair (tuple, dict)",
            ),
            ("hang", "raised TypeError: hang() missing 1 required positional argument"),
        ],
    )
    def test_what_is_no_sample_is_a_sentence(self, name: str, text: str) -> None:
        with pytest.raises(CaptureError) as caught:
            list(samples_of(entrypoint(samples=name)))
        assert text in str(caught.value)


class TestDynamicShapes:
    @staticmethod
    def mark(
        shapes: dict[str, dict[int, Dimension]], samples: str = "one", target: str = "Fine"
    ) -> torch.Tensor:
        marked = entrypoint(target, samples, dynamic_shapes=shapes)
        (sample,) = samples_of(marked)
        mark_dynamic(marked, find_target(marked), sample)
        tensor: torch.Tensor = next(iter((*sample.args, *sample.kwargs.values())))
        return tensor

    def test_a_declared_dimension_is_marked(self) -> None:
        assert self.mark({"x": {0: Dimension("n", 2, 9)}})._dynamo_dynamic_indices == {0}

    @pytest.mark.parametrize("dimension", [Dimension("n", 7, None), Dimension("n", None, 5)])
    def test_one_whose_size_is_out_of_range_stays_static(self, dimension: Dimension) -> None:
        tensor = self.mark({"x": {0: dimension}})
        assert not hasattr(tensor, "_dynamo_dynamic_indices")
        assert tensor._dynamo_static_indices == {0}

    def test_an_argument_the_sample_leaves_out_is_no_error(self) -> None:
        assert not hasattr(self.mark({"scale": {0: Dimension("n")}}), "_dynamo_dynamic_indices")

    @pytest.mark.parametrize(
        ("keys", "text"),
        [
            (
                {"shapes": {"z": {0: Dimension("n")}}},
                f"dynamic-shapes.z: {MODELS}:Fine has no such argument; it has x, scale",
            ),
            ({"shapes": {"x": {1: Dimension("n")}}}, "dynamic-shapes.x.1: the sample has 1 dimensions"),
            ({"shapes": {}, "samples": "stranger"}, "a sample does not fit "),
        ],
    )
    def test_what_does_not_fit_is_a_sentence(self, keys: dict[str, Any], text: str) -> None:
        with pytest.raises(CaptureError) as caught:
            self.mark(**keys)
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("z", f"dynamic-numbers: {MODELS}:Fine has no argument z; it has x, scale"),
        ("x", "dynamic-numbers: x is a Tensor, not a number"),
    ],
)
def test_a_dynamic_number_is_an_argument_and_a_number(name: str, text: str) -> None:
    declared = entrypoint("Fine", dynamic_numbers=(name,))
    (sample,) = samples_of(declared)
    with pytest.raises(CaptureError, match=f"^{text}$"):
        mark_dynamic(declared, find_target(declared), sample)


@pytest.mark.parametrize(
    ("mode", "grad", "inference"),
    [("train", True, False), ("no_grad", False, False), ("inference", False, True)],
)
def test_a_mode_is_a_grad_mode(mode: str, grad: bool, inference: bool) -> None:
    with mode_context(mode):
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == (grad, inference)
