"""A part of `make tools`: what needs nothing but torch, and takes seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import Site
from tests.tools import run
from tests.tools.guest import TOOLS
from tests.truth.observed import described

if TYPE_CHECKING:
    pass

SUITE = [name for name, each in TOOLS.items() if each.suite]


@pytest.fixture(scope="module")
def rows(workshop: Site, tmp_path_factory: pytest.TempPathFactory) -> dict[str, run.Row]:
    work = tmp_path_factory.mktemp("tools") / "tried"
    # With what training imports at its first call, or each process would do it again.
    found = run.table(workshop, SUITE, work, ("later",), ("torch._dynamo", "torch._functorch.aot_autograd"))
    return {row.tool: row for row in found}


@pytest.mark.parametrize("name", SUITE)
def test_a_tool_sees_no_difference(rows: dict[str, run.Row], name: str) -> None:
    assert (rows[name].outcome, rows[name].details) == ("same", [])
    assert rows[name].compared


def test_there_are_tools_enough_and_what_they_see_otherwise_is_in_the_docs() -> None:
    assert len(TOOLS) >= 85
    page = (run.ROOT / "docs/users.md").read_text()
    told = page[page.index("## Tools") : page.index("## Threads")]
    for each in TOOLS.values():
        assert each.known in told, each.name
    known = {each.known for each in TOOLS.values() if each.known}
    assert told.count("\n| ") - 2 == len(known), "a line of the page that no tool shows"


class TestTheTable:
    """Of what two processes might have found."""

    @staticmethod
    def found(value: Any, after: int = 0, failed: str = "") -> dict[str, Any]:
        notes = [("output", described(value))]
        return {"failed": failed, "notes": notes, "plain": [], "during": 0, "after": after}

    def outcome(self, name: str, ours: Any, theirs: Any) -> str:
        return run._row(name, [("first", ours, theirs)]).outcome

    def test_equal_notes_are_the_same_and_others_differ(self) -> None:
        assert self.outcome("dis", self.found(1, run.ORDINARY), self.found(2)) == "as documented"
        assert self.outcome("doctest", self.found(1, run.ORDINARY), self.found(2)) == "differs"
        assert self.outcome("doctest", self.found(1, run.ORDINARY), self.found(1)) == "same"

    def test_a_documented_difference_that_is_gone_is_noticed(self) -> None:
        outcome = self.outcome("dis", self.found(1, run.ORDINARY), self.found(1))
        assert outcome == "said to differ, and does not"

    def test_a_tool_that_leaves_calls_unserved_fails(self) -> None:
        assert self.outcome("doctest", self.found(1, run.ORDINARY - 1), self.found(1)) == "failed"

    def test_so_does_one_that_ends_its_process(self) -> None:
        ended = self.found(1, run.ORDINARY, failed="-6: Aborted")
        assert self.outcome("doctest", ended, self.found(1)) == "failed"
        assert self.outcome("dis", self.found(1, run.ORDINARY), ended) == "failed"
