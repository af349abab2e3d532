"""The chart of benchmarks/README.md: points that say what the results say, readable on white and on black."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "benchmarks" / "chart.py"
SVG = "{http://www.w3.org/2000/svg}"

RESULTS: dict[str, Any] = {
    "machine": {"torch": "2.13.0+cpu", "Python": "3.11.7", "platform": "Linux x86_64", "cores": "2"},
    "models": {
        "bert": {
            "eager": {"after_model_s": 0.1, "steady_ms": 160.0},
            "cold": {"after_model_s": 10.0, "steady_ms": 80.0},
            "fxcache": {"after_model_s": 1.0, "steady_ms": 80.0},
            # One point over another: their labels are not.
            "freezing": {"after_model_s": 10.0, "steady_ms": 80.0},
            "max_autotune": {"after_model_s": 10.0, "steady_ms": 80.1},
            "caching_precompile": {"error": "AttributeError: <lambda> & co"},
            "wheel": {"after_model_s": 0.1, "steady_ms": 80.0},
            "wheel_fixed": {"after_model_s": 0.2, "steady_ms": 40.0},
            "a way of a later version": {"after_model_s": 99.0, "steady_ms": 1.0},
        }
    },
}


@pytest.fixture(scope="module")
def chart() -> ModuleType:
    spec = spec_from_file_location("chart", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["chart"] = module  # dataclasses ask for it there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def drawn(chart: ModuleType) -> ET.Element:
    return ET.fromstring(chart.draw(RESULTS, "bert"))


def texts(drawn: ET.Element) -> list[str]:
    return [text.text or "" for text in drawn.iter(f"{SVG}text")]


def points(drawn: ET.Element) -> dict[str, tuple[float, float]]:
    """Where each way's point is, across and down, by its label."""
    return {
        (circle.findtext(f"{SVG}title") or "").partition(":")[0]: (
            float(circle.get("cx", 0)),
            float(circle.get("cy", 0)),
        )
        for circle in drawn.iter(f"{SVG}circle")
    }


def test_points_are_where_the_times_put_them(drawn: ET.Element) -> None:
    at = points(drawn)
    eager, cold, warm = at["eager"], at["torch.compile, cold"], at["torch.compile, warm cache"]
    wheel, fixed = at["wheel"], at["wheel, weights fixed"]
    # Ten times as long is as far, wherever it is; so is half as long.
    assert cold[0] - warm[0] == pytest.approx(warm[0] - wheel[0], abs=0.2)
    assert fixed[1] - wheel[1] == pytest.approx(wheel[1] - eager[1], abs=0.2)
    assert wheel[0] == eager[0] < fixed[0] < warm[0]
    assert eager[1] < wheel[1] < fixed[1]  # down the page is faster


def test_the_axes_say_what_the_points_are(drawn: ET.Element) -> None:
    at = points(drawn)
    (second,) = [text for text in drawn.iter(f"{SVG}text") if text.text == "1 s"]
    assert float(second.get("x", 0)) == pytest.approx(at["torch.compile, warm cache"][0], abs=0.2)
    hundred = next(text for text in drawn.iter(f"{SVG}text") if text.text == "100 ms")
    assert at["eager"][1] < float(hundred.get("y", 0)) < at["wheel"][1]


def test_a_way_that_failed_has_no_point_but_is_named(drawn: ET.Element) -> None:
    assert "caching_precompile" not in points(drawn)
    assert "fails: caching_precompile" in texts(drawn)[-1]
    assert len(points(drawn)) == 7


def test_nothing_is_drawn_outside_or_over_another(chart: ModuleType, drawn: ET.Element) -> None:
    _, _, width, height = map(float, drawn.get("viewBox", "").split())
    labels = [text for text in drawn.iter(f"{SVG}text") if text.text in chart.LABELS.values()]
    assert len(labels) == 7
    boxes = []
    for label in labels:
        x, y = float(label.get("x", 0)), float(label.get("y", 0))
        boxes.append((x, y - 11, x + 7 * len(label.text or ""), y + 3))
    boxes += [(x - 6, y - 6, x + 6, y + 6) for x, y in points(drawn).values()]
    for left, top, right, bottom in boxes:
        assert left >= 0 and right <= width and top >= 0 and bottom <= height
    for number, label in enumerate(boxes[:7]):
        for other in [*boxes[:number], *boxes[7:]]:
            apart = (
                label[2] <= other[0] or other[2] <= label[0] or label[3] <= other[1] or other[3] <= label[1]
            )
            assert apart, labels[number].text


@pytest.mark.parametrize("page", ["#ffffff", "#0d1117"])
def test_every_colour_can_be_read_on_githubs_pages(chart: ModuleType, page: str) -> None:
    for colour in (chart.TEXT, chart.OURS, chart.OTHER):
        assert contrast(colour, page) >= 3, colour


def test_it_depends_on_nothing_outside(chart: ModuleType) -> None:
    text = chart.draw(RESULTS, "bert")
    assert "<script" not in text and "href" not in text and "url(" not in text


def test_the_command_draws_a_file_of_results(tmp_path: Path) -> None:
    results, out = tmp_path / "bench.json", tmp_path / "chart.svg"
    results.write_text(json.dumps(RESULTS))
    subprocess.run([sys.executable, SCRIPT, results, "--out", out], check=True, capture_output=True)
    assert "BERT-base" in out.read_text()
    unknown = subprocess.run(
        [sys.executable, SCRIPT, results, "--model", "gpt"], check=False, capture_output=True, text=True
    )
    assert unknown.returncode == 1
    assert unknown.stderr == f"chart.py: {results} has no model gpt: bert\n"


def test_the_chart_is_there_and_shown() -> None:
    page = (REPOSITORY / "benchmarks/README.md").read_text()
    assert "(../docs/cold-start.svg)" in page
    ET.fromstring((REPOSITORY / "docs" / "cold-start.svg").read_text())


def contrast(first: str, second: str) -> float:
    """The contrast ratio of the Web Content Accessibility Guidelines, 1 to 21."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)
