"""Which calls run compiled code: plain ones, those under torch.compile, and what a miss does."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

if TYPE_CHECKING:
    from tests.conftest import Site


class TestUnderTorchCompile:
    def test_a_plain_call_of_an_entrypoint_activated_by_compile_is_eager(self, zoo: Site) -> None:
        status = zoo.play("activation.a_plain_call_of_what_is_activated_by_compile")
        assert (status["active"], status["hits"], status["loaded"]) == (True, 0, 0)

    @pytest.fixture(scope="class")
    @classmethod
    def hits(cls, zoo: Site) -> dict[str, int]:
        hits: dict[str, int] = zoo.play("activation.hits_of_two_calls_under_compile")
        return hits

    @pytest.mark.parametrize("name", ["onasking", "mlp", "whiten", "apply", "shifted", "chatty"])
    def test_a_hit_compiles_nothing(self, hits: dict[str, int], name: str) -> None:
        assert hits[name] >= 2

    @pytest.mark.parametrize("name", ["onasking", "mlp", "jitted"])
    def test_a_miss_compiles_as_usual(self, zoo: Site, name: str) -> None:
        """The call, once compiled, is served by dynamo's own entry; ours still serve theirs."""
        seen = zoo.play("activation.two_misses_under_compile", name=name)
        assert seen == {"compiled": 1, "same": True}

    def test_a_miss_has_the_whole_recompile_budget(self, zoo: Site) -> None:
        seen = zoo.play("activation.a_hit_and_as_many_misses_as_may_be_compiled")
        assert seen == {"hits": 1, "compiled": 3}

    def test_a_compile_around_an_entrypoint_takes_it_whole(self, zoo: Site) -> None:
        """Inside somebody's larger compiled function, dynamo traces the target as if we were not there."""
        assert zoo.play("activation.graphs_of_a_function_around_entrypoints") == 1


class TestMiss:
    def test_eager(self, zoo: Site) -> None:
        seen = zoo.play("activation.a_miss_that_runs_eagerly")
        assert seen == {"same": True, "misses": 1, "hits": 0, "imported": []}

    def test_compile(self, zoo: Site) -> None:
        with_a_compiler = {"PATH": os.environ["PATH"]}
        seen = zoo.play("activation.misses_that_are_compiled", environment=with_a_compiler)
        assert seen["at the hit"] == {"hits": 1, "compiled": 0, "imported": []}
        assert seen["same"]
        assert seen["compiled"] == 1
        assert seen["served again"]

    def test_error(self, zoo: Site) -> None:
        finished = zoo.process("activation.a_miss_that_is_an_error", ok=False)
        assert "served" in finished.stdout
        assert "PrecompileError: zoo: no entry of apply fits this call: " in finished.stderr
        assert "has size 7 in dimension 0, the entry needs 6" in finished.stderr

    def test_strict_makes_every_miss_an_error(self, zoo: Site) -> None:
        said = zoo.play("activation.errors_of_misses", environment={"HATCH_PRECOMPILE": "strict"})
        assert set(said) == {"mlp", "whiten", "shifted", "chatty"}
        for name, text in said.items():
            assert text.startswith(f"zoo: no entry of {name} fits this call: ")

    def test_strict_makes_a_miss_under_torch_compile_an_error(self, zoo: Site) -> None:
        strict = {"HATCH_PRECOMPILE": "strict"}
        finished = zoo.process("activation.a_miss_under_compile", ok=False, environment=strict)
        assert "PrecompileError: zoo: no entry of jitted fits this call" in finished.stderr

    def test_strict_lets_hits_be(self, zoo: Site) -> None:
        assert zoo.play("activation.hits_of_plain_calls", environment={"HATCH_PRECOMPILE": "strict"}) == 1

    def test_an_error_of_the_model_is_the_models(self, zoo: Site) -> None:
        finished = zoo.process("activation.an_error_of_the_model", ok=False)
        last = finished.stderr.rstrip().splitlines()[-1]
        assert last.startswith("RuntimeError: ")
        assert "mat1 and mat2 shapes" in last


class TestTargets:
    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, zoo: Site) -> Any:
        return zoo.play("activation.calls_of_each_kind_of_target")

    @pytest.mark.parametrize(
        "kind",
        [
            *("a function", "with keywords"),
            *("a method", "a method of the class"),
            *("a class method", "a class method of an instance"),
        ],
    )
    def test_each_kind_is_served(self, seen: Any, kind: str) -> None:
        assert seen["served"][kind]
        assert seen["imported"] == []

    def test_a_static_method_is_served(self, zoo: Site) -> None:
        seen = zoo.play("activation.calls_of_a_static_method")
        assert seen == {"hits": 2, "kind": "staticmethod"}

    def test_a_class_method_of_a_derived_class_is_its_own(self, zoo: Site) -> None:
        seen = zoo.play("activation.a_call_of_a_class_method_of_a_derived_class")
        assert seen == {"same": True, "hits": 0}

    def test_a_function_is_the_same_wherever_its_package_imported_it(self, zoo_copy: Site) -> None:
        init = zoo_copy.directory / "zoo" / "__init__.py"
        init.write_text("import torch\nfrom zoo.functions import whiten\n" + init.read_text())
        seen = zoo_copy.play("activation.a_call_by_the_name_in_the_package")
        assert seen == {"same": True, "hits": 1}


class TestUninstall:
    def test_everything_is_as_if_there_were_no_bundle(self, zoo: Site) -> None:
        seen = zoo.play("activation.uninstalled_after_calls")
        assert seen["a model is right"]
        assert seen["a method is right"]
        assert seen["a function got before is the same"]
        assert seen["attributes of targets"] == []
        assert seen["activated"] is False
        assert seen["compiled"] == 1
        assert seen["status"] == {
            "installed": False,
            "reason": "not installed",
            "variant": None,
            "cell": None,
            "cells": [],
            "entrypoints": {},
            "prepared_bytes": 0,
        }

    def test_a_target_not_yet_imported_is_never_installed(self, zoo: Site) -> None:
        seen = zoo.play("importing.of_a_target_after_uninstalling")
        assert seen == {"activated": False, "watching": 0}

    def test_it_can_be_installed_again(self, zoo: Site) -> None:
        assert zoo.play("activation.hits_once_installed_again") == 1


def test_status_says_what_there_is(zoo: Site) -> None:
    seen = zoo.play("activation.status_after_a_hit_and_a_miss")
    status = seen["status"]
    assert status["installed"] is True
    assert seen["loaded"] == []
    assert (status["reason"], status["variant"]) == ("", "native")
    assert list(status["entrypoints"]) == [
        "mlp", "chatty", "jitted", "onasking", "whiten", "apply", "halve", "shifted", "bert", "ripple",
    ]  # fmt: skip
    assert status["entrypoints"]["mlp"] == {
        "target": "zoo.models:Mlp",
        "active": True,
        "entries": 1,
        "loaded": 1,
        "hits": 1,
        "misses": 1,
        "by_entry": [{"function": "Mlp.forward", "loaded": True, "hits": 1}],
        "left_out": [],
        "rounded": None,
        "skipped": [],
    }
    assert status["entrypoints"]["bert"]["active"] is False
    chatty = status["entrypoints"]["chatty"]
    assert chatty["by_entry"] == []
    assert (chatty["entries"], chatty["loaded"]) == (2, 0)


class TestExplain:
    # The check that fails, and what is said of it.
    CASES: ClassVar = {
        "a hit": (None, "it would be served"),
        "another dtype": (".dtype is", "x has dtype float64, the entry needs float32"),
        "another rank": (".dim() ==", "x is 1-dimensional, the entry needs 2 dimensions"),
        "another stride order": ("T0.check", "stride mismatch"),
        "a size outside the range": ("<= 16", "x is a tensor of shape (17, 8)"),
        "grad mode": ("state.check()", "grad_mode"),
        "a class": ("type(", "self is a torch.nn.modules.linear.Linear; needed: "),
        "an attribute": ("== 2.0", "self.scale is 3.0"),
        "a missing attribute": ("scale", "scale"),
        "an argument more": ("is None", "shift is a tensor of shape (4, 8)"),
        "a dispatch mode": ("may_serve()", "a dispatch mode"),
    }

    @pytest.fixture(scope="class")
    @classmethod
    def reports(cls, zoo: Site) -> dict[str, list[dict[str, object]]]:
        seen = zoo.play("activation.explanations_of_calls")
        assert (seen["hits"], seen["misses"]) == (0, 0), "explaining is not calling"
        reports: dict[str, list[dict[str, object]]] = seen["reports"]
        return reports

    @pytest.mark.parametrize("case", CASES)
    def test_the_failing_check_is_named(self, reports: dict[str, list[dict[str, object]]], case: str) -> None:
        check, reason = self.CASES[case]
        (report,) = reports[case]
        assert report["hit"] is (check is None)
        assert reason in str(report["reason"])
        assert report["check"] is None if check is None else check in str(report["check"])

    def test_an_unknown_name_is_an_error_that_lists_the_known(self, zoo: Site) -> None:
        finished = zoo.process("activation.explaining_an_unknown_name", ok=False)
        assert "no active entrypoint 'mpl'; there are: " in finished.stderr

    def test_a_call_that_lacks_an_argument_is_the_usual_error(self, zoo: Site) -> None:
        finished = zoo.process("activation.explaining_a_call_that_lacks_an_argument", ok=False)
        assert "TypeError: missing a required argument: 'x'" in finished.stderr

    def test_a_check_made_on_every_layer_says_on_which_it_failed(self, zoo: Site) -> None:
        report = zoo.play("activation.explanation_of_a_change_in_one_layer")
        expected = "self.encoder.layer[1].attention.output.LayerNorm.eps is 0.5; needed: "
        assert report["reason"].startswith(expected)

    def test_functions_and_methods_are_explained(self, zoo: Site) -> None:
        reports = zoo.play("activation.explanations_of_functions_and_methods")
        assert [report["hit"] for report in reports] == [True, False, True, False, True]
        assert "is 3-dimensional, the entry needs 4" in reports[1]["reason"]
        assert "factor" in reports[3]["reason"]
