"""`hatch-precompile init`: a configuration to start from."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hatch_precompile.cli import options
from hatch_precompile.cli.printing import note, say
from hatch_precompile.errors import ConfigError
from hatch_precompile.frontends.project import read_project

if TYPE_CHECKING:
    from hatch_precompile.init.proposal import Proposal

__all__ = ["init"]


@click.command(short_help="Propose a configuration for a project.")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--write", is_flag=True, help="Put the table and what the build needs into DIR/pyproject.toml.")
@options.as_json("the proposal")
def init(directory: Path, write: bool, as_json: bool) -> None:
    """Propose a table for the project in DIR, with an entrypoint for each model found in its source.

    The source is read, not imported. A class that another model uses is compiled with that one and gets
    no entrypoint of its own. Nothing is written without --write.
    """
    from hatch_precompile.init import pyproject
    from hatch_precompile.init.proposal import propose

    try:
        proposal = propose(read_project(directory))
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    for file in proposal.unread:
        note(f"not read, for it is no valid Python: {file}")
    target = directory / "pyproject.toml"
    if write:
        try:
            pyproject.write(target, proposal.written, proposal.requires)
        except ConfigError as error:
            _show(proposal, as_json)
            raise click.UsageError(str(error)) from error
        proposal = dataclasses.replace(proposal, toml=proposal.written)
    _show(proposal, as_json)
    if write:
        note(f"appended to {target}")
        if proposal.requires:
            listed = ", ".join(f'"{each}"' for each in proposal.requires)
            note(f"added to its build-system.requires: {listed}")
        if "torch" in proposal.requires:
            note("pin this torch to the version that the wheel is for")


def _show(proposal: Proposal, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(proposal), indent=2))
    else:
        say(proposal.toml, end="")
