"""`hatch-precompile tune`: the fastest configuration of each kernel of a wheel, measured on a GPU."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from hatch_precompile.backends import known as known_variants
from hatch_precompile.backends import runs_here
from hatch_precompile.bundle.reader import FoundManifest, ManifestError, find, torch_here, with_entrypoint
from hatch_precompile.cli import options
from hatch_precompile.cli.printing import note, say, table
from hatch_precompile.config.tuned_kernels import (
    UNTUNED,
    TunedKernel,
    read_tuned_kernels,
    write_tuned_kernels,
)
from hatch_precompile.errors import BuildError
from hatch_precompile.runtime import manifest
from hatch_precompile.tuning.parent import Outcome, Tunable, choose, measured_here, tunable

__all__ = ["tune"]


@click.command(short_help="Measure the kernels of a wheel on a GPU.")
@click.argument("wheel_or_package")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    default="tuned-kernels.json",
    show_default=True,
    help="The project's file of tuned kernels. What it has of others stays.",
)
@click.option("--entrypoint", metavar="NAME", help="Only the kernels of this one.")
@options.timeout("the process of a library")
@options.as_json("the results")
def tune(wheel_or_package: str, output: Path, entrypoint: str | None, timeout: float, as_json: bool) -> None:
    """Find the fastest configuration of each kernel of WHEEL_OR_PACKAGE on this machine's first GPU.

    The configurations are those that inductor would have tried, had the build had a GPU. Those that make a
    kernel faster are written to FILE, which the key tuned-kernels names; the next build takes them. Runs code
    of the wheel. Exits with 1 if the kernels of a library cannot be measured.
    """
    try:
        found = find(wheel_or_package)
        before = read_tuned_kernels(output, "--output") if output.exists() else UNTUNED
        variant, libraries = _for_this_gpu(found, wheel_or_package, entrypoint)
        known = before.variants.get(variant, {})
        chosen: dict[str, TunedKernel | None] = {}
        problems: list[str] = []
        write_tuned_kernels(output, before)  # what cannot be written is said before anything is measured
        for measured in _measured(libraries, timeout, problems.append):
            chosen = choose(measured, known)
            write_tuned_kernels(output, before.merged(variant, chosen))
    except BuildError as error:
        raise click.UsageError(str(error)) from error
    tuned = {key: each for key, each in chosen.items() if each is not None and each is not known.get(key)}
    if as_json:
        told = [{"key": key, **msgspec.to_builtins(each)} for key, each in tuned.items()]
        click.echo(json.dumps({"variant": variant, "tuned": told, "problems": problems}, indent=2))
    else:
        if tuned:
            rows = [[each.name, each.before, each.microseconds, _words(each)] for each in tuned.values()]
            columns = ["kernel", "microseconds", "tuned", "configuration"]
            Console(highlight=False).print(table(variant, columns, rows))
        kernels = {key for each in libraries for key in each.autotuning.kernels}
        counts = f"{len(tuned)} tuned, {len(chosen) - len(tuned)} fastest as they are"
        say(f"{output}: of {len(kernels)} kernels for {variant} {counts}")
        for problem in problems:
            say(problem)
    if problems:
        raise SystemExit(1)


def _for_this_gpu(found: list[FoundManifest], name: str, entrypoint: str | None) -> tuple[str, list[Tunable]]:
    """The variant that the GPU here is served with, and its libraries."""
    bundles = found if entrypoint is None else with_entrypoint(found, entrypoint)
    libraries = tunable(bundles, entrypoint)
    there = {each.variant for each in libraries}
    if not there:
        raise ManifestError(f"{entrypoint or name} has no kernels for GPUs")
    for each in bundles:
        # Another torch would try other configurations, and compile other code for each.
        if manifest.public(each.built_with.get("torch", "")) != manifest.public(torch_here()):
            raise ManifestError(
                f"{name} was built with torch {each.built_with.get('torch')}, and here is "
                f"{torch_here() or 'none'}"
            )
    variants = [each for each in known_variants("cuda") if each in there]
    variant = next((each for each in reversed(variants) if runs_here(each)), None)
    if variant is None:
        raise ManifestError(f"no GPU here runs code for {' or '.join(variants)}, which {name} has")
    return variant, [each for each in libraries if each.variant == variant]


def _measured(
    libraries: list[Tunable], timeout: float, on_problem: Callable[[str], None]
) -> Iterator[list[tuple[Tunable, Outcome]]]:
    """What is measured so far, each time that a library has been."""
    measured: list[tuple[Tunable, Outcome]] = []
    with tempfile.TemporaryDirectory(prefix="hatch-precompile-") as work:
        for number, library in enumerate(libraries):
            note(f"{library.file}: {len(library.autotuning.kernels)} kernels")
            try:
                outcome = measured_here(library, work=Path(work, str(number)), timeout=timeout, on_line=note)
            except BuildError as error:
                on_problem(str(error))
                continue
            measured.append((library, outcome))
            yield measured


def _words(kernel: Any) -> str:
    arguments = [f"{name} {value}" for name, value in kernel.arguments.items()]
    return ", ".join([*arguments, f"{kernel.num_warps} warps", f"{kernel.num_stages} stages"])
