"""`hatch-precompile inspect`: what a wheel or an installed package carries."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from hatch_precompile.bundle.cells import CellSize, cells_beside
from hatch_precompile.bundle.reader import (
    FoundManifest,
    ManifestError,
    bytecode_of,
    find,
    graph_files,
    graphs_of,
    guards_of,
    with_entrypoint,
)
from hatch_precompile.cli.printing import count, table
from hatch_precompile.formatting import in_bytes

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
    except ManifestError as error:
        raise click.UsageError(str(error)) from error
    for by_package in texts.values():
        if as_json:
            click.echo(json.dumps(by_package, indent=2))
        else:
            for text in [text for by_file in by_package.values() for text in by_file.values()]:
                click.echo(text)
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
    """A manifest; of a merged wheel with the cells that there are."""
    if not cells:
        return bundle.manifest
    return {**bundle.manifest, "cell": bundle.cell, "cells": [dataclasses.asdict(each) for each in cells]}


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
    console.print(
        f"[bold]{bundle.package}[/]: bundle format {manifest.get('format', '?')}, "
        f"{len(bundle.sizes)} files, {in_bytes(total)}"
    )
    built_with = manifest.get("built_with", {})
    console.print(
        "built with " + ", ".join(f"{key} {value}" for key, value in built_with.items()), soft_wrap=True
    )
    console.print(_entrypoints(manifest.get("entrypoints", [])))
    for entrypoint in manifest.get("entrypoints", []):
        for skipped in entrypoint.get("skipped", []):
            words = (
                f"{entrypoint.get('name')}: {skipped.get('function')} runs as Python: {skipped.get('reason')}"
            )
            console.print(words, soft_wrap=True, markup=False)
    console.print(_frames(manifest.get("frames", [])))
    console.print(_libraries(manifest, bundle.sizes))
    console.print(_guards(manifest.get("frames", [])))


def _entrypoints(entrypoints: list[dict[str, Any]]) -> Table:
    rows = (
        [
            entry.get("name"),
            entry.get("target"),
            mode if isinstance(mode := entry.get("mode"), str) else ", ".join(mode or ()),
            entry.get("activate"),
            entry.get("on_miss"),
            count(entry.get("samples")),
            count(entry.get("frames")),
        ]
        for entry in entrypoints
    )
    return table("entrypoints", ["name", "target", "mode", "activate", "on miss", "samples", "frames"], rows)


def _frames(frames: list[dict[str, Any]]) -> Table:
    rows = (
        [f"{frame.get('module')}:{frame.get('qualname')}", count(frame.get("entries"))] for frame in frames
    )
    return table("frames", ["code", "entries"], rows)


def _libraries(manifest: dict[str, Any], sizes: dict[str, int]) -> Table:
    """One row a variant: what a CPU must have, and what its libraries weigh."""
    graphs = [graph_files(graph) for graph in manifest.get("graphs", [])]
    rows = []
    for variant in manifest.get("variants", []):
        name = variant.get("name")
        compiled = [files[name] for files in graphs if name in files]
        weight = sum(sizes.get(path, 0) for files in compiled for path in files)
        requires = ", ".join(variant.get("requires") or []) or "nothing"
        rows.append([name, f"{len(compiled)} of {len(graphs)}", in_bytes(weight), requires])
    return table("variants", ["name", "graphs", "size", "the CPU must have"], rows)


def _guards(frames: list[dict[str, Any]]) -> Table:
    """How many checks of each kind all entries make together."""
    kinds: Counter[str] = Counter()
    for frame in frames:
        for entry in frame.get("entries", []):
            kinds.update(entry.get("by_kind") or {})
    return table("guards", ["kind", "checks"], [[kind, number] for kind, number in kinds.most_common()])
