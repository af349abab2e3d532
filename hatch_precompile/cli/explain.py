"""`hatch-precompile explain`: why a call is not served."""

from __future__ import annotations

import json

import click

from hatch_precompile.cli import options
from hatch_precompile.cli.printing import say

__all__ = ["explain"]


@click.command(short_help="Say why a call is not served.")
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
@options.as_json("the reports")
def explain(entrypoint: str, inputs: str, mode: str, as_json: bool) -> None:
    """Say for each entry whether it would serve a call, and else why not, the nearest entry first.

    Imports the installed package and runs the function that gives the inputs, but not the model. Exits
    with 1 if no entry would serve the call.
    """
    from hatch_precompile.cli.explain_call import ExplainError, explain_call

    try:
        reports = explain_call(entrypoint, inputs, mode)
    except ExplainError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(reports, indent=2))
    else:
        for report in reports:
            say(f"entry {report['entry']}: {'hit' if report['hit'] else report['reason']}")
            if report["remedy"]:
                say(f"  to make it hit: {report['remedy']}")
    if not any(report["hit"] for report in reports):
        raise SystemExit(1)
