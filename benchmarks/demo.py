"""The demonstration: plugin's wheel, example's wheel, clean environment, the real job, and what it cost.

Run by `make demo` with the Python of an environment that has `build`. Writes build/demo.json and leaves both
wheels in build/dist/. Exits with 1 if the ways disagree, or the bundle did not serve the wheel's calls.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import medians
from models import ROOT
from processes import RunError, run_timed
from wheels import build_wheel, builds_use, clean_environment

QUERY = "how are guards checked"
BATCH = 16
JOB = Path(__file__).resolve().with_name("demo_job.py")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
FIELDS = ("process_s", "after_model_s", "steady_ms", "batch_ms", "rss_mb", "peak_mb")

Fields = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where the example runs: the clean environment's Python, and an empty folder to live in."""

    python: Path
    empty: Path

    def environment(self, way: str) -> dict[str, str]:
        """Nothing of this process's environment, no compiler and an empty home; for "jit", a compiler."""
        bare = {"HOME": str(self.fresh("home")), "PATH": str(self.fresh("path")), "LANG": "C.UTF-8"}
        if way == "wheel":
            return bare | {"CXX": "/nonexistent/c++"}
        bare["HATCH_PRECOMPILE"] = "off"
        if way == "eager":
            return bare | {"CXX": "/nonexistent/c++"}
        compiler = {name: os.environ[name] for name in ("PATH", "CXX", "CC") if name in os.environ}
        return bare | compiler | {"TORCHINDUCTOR_CACHE_DIR": str(self.fresh("cache"))}

    def fresh(self, name: str) -> Path:
        """A new, empty folder."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.empty))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=9, help="of eager and of the wheel (default: 9)")
    parser.add_argument("--jit-runs", type=int, default=1, help="of cold torch.compile (default: 1)")
    options = parser.parse_args()
    build = ROOT / "build"
    build.mkdir(exist_ok=True)
    (build / "demo.json").unlink(missing_ok=True)
    try:
        python = install_example(build)
        with tempfile.TemporaryDirectory(prefix="demo-") as empty:
            place = Place(python, Path(empty))
            answer(place)
            runs = measure(place, prose(build), options.runs, options.jit_runs)
    except RunError as failure:
        sys.exit(f"demo: {failure}")
    reasons = list(dict.fromkeys(disagreements(runs)))
    ways = {way: summary(kept) for way, kept in runs.items()}
    (build / "demo.json").write_text(json.dumps({"match": not reasons, "ways": ways}, indent=2) + "\n")
    report(ways)
    if reasons:
        sys.exit("demo: " + "; ".join(reasons))


def install_example(build: Path) -> Path:
    """Both wheels into build/dist, the example's into a clean environment; that one's Python."""
    dist, logs = build / "dist", build / "demo"
    say("building the plugin's wheel")
    plugin, seconds = build_wheel(ROOT, dist, logs / "plugin.log")
    say(f"  {plugin.name}, {seconds:.0f} s")
    say("building the example's wheel with it, isolated")
    example, seconds = build_wheel(
        ROOT / "example_project", dist, logs / "example.log", builds_use(plugin, logs)
    )
    say(f"  {example.name}, {example.stat().st_size / 1e6:.1f} MB, {seconds:.0f} s")
    say("installing it in a clean environment")
    return clean_environment(ROOT / ".venv-demo", example, logs / "install.log")


def answer(place: Place) -> None:
    """Run the example's command as its user would, and print what it prints. Raises RunError."""
    files = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
    environment = place.environment("wheel")
    say(f'\n$ minilm-search "{QUERY}" docs/*.md README.md --top 5    (no compiler, empty home)')
    done = subprocess.run(
        [place.python.with_name("minilm-search"), QUERY, *files, "--top", "5"],
        check=False,
        env=environment,
        cwd=place.fresh("elsewhere"),
        capture_output=True,
        text=True,
    )
    say(done.stdout.replace(f"{ROOT}{os.sep}", "") + done.stderr)
    if done.returncode:
        raise RunError(f"minilm-search exited with {done.returncode}")
    if left := sorted(path.name for path in Path(environment["HOME"]).iterdir()):
        raise RunError(f"minilm-search wrote into the home directory: {', '.join(left)}")


def prose(build: Path) -> Path:
    """A file of BATCH lines of this repository's prose, from all over it. Raises RunError."""
    texts = [
        path.read_text(encoding="utf-8")
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    ]
    lines = [line.strip() for text in texts for line in FENCED.sub("", text).splitlines()]
    sentences = [line for line in lines if line[:1].isalpha() and len(line.split()) >= 8]
    if len(sentences) < BATCH:
        raise RunError(f"README.md and docs/ hold {len(sentences)} lines of prose; {BATCH} are wanted")
    file = build / "demo" / "lines.txt"
    file.write_text("\n".join(sentences[:: len(sentences) // BATCH][:BATCH]) + "\n", encoding="utf-8")
    return file


def measure(place: Place, lines: Path, runs: int, jit_runs: int) -> dict[str, list[Fields]]:
    """Each way's runs, alternating, each in a process of its own. Raises RunError."""
    wanted = {"eager": runs, "jit": jit_runs, "wheel": runs}
    kept: dict[str, list[Fields]] = {way: [] for way in wanted}
    run_job(place, "eager", lines)  # Not kept: it brings what all of them read into the page cache.
    for turn in range(max(wanted.values())):
        for way, count in wanted.items():
            if turn < count:
                kept[way].append(run_job(place, way, lines))
                say(f"{way} {turn + 1} of {count}: {kept[way][-1]['process_s']:.2f} s to the answer")
    return kept


def run_job(place: Place, way: str, lines: Path) -> Fields:
    outcome = run_timed(
        [place.python, JOB, way, QUERY, lines], env=place.environment(way), cwd=place.fresh("elsewhere")
    )
    return {"process_s": outcome.process_s, **outcome.fields}


def disagreements(runs: Mapping[str, list[Fields]]) -> Iterator[str]:
    """Why the ways do not match: other embeddings or answers, or a wheel that did not serve its calls."""
    eager = runs["eager"][0]
    for way, fields in ((way, fields) for way, kept in runs.items() for fields in kept):
        if not close(fields["embeddings"], eager["embeddings"]):
            yield f"the embeddings of {way} are not those of eager"
        if fields["answer"] != eager["answer"]:
            yield f"the answer of {way} is not that of eager"
    for fields in runs["wheel"]:
        if not fields["hits"] or fields["misses"]:
            yield f"the wheel's bundle had {fields['hits']} hits and {fields['misses']} misses"
        if fields["imported"]:
            yield f"the wheel's process imported {', '.join(fields['imported'])}"


def summary(runs: list[Fields]) -> Fields:
    """The medians of what was timed, and what the last run says besides."""
    last = {name: value for name, value in runs[-1].items() if name != "embeddings"}
    timed = medians([{name: fields[name] for name in FIELDS} for fields in runs])
    return last | timed | {"runs": len(runs)}


def close(left: list[float], right: list[float]) -> bool:
    """As torch.allclose(rtol=1e-4, atol=1e-5): no torch in this environment."""
    return len(left) == len(right) and all(
        math.isclose(a, b, rel_tol=0, abs_tol=1e-5 + 1e-4 * abs(b)) for a, b in zip(left, right, strict=True)
    )


def report(ways: Mapping[str, Fields]) -> None:
    """Print the table, and the two ratios with their limits."""
    say("\n" + "".join(f"{title:>15}" for title in ("way", *FIELDS)))
    for way, fields in ways.items():
        say(f"{way:>15}" + "".join(f"{fields[name]:15.3f}" for name in FIELDS))
    process = {way: fields["process_s"] for way, fields in ways.items()}
    slower, faster = process["wheel"] / process["eager"], process["jit"] / process["wheel"]
    say(f"\nwheel against eager, whole process: {slower:.2f} x (at most 1.05: {verdict(slower <= 1.05)})")
    say(f"torch.compile against wheel, whole process: {faster:.1f} x (at least 8: {verdict(faster >= 8)})")
    say("steady_ms: a query, tokenization included; batch_ms: the same for 16 lines.")


def verdict(passed: bool) -> str:
    return "pass" if passed else "FAIL"


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
