"""`hatch-precompile verify`: the samples of a finished bundle, run again here."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from hatch_precompile.backends import runs_here
from hatch_precompile.bundle.reader import FoundManifest, entrypoints_of, for_gpus, importable, only_for_gpus
from hatch_precompile.cli import options
from hatch_precompile.cli.printing import note, say, table
from hatch_precompile.errors import BuildError, VerifyError

__all__ = ["verify"]


@click.command(short_help="Run the samples of a wheel again.")
@click.argument("wheel_or_package")
@click.option("--entrypoint", metavar="NAME", help="Only this one.")
@options.timeout("an entrypoint's process")
@options.as_json("the results")
def verify(wheel_or_package: str, entrypoint: str | None, timeout: float, as_json: bool) -> None:
    """Run every sample of WHEEL_OR_PACKAGE in a clean process, from the bundle and without it.

    The functions that make the samples are the ones the wheel was built with; they, torch and the wheel's
    dependencies have to be importable here. What is for GPUs is run where there is one. Exits with 1 if a
    sample misses or disagrees with eager code.
    """
    try:
        with importable(wheel_or_package) as (found, paths), tempfile.TemporaryDirectory() as work:
            runs = _runs(found, entrypoint)
            reports = [
                _report(package, each, variant, paths, Path(work, str(number)), timeout)
                for number, (package, each, variant) in enumerate(runs)
            ]
    except BuildError as error:
        raise click.UsageError(str(error)) from error
    called = {each.name for _, each, _ in runs}
    for name in only_for_gpus(found):
        if name not in called and entrypoint in (None, name):
            note(f"{name}: is for GPUs only, and no GPU here runs it: not called")
    if as_json:
        click.echo(json.dumps(reports, indent=2))
    else:
        _show(reports)
    if any(report["problem"] or any(each["problem"] for each in report["samples"]) for report in reports):
        raise SystemExit(1)


def _runs(found: list[FoundManifest], name: str | None) -> list[tuple[str, Any, str]]:
    """Packages, entrypoints, and for which variant each is run: "" for a CPU's."""
    here = [
        (package, each, variant)
        for package, each, variants in for_gpus(found, name)
        if (variant := next((v for v in reversed(variants) if runs_here(v)), None))
    ]
    if name is not None and here and name in only_for_gpus(found):
        return here
    return [*((package, each, "") for package, each in entrypoints_of(found, name)), *here]


def _report(
    package: str, entrypoint: Any, variant: str, paths: list[Path], work: Path, timeout: float
) -> dict[str, Any]:
    from hatch_precompile.verify.parent import run_samples

    def on_event(event: Any) -> None:
        if event.text:
            note(f"{entrypoint.name}: {event.text}")

    samples: list[Any] = []
    problem = ""
    try:
        samples = run_samples(
            *(entrypoint, package),
            paths=paths,
            work=work,
            timeout=timeout,
            on_event=on_event,
            variant=variant,
            run=bool(variant),
        )
    except VerifyError as error:
        problem = str(error)
    return {
        "package": package,
        "entrypoint": entrypoint.name,
        **({"variant": variant} if variant else {}),
        "problem": problem,
        "samples": msgspec.to_builtins(samples),
    }


def _show(reports: list[dict[str, Any]]) -> None:
    rows = []
    problems = []
    for report in reports:
        label = f"{report['package']}:{report['entrypoint']}"
        if "variant" in report:
            label += f" ({report['variant']})"
        if report["problem"]:
            rows.append([label, None, None, "not run", None])
            problems.append(report["problem"])
        for each in report["samples"]:
            rows.append(
                [
                    label,
                    each["sample"],
                    "hit" if each["hit"] else "miss",
                    _agreement(each),
                    None if each["seconds"] is None else f"{each['seconds']:.4f}",
                ]
            )
            if each["problem"]:
                problems.append(f"{label}: {each['problem']}")
    Console(highlight=False).print(
        table("samples", ["entrypoint", "sample", "served", "beside eager", "seconds"], rows)
    )
    for problem in problems:
        say(problem)


def _agreement(result: dict[str, Any]) -> str:
    if result["problem"]:
        return "fails"
    if result["difference"] is None:
        return "shapes and dtypes agree; random numbers"
    return f"agrees, largest difference {result['difference']:.1e}"
