"""The page about a build: what it says, and how it looks in a browser. The build is written here."""

from __future__ import annotations

import ast
import html
import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hatch_precompile.config import load
from hatch_precompile.events import Event, collected, emit
from hatch_precompile.records import (
    Capture,
    CapturedEntry,
    CapturedFrame,
    Conditions,
    FixedValue,
    GraphRecord,
    SkippedFrame,
    TensorInput,
)
from hatch_precompile.report import render
from hatch_precompile.report.misses import expected_misses
from hatch_precompile.report.sizes import FAMILIES
from hatch_precompile.report.timeline import timeline
from tests.support.hardware import a_variant

CONFIG = load(
    {
        "variants": ["x86-64-v3", "x86-64-v4"],
        "report": True,
        "entrypoints": [
            {
                "target": "textmodel.model:Encoder",
                "samples": "textmodel.samples:encoder",
                "dynamic-shapes": {
                    "input_ids": {"0": {"name": "batch", "min": 2, "max": 64}},
                    "mask": {"0": "rows", "1": "columns"},
                },
            },
            {
                "target": "textmodel.model:Encoder",
                "samples": "textmodel.samples:train",
                "name": "training",
                "mode": "train",
            },
        ],
    },
    default_package="textmodel",
)


def entry(number: int, graphs: list[int], *, native: bool = True) -> CapturedEntry:
    return CapturedEntry(
        data=f"entries/{number}.entry",
        head=f"entries/{number}.head",
        source=f"entries/{number}.guards.txt",
        graphs=graphs,
        sample=number,
        checks=42,
        dropped=0,
        rebound=3,
        by_kind={"TENSOR_MATCH": 24, "TYPE_MATCH": 12, "EQUALS_MATCH": 4, "SHAPE_ENV": 1, "STAND_ASIDE": 1},
        native=native,
    )


def graph(number: int, **more: Any) -> GraphRecord:
    return GraphRecord(
        libraries={name: f"graphs/{number}-{name}.so" for name in ("x86-64-v3", "x86-64-v4")},
        inputs=9,
        outputs=1,
        readable=f"graphs/{number}.txt",
        **more,
    )


IDS = TensorInput("input_ids", "int64", [8, 16], [False, True])
ENCODER = Capture(
    name="encoder",
    target="textmodel.model:Encoder",
    home=("textmodel.model", [("a", "Encoder")]),
    kind="module class",
    samples=2,
    frames=[CapturedFrame("Encoder.forward", "textmodel.model", entries=[entry(0, [0]), entry(1, [1])])],
    graphs=[graph(0), graph(1)],
    resumes=[],
    seconds=12.0,
    conditions={
        "entries/0.entry": Conditions(
            [IDS],
            [
                FixedValue("pooling", "'mean'", True),
                *(FixedValue(f"self.layers[{i}].p", "0.1", False) for i in range(3)),
                FixedValue("self.scale", "0.5", False),
            ],
            ["2 <= input_ids.size()[0] <= 64"],
        ),
        "entries/1.entry": Conditions(
            [TensorInput("input_ids", "int64", [1, 16], [True, True])],
            [FixedValue("pooling", "'mean'", True), FixedValue("self.layers[0].p", "0.1", False)],
        ),
    },
)
TRAINING = Capture(
    name="training",
    target="textmodel.model:Encoder",
    home=("textmodel.model", [("a", "Encoder")]),
    kind="module class",
    samples=1,
    frames=[CapturedFrame("Encoder.forward", "textmodel.model", entries=[entry(0, [0], native=False)])],
    graphs=[graph(0, why_wrapped="it computes gradients")],
    resumes=[],
    seconds=9.0,
    conditions={"entries/0.entry": Conditions([TensorInput("input_ids", "int64", [8, 16], [True, True])])},
)
CAPTURES = list(zip(CONFIG.entrypoints, [ENCODER, TRAINING], strict=True))


def events() -> list[Event]:
    """The events of two entrypoints, captured and verified side by side."""
    found = []
    for name, start in (("encoder", 1000.0), ("training", 1002.0)):
        about: dict[str, Any] = {"entrypoint": name, "phase": "capture"}
        steps: list[tuple[float, dict[str, Any]]] = [
            (0, {"step": "start"}),
            (2, {"step": "import"}),
            (3, {"step": "sample", "sample": 1}),
            (4, {"step": "graph", "sample": 1, "graph": 0, "operations": 31}),
            (5, {"step": "variant", "sample": 1, "graph": 0, "variant": "x86-64-v3"}),
            (8, {"step": "variant-end", "sample": 1, "graph": 0, "variant": "x86-64-v3"}),
            (8, {"step": "variant", "sample": 1, "graph": 0, "variant": "x86-64-v4"}),
            (12, {"step": "variant-end", "sample": 1, "graph": 0, "variant": "x86-64-v4"}),
            (12.2, {"step": "graph-end", "sample": 1, "graph": 0, "operations": 31}),
            (12.5, {"step": "note", "text": "sample 1: <helper> has no tensor operation & stays as it is"}),
            (13, {"step": "sample-end", "sample": 1}),
            (13, {"step": "end"}),
        ]
        found += [Event(time=start + at, **about, **step) for at, step in steps]
        about["phase"] = "verify"
        steps = [
            (14, {"step": "start"}),
            (16, {"step": "sample", "sample": 1}),
            (17, {"step": "sample-end", "sample": 1, "difference": 2.5e-7}),
            (17, {"step": "end"}),
        ]
        found += [Event(time=start + at, **about, **step) for at, step in steps]
    return [*found, Event(step="built", time=1020.0)]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from hatch_precompile.bundle.writer import built_with, write_bundle

    root = tmp_path_factory.mktemp("build")
    captures = []
    for number, (entrypoint, captured) in enumerate(CAPTURES):
        source = root / captured.name
        for folder in ("entries", "graphs"):
            (source / folder).mkdir(parents=True)
        for record in captured.frames[0].entries:
            for file in (record.data, record.head, record.source):
                (source / file).write_bytes(b"x" * 900)
        for size, record in enumerate(captured.graphs, 2):
            (source / record.readable).write_text(
                "def forward(self, L_x_):\n" + "    mul = L_x_ * 2 < 3\n" * 300
            )
            for variant, library in enumerate(record.libraries.values(), 1):
                content = f"{number} {library}".encode()
                (source / library).write_bytes(content.ljust(20_000 * size * variant))
        captures.append((entrypoint, captured, source))
        assert number < 2
    variants = [a_variant(name, ("avx2",)) for name in CONFIG.variants]
    write_bundle(root / "bundle", captures, variants, built_with("2.13.0", "0" * 40))
    return root / "bundle"


@pytest.fixture(scope="module")
def page(bundle: Path) -> str:
    return render(CONFIG, CAPTURES, bundle, events())


class Text(HTMLParser):
    """The text of a page, and whether its elements are closed in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)


def parsed(page: str) -> Text:
    text = Text()
    text.feed(page)
    assert text.open == []
    return text


def words(page: str) -> str:
    return " ".join(" ".join(parsed(page).words).split())


class TestPage:
    def test_it_says_what_was_compiled(self, page: str) -> None:
        text = words(page)
        for part in ("textmodel: what was compiled", "encoder textmodel.model:Encoder module class no_grad"):
            assert part in text
        assert "2 entrypoints 3 entries 3 graphs, 6 libraries 126 checks" in text

    def test_nothing_comes_from_elsewhere(self, page: str) -> None:
        found = parsed(page)
        assert "<script" not in page and "@import" not in page and "url(" not in page
        assert not [tag for tag, name, _ in found.attributes if name in ("src", "href")]
        assert ("meta", "content", "default-src 'none'; style-src 'unsafe-inline'") in found.attributes

    def test_what_the_author_wrote_is_text(self, page: str) -> None:
        assert "sample 1: &lt;helper&gt; has no tensor operation &amp; stays as it is" in page
        assert "<helper>" not in page

    def test_warnings_are_said_once(self, page: str) -> None:
        text = words(page)
        assert (
            text.count("The first call of graph 0 imports torch._dynamo, because it computes gradients.") == 1
        )
        assert text.count("An entry of Encoder.forward imports torch._dynamo when it runs.") == 1

    def test_a_long_graph_is_cut_and_says_where_the_rest_is(self, page: str) -> None:
        assert "hatch-precompile inspect --graph encoder" in words(page)
        assert page.count("mul = L_x_ * 2 &lt; 3") == 3 * 199

    def test_an_unverified_build_says_so(self, bundle: Path) -> None:
        import msgspec

        unverified = msgspec.structs.replace(CONFIG, verify=False)
        assert "The samples were not verified" in words(render(unverified, CAPTURES, bundle, events()))

    def test_sizes_are_those_of_the_files(self, page: str, bundle: Path) -> None:
        total = sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file())
        text = words(page)
        assert f"{total / 1000:.3g} kB in the wheel, unpacked" in text
        assert "libraries, x86-64-v4: 280 kB" in text  # 40 + 60 of the encoder's, ...

    def test_what_was_taken_over_says_from_where(self, bundle: Path) -> None:
        taken = replace(ENCODER, conditions={}, taken_from="textmodel-0.9-cp311.whl")
        captures = [(CONFIG.entrypoints[0], taken), CAPTURES[1]]
        text = words(render(CONFIG, captures, bundle, events()))
        assert "Taken over from textmodel-0.9-cp311.whl ; the report of its build has this." in text

    def test_a_build_that_says_nothing_has_a_page_too(self, bundle: Path) -> None:
        assert "Timeline" in words(render(CONFIG, CAPTURES, bundle, []))


class TestTimeline:
    def test_each_step_is_a_bar_where_it_was(self) -> None:
        found = timeline(events())
        assert found.seconds == 20.0
        assert [lane.name for lane in found.lanes] == ["encoder", "training"]
        steps = {bar.label: (bar.left, bar.width) for bar in found.lanes[0].steps}
        assert steps["sample 1 is traced"] == (15.0, 50.0)
        assert steps["sample 1 is verified, largest difference from eager 2.5e-07"] == (80.0, 5.0)
        compiled = [(bar.label, bar.left, bar.width) for bar in found.lanes[0].compiled]
        assert ("graph 0 is compiled for x86-64-v3", 25.0, 15.0) in compiled
        assert ("graph 0, 31 operations", 20.0, 41.0) in compiled

    def test_what_did_not_end_has_no_bar(self) -> None:
        cut = [event for event in events() if event.step != "sample-end"]
        assert not [bar for lane in timeline(cut).lanes for bar in lane.steps if bar.kind != "start"]

    @pytest.mark.parametrize(
        ("seconds", "first"), [(20.0, "2 s"), (7.0, "1 s"), (900.0, "100 s"), (0.5, "0.05 s")]
    )
    def test_ticks_are_round(self, seconds: float, first: str) -> None:
        made = [Event(step="start", entrypoint="e", time=1000.0), Event(step="built", time=1000.0 + seconds)]
        ticks = timeline(made).ticks
        assert ticks[1][0] == first
        assert 5 <= len(ticks) <= 11

    def test_events_are_collected_while_they_are_emitted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HATCH_PRECOMPILE_EVENTS", raising=False)
        with collected() as outer:
            emit(Event(step="note", text="one"))
            with collected() as inner:
                emit(Event(step="note", text="two"))
        emit(Event(step="note", text="three"))
        assert [event.text for event in outer] == ["one", "two"]
        assert [event.text for event in inner] == ["two"]
        assert all(event.time for event in outer)


class TestMisses:
    def advice(self, number: int = 0) -> dict[str, str]:
        entrypoint, captured = CAPTURES[number]
        return {advice.calls: advice.remedy for advice in expected_misses(entrypoint, captured).advice}

    def test_a_size_that_nobody_declared(self) -> None:
        remedy = self.advice()["The size of dimension 1 of input_ids is not 16."]
        assert remedy == "Declare dynamic-shapes.input_ids.1, or give a sample for each size."

    def test_a_declared_size_has_its_range_and_the_samples_outside_of_it(self) -> None:
        remedy = self.advice()["The size of dimension 0 of input_ids is not 2 to 64, or 1."]
        assert remedy == "Widen its range in dynamic-shapes."

    def test_a_size_of_one_that_no_sample_has(self) -> None:
        entrypoint, captured = CAPTURES[0]
        only = Capture(**{name: getattr(captured, name) for name in captured.__struct_fields__} | {
            "conditions": {"entries/0.entry": Conditions([IDS])},
            "frames": [CapturedFrame("f", "m", entries=captured.frames[0].entries[:1])],
        })  # fmt: skip
        advice = {each.calls: each.remedy for each in expected_misses(entrypoint, only).advice}
        assert "with min = 1 a size of 1" in advice["The size of dimension 0 of input_ids is not 2 to 64."]

    def test_a_declared_size_that_no_sample_frees(self) -> None:
        entrypoint = load(
            {
                "entrypoints": [
                    {"target": "m:f", "samples": "m:s", "dynamic-shapes": {"input_ids": {"0": "n"}}}
                ]
            },
            default_package="m",
        ).entrypoints[0]
        advice = {each.calls: each.remedy for each in expected_misses(entrypoint, TRAINING).advice}
        assert advice["The size of dimension 0 of input_ids is not 8."].startswith("It is declared, but")

    def test_slices_of_what_was_contiguous_at_the_build(self) -> None:
        calls = "input_ids is not contiguous, as a slice input_ids[:, :20] or a transposed tensor is not."
        assert self.advice()[calls].startswith("Pass input_ids.contiguous(), or")

    def test_values_and_types(self) -> None:
        advice = self.advice()
        assert "pooling is not 'mean'." in advice
        assert "input_ids has another dtype than int64, or not 2 dimensions." in advice
        assert next(iter(advice)).startswith("Calls with gradients on")
        assert next(iter(self.advice(1))).startswith("Calls under torch.no_grad()")

    def test_what_torch_compile_skipped_comes_first(self) -> None:
        entrypoint, captured = CAPTURES[0]
        skipping = replace(
            captured, skipped=[SkippedFrame("loops", "graph break in loop, at m.py:3 in loops")]
        )
        first = expected_misses(entrypoint, skipping).advice[0]
        assert first.calls.startswith("loops runs as Python in every call")
        assert first.calls.endswith("graph break in loop, at m.py:3 in loops.")
        assert first.remedy

    def test_values_of_equal_layers_are_one_line(self) -> None:
        found = expected_misses(*CAPTURES[0])
        assert found.attributes == [("self.layers[*].p", "0.1", 3), ("self.scale", "0.5", 1)]


def chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def pages(page: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "page.html").write_text(page)
    return folder


@pytest.fixture(scope="module")
def light(pages: Path) -> Any:
    return photographed(pages, "light")


def photographed(folder: Path, theme: str) -> Any:
    image = pytest.importorskip("PIL.Image")
    file = folder / f"{theme}.png"
    scheme = {"dark": 0, "light": 1}[theme]  # Chromium's own numbers
    looked_at(folder, f"--screenshot={file}", f"--blink-settings=preferredColorScheme={scheme}")
    return image.open(file).convert("RGB")


FRAMED = """<!doctype html>
<iframe id="frame" src="page.html" style="border:0;width:{width}px;height:4000px"></iframe>
<output id="measured"></output>
<script>
const frame = document.getElementById("frame");
const broken = each => [...each.textContent.matchAll(/[^ ]+/g)].filter(word => {{
  const range = frame.contentDocument.createRange();
  range.setStart(each.firstChild, word.index);
  range.setEnd(each.firstChild, word.index + word[0].length);
  return range.getClientRects().length > 1;
}}).map(word => word[0]);
frame.onload = () => {{
  const root = frame.contentDocument.documentElement;
  for (const each of root.querySelectorAll("details")) each.open = true;
  const tables = [...root.querySelectorAll("div.scroll")];
  document.getElementById("measured").textContent = JSON.stringify({{
    page: root.scrollWidth,
    tables: tables.length,
    wide: tables.filter(each => each.scrollWidth > each.clientWidth).map(each => each.innerText.slice(0, 80)),
    broken: [...root.querySelectorAll("th")].flatMap(broken),
    named: [...root.querySelectorAll(".stacked td")].filter(
      each => frame.contentWindow.getComputedStyle(each, "::before").content.startsWith('"')
    ).length,
  }});
}};
</script>
"""


def looked_at(folder: Path, *options: str, page: str = "page.html") -> str:
    browser = chromium()
    assert browser is not None
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        f"--user-data-dir={folder / 'profile'}", "--hide-scrollbars", "--window-size=1100,3000",
        "--allow-file-access-from-files", *options, (folder / page).as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.skipif(
    chromium() is None and not os.environ.get("CI"), reason="there is no Chromium to look at the page with"
)
class TestInABrowser:
    def test_it_is_drawn(self, pages: Path) -> None:
        document = looked_at(pages, "--dump-dom")
        assert document.count('class="lane"') == 2
        assert len(re.findall(r'<i class="variant k\d" style="left:[\d.]+%;width:[\d.]+%"', document)) == 4
        assert "What will not hit" in document

    def test_light_and_dark_differ_and_both_are_full(self, pages: Path, light: Any) -> None:
        dark = photographed(pages, "dark")
        for picture in (light, dark):
            assert len(picture.getcolors(picture.width * picture.height)) > 100
        # The corner is the paper, and the text stands out from it.
        assert brightness(light.getpixel((0, 0))) > 200 > 60 > brightness(dark.getpixel((0, 0)))
        heading = (0, 0, light.width, 120)
        assert light.crop(heading).convert("L").getextrema()[0] < 90
        assert dark.crop(heading).convert("L").getextrema()[1] > 190

    @pytest.mark.parametrize("width", [1280, 400])
    def test_every_column_is_on_the_screen(self, pages: Path, width: int) -> None:
        """In a frame of that width: what is wider than the place it has, of the page and of its tables."""
        (pages / "framed.html").write_text(FRAMED.format(width=width))
        document = looked_at(pages, "--dump-dom", "--virtual-time-budget=3000", page="framed.html")
        (measured,) = re.findall(r'<output id="measured">(.*?)</output>', document)
        seen = json.loads(html.unescape(measured))
        assert seen["tables"] > 3
        assert (seen["page"], seen["wide"], seen["broken"]) == (width, [], [])
        # On a narrow screen the cells of the widest tables say which column they are of.
        assert seen["named"] == (0 if width == 1280 else 3 * (7 + 4))

    def test_bars_are_as_long_as_the_timeline_says(self, light: Any) -> None:
        """Tracing a sample takes half of the whole: bars of that colour and of half of the track's width."""
        blue = (0x3B, 0x6F, 0xD6)
        widths = set()
        for row in range(0, light.height, 5):
            pixels = [light.getpixel((column, row)) for column in range(light.width)]
            widths |= {
                length for length in runs([close(pixel, blue, 24) for pixel in pixels]) if length > 200
            }
        card = 1080 - 2 * (24 + 1 + 20)  # less the paddings of the page and of the card
        track = card - 150 - 14
        assert any(abs(width - track / 2) < 3 for width in widths), (widths, track)


def runs(flags: list[bool]) -> Iterator[int]:
    """The lengths of the runs of true flags."""
    for flag, group in itertools.groupby(flags):
        if flag:
            yield len(list(group))


def close(pixel: tuple[int, ...], colour: tuple[int, int, int], by: int) -> bool:
    return all(abs(a - b) <= by for a, b in zip(pixel[:3], colour, strict=True))


def brightness(pixel: tuple[int, ...]) -> float:
    return 0.3 * pixel[0] + 0.6 * pixel[1] + 0.1 * pixel[2]


def test_every_family_of_guards_has_a_colour() -> None:
    source = resources.files("hatch_precompile.report").joinpath("page.html").read_text()
    (families,) = re.findall(r"set of_families = (\{.*?\})", source)
    assert set(ast.literal_eval(families)) == {*FAMILIES, "Python values"}
