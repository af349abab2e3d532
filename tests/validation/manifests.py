"""An installed wheel with a changed manifest: `python tests/validation/manifests.py --changes 2000`.

After each change a fresh process imports the package and calls what it has: the answers must be eager code's,
with one warning at most, no exception, no crash. Half of the changes have a checksum that is right again.
With `--files`, every file of the wheel's runtime and bundle is damaged in every way instead.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(REPOSITORY))

from tests.conftest import Site, build_entrypoints  # noqa: E402

HERE = Path(__file__).parent
ENTRYPOINTS = [
    {
        "target": "pair.models:Rows",
        "samples": "pair.models:rows",
        "dynamic-shapes": {"x": {"0": {"name": "rows", "min": 3, "max": 16}}, "seen": {"0": "rows"}},
    },
    {"target": "pair.models:Steady", "samples": "pair.models:steady", "weights": "fixed"},
]

PLAN = (
    *[(how, 0.1, right) for how in ("digits", "words", "bytes", "texts") for right in (False, True)],
    *[("values", 0.1, True), ("kin", 0.1, True)],
)
"""Kinds of changes (tests/scenarios/damaged_manifest.py), their part of all, whether the checksum fits."""


def changed(site: Site, changes: int, seed: int) -> Iterator[str]:
    """What did not go well."""
    for how, part, right in PLAN:
        number = round(changes * part)
        bad = site.play(
            "damaged_manifest.changes",
            how=how,
            number=number,
            seed=seed,
            right=right,
            environment={"PYTHONDONTWRITEBYTECODE": ""},  # the modules stay as they are
        )
        print(f"{how}, checksum {'right' if right else 'as it was'}: {number}, {len(bad)} failed", flush=True)
        yield from (json.dumps(each) for each in bad)


def damaged(site: Site) -> Iterator[str]:
    seen: dict[str, Any] = site.play("damaged_runtime.every_file", pattern="*")
    print(f"{len(seen)} files damaged")
    for name, (said, same, raised) in seen.items():
        if said is None or len(said) > 1 or not same or raised is not None:
            yield f"{name}: {said}, {same}, {raised}"


def run() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--changes", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # another user is to read it
        built = build_entrypoints("pair", ENTRYPOINTS, HERE / "src", Path(folder, "work"))
        site = Site(built.directory, timeout=36000)
        failed = list(damaged(site) if asked.files else changed(site, asked.changes, asked.seed))
    print(*failed, f"{len(failed)} failures", sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run())
