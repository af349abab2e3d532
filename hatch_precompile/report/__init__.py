"""The pages about a build (`report = true`): HTML files, with nothing to be fetched from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from hatch_precompile.config import Config, Entrypoint
from hatch_precompile.events import Event
from hatch_precompile.formatting import in_bytes
from hatch_precompile.records import Capture
from hatch_precompile.report.misses import expected_misses
from hatch_precompile.report.sizes import graph_bars, guard_bars, shares
from hatch_precompile.report.timeline import timeline

__all__ = ["render", "render_matrix"]

# Of each graph's readable text; the whole is in the wheel.
_LINES = 200


@dataclass(frozen=True)
class _Row:
    """An entrypoint as the bundle has it."""

    record: dict[str, Any]
    entries: list[dict[str, Any]]
    graphs: list[tuple[str, str, bool]]
    """Name, text, and whether that is all of it."""
    size: int


def render(
    config: Config, captures: Sequence[tuple[Entrypoint, Capture]], bundle: Path, events: Sequence[Event]
) -> str:
    """The page. `bundle`: the finished one; `events`: those of the whole build, for the timeline."""
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    rows = [_row(record, manifest, bundle) for record in manifest["entrypoints"]]
    return _template("page.html").render(
        package=config.package,
        built_with=manifest["built_with"],
        variants=manifest["variants"],
        rows=rows,
        entries=sum(len(frame["entries"]) for frame in manifest["frames"]),
        libraries=sum(file.suffix == ".so" for file in bundle.rglob("*")),
        graphs=len(manifest["graphs"]),
        checks=sum(entry["checks"] for frame in manifest["frames"] for entry in frame["entries"]),
        total=sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file()),
        verified=bool(config.verify),
        warnings=list(_warnings(manifest, events)),
        misses=[expected_misses(entrypoint, captured) for entrypoint, captured in captures],
        timeline=timeline(events),
        shares=shares(manifest, bundle),
        graph_bars=graph_bars(manifest, bundle),
        guard_bars=guard_bars(manifest),
    )


def render_matrix(summary: Mapping[str, Any], pages: Mapping[str, str]) -> str:
    """The page about all cells of a merged wheel.

    summary: as `hatch-precompile build --matrix --json` prints it; pages: the files of the cells' own, by
    the names of the cells
    """
    cells = [{**cell, "page": pages.get(cell["name"])} for cell in summary["cells"]]
    return _template("matrix.html").render(
        wheel=Path(summary["wheel"]).name,
        bytes=summary["bytes"],
        seconds=summary["seconds"],
        cells=cells,
        names={each["name"] for cell in cells for each in cell["entrypoints"]},
        problems=[(cell["name"], text) for cell in cells for text in cell["left_out"]],
    )


def _template(name: str) -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["size"] = in_bytes
    environment.filters["zip"] = lambda names, colours: zip(names, cycle(colours), strict=False)
    environment.filters["given"] = lambda value, form: "" if value is None else form % value
    texts = files(__name__)
    environment.globals["style"] = Markup(texts.joinpath("style.css").read_text("utf-8"))
    return environment.from_string(texts.joinpath(name).read_text("utf-8"))


def _row(record: dict[str, Any], manifest: dict[str, Any], bundle: Path) -> _Row:
    name = record["name"]
    graphs = [graph for graph in manifest["graphs"] if graph["readable"].startswith(f"{name}/")]
    folder = bundle / name
    return _Row(
        record,
        # A frame that entrypoints share has the entries of all of them.
        [
            {**entry, "frame": manifest["frames"][number]["qualname"]}
            for number in record["frames"]
            for entry in manifest["frames"][number]["entries"]
            if entry["data"].startswith(f"{name}/")
        ],
        [_readable(bundle / graph["readable"]) for graph in graphs],
        sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
    )


def _readable(file: Path) -> tuple[str, str, bool]:
    with file.open(encoding="utf-8") as lines:
        text = "".join(islice(lines, _LINES))
        return file.stem, text, not lines.readline()


def _warnings(manifest: dict[str, Any], events: Sequence[Event]) -> list[tuple[str, str]]:
    """What an author should know, by entrypoint. The build as a whole has the name ""."""
    found = [
        (event.entrypoint, event.text.removeprefix("WARNING: "))
        for event in events
        if event.step in ("note", "failed")
    ]
    for graph in manifest["graphs"]:
        if "why_wrapped" in graph:
            entrypoint, _, file = graph["readable"].partition("/graphs/")
            found.append(
                (
                    entrypoint,
                    f"The first call of graph {file.removesuffix('.txt')} imports torch._dynamo, because "
                    f"{graph['why_wrapped']}. Nothing is compiled.",
                )
            )
    for frame in manifest["frames"]:
        for entry in frame["entries"]:
            if not entry["native"]:
                entrypoint = entry["data"].partition("/")[0]
                text = f"An entry of {frame['qualname']} imports torch._dynamo when it runs."
                found.append((entrypoint, text))
    return list(dict.fromkeys(found))
