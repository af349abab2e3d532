"""Workloads: which calls become samples, and what is said where none does."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hatch_precompile.config import Entrypoint
from hatch_precompile.entrypoints.call import Sample, copied
from hatch_precompile.entrypoints.finding import find_targets
from hatch_precompile.entrypoints.samples import samples_of
from hatch_precompile.entrypoints.workload import recorded_calls
from hatch_precompile.errors import CaptureError, Unsupported

SOURCES = Path(__file__).parent / "workload"


@pytest.fixture(autouse=True, scope="module")
def sources() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(SOURCES))
    yield
    patch.undo()
    for source in SOURCES.glob("*.py"):
        sys.modules.pop(source.stem, None)


def entrypoint(target: str, workload: str, **keys: Any) -> Entrypoint:
    return Entrypoint(target=f"used_model:{target}", workload=f"used:{workload}", name="it", **keys)


def recorded(target: str, workload: str, **keys: Any) -> list[Sample]:
    return list(samples_of(entrypoint(target, workload, **keys)))


def sizes(samples: list[Sample]) -> list[int]:
    return [len(sample.args[0]) for sample in samples]


def error(target: str, workload: str, **keys: Any) -> str:
    with pytest.raises(CaptureError) as caught:
        recorded(target, workload, **keys)
    return str(caught.value)


class TestModuleClass:
    def test_calls_of_its_instances_are_samples_with_the_instance(self) -> None:
        samples = recorded("Net", "net")
        assert sizes(samples) == [2, 3, 5]  # not a subclass's, not those it makes inside
        assert [sample.kwargs for sample in samples] == [{}, {"twice": True}, {}]
        assert [sample.owner.below is None for sample in samples] == [False, True, True]

    def test_arguments_are_as_they_were_before_the_call(self) -> None:
        assert [float(sample.args[0].sum()) for sample in recorded("Net", "net")] == [0, 0, 0]

    def test_a_sample_is_a_call_of_the_object_that_the_workload_called(self) -> None:
        samples = recorded("Net", "net")
        targets = find_targets(entrypoint("Net", "net"), samples)
        assert [target.call for target in targets] == [sample.owner for sample in samples]

    def test_the_class_is_as_it_was_afterwards(self) -> None:
        recorded("Net", "net")
        net = importlib.import_module("used_model").Net
        assert "__call__" not in vars(net)
        assert net.forward.__module__ == "used_model" and not hasattr(net.forward, "__wrapped__")


class TestMethods:
    def test_of_any_instance(self) -> None:
        samples = recorded("Plain.method", "methods")
        assert sizes(samples) == [1, 2]
        targets = find_targets(entrypoint("Plain.method", "methods"), samples)
        assert [type(target.call.__self__).__name__ for target in targets] == ["Plain", "Heir"]

    def test_one_that_is_inherited_is_restored_as_such(self) -> None:
        assert sizes(recorded("Heir.method", "methods")) == [2]
        assert "method" not in vars(importlib.import_module("used_model").Heir)

    def test_of_the_class_alone(self) -> None:
        (sample,) = recorded("Plain.made", "methods")
        assert (len(sample.args[0]), sample.owner) == (3, None)

    def test_one_that_the_constructor_wraps_for_the_object(self) -> None:
        samples = recorded("Wrapping.method", "wrapped")
        assert sizes(samples) == [1, 2, 3]
        assert [sample.args[1:] for sample in samples] == [(), (), (1, 2, 3)]
        assert [sample.kwargs for sample in samples] == [{}, {"scale": 2.0}, {"other": 4}]

    def test_nothing_of_the_recorder_is_left_in_what_was_made_meanwhile(self) -> None:
        wrapping = importlib.import_module("used_model").Wrapping
        recorded("Wrapping.method", "wrapped")
        target = find_targets(
            entrypoint("Wrapping.method", "wrapped"), recorded("Wrapping.method", "wrapped")
        )
        assert [each.call.__func__ for each in target] == [vars(wrapping)["method"]] * 3
        (kept,) = [
            cell.cell_contents
            for cell in target[0].call.__self__.__dict__["method"].__closure__
            if callable(cell.cell_contents)
        ]
        assert kept.__func__ is vars(wrapping)["method"]
        assert kept.__func__.__code__.co_consts == wrapping.method.__code__.co_consts

    def test_static_ones(self) -> None:
        assert sizes(recorded("Plain.loose", "methods")) == [5]


class TestFunctions:
    def test_calls_by_any_name_are_samples(self) -> None:
        assert sizes(recorded("double", "function")) == [1, 2]

    def test_every_module_has_the_function_back(self) -> None:
        recorded("double", "function")
        function = importlib.import_module("used_model").double
        assert function.__code__.co_name == "double"
        assert all(sys.modules[name].double is function for name in ("used", "used_later"))


class TestModes:
    def test_the_calls_are_in_the_entrypoints_mode(self) -> None:
        assert sizes(recorded("double", "function", mode="inference")) == [1, 2]
        (sample,) = recorded("double", "checked", mode="inference")
        # But what the workload makes beside them is in none, as a user's model is.
        assert (sample.mode, sample.args[0].is_inference()) == ("inference", False)

    def test_one_that_sets_it_itself(self) -> None:
        (sample,) = recorded("double", "inferring", mode="inference")
        assert copied(sample).args[0].is_inference()
        assert 'never with mode = "no_grad"' in error("double", "inferring")

    def test_a_call_in_another_mode_is_no_sample(self) -> None:
        assert sizes(recorded("double", "both_modes")) == [2]
        assert sizes(recorded("double", "both_modes", mode="train")) == [1, 2]


class TestErrors:
    def test_a_target_that_is_never_called(self) -> None:
        assert error("double", "nothing") == 'workload = "used:nothing" never calls used_model:double'

    def test_a_target_that_is_called_in_other_modes_only(self) -> None:
        assert error("double", "other_mode") == (
            'workload = "used:other_mode" calls used_model:double, but never with mode = "no_grad"; '
            'the mode of its calls is "train"'
        )

    def test_a_workload_that_is_not_there(self) -> None:
        assert error("double", "missing") == 'workload = "used:missing": used has no missing'

    def test_a_workload_that_is_no_function(self) -> None:
        assert error("double", "NUMBER") == 'workload = "used:NUMBER" is a int; a workload is a function'

    def test_a_workload_that_fails(self) -> None:
        assert error("double", "failing") == 'workload = "used:failing" raised LookupError: no data'

    def test_one_that_trains_without_a_word(self) -> None:
        text = error("double", "trains")
        assert "does not require grad" in text
        assert text.endswith(
            'A workload runs under torch.no_grad(), unless mode is "train": put '
            "`with torch.enable_grad():` around what trains in it"
        )
        assert sizes(recorded("double", "trains_and_says_so")) == [1]

    def test_arguments_that_cannot_be_copied(self) -> None:
        assert error("double", "stubborn").startswith(
            'workload = "used:stubborn": the arguments of call 1 cannot be copied: Only Tensors created'
        )


def test_the_class_is_restored_after_a_failure_too() -> None:
    error("double", "failing")
    module = importlib.import_module("used_model")
    assert torch.equal(module.double(torch.ones(1)), torch.full((1,), 2.0))
    assert module.double.__code__.co_name == "double"


class TestCallsMadeByAnother:
    """`through` makes the calls, of a target that is as it is for its users."""

    @pytest.mark.parametrize(
        ("target", "workload", "of"),
        [("Net", "net", "used_model.Net.forward"), ("double", "function", "used_model.double")],
    )
    def test_it_gets_each_and_its_answer_is_the_workloads(self, target: str, workload: str, of: str) -> None:
        used_model: Any = importlib.import_module("used_model")
        _, *path = of.split(".")
        original = functools.reduce(getattr, path, used_model)
        seen: list[Any] = []

        def through(sample: Sample, call: Any, args: Any, kwargs: Any) -> Any:
            assert functools.reduce(getattr, path, used_model) is original
            seen.append(sample)
            assert not any(copy is given for copy, given in zip(sample.args, args, strict=True))
            return call(*args, **kwargs)

        made = recorded_calls(entrypoint(target, workload), f"used:{workload}", "no_grad", through)
        assert seen == made
        assert sizes(made) == sizes(recorded(target, workload))
        assert functools.reduce(getattr, path, used_model) is original

    def test_what_stops_it_is_raised_though_the_workload_catches_it(self) -> None:
        def through(*_: Any) -> Any:
            raise Unsupported("what", "where", "advice")

        with pytest.raises(Unsupported, match="what"):
            recorded_calls(entrypoint("double", "careless"), "used:careless", "no_grad", through)
