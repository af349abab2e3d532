"""benchmarks/README.md says what benchmarks/scale.py computes, and that follows what a build does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPT = REPOSITORY / "benchmarks" / "scale.py"
TEXT = (REPOSITORY / "benchmarks" / "README.md").read_text("utf-8")
PAGE = " ".join(TEXT.split())


@pytest.fixture(scope="module")
def scale() -> Iterator[ModuleType]:
    spec = spec_from_file_location("scale", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "scale", module)  # dataclasses look there
        spec.loader.exec_module(module)
        yield module


def test_the_table_of_the_page_is_what_the_command_prints() -> None:
    printed = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=True).stdout
    assert f"\n\n{printed}\n" in TEXT


def test_the_figures_in_the_text_are_computed(scale: ModuleType) -> None:
    cells = scale.PYTHONS * scale.TORCHES
    assert f"**At {cells} workers.**" in PAGE
    assert f"**At {scale.FILE_LIMIT_MB:.0f} MB**" in PAGE
    assert f"with {scale.entrypoints_in(scale.merged_mb())} entrypoints" in PAGE
    assert f"With {scale.ENTRYPOINTS} it has {scale.merged_mb():.0f} MB" in PAGE
    one_python = scale.cell_mb() * scale.TORCHES
    assert f"each Python has {one_python:.0f} MB, one for a single cell {scale.cell_mb():.0f} MB" in PAGE
    large = scale.simulate(scale.Setting(cells, cores=32))
    assert f"nine with 32 cores take {large.seconds / 60:.0f} minutes" in PAGE


def test_workers_beyond_the_tasks_change_nothing(scale: ModuleType) -> None:
    enough, many = scale.simulate(scale.Setting(9)), scale.simulate(scale.Setting(100))
    assert many == enough and many.busy == many.tasks == 9


def test_the_whole_is_the_sum_of_its_parts(scale: ModuleType) -> None:
    # A lone worker is never idle: all but the last transfer is time that is paid.
    outcome = scale.simulate(scale.Setting(1))
    assert outcome.core_hours == pytest.approx((outcome.seconds - outcome.parts["transfer"]) * 4 / 3600)
    assert outcome.parts["environment"] == 9 * (scale.ENVIRONMENT_S + scale.IMPORT_S)


def test_a_shard_pays_for_an_environment_of_its_own(scale: ModuleType) -> None:
    whole, split = (scale.simulate(scale.Setting(9, shards=shards)) for shards in (1, 10))
    assert split.tasks == 10 * whole.tasks and split.parts["environment"] == 10 * whole.parts["environment"]
    assert split.seconds > whole.seconds
    assert scale.simulate(scale.Setting(90, shards=10)).seconds < whole.seconds / 4
