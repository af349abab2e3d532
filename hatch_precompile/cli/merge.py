"""`hatch-precompile merge`: wheels of one project, each of other cells, as one wheel."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from hatch_precompile.cli import options
from hatch_precompile.cli.printing import say
from hatch_precompile.errors import BuildError
from hatch_precompile.formatting import in_bytes

__all__ = ["merge"]


@click.command(short_help="Make one wheel of those for several Pythons and torches.")
@click.argument("wheels", metavar="WHEEL...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--outdir",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    default="dist",
    show_default=True,
    help="Where the wheel goes.",
)
@options.as_json("what came of it")
def merge(wheels: tuple[Path, ...], outdir: Path, as_json: bool) -> None:
    """Make one wheel that has the compiled code of every WHEEL.

    They have to be of one version of one project, and the same outside of what was compiled. Nothing of them
    is run. Exits with 1 if they cannot be merged.
    """
    from hatch_precompile.merge import merge_wheels

    try:
        merged = merge_wheels(wheels, outdir)
    except BuildError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps({**dataclasses.asdict(merged), "wheel": str(merged.wheel)}, indent=2))
        return
    for cell in merged.cells:
        say(cell)
    if merged.missing:
        say(f"not in it: {', '.join(merged.missing)}")
    shared = f", {in_bytes(merged.shared_bytes)} stored once" if merged.shared_bytes else ""
    say(f"{merged.wheel}, {in_bytes(merged.bytes)}{shared}, requires {merged.requires or 'no torch'}")
