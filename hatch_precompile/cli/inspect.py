"""`hatch-precompile inspect`: what a wheel or an installed package carries."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hatch_precompile.bundle.cells import CellSize, cells_beside
from hatch_precompile.bundle.reader import (
    FoundManifest,
    bytecode_of,
    find,
    graphs_of,
    guards_of,
    with_entrypoint,
)
from hatch_precompile.cli.printing import say, table
from hatch_precompile.errors import BuildError
from hatch_precompile.escaping import in_a_comment
from hatch_precompile.formatting import in_bytes
from hatch_precompile.validation.manifests import BundledFrame, EntrypointRecord, Manifest

__all__ = ["inspect", "show"]


@click.command(short_help="Show what a wheel or a package carries.")
@click.argument("wheel_or_package")
@click.option("--guards", metavar="ENTRYPOINT", help="Print the guard function of each of its entries.")
@click.option("--bytecode", metavar="ENTRYPOINT", help="Disassemble what each of its entries runs.")
@click.option("--graph", metavar="ENTRYPOINT", help="Print its graphs, as they were captured.")
@click.option(
    "--cell",
    metavar="NAME",
    help="Look into this cell of a merged wheel. [default: the one for this interpreter, or the first]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON, by package.")
def inspect(
    wheel_or_package: str,
    guards: str | None,
    bytecode: str | None,
    graph: str | None,
    cell: str | None,
    as_json: bool,
) -> None:
    """Show what WHEEL_OR_PACKAGE carries.

    It is the file of a wheel or the name of an installed package, which is not imported.
    """
    asked = {guards_of: guards, bytecode_of: bytecode, graphs_of: graph}
    try:
        found = find(wheel_or_package, cell)
        cells = {bundle.package: cells_beside(wheel_or_package, bundle) for bundle in found}
        texts = {
            what: {bundle.package: what(bundle, name) for bundle in with_entrypoint(found, name)}
            for what, name in asked.items()
            if name is not None
        }
    except BuildError as error:
        raise click.UsageError(str(error)) from error
    for by_package in texts.values():
        if as_json:
            click.echo(json.dumps(by_package, indent=2))
        else:
            for text in [text for by_file in by_package.values() for text in by_file.values()]:
                say(text)
    if texts:
        return
    if as_json:
        click.echo(
            json.dumps({each.package: _as_json(each, cells[each.package]) for each in found}, indent=2)
        )
        return
    console = Console(highlight=False)
    for bundle in found:
        if cells[bundle.package]:
            console.print(_cells(bundle, cells[bundle.package]))
        show(bundle, console)


def _as_json(bundle: FoundManifest, cells: list[CellSize]) -> dict[str, Any]:
    """A manifest as it was written; of a merged wheel with the cells that there are."""
    manifest: dict[str, Any] = json.loads(bundle.content)
    if not cells:
        return manifest
    return {**manifest, "cell": bundle.cell, "cells": [dataclasses.asdict(each) for each in cells]}


def _cells(bundle: FoundManifest, cells: list[CellSize]) -> Table:
    rows = (
        [
            f"{each.name} (shown here)" if each.name == bundle.cell else each.name,
            each.files,
            in_bytes(each.bytes),
            in_bytes(each.shared_bytes),
        ]
        for each in cells
    )
    return table(f"cells of {bundle.package}", ["cell", "files", "size", "shared with others"], rows)


def show(bundle: FoundManifest, console: Console) -> None:
    manifest = bundle.manifest
    total = sum(bundle.sizes.values())
    number = "?" if manifest.format is None else manifest.format
    console.print(
        Text.assemble((in_a_comment(bundle.package), "bold"), f": bundle format {number}, "), end=""
    )
    console.print(f"{len(bundle.sizes)} files, {in_bytes(total)}")
    _line(console, "built with " + ", ".join(f"{key} {value}" for key, value in bundle.built_with.items()))
    console.print(_entrypoints(manifest.entrypoints))
    for entrypoint in manifest.entrypoints:
        for skipped in entrypoint.skipped:
            _line(console, f"{entrypoint.name}: {skipped.function} runs as Python: {skipped.reason}")
    for left_out in manifest.left_out:
        _line(
            console,
            f"{left_out.name}: left out at the build, which said why: {left_out.target} is not compiled",
        )
    console.print(_frames(manifest.frames))
    console.print(_libraries(manifest, bundle.sizes))
    console.print(_guards(manifest.frames))


def _line(console: Console, text: str) -> None:
    console.print(Text(in_a_comment(text)), soft_wrap=True)


def _entrypoints(entrypoints: list[EntrypointRecord]) -> Table:
    rows = (
        [
            entry.name,
            entry.target,
            entry.mode if isinstance(entry.mode, str) else ", ".join(entry.mode),
            entry.activate,
            entry.on_miss,
            entry.samples,
            len(entry.frames),
        ]
        for entry in entrypoints
    )
    return table("entrypoints", ["name", "target", "mode", "activate", "on miss", "samples", "frames"], rows)


def _frames(frames: list[BundledFrame]) -> Table:
    rows = ([f"{frame.module}:{frame.qualname}", len(frame.entries)] for frame in frames)
    return table("frames", ["code", "entries"], rows)


def _libraries(manifest: Manifest, sizes: dict[str, int]) -> Table:
    """One row a variant: what a CPU must have, and what its libraries weigh."""
    graphs = [graph.files() for graph in manifest.graphs]
    rows = []
    for variant in manifest.variants:
        compiled = [files[variant.name] for files in graphs if variant.name in files]
        weight = sum(sizes.get(path, 0) for files in compiled for path in files)
        requires = ", ".join(variant.requires) or "nothing"
        if variant.run is False:
            requires += " (a GPU; compiled, not run)"
        rows.append([variant.name, f"{len(compiled)} of {len(graphs)}", in_bytes(weight), requires])
    return table("variants", ["name", "graphs", "size", "the CPU must have"], rows)


def _guards(frames: list[BundledFrame]) -> Table:
    """How many checks of each kind all entries make together."""
    kinds: Counter[str] = Counter()
    for frame in frames:
        for entry in frame.entries:
            kinds.update(entry.by_kind)
    return table("guards", ["kind", "checks"], [[kind, number] for kind, number in kinds.most_common()])
