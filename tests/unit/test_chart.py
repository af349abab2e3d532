"""The chart of the README: bars that say what the results say, readable on white and on black."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
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
            "eager": {"after_model_s": 0.5},
            "cold": {"after_model_s": 20.0},
            "fxcache": {"after_model_s": 10.0},
            "caching_precompile": {"error": "AttributeError: <lambda> & co"},
            "wheel": {"after_model_s": 0.004},
            "a way of a later version": {"after_model_s": 99.0},
        }
    },
}


@pytest.fixture(scope="module")
def chart() -> ModuleType:
    spec = spec_from_file_location("chart", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def drawn(chart: ModuleType) -> ET.Element:
    return ET.fromstring(chart.draw(RESULTS, "bert"))


def texts(drawn: ET.Element) -> list[str]:
    return [text.text or "" for text in drawn.iter(f"{SVG}text")]


def test_bars_are_as_long_as_the_times(drawn: ET.Element) -> None:
    widths = [float(bar.get("width", 0)) for bar in drawn.iter(f"{SVG}rect")]
    eager, cold, warm, wheel = widths
    assert cold == pytest.approx(2 * warm, abs=0.1) == pytest.approx(40 * eager, abs=2)
    assert 0 < wheel < eager
    assert {"20.0 s", "10.0 s", "0.50 s", "0.004 s"} <= set(texts(drawn))


def test_a_way_that_failed_has_no_bar_but_is_named(drawn: ET.Element) -> None:
    words = texts(drawn)
    assert words[words.index("caching_precompile, same machine") + 1] == "fails"
    assert len(list(drawn.iter(f"{SVG}rect"))) == 4


def test_nothing_is_drawn_outside_or_over_another(drawn: ET.Element) -> None:
    _, _, width, height = map(float, drawn.get("viewBox", "").split())
    bars = list(drawn.iter(f"{SVG}rect"))
    for bar in bars:
        assert float(bar.get("x", 0)) + float(bar.get("width", 0)) < width
        assert float(bar.get("y", 0)) + float(bar.get("height", 0)) < height
    for above, below in pairwise(bars):
        assert float(above.get("y", 0)) + float(above.get("height", 0)) < float(below.get("y", 0))


@pytest.mark.parametrize("page", ["#ffffff", "#0d1117"])
def test_every_colour_can_be_read_on_githubs_pages(chart: ModuleType, page: str) -> None:
    for colour in (chart.TEXT, chart.BAR, chart.OTHER):
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


def test_the_readmes_chart_is_there() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    assert "(docs/cold-start.svg)" in readme
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
