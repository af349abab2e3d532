"""A call that no entry fits runs exactly as without the wheel."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from tests.conftest import Site


class TestOthersCode:
    @pytest.mark.parametrize("compiled", ["inner", "outer"])
    def test_a_miss_runs_nothing_that_somebody_else_compiled(self, lab: Site, compiled: str) -> None:
        seen = lab.play("misses.a_miss_of_what_somebody_else_compiled", compiled=compiled)
        assert seen == {"ran": 0, "right": True}

    def test_what_they_compiled_still_runs_for_them(self, lab: Site) -> None:
        assert lab.play("misses.their_own_calls_of_what_they_compiled") == {"ran": 2, "hits": 1}


class TestTheStack:
    def test_recursion_is_as_deep_as_without(self, lab: Site) -> None:
        seen = lab.play("misses.deep_recursion", depth=50_000)
        assert seen["answer"] == 50_000
        assert seen["misses"] > 50_000

    def test_an_ordinary_limit_is_met_where_it_is_without(self, lab: Site) -> None:
        ours = lab.play("misses.deepest_recursion")
        without = lab.play("misses.deepest_recursion", environment={"HATCH_PRECOMPILE": "off"})
        assert without - ours <= 12

    def test_an_error_has_the_same_lines_in_its_traceback(self, lab: Site) -> None:
        ours = lab.play("misses.traceback_of_an_error")
        without = lab.play("misses.traceback_of_an_error", environment={"HATCH_PRECOMPILE": "off"})
        assert ours == without


class TestPolicies:
    def test_on_miss_error_with_cells(self, lab: Site) -> None:
        finished = lab.process("misses.a_miss_that_is_an_error", ok=False)
        assert "PrecompileError: lab: no entry of strict fits this call: x has size 5" in finished.stderr

    def test_on_miss_compile_with_super(self, lab: Site) -> None:
        seen = lab.play("misses.misses_that_are_compiled", environment={"PATH": os.environ["PATH"]})
        assert seen == {"ran": 2, "hits": 1, "said": []}

    def test_on_miss_compile_without_a_compiler(self, lab: Site) -> None:
        seen = lab.play("misses.misses_that_are_compiled")
        (said,) = seen.pop("said")
        assert seen == {"ran": 0, "hits": 1}
        assert said.startswith(
            'lab: calls that no entry fits run as they are: on-miss = "compile", and torch finds no C++ '
            "compiler (InvalidCxxCompiler); install one, or set CXX"
        )

    @pytest.mark.skipif(
        not hasattr(torch.compiler, "set_default_backend"), reason="this torch has no default backend"
    )
    def test_on_miss_compile_with_a_backend_that_needs_no_compiler(self, lab: Site) -> None:
        seen = lab.play("misses.misses_that_are_compiled", by_default=True)
        assert seen == {"ran": 2, "hits": 1, "said": []}


class TestFollowed:
    def test_a_breakpoint_is_met_and_calls_are_served_again_after_it(self, lab: Site) -> None:
        seen = lab.play("misses.called_in_a_debugger")
        assert seen["met"] == ["inner"]
        assert seen["hits"] == [0, 1]
        assert seen["explained"] == "a debugger, or coverage, follows this thread"

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="before Python 3.12 there is no sys.monitoring")
    def test_by_sys_monitoring_too(self, lab: Site) -> None:
        seen = lab.play("misses.explained_to_a_monitoring_debugger")
        assert seen == "a debugger, or coverage, follows this thread"

    def test_lines_are_counted_as_without(self, lab: Site) -> None:
        ours = lab.play("misses.lines_that_are_counted")
        assert ours == lab.play("misses.lines_that_are_counted", environment={"HATCH_PRECOMPILE": "off"})
        assert len(ours) == 2


class TestToldToKeepOut:
    @pytest.mark.parametrize(
        "way", ["disable", "disable of a module", "disable around it", "stance", "config"]
    )
    def test_nothing_is_served(self, lab: Site, way: str) -> None:
        assert lab.play("misses.told_to_keep_out", way=way) == [0, 0]

    @pytest.mark.parametrize("variable", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
    def test_the_environment_says_so(self, lab: Site, variable: str) -> None:
        status = lab.play("misses.status_after_a_call", environment={variable: "1"})
        assert (status["installed"], status["reason"]) == (False, f"{variable}=1")

    def test_torchs_own_functions_that_keep_themselves_out_call_back_into_compiled_code(
        self, lab: Site
    ) -> None:
        assert lab.play("misses.hits_in_a_function_of_torch_that_keeps_itself_out") == 1


def test_what_eager_code_calls_where_a_graph_failed_is_no_miss(lab: Site) -> None:
    """Also where two targets share a function, and under `strict`, which raises for a miss."""
    seen = lab.play("misses.calls_whose_graph_fails", environment={"HATCH_PRECOMPILE": "strict"})
    assert seen == {
        "Table": ["IndexError", "index out of range in self"],
        "LongTable": ["IndexError", "index out of range in self"],
        "another size": ["PrecompileError", True],
        "misses": [0, 1],
    }
