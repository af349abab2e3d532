"""The cells that are supported, what their last whole runs said, and docs/support.md, made from these."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = [
    "CELLS",
    "PAGE",
    "RESULTS",
    "Cell",
    "Result",
    "page_of",
    "read_results",
    "write_page",
    "write_results",
]

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).resolve().parents[2] / "docs/support.md"


@dataclass(frozen=True)
class Cell:
    """A minor version of Python with a version of torch."""

    python: str
    torch: str

    @property
    def name(self) -> str:
        return f"{self.python}+{self.torch}"


CELLS = (
    Cell("3.11", "2.13.0"),
    Cell("3.12", "2.11.0"),
    Cell("3.12", "2.12.1"),
    Cell("3.12", "2.13.0"),
    Cell("3.13", "2.14.1"),
    Cell("3.14", "2.13.0"),
    Cell("3.14", "2.15.0"),
)


@dataclass(frozen=True)
class Result:
    """Of a whole run. cell: its name; date: such as 2026-11-28, in UTC; skipped: how many tests by reason."""

    cell: str
    commit: str
    date: str
    passed: int
    failed: int
    skipped: dict[str, int]
    expected_to_fail: int


def read_results() -> dict[str, Result]:
    """By the name of the cell."""
    return {each["cell"]: Result(**each) for each in json.loads(RESULTS.read_text("utf-8"))}


def write_results(results: dict[str, Result]) -> None:
    rows = [asdict(results[cell.name]) for cell in CELLS if cell.name in results]
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def write_page(results: dict[str, Result]) -> None:
    PAGE.write_text(page_of(results), "utf-8")


def page_of(results: Mapping[str, Result]) -> str:
    """docs/support.md."""
    rows = "\n".join(_row(cell, results.get(cell.name)) for cell in CELLS)
    text = f"{_HEAD}{rows}\n"
    reasons = sorted({reason for result in results.values() for reason in result.skipped})
    return text if not reasons else f"{text}\n{_skipped(reasons, results)}\n"


def _skipped(reasons: Sequence[str], results: Mapping[str, Result]) -> str:
    """A table of how many tests each run skipped for each reason."""
    ran = [results[cell.name] for cell in CELLS if cell.name in results]
    lines = [
        ["skipped because", *(result.cell.replace("+", " + ") for result in ran)],
        ["---"] * (1 + len(ran)),
        *([reason, *(str(result.skipped.get(reason, "")) for result in ran)] for reason in reasons),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_HEAD = """# Which Python and torch

Builds and wheels are for CPU models on Linux, x86-64 and aarch64; [for GPUs](cuda.md) they were compiled,
and never run. `make cells` runs the whole test suite for each row, on x86-64, which has what it said last.
`make test-arm64` passed on 2026-11-29, emulated, never on real Arm, with Python 3.11 and torch 2.13.0.
A Python and a torch that a build does not know are told before it starts.

| Python | torch | last whole run | commit | passed | failed | skipped | expected to fail |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def _row(cell: Cell, result: Result | None) -> str:
    if result is None:
        return f"| {cell.python} | {cell.torch} | not run whole yet | | | | | |"
    counts = f"{result.passed} | {result.failed} | {sum(result.skipped.values())} | {result.expected_to_fail}"
    return f"| {cell.python} | {cell.torch} | {result.date} | {result.commit} | {counts} |"
