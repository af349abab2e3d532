"""The command line, `hatch-precompile`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from hatch_precompile import __version__
from hatch_precompile.manifests import (
    FoundManifest,
    ManifestError,
    bytecode_of,
    entrypoint_names,
    find,
    graphs_of,
    guards_of,
)

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hatch-precompile")
def main() -> None:
    """Looks into wheels whose models were compiled when they were built."""


@main.command()
@click.argument("wheel_or_package")
@click.option("--guards", metavar="ENTRYPOINT", help="Print the guard function of each of its entries.")
@click.option("--bytecode", metavar="ENTRYPOINT", help="Disassemble what each of its entries runs.")
@click.option("--graph", metavar="ENTRYPOINT", help="Print its graphs, as they were captured.")
@click.option("--json", "as_json", is_flag=True, help="Print the same as JSON, by package.")
def inspect(
    wheel_or_package: str, guards: str | None, bytecode: str | None, graph: str | None, as_json: bool
) -> None:
    """Show what WHEEL_OR_PACKAGE carries.

    It is the file of a wheel or the name of an installed package, which is not imported.
    """
    asked = {guards_of: guards, bytecode_of: bytecode, graphs_of: graph}
    try:
        found = find(wheel_or_package)
        texts = {
            what: {bundle.package: what(bundle, name) for bundle in _with_entrypoint(found, name)}
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
        click.echo(json.dumps({bundle.package: bundle.manifest for bundle in found}, indent=2))
        return
    console = Console(highlight=False)
    for bundle in found:
        _show(bundle, console)


def _with_entrypoint(found: list[FoundManifest], name: str) -> list[FoundManifest]:
    having = [bundle for bundle in found if name in entrypoint_names(bundle)]
    if not having:
        known = ", ".join(known for bundle in found for known in entrypoint_names(bundle)) or "none"
        raise ManifestError(f"there is no entrypoint {name!r}; there are: {known}")
    return having


@main.command()
@click.argument("entrypoint", metavar="PACKAGE:ENTRYPOINT")
@click.option(
    "--with",
    "inputs",
    metavar="MODULE:FUNCTION",
    required=True,
    help="A function that returns the inputs: a tuple, a dict, or a pair of both. For a class or a method "
    "the first of the tuple is the object.",
)
@click.option(
    "--mode",
    type=click.Choice(["no_grad", "inference", "train"]),
    default="no_grad",
    show_default=True,
    help="The mode the call is made in.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the reports as JSON.")
def explain(entrypoint: str, inputs: str, mode: str, as_json: bool) -> None:
    """Say for each entry whether it would serve a call, and else why not, the nearest entry first.

    Imports the installed package and runs the function that gives the inputs, but not the model. Exits
    with 1 if no entry would serve the call.
    """
    from hatch_precompile.explaining import ExplainError, explain_call

    try:
        reports = explain_call(entrypoint, inputs, mode)
    except ExplainError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(reports, indent=2))
    else:
        for report in reports:
            click.echo(f"entry {report['entry']}: {'hit' if report['hit'] else report['reason']}")
    if not any(report["hit"] for report in reports):
        raise SystemExit(1)


def _show(bundle: FoundManifest, console: Console) -> None:
    manifest = bundle.manifest
    total = sum(bundle.sizes.values())
    console.print(
        f"[bold]{bundle.package}[/]: bundle format {manifest.get('format', '?')}, "
        f"{len(bundle.sizes)} files, {_bytes(total)}"
    )
    built_with = manifest.get("built_with", {})
    console.print(
        "built with " + ", ".join(f"{key} {value}" for key, value in built_with.items()), soft_wrap=True
    )
    console.print(_entrypoints(manifest.get("entrypoints", [])))
    console.print(_frames(manifest.get("frames", [])))
    console.print(_libraries(manifest, bundle.sizes))


def _entrypoints(entrypoints: list[dict[str, Any]]) -> Table:
    rows = (
        [
            entry.get("name"),
            entry.get("target"),
            entry.get("mode"),
            entry.get("activate"),
            entry.get("on_miss"),
            _count(entry.get("samples")),
            _count(entry.get("frames")),
        ]
        for entry in entrypoints
    )
    return _table("entrypoints", ["name", "target", "mode", "activate", "on miss", "samples", "frames"], rows)


def _frames(frames: list[dict[str, Any]]) -> Table:
    rows = (
        [f"{frame.get('module')}:{frame.get('qualname')}", _count(frame.get("entries"))] for frame in frames
    )
    return _table("frames", ["code", "entries"], rows)


def _libraries(manifest: dict[str, Any], sizes: dict[str, int]) -> Table:
    """One row a variant: what a CPU must have, and what its libraries weigh."""
    graphs = [graph.get("libraries") or {} for graph in manifest.get("graphs", [])]
    rows = []
    for variant in manifest.get("variants", []):
        name = variant.get("name")
        paths = [libraries[name] for libraries in graphs if name in libraries]
        size = sum(sizes.get(path, 0) for path in paths)
        requires = ", ".join(variant.get("requires") or []) or "nothing"
        rows.append([name, f"{len(paths)} of {len(graphs)}", _bytes(size), requires])
    return _table("variants", ["name", "graphs", "size", "the CPU must have"], rows)


def _table(title: str, columns: list[str], rows: Iterable[list[Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    return table


def _count(value: Any) -> Any:
    """The length of a list; a number stands for itself."""
    return len(value) if isinstance(value, (list, dict)) else value


def _bytes(size: float) -> str:
    for unit in ("B", "kB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} MB"
