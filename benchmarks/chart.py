"""The cold-start chart of the README, drawn from the benchmarks' results:

    python benchmarks/chart.py [build/bench.json] [--model bert] [--out docs/cold-start.svg]

One bar for each way: the seconds from a model that is built to its first answer. The colours can be read on
a white and on a black page alike: an image on a page is not told which of the two it stands on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["BAR", "OTHER", "TEXT", "draw"]

ROOT = Path(__file__).parents[1]

# Name in bench.json, and what a reader calls it. The order is that of the story: from nothing to ours.
LABELS = {
    "eager": "eager, nothing compiled",
    "cold": "torch.compile, cold",
    "megacache": "Mega-cache, fresh machine",
    "fxcache": "torch.compile, warm cache, same machine",
    "caching_precompile": "caching_precompile, same machine",
    "aoti": "AOTInductor, aoti_load_package",
    "aoti_raw": "AOTInductor, raw loader (no guards)",
    "wheel": "the wheel",
}
MODELS = {"mlp": "two linear layers", "minilm": "MiniLM", "bert": "BERT-base"}

TEXT = "#768390"
BAR = "#e0561b"
OTHER = "#7f8ea3"
_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 880, 300, 80, 58, 30
_FONT = "-apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


def draw(document: Mapping[str, Any], model: str) -> str:
    """The SVG. Raises KeyError where the results have no such model."""
    ways = {name: document["models"][model][name] for name in LABELS if name in document["models"][model]}
    machine = document["machine"]
    most = max(way["after_model_s"] for way in ways.values() if "error" not in way)
    height = _TOP + _ROW * len(ways) + 34
    body = "\n".join(_rows(ways, most))
    title = f"{MODELS.get(model, model)}: seconds from the built model to its first answer"
    where = f"{machine['cores']} cores, {machine['platform']}, torch {machine['torch']}"
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" \
role="img" aria-labelledby="title" font-family="{_FONT}" font-size="14" fill="{TEXT}">
<title id="title">{escape(title)}</title>
<text x="0" y="22" font-size="17" font-weight="600">{escape(title)}</text>
{body}
<text x="0" y="{height - 6}" font-size="12">{escape(where)}; each way in a process of its own</text>
</svg>
"""


def _rows(ways: Mapping[str, Mapping[str, Any]], most: float) -> Iterator[str]:
    for number, (name, way) in enumerate(ways.items()):
        y = _TOP + _ROW * number
        ours = name == "wheel"
        weight = f' font-weight="600" fill="{BAR}"' if ours else ""
        yield f'<text x="{_LEFT - 12}" y="{y + 5}" text-anchor="end"{weight}>{escape(LABELS[name])}</text>'
        if "error" in way:
            yield f'<text x="{_LEFT}" y="{y + 5}" font-style="italic">fails</text>'
            continue
        seconds = way["after_model_s"]
        # Never nothing: the shortest times are the point.
        width = max((_WIDTH - _LEFT - _RIGHT) * seconds / most, 2)
        colour = BAR if ours else OTHER
        yield f'<rect x="{_LEFT}" y="{y - 9}" width="{width:.1f}" height="18" rx="3" fill="{colour}"/>'
        yield f'<text x="{_LEFT + width + 8:.1f}" y="{y + 5}"{weight}>{_seconds(seconds)}</text>'


def _seconds(seconds: float) -> str:
    return (
        f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2f} s" if seconds >= 0.01 else f"{seconds:.3f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, nargs="?", default=ROOT / "build" / "bench.json")
    parser.add_argument("--model", default="bert", help="default: bert")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "cold-start.svg")
    options = parser.parse_args()
    try:
        document = json.loads(options.results.read_text("utf-8"))
    except OSError as error:
        sys.exit(f"chart.py: {options.results}: {error.strerror}; make bench writes it")
    if options.model not in document["models"]:
        sys.exit(f"chart.py: {options.results} has no model {options.model}: {', '.join(document['models'])}")
    options.out.write_text(draw(document, options.model), "utf-8")
    print(f"Written: {options.out}")


if __name__ == "__main__":
    main()
