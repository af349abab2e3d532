"""The command line, `hatch-precompile`: one module for each command.

What only one command needs is imported when that command runs, torch above all.
"""

from __future__ import annotations

import click

from hatch_precompile import __version__
from hatch_precompile.cli.bench import bench
from hatch_precompile.cli.build import build
from hatch_precompile.cli.explain import explain
from hatch_precompile.cli.init import init
from hatch_precompile.cli.inspect import inspect
from hatch_precompile.cli.merge import merge
from hatch_precompile.cli.plan import plan
from hatch_precompile.cli.printing import Commands
from hatch_precompile.cli.suggest import suggest
from hatch_precompile.cli.tune import tune
from hatch_precompile.cli.verify import verify
from hatch_precompile.processes import stopping_children

__all__ = ["main"]


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hatch-precompile")
@click.pass_context
def main(context: click.Context) -> None:
    """Builds wheels whose models are compiled already, and looks into them."""
    context.with_resource(stopping_children())


for command in (init, plan, build, merge, inspect, verify, explain, bench, tune, suggest):
    main.add_command(command)
