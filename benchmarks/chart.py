"""The chart of benchmarks/README.md, drawn from the benchmarks' results:

    python benchmarks/chart.py [build/bench.json] [--model bert] [--out docs/cold-start.svg]

A point for each way: across, the seconds from a model that is built to its first answer; up, the
milliseconds of each answer after that. Both axes are logarithmic; near the lower left corner is good. The
colours can be read on a white and on a black page alike: an image on a page is not told which it stands on.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["OTHER", "OURS", "TEXT", "draw"]

ROOT = Path(__file__).parents[1]

# Name in bench.json, and what a reader calls it.
LABELS = {
    "wheel_fixed": "wheel, weights fixed",
    "wheel": "wheel",
    "eager": "eager",
    "cold": "torch.compile, cold",
    "fxcache": "torch.compile, warm cache",
    "freezing": "torch.compile, freezing",
    "max_autotune": "max-autotune",
    "megacache": "Mega-cache",
    "caching_precompile": "caching_precompile",
    "aoti": "AOTInductor",
    "aoti_raw": "AOTInductor, raw loader",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
}
MODELS = {
    "mlp": "two linear layers",
    "minilm": "MiniLM, a sentence",
    "minilm_16": "MiniLM, 16 sentences",
    "bert": "BERT-base",
    "gpt2": "GPT-2",
    "resnet": "ResNet-50",
    "llama": "a token of Llama",
}

TEXT = "#768390"
OURS = "#e0561b"
OTHER = "#7f8ea3"
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 880, 460, 70, 30, 50, 84
_FONT = "-apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
_RADIUS, _LINE, _CHARACTER = 6, 16, 8.2
"""Of points; of text, in pixels: wider than most fonts have it."""


class Box(NamedTuple):
    """What a point or a text takes, in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis: values to pixels."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: list[float], start: float, end: float) -> Scale:
        """With some room on both sides of the values."""
        return cls(min(values) / 1.35, max(values) * 1.35, start, end)

    def __call__(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers within, few enough to be read."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        ticks: list[float] = []
        for digits in ((1,), (1, 2, 5), range(1, 10)):
            ticks = [digit * 10.0**power for power in powers for digit in digits]
            ticks = [tick for tick in ticks if self.low <= tick <= self.high]
            if len(ticks) >= 4:
                break
        return ticks


def draw(document: Mapping[str, Any], model: str) -> str:
    """The SVG. Raises KeyError where the results have no such model."""
    measured = document["models"][model]
    ways = {name: measured[name] for name in LABELS if name in measured}
    failed = [LABELS[name] for name, way in ways.items() if "error" in way]
    points = {
        name: (way["after_model_s"], way["steady_ms"]) for name, way in ways.items() if "error" not in way
    }
    across = Scale.over([first for first, _ in points.values()], _LEFT, _WIDTH - _RIGHT)
    up = Scale.over([each for _, each in points.values()], _HEIGHT - _BOTTOM, _TOP)
    body = "\n".join([*_axes(across, up), *_points(points, across, up)])
    machine = document["machine"]
    where = f"{machine['cores']} cores, {machine['platform']}, torch {machine['torch']}"
    notes = [where, "each way in a process of its own", *(f"fails: {label}" for label in failed)]
    title = f"{MODELS.get(model, model)}: time to the first answer, and of each answer"
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" \
role="img" aria-labelledby="title" font-family="{_FONT}" font-size="13" fill="{TEXT}">
<title id="title">{escape(title)}</title>
<text x="0" y="22" font-size="17" font-weight="600">{escape(title)}</text>
{body}
<text x="0" y="{_HEIGHT - 6}" font-size="12">{escape("; ".join(notes))}</text>
</svg>
"""


def _axes(across: Scale, up: Scale) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    line = f'stroke="{OTHER}" stroke-opacity="0.3"'
    for tick in across.ticks():
        x = across(tick)
        yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" {line}/>'
        yield f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{tick:g} s</text>'
    for tick in up.ticks():
        y = up(tick)
        yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" {line}/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g} ms</text>'
    middle = (_LEFT + right) / 2
    yield (
        f'<text x="{middle:.1f}" y="{bottom + 44}" text-anchor="middle">'
        "from the built model to the first answer</text>"
    )
    yield f'<text x="0" y="{_TOP - 8}">each answer</text>'


def _points(points: Mapping[str, tuple[float, float]], across: Scale, up: Scale) -> Iterator[str]:
    places = {name: (across(first), up(each)) for name, (first, each) in points.items()}
    taken = [Box(x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS) for x, y in places.values()]
    for name, (x, y) in places.items():
        first, each = points[name]
        ours = name.startswith("wheel")
        colour, weight = (OURS, ' font-weight="600"') if ours else (OTHER, "")
        label = LABELS[name]
        box = _free(x, y, len(label) * _CHARACTER, taken)
        taken.append(box)
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}" fill="{colour}">'
            f"<title>{escape(label)}: {first:.3g} s, {each:.3g} ms</title></circle>"
        )
        fill = f' fill="{OURS}"' if ours else ""
        yield f'<text x="{box.left:.1f}" y="{box.bottom - 4:.1f}"{weight}{fill}>{escape(label)}</text>'


def _free(x: float, y: float, width: float, taken: list[Box]) -> Box:
    """Where a label can stand beside its point: nearest first, right before left. The last place if none."""
    gap = _RADIUS + 4
    place = Box(0, 0, 0, 0)
    for down in sorted(range(-8 * _LINE, 8 * _LINE + 1, _LINE // 2), key=abs):
        for left in (x + gap, x - gap - width, x - width / 2):
            place = Box(left, y + down - _LINE / 2, left + width, y + down + _LINE / 2)
            inside = place.left >= _LEFT and place.right <= _WIDTH and place.top >= _TOP
            if inside and place.bottom < _HEIGHT - _BOTTOM and not any(map(place.overlaps, taken)):
                return place
    return place


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
