"""Programs of every kind, each as an entry of one target: nothing compiles, and nothing differs from eager.

The numbers of points are those of docs/programs.md.
"""

from __future__ import annotations

import os
import sys
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tests.conftest import Site
from tests.language.conftest import COUNTED, HERE

sys.path.insert(0, str(HERE))
from programs import calls, numbers, shapes

STRICT = {"HATCH_PRECOMPILE": "strict"}


@pytest.fixture(scope="module")
def called(programs: Site) -> Any:
    """Every program under `strict`, where any miss in any of its frames raises."""
    return programs.play("language.each_program", environment=STRICT)


@pytest.mark.parametrize("name", calls.PROGRAMS)
def test_a_program_runs_through_its_entries_and_does_what_eager_does(called: Any, name: str) -> None:
    seen = called["programs"][name]
    assert seen.get("error") is None
    assert seen["hit"], seen
    assert seen["equal"], (seen["ours"], seen["eager"])


def test_none_of_them_imports_a_compiler(called: Any) -> None:
    assert called["imported"] == []


def test_random_numbers_are_those_of_torch_compile(programs: Site, called: Any, tmp_path: Path) -> None:
    """Compiled in a process that has a compiler and nothing of ours."""
    environment = {
        "HATCH_PRECOMPILE": "off",
        "PATH": os.environ["PATH"],
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
    }
    jitted = programs.play("language.numbers_that_torch_compile_draws", environment=environment)
    ours = called["programs"]["drops_out"]["ours"][0]
    assert ours[:3] == jitted[:3]
    torch.testing.assert_close(torch.tensor(ours[3]), torch.tensor(jitted[3]))


class TestNumbers:
    """Python's have no bounds, those of compiled code have 64 bits."""

    WHOLE = (0, 1, -1, 5, -5, 31, 40, 62, 63, 255, 256, 3_000_000, -3_000_000, 2**31, 3037000500, 2**53 + 1)
    HUGE = (2**62, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**64 + 5, 10**30)
    FLOATS = (0.0, -0.0, 0.5, 1.5, -2.5, 65504.0, 65520.0, 1e19, 1e39, 1e300)

    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, programs: Site) -> Any:
        few = (3, -3, 2**40, -1, 2**62)
        whole = [(n, m, 2.5) for n, m in [*((n, 7) for n in cls.WHOLE + cls.HUGE), *product(few, few)]]
        shifts = [(5, m, 2.5) for m in (*cls.WHOLE[:9], True)]
        calls = [*whole, *shifts, *((5, 7, f) for f in cls.FLOATS), *((2**40, -7, f) for f in cls.FLOATS)]
        return programs.play("language.calls_with_any_numbers", calls=calls)

    def test_they_are_as_in_eager_code(self, seen: Any) -> None:
        assert seen["wrong"] == []
        assert seen["calls"] > 300

    def test_what_fits_is_served(self, seen: Any) -> None:
        served = {(name, n, m) for name, n, m, _ in map(tuple, seen["served"])}
        assert served >= {
            ("powers", -5, 7), ("powers", 2**31 - 2**31 + 256, 7), ("quotients", 3_000_000, 7),
            ("quotients", -5, 7), ("with_tensors", 255, 7),
        }  # fmt: skip
        # Those that are not there with each torch.
        assert "fractions" not in numbers.PROGRAMS or ("fractions", 5, 7) in served
        assert "shifted" not in numbers.PROGRAMS or ("shifted", 5, 5) in served
        assert seen["imported"] == []


class TestWarnings:
    @pytest.mark.parametrize("way", ["always", "default", "by module"])
    def test_their_places_are_those_of_eager_code(self, programs: Site, way: str) -> None:
        ours = programs.play("language.warnings_of_a_program", way=way)
        eager = programs.play(
            "language.warnings_of_a_program", way=way, environment={"HATCH_PRECOMPILE": "off"}
        )
        assert ours["said"] == eager["said"]
        assert ours["registries"] == eager["registries"]
        assert ours["hits"] == 2
        assert len(eager["said"]) == {"always": 16, "default": 8, "by module": 6}[way]


class TestDynamicShapes:
    CASES = {  # noqa: RUF012
        "of_equal_size": [(2, 2, True), (64, 64, True), (5, 6, False), (1, 1, False), (0, 0, False)],
        "of_twice_the_size": [(3, 6, True), (40, 80, True), (3, 7, False)],
        "of_any_two_sizes": [(2, 2, True), (64, 3, True), (3, 128, True), (1, 3, False)],
        "of_a_size_that_is_branched_on": [(4, 4, True), (64, 64, True), (3, 3, False)],
    }

    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, programs: Site) -> Any:
        sizes = {name: [case[:2] for case in cases] for name, cases in cls.CASES.items()}
        return programs.play("language.calls_with_sizes", cases=sizes)

    @pytest.mark.parametrize("name", CASES)
    def test_sizes_that_the_trace_is_right_for_are_served_and_no_others(self, seen: Any, name: str) -> None:
        assert seen["seen"][name] == [[served, True] for _, _, served in self.CASES[name]]

    def test_no_compiler_is_imported(self, seen: Any) -> None:
        assert seen["imported"] == []

    def test_one_tensor_in_two_places_is_named(self, programs: Site) -> None:
        said = programs.play("language.explanations_of_one_tensor_in_two_places")
        assert [
            "y is the same tensor as x, the entry needs two",
            "pass a copy, or rebuild the wheel with a sample that has it",
        ] in said

    def test_every_program_is_tried(self) -> None:
        assert set(self.CASES) == set(shapes.PROGRAMS)


def test_sizes_that_what_is_not_compiled_gives_are_served(programs: Site) -> None:
    """Between two graphs, and in what a skipped function calls; sizes that the build has not called, too."""
    sizes = [8, 2, 3, 5, 16, 31, 63, 64]
    seen = programs.play("language.calls_in_pieces", sizes=sizes, environment=STRICT)
    assert (seen["wrong"], seen["imported"]) == ([], [])
    assert "has size 7 in dimension 0, the entry needs" in seen["said"]
    assert "dynamic-shapes." not in seen["said"]  # has only what is the target's


@pytest.mark.parametrize("name", ["counted", "in_one_graph"])
def test_sizes_and_numbers_that_only_the_data_tells(programs: Site, name: str) -> None:
    """With dynamo's settings made where the samples are, and with fullgraph = true."""
    seen = programs.play("language.sizes_and_numbers_in_data", name=name)
    assert seen == {"same": [True] * 3, "hits": 3, "misses": 0, "imported": []}


def test_numbers_that_were_declared_may_have_any_value_of_their_type(programs: Site) -> None:
    cases: list[tuple[Any, Any, bool]] = [
        (2.5, 3, True),
        *((factor, 3, "factor" in COUNTED) for factor in (0.0, 1.0, -7.25, 1e30)),
        *((2.5, places, True) for places in (0, 1, -1, 2**40)),
        (3, 3, False),
        (2.5, 3.0, False),
        (2.5, True, False),
    ]
    seen = programs.play("language.calls_with_numbers", cases=[case[:2] for case in cases])
    assert seen["seen"] == [[served, True] for _, _, served in cases]
    assert seen["nan"]
    assert seen["imported"] == []


def test_sixty_four_entries_of_one_frame_are_told_apart(programs: Site) -> None:
    seen = programs.play("language.calls_of_64_entries")
    assert (seen["entries"], seen["loaded by one"]) == (64, 1)
    assert (seen["right"], seen["hits"], seen["misses"]) == (True, 65, 0)
    assert seen["misses in the end"] == 1


def test_entries_use_up_none_of_torchs_recompile_limit(programs: Site) -> None:
    """All 64 entries are on the code object, and torch.compile still has its whole budget for misses."""
    compiled = programs.play("language.hits_of_64_entries_and_misses_under_compile")
    assert compiled == {"by hits": 0, "by misses too": 8, "hits": 64}


def test_modules_in_lists_and_dicts_tied_and_hooked(programs: Site) -> None:
    seen = programs.play("language.a_model_before_and_after_a_weight_is_untied")
    # The weight that is no longer tied makes another program of it.
    assert seen == {"tied": [True, 1], "untied": [True, 1], "imported": []}


def test_a_parametrized_module_is_known_by_what_its_class_is_made_of(programs: Site) -> None:
    """Every instance has a class of its own, made by torch.nn.utils.parametrize."""
    served = {"as_it_is": 2, "copied": 1, "made_again": 1}
    refused = ("plain", "spectral", "twice", "derived", "other_property")
    changes = programs.play("language.changes_of_a_parametrized_module")
    assert changes["seen"] == {
        **{name: [[1, True]] * times for name, times in served.items()},
        **{name: [[0, True]] for name in refused},
    }
    assert changes["imported"] == []


def test_recurrent_layers(programs: Site) -> None:
    seen = programs.play("language.recurrent_layers")
    assert seen == {"same": [True, True], "hits": 2, "imported": []}


class TestTensorSubclasses:
    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, programs: Site) -> Any:
        return programs.play_all(
            "subclasses", "as_arguments", "as_weights", "wrapping_each_other", "as_results"
        )

    @pytest.fixture(scope="class")
    @classmethod
    def tried(cls, seen: Any) -> Any:
        return seen["as_arguments"]["tried"] | seen["as_weights"]["tried"]

    @pytest.mark.parametrize("what", ["named", "overriding", "wrapping", "another value", "another instance"])
    def test_one_that_was_compiled_for_is_served(self, tried: Any, what: str) -> None:
        assert tried[what] == [1, True]

    @pytest.mark.parametrize(
        "what",
        [
            *("plain", "another", "float64"),
            *("another metadata", "no longer quantized", "wrapping another dtype"),
        ],
    )
    def test_another_is_not(self, tried: Any, what: str) -> None:
        assert tried[what] == [0, True]

    def test_no_compiler_is_imported_for_them(self, seen: Any) -> None:
        assert seen["as_arguments"]["imported"] == []
        assert seen["as_weights"]["imported"] == []
        assert seen["wrapping_each_other"] == {"tried": [1, True], "imported": []}

    def test_one_that_is_returned_is_made_by_the_wrappers_of_aotautograd(self, seen: Any) -> None:
        results = {"hits": 1, "same": True, "wrapped": [True, True], "inductor": False}
        assert seen["as_results"] == results


class TestPackagesThatCompile:
    """Sources with torch.compile in them are served through it; eager code is theirs with force_eager."""

    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, programs: Site) -> Any:
        return programs.play_all(
            "compiling",
            "served_where_the_package_would_compile",
            "frames_that_dynamo_has_compiled",
            "a_call_that_does_not_fit",
        )

    @pytest.mark.parametrize(
        ("name", "hits"), {"sine": [1], "decorated": [1], "compiling": [1], "calls_it_in_a_loop": [2]}.items()
    )
    def test_a_call_is_served_where_the_package_would_compile(
        self, seen: Any, name: str, hits: list[int]
    ) -> None:
        served = seen["served_where_the_package_would_compile"]
        assert served[name] == {"same": True, "hits": hits, "left out": []}

    def test_nothing_is_compiled(self, seen: Any) -> None:
        assert seen["frames_that_dynamo_has_compiled"] == {}

    def test_a_call_that_does_not_fit_is_compiled_as_the_package_would(self, seen: Any) -> None:
        assert seen["a_call_that_does_not_fit"] == {"right": True, "compiled": 1, "hits": 1}


class TestSkippedFrames:
    """With on-skip = "eager", a function with a graph break in a loop runs as Python; what it calls hits."""

    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, programs: Site) -> Any:
        return programs.play_all("skipping", "calls_of_each", "compilers", environment=STRICT)

    CALLED: ClassVar = {
        "calls_what_loops": {"calls_what_loops": 1, "step": 3, "torch_dynamo_resume_in_calls_what_loops": 1},
        "imports_in_its_loop": {"half": 2},
        "Repeating": {"Block.forward": 2},
    }

    @pytest.mark.parametrize("name", CALLED)
    def test_what_it_calls_is_served_each_time(self, seen: Any, name: str) -> None:
        assert seen["calls_of_each"][name]["same"]
        assert seen["calls_of_each"][name]["hits"] == self.CALLED[name]

    @pytest.mark.parametrize("name", CALLED)
    def test_a_miss_in_what_it_calls_is_a_miss(self, seen: Any, name: str) -> None:
        """As strict shows. Of what torch.compile never looks at there are no misses."""
        assert "has dtype float64, the entry needs float32" in seen["calls_of_each"][name]["double"]

    def test_status_says_what_runs_as_python(self, seen: Any) -> None:
        own = {name: seen["calls_of_each"][name]["skipped"] for name in self.CALLED}
        assert own == {
            "calls_what_loops": ["loops"],
            "imports_in_its_loop": ["imports_in_its_loop"],
            "Repeating": ["Repeating.forward"],
        }

    def test_a_call_of_a_target_that_is_skipped_itself_cannot_be_explained(self, seen: Any) -> None:
        assert seen["calls_of_each"]["calls_what_loops"]["explained"] is True
        for name in ("imports_in_its_loop", "Repeating"):
            said = f"the target of '{name}' is not compiled itself, only what it calls"
            assert seen["calls_of_each"][name]["explained"] == said

    def test_no_compiler_is_imported(self, seen: Any) -> None:
        assert seen["compilers"] == []


class TestTraining:
    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, programs: Site) -> Any:
        return programs.play_all(
            "training",
            "several_steps_with_accumulation",
            "a_second_backward",
            "gradients_under_checkpoint",
            "side_effects",
        )

    def test_several_steps_with_accumulation_give_what_eager_gives(self, seen: Any) -> None:
        steps = seen["several_steps_with_accumulation"]
        assert steps["losses"]
        assert steps["weights"]
        assert (steps["hits"], steps["misses"]) == (8, 0)

    def test_a_frozen_parameter_gets_no_gradient(self, seen: Any) -> None:
        assert seen["several_steps_with_accumulation"]["frozen without gradient"]

    def test_a_second_backward_is_refused_as_torch_does(self, seen: Any) -> None:
        assert seen["a_second_backward"].startswith("Trying to backward through the graph a second time")

    def test_both_passes_of_a_checkpoint_draw_the_same_numbers(self, seen: Any) -> None:
        under = seen["gradients_under_checkpoint"]
        assert under["no checkpoint"] == {"right": True, "hits": 1}
        assert under["reentrant"] == under["not reentrant"] == {"right": True, "hits": 0}

    def test_nothing_is_compiled_or_written(self, seen: Any) -> None:
        assert seen["side_effects"] == {"done": [], "inductor": False}
