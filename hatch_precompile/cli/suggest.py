"""`hatch-precompile suggest`: from recorded calls to a configuration that serves them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hatch_precompile.cli import options
from hatch_precompile.cli.printing import note, say
from hatch_precompile.config import load
from hatch_precompile.errors import ConfigError
from hatch_precompile.frontends.project import read_project, tables_of

if TYPE_CHECKING:
    from hatch_precompile.suggest.suggestion import Configured, Suggestion

__all__ = ["suggest"]


@click.command(short_help="Propose a configuration from recorded calls.")
@click.argument("project", type=click.Path(path_type=Path))
@click.argument("records", metavar="RECORD...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--rare",
    metavar="SHARE",
    type=click.FloatRange(0, 1),
    default=0.001,
    show_default=True,
    help="The share of an entrypoint's calls below which a kind of call gets no sample.",
)
@click.option(
    "--write",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the calls that samples are made of to FILE, a small record for the project.",
)
@options.as_json("the proposal")
def suggest(project: Path, records: tuple[Path, ...], rare: float, write: Path | None, as_json: bool) -> None:
    """Propose the entrypoints of PROJECT anew, for the calls in each RECORD.

    A record is what HATCH_PRECOMPILE=record-all:RECORD has written. Several are taken together. The project
    is read, not imported, and its configuration is not changed.
    """
    from hatch_precompile.suggest.configuration import toml_of
    from hatch_precompile.suggest.suggestion import suggestions
    from hatch_precompile.traffic.reading import read_records, to_lines

    try:
        found, notes = suggestions(_configured(project), read_records(records), rare=rare)
        if write is not None:
            _write(write, to_lines(each.call for one in found for each in one.samples))
        file = _of_the_project(project, write, records)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps([_as_json(each, file) for each in found], indent=2))
    else:
        say("\n".join(toml_of(each, file) for each in found), end="")
    for text in notes:
        note(text)
    if write is None:
        note("--write FILE makes the small record that `samples` needs in the project")


def _configured(directory: Path) -> list[Configured]:
    from hatch_precompile.suggest.suggestion import Configured

    project = read_project(directory)
    tables = tables_of(project)
    if not tables:
        raise ConfigError(f"{directory} configures no entrypoint; `hatch-precompile init` proposes a table")
    # The name of the package is what the wheel says; nothing here depends on it.
    return [
        Configured(name, table, load(table, default_package="package", prefix=name)) for name, table in tables
    ]


def _write(file: Path, content: str) -> None:
    try:
        file.write_text(content, "utf-8")
    except OSError as error:
        raise ConfigError(f"--write: {file} cannot be written: {error.strerror or error}") from error


def _of_the_project(project: Path, write: Path | None, records: tuple[Path, ...]) -> str:
    """The record as `samples` names it: relative to the project."""
    if write is None and len(records) > 1:
        return "FILE"
    file = (write or records[0]).resolve()
    if file.is_relative_to(project.resolve()):
        return file.relative_to(project.resolve()).as_posix()
    if write is not None:
        note(f"put {os.fspath(write)} into the project, where the build looks for it")
    return file.name


def _as_json(suggestion: Suggestion, file: str) -> dict[str, Any]:
    entrypoint = suggestion.entrypoint
    return {
        "package": suggestion.package,
        "entrypoint": entrypoint.name,
        "calls": suggestion.calls,
        "hits": suggestion.hits if suggestion.complete else None,
        "served": suggestion.served,
        "mode": list(entrypoint.modes),
        "dynamic-shapes": msgspec.to_builtins(entrypoint.dynamic_shapes, str_keys=True),
        "dynamic-numbers": list(entrypoint.dynamic_numbers),
        "samples": f"recorded:{file}",
        "structures": [
            {"count": structure.count, "call": structure.call.content} for structure in suggestion.samples
        ],
        "left_out": [{"count": count, "reason": why} for count, why in suggestion.left_out],
    }
