"""What a build says of its entrypoints when it is over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.table import Table

from hatch_precompile.bundle.reader import FoundManifest
from hatch_precompile.cli.printing import table
from hatch_precompile.cli.progress import Board
from hatch_precompile.formatting import in_bytes
from hatch_precompile.validation.manifests import EntrypointRecord

__all__ = ["entrypoints", "entrypoints_table"]


def entrypoints(bundles: Iterable[FoundManifest], board: Board) -> list[dict[str, Any]]:
    """What was compiled, from the bundles and from what was told while they were built."""
    return [
        _entrypoint(bundle, record, board) for bundle in bundles for record in bundle.manifest.entrypoints
    ]


def entrypoints_table(title: str, compiled: Iterable[dict[str, Any]]) -> Table:
    """The same for people."""
    columns = ["name", "samples", "entries", "graphs", "size", "capture", "verify", "from eager"]
    rows = [
        [
            each["name"],
            each["samples"],
            each["entries"],
            each["graphs"],
            in_bytes(each["library_bytes"]),
            _number(each["capture_seconds"], "{:.1f} s"),
            _number(each["verify_seconds"], "{:.1f} s"),
            _number(each["largest_difference"], "{:.1e}"),
        ]
        for each in compiled
    ]
    return table(title, columns, rows)


def _entrypoint(bundle: FoundManifest, record: EntrypointRecord, board: Board) -> dict[str, Any]:
    row = board.rows.get(record.name)
    prefix = f"{record.name}/graphs/"
    libraries = [name for name in bundle.sizes if name.startswith(prefix) and name.endswith(".so")]
    return {
        "package": bundle.package,
        "name": record.name,
        "target": record.target,
        "samples": record.samples,
        "entries": row.entries if row else None,
        "graphs": row.graphs if row else None,
        "library_bytes": sum(bundle.sizes[name] for name in libraries),
        "capture_seconds": row.captured if row else None,
        "verify_seconds": row.verified if row else None,
        "largest_difference": max(row.differences, default=None) if row else None,
    }


def _number(value: float | None, form: str) -> str | None:
    return None if value is None else form.format(value)
