"""What the benchmarks found: bench.json and bench.md."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from budgets import Verdict, ahead
from ways import WAYS

__all__ = ["ahead_table", "table", "verdict_table", "write"]

COLUMNS = {
    "process_s": ("process s", ".2f"),
    "after_model_s": ("after model s", ".3f"),
    "first_call_ms": ("first call ms", ".1f"),
    "steady_ms": ("steady ms", ".3f"),
    "least_ms": ("least ms", ".3f"),
    "rss_mb": ("resident MB", ".0f"),
    "import_ms": ("import ms", ".1f"),
    "build_s": ("build s", ".1f"),
    "runs": ("runs", "d"),
}


def write(folder: Path, models: Mapping[str, Mapping[str, Any]], verdicts: Sequence[Verdict]) -> None:
    """Write bench.json and bench.md."""
    folder.mkdir(parents=True, exist_ok=True)
    budgets = [vars(verdict) | {"pass": verdict.passed} for verdict in verdicts]
    document = {"machine": machine(), "models": models, "budgets": budgets}
    (folder / "bench.json").write_text(json.dumps(document, indent=2) + "\n")
    parts = ["# Benchmarks", ", ".join(f"{key} {value}" for key, value in machine().items())]
    for name, ways in models.items():
        parts += [f"## {name}", table(ways)]
    parts += ["## Budgets", verdict_table(verdicts), "## Ahead", ahead_table(models)]
    (folder / "bench.md").write_text("\n\n".join(parts) + "\n")


def machine() -> dict[str, str]:
    """Where the figures come from."""
    return {
        "torch": version("torch"),
        "Python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
    }


def _processor() -> str:
    """As Linux names it, with its family and model, by which makers tell generations apart."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    first = {
        name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))
    }
    if "model name" not in first:
        return platform.processor() or "unknown"
    amx = " with AMX" if "amx_tile" in first.get("flags", "").split() else ""
    return f"{first['model name']} (family {first.get('cpu family')}, model {first.get('model')}){amx}"


def table(ways: Mapping[str, Mapping[str, Any]]) -> str:
    """One row per way; of a way that failed, its error."""
    rows = [["way", *(title for title, _ in COLUMNS.values())]]
    for way, fields in ways.items():
        title = WAYS[way].title if way in WAYS else way
        if "error" in fields:
            rows.append([title, f"failed: {fields['error']}", *[""] * (len(COLUMNS) - 1)])
        else:
            rows.append([title, *(_cell(fields.get(name), form) for name, (_, form) in COLUMNS.items())])
    return _markdown(rows)


def verdict_table(verdicts: Iterable[Verdict]) -> str:
    """One row per budget and model."""
    words = {True: "pass", False: "FAIL", None: "not measured"}
    rows = [["budget", "model", "at most", "measured", ""]]
    for verdict in verdicts:
        value = "" if verdict.value is None else f"{verdict.value:.2f} {verdict.unit}"
        limit = f"{verdict.limit:g} {verdict.unit}"
        rows.append([verdict.what, verdict.model, limit, value, words[verdict.passed]])
    return _markdown(rows)


def ahead_table(models: Mapping[str, Mapping[str, Any]]) -> str:
    """One row per model: the wheel with fixed weights against the fastest of the other ways."""
    rows = [["model", "fastest of the others", "fixed weights, of its time", ""]]
    for model, best, ratio in ahead(models):
        rows.append([model, WAYS[best].title, f"{ratio:.2f}", "ahead" if ratio <= 1 else "behind"])
    return _markdown(rows)


def _cell(value: object, form: str) -> str:
    return "" if value is None else format(value, form)


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    # A failed way's error is one long cell; the columns are not widened for it.
    whole = [row for row in escaped if not any(cell.startswith("failed: ") for cell in row)]
    widths = [max(len(row[column]) for row in whole) for column in range(len(rows[0]))]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in escaped]
    lines = [f"| {' | '.join(row)} |" for row in padded]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])
