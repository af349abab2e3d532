"""`hatch-precompile bench`: a wheel beside eager code and torch.compile."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from hatch_precompile.bundle.reader import entrypoints_of, importable
from hatch_precompile.cli import options
from hatch_precompile.cli.printing import note, say, table
from hatch_precompile.errors import BuildError

__all__ = ["bench"]


@click.command(short_help="Time a wheel beside eager code and torch.compile.")
@click.argument("wheel_or_package")
@click.option("--entrypoint", metavar="NAME", help="Only this one.")
@click.option(
    "--runs", type=click.IntRange(min=1), default=3, show_default=True, help="Processes of each way."
)
@options.timeout("a process")
@options.as_json("the figures")
def bench(wheel_or_package: str, entrypoint: str | None, runs: int, timeout: float, as_json: bool) -> None:
    """Time WHEEL_OR_PACKAGE beside eager code and torch.compile, on this machine.

    Every way runs the first sample of each entrypoint in processes of its own, torch.compile with empty
    caches; figures are medians. Exits with 1 if a way could not be measured.
    """
    try:
        with importable(wheel_or_package) as (found, paths), tempfile.TemporaryDirectory() as work:
            rows = [
                {"package": package, "entrypoint": each.name, **figures}
                for number, (package, each) in enumerate(entrypoints_of(found, entrypoint))
                for figures in _measured(package, each, paths, Path(work, str(number)), runs, timeout)
            ]
    except BuildError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        _show(rows)
    if any(row["problem"] for row in rows):
        raise SystemExit(1)


def _measured(
    package: str, entrypoint: Any, paths: list[Path], work: Path, runs: int, timeout: float
) -> list[dict[str, Any]]:
    from hatch_precompile.bench.parent import measure

    figures = measure(entrypoint, package, paths=paths, work=work, runs=runs, timeout=timeout, say=note)
    return [msgspec.to_builtins(each) for each in figures]


def _show(rows: list[dict[str, Any]]) -> None:
    columns = ["entrypoint", "way", "process to first output, s", "first call, ms", "a call, ms"]
    lines = [
        [
            f"{row['package']}:{row['entrypoint']}",
            row["way"],
            *(
                ["fails", None, None]
                if row["problem"]
                else [
                    _number(row["process_s"], ".2f"),
                    _number(row["first_call_ms"], ".1f"),
                    _number(row["steady_ms"], ".3f"),
                ]
            ),
        ]
        for row in rows
    ]
    Console(highlight=False).print(table("medians", columns, lines))
    for row in rows:
        if row["problem"]:
            say(f"{row['package']}:{row['entrypoint']}: {row['way']}: {row['problem']}")


def _number(figure: float | None, form: str) -> str | None:
    return None if figure is None else format(figure, form)
