"""Signals, forks and the insides of operators: what comes from elsewhere, in the middle of a call."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Site

# More of each, for whoever wants to be sure.
TIMES = int(os.environ.get("INTERRUPTIONS", "1"))


class TestSignals:
    @pytest.mark.parametrize("error", ["KeyboardInterrupt", "Alarm", "AttributeError"])
    def test_no_exception_of_a_handler_is_lost(self, lab: Site, error: str) -> None:
        seen = lab.play("interruptions.exceptions_of_a_handler", name=error, times=200 * TIMES)
        assert seen["caught"] == seen["raised"] == 200 * TIMES

    def test_none_is_lost_while_entries_are_loaded(self, lab: Site) -> None:
        """Each in a process of its own, that has called nothing before."""
        seen = lab.play("interruptions.exceptions_while_entries_are_loaded", times=40 * TIMES)
        assert seen["codes"] == 0
        assert seen["caught"] + seen["dropped"] == seen["raised"] > 0

    def test_none_is_lost_while_a_bundle_is_installed(self, lab: Site) -> None:
        seen = lab.play("interruptions.exceptions_while_installing")
        assert seen == {"caught": {"start": False, "_activate": False}, "hits": 1}

    def test_a_handler_may_ask_in_the_middle_of_any_import(self, lab: Site) -> None:
        """The status, calls and misses are answered there, and nothing is left out for it."""
        seen = lab.play("interruptions.handlers_in_the_middle_of_imports")
        plain = [True, [0, 2, 4, 6], [0, 2, 4, 6], True]
        for name, (code, inside, answers, left_out, later) in seen.items():
            assert (code, answers, left_out, later) == (0, plain, [], plain), name
            assert inside[:3] == plain[:3], name
            assert inside[3] is True or "the handler of a signal came" in inside[3], name


class TestForks:
    def test_a_fork_while_another_thread_loads(self, lab: Site) -> None:
        """The fork is called for inside the loading: the child makes the same first call."""
        codes = lab.play("interruptions.forks_inside_the_loading", times=20 * TIMES)
        assert codes == [0] * 20 * TIMES

    def test_a_fork_while_another_thread_imports_what_explains(self, lab: Site) -> None:
        codes = lab.play("interruptions.forks_inside_the_import_of_an_explanation", times=5 * TIMES)
        assert codes == [0] * 5 * TIMES

    def test_a_module_imported_by_the_loading_may_call_the_entrypoint(self, lab: Site) -> None:
        seen = lab.play("interruptions.a_module_that_calls_while_it_is_imported")
        assert seen["calls"] == ["begun", [0, 2, 4, 6]]
        assert seen["hits"] >= 1


def test_a_first_call_inside_an_operator_leaves_later_ones_alone(lab: Site) -> None:
    assert lab.play("interruptions.a_first_call_inside_an_operator")
