"""The results of tests/gpu/check.py as a table, beside what is aimed at: `python benchmarks/gpu.py FILE`

Nothing is measured here. What was found on a stand-in has no times, and is no result.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# Ours over theirs, at most; what is compared, of which way.
GOALS = {
    ("first answer", "eager"): 1.1,
    ("first answer", "compile"): 0.1,
    ("call", "compile"): 1.05,
    ("host", "compile"): 1.0,
}

Results = Mapping[str, Mapping[str, Any]]


def models(results: Results) -> list[str]:
    return [
        step.removeprefix("time:") for step in results if step.startswith("time:") and step.count(":") == 1
    ]


def times(results: Results, model: str) -> dict[str, dict[str, float]]:
    """What is compared -> way -> seconds of a first answer in a fresh process, or microseconds of a call."""
    ways = ("ours", "eager", "compile", "aoti")
    cold = {way: results.get(f"cold:{model}:{way}", {}).get("seconds") for way in ways}
    beside = {**results.get(f"time:{model}:aoti", {}), **results.get(f"time:{model}", {})}
    found: dict[str, dict[str, float]] = {"first answer": {w: t for w, t in cold.items() if t is not None}}
    for kind in ("call", "host"):
        found[kind] = {w: beside[w][kind] for w in ways if isinstance(beside.get(w), dict)}
    return found


def rows(results: Results) -> Iterator[tuple[str, str, str, float, float | None]]:
    """Model, what, beside which way, our time over its, and the goal if there is one."""
    for model in models(results):
        for what, by_way in times(results, model).items():
            for way, seconds in by_way.items():
                if way != "ours" and "ours" in by_way and seconds:
                    yield model, what, way, by_way["ours"] / seconds, GOALS.get((what, way))


def unlike(results: Results) -> Iterator[str]:
    """The steps that failed, were not served, or did not agree."""

    def wrong(found: Any) -> bool:
        if not isinstance(found, dict):
            return False
        bad = found.get("served") is False or found.get("agrees") is False or "failed" in found
        return bad or any(wrong(each) for each in found.values())

    for step, found in results.items():
        if wrong(found):
            yield step


def page(results: Results) -> Iterator[str]:
    about = results.get("about", {})
    if about.get("stand-in", True):
        yield "Without a GPU: on a stand-in, which computes nothing. No time was measured.\n"
    yield ", ".join(
        f"{key} {about[key]}" for key in ("card", "capability", "torch", "cuda", "python") if key in about
    )
    found = list(rows(results))
    if found:
        yield "\n| model | what | beside | ours over theirs | goal | |\n| --- | --- | --- | --- | --- | --- |"
    for model, what, way, ratio, goal in found:
        met = "" if goal is None else "met" if ratio <= goal else "missed"
        yield f"| {model} | {what} | {way} | {ratio:.2f} | {'' if goal is None else goal} | {met} |"
    bad = list(unlike(results))
    done = sum(isinstance(each, dict) and "left out" not in each for each in results.values())
    yield f"\n{done} steps done, {len(bad)} of them with something wrong{': ' if bad else ''}{', '.join(bad)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    print(*page(json.loads(parser.parse_args().results.read_text())), sep="\n")


if __name__ == "__main__":
    main()
