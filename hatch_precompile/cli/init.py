"""`hatch-precompile init`: a configuration to start from."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path

import click

from hatch_precompile.cli.printing import note
from hatch_precompile.errors import ConfigError
from hatch_precompile.frontends.project import read_project
from hatch_precompile.init.proposal import propose

__all__ = ["init"]


@click.command(short_help="Propose a configuration for a project.")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--write", is_flag=True, help="Append the table to DIR/pyproject.toml.")
@click.option("--json", "as_json", is_flag=True, help="Print the proposal as JSON.")
def init(directory: Path, write: bool, as_json: bool) -> None:
    """Propose a table for the project in DIR, with an entrypoint for each model found in its source.

    The source is read, not imported. A class that another model uses is compiled with that one and gets
    no entrypoint of its own. Nothing is written without --write.
    """
    try:
        proposal = propose(read_project(directory))
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    for file in proposal.unread:
        note(f"not read, for it is no valid Python: {file}")
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(proposal), indent=2))
    else:
        click.echo(proposal.toml, nl=False)
    if write:
        pyproject = directory / "pyproject.toml"
        _append(pyproject, proposal.toml)
        note(f"appended to {pyproject}")


def _append(pyproject: Path, table: str) -> None:
    """Put a table at the end of a file whose bytes stay as they are, with line ends as that file has them."""
    before = pyproject.read_bytes()
    between = "\n" if before.endswith(b"\n") else "\n\n"
    added = f"{between}{table}".encode()
    if before.partition(b"\n")[0].endswith(b"\r"):
        added = added.replace(b"\n", b"\r\n")
    try:
        tomllib.loads((before + added).decode())
    except tomllib.TOMLDecodeError as error:
        # A table that is written inline cannot be added to.
        raise click.UsageError(
            f"the table cannot be appended to {pyproject}, which would no longer be valid TOML ({error}); "
            "put the lines above where they belong"
        ) from error
    with pyproject.open("ab") as file:
        file.write(added)
