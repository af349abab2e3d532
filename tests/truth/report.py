"""What a run found, for people and as build/truth.json."""

from __future__ import annotations

import platform
import sys
from collections import Counter
from typing import Any

import torch

from tests.truth.building import Built
from tests.truth.judge import Verdict

__all__ = ["as_json", "summary", "told"]

FAILURES = ("wrong", "crash", "hang")


def told(verdict: Verdict) -> str:
    """One failure, or needless miss, in words."""
    title = verdict.verdict if verdict.verdict in FAILURES else "needless miss"
    lines = [f"{title.upper()}  {verdict.program}  [{verdict.kind}] {verdict.what}"]
    if verdict.diff:
        lines += [f"    {line}" for line in verdict.diff.splitlines()[2:]]
    if verdict.wheel:
        lines.append(f"  the wheel, beside eager: {verdict.wheel}")
    if verdict.compiled:
        lines.append(f"  torch.compile, beside eager: {verdict.compiled}")
    if verdict.why:
        lines.append(f"  why it was not served: {verdict.why[:600]}")
    lines.append(f"  served: {verdict.served}")
    return "\n".join(lines)


def as_json(verdicts: list[Verdict], built: list[Built], seconds: float) -> dict[str, Any]:
    counts = Counter(verdict.verdict for verdict in verdicts)
    needless = [verdict for verdict in verdicts if verdict.needless]
    refused = {each.program.name: each.refused for each in built if each.refused}
    return {
        "programs": len({verdict.program for verdict in verdicts}),
        "changes": len(verdicts),
        "wrong": counts["wrong"],
        "crashes": counts["crash"],
        "hangs": counts["hang"],
        "needless_misses": len(needless),
        "needless_misses_percent": round(100 * len(needless) / max(1, len(verdicts)), 2),
        "harmful_changes": sum(verdict.changed for verdict in verdicts),
        "served_all": sum(bool(verdict.served) and all(verdict.served) for verdict in verdicts),
        "as_torch_compile": counts["as torch.compile"],
        "no_judge": counts["no judge"],
        "refused": refused,
        "by_kind": _by_kind(verdicts),
        "failures": [each.as_json() for each in verdicts if each.verdict in FAILURES],
        "needless": [each.as_json() for each in needless],
        "machine": {"platform": platform.platform(), "cores": torch.get_num_threads()},
        "versions": {"python": sys.version.split()[0], "torch": torch.__version__},
        "seconds": round(seconds),
    }


def _by_kind(verdicts: list[Verdict]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for verdict in verdicts:
        row = table.setdefault(verdict.kind, {"changes": 0})
        row["changes"] += 1
        for name in (verdict.verdict, *(["needless"] if verdict.needless else [])):
            if name != "right":
                row[name] = row.get(name, 0) + 1
    return table


def summary(result: dict[str, Any]) -> str:
    names = ("programs", "changes", "wrong", "crashes", "hangs", "needless_misses", "seconds")
    return "  ".join(f"{name} {result[name]}" for name in names)
