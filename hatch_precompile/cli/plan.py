"""`hatch-precompile plan`: the cells of a matrix, for a CI system or for who builds them by hand."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hatch_precompile.errors import ConfigError
from hatch_precompile.frontends.project import read_project
from hatch_precompile.matrix.plan import plan_of

__all__ = ["plan"]


@click.command(short_help="List the cells of a project's matrix as JSON.")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option(
    "--shards",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    help="Split the entrypoints of each cell over N wheels. [default: 1]",
)
@click.option("--json", "_as_json", is_flag=True, help="Without effect: it is always JSON.")
def plan(directory: Path, shards: int, _as_json: bool) -> None:
    """Print the cells of the project in DIR: on one line, as the `include` of a CI system's matrix."""
    try:
        found = plan_of(read_project(directory), shards)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    include = [
        {
            "name": cell.name,
            "python": cell.python,
            "torch": cell.torch,
            **({"cuda": cell.cuda} if cell.cuda else {}),
            "variants": found.variants,
            "entrypoints": found.entrypoints_of(cell),
        }
        for cell in found.cells
    ]
    click.echo(json.dumps({"include": include}))
