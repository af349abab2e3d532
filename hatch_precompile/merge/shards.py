"""Wheels of shards in, the wheel of their whole cell out: the bundle is the one that a whole build writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatch_precompile.bundle.reader import FoundManifest, ManifestError, find_cells
from hatch_precompile.bundle.writer import write_bundle
from hatch_precompile.config import Entrypoint
from hatch_precompile.config.variants import Variant
from hatch_precompile.errors import BuildError
from hatch_precompile.merge.archive import Content
from hatch_precompile.merge.metadata import with_tags, with_torch
from hatch_precompile.merge.tags import merged_tag
from hatch_precompile.merge.wheels import check_same, read_wheel
from hatch_precompile.merge.writing import write_wheel
from hatch_precompile.reuse.earlier import Earlier

__all__ = ["with_whole_cells"]


@contextmanager
def with_whole_cells(wheels: Sequence[Path]) -> Iterator[list[Path]]:
    """The wheels, with one in the place of those that are shards of one cell.

    Raises BuildError where a shard is missing, or shards do not belong together.
    """
    shards: dict[str, list[tuple[Path, FoundManifest]]] = defaultdict(list)
    whole = []
    for path in wheels:
        bundle = _shard(path)
        if bundle is None:
            whole.append(path)
        else:
            shards[bundle.cell].append((path, bundle))
    with TemporaryDirectory(prefix="hatch-precompile-merge-") as folder:
        for number, (cell, parts) in enumerate(sorted(shards.items())):
            # Wheels of one Python have one name.
            whole.append(_united(cell, parts, Path(folder, str(number))))
        yield whole


def _shard(path: Path) -> FoundManifest | None:
    """The bundle of a wheel, if it is for a shard. What is wrong with a wheel is said when it is read."""
    try:
        (bundle,) = find_cells(str(path))
    except (ManifestError, ValueError, OSError):
        return None
    return bundle if isinstance(bundle.manifest.get("part"), dict) else None


def _united(cell: str, parts: list[tuple[Path, FoundManifest]], folder: Path) -> Path:
    """The wheel of a cell, written to a folder."""
    first, *others = [read_wheel(path) for path, _ in parts]
    for other in others:
        check_same(first, other)
    bundles = _all_there(cell, parts)
    directory = folder / "bundle"
    try:
        _write(bundles, directory, folder / "captures")
    except (ManifestError, KeyError, TypeError, ValueError) as error:
        raise BuildError(f"the shards of {cell} are damaged: {error!r}") from error
    (bundle_folder,) = first.bundles
    tag = merged_tag({wheel.path: wheel.tags for wheel in (first, *others)})
    torch = bundles[0].built_with["torch"]
    metadata, about = first.common
    entries: dict[str, Content | bytes] = {
        **first.files,
        metadata: with_torch(first.common[metadata], [torch]),
        about: with_tags(first.common[about], tag),
    }
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        entries[f"{bundle_folder}{path.relative_to(directory).as_posix()}"] = path.read_bytes()
    united = folder / f"{first.stem}-{tag}.whl"
    write_wheel(united, entries, first.folder)
    return united


def _all_there(cell: str, parts: list[tuple[Path, FoundManifest]]) -> list[FoundManifest]:
    """The shards in their order, each once. Raises BuildError unless they are all those of one build."""
    path, bundle = parts[0]
    found: dict[int, tuple[Path, FoundManifest]] = {}
    for other_path, other in parts:
        part = other.manifest["part"]
        for key in ("of", "entrypoints"):
            if part[key] != bundle.manifest["part"][key]:
                raise BuildError(
                    f"{path} and {other_path} are shards of {cell} that were planned differently "
                    f"({key}: {bundle.manifest['part'][key]} and {part[key]})"
                )
        for key in ("built_with", "variants", "format"):
            if other.manifest.get(key) != bundle.manifest.get(key):
                raise BuildError(f"{path} and {other_path} are shards of {cell}, and {key} is not the same")
        before = found.setdefault(part["shard"], (other_path, other))
        if before[1].manifest != other.manifest:
            raise BuildError(
                f"{before[0]} and {other_path} are both shard {part['shard']} of {cell}, and not the same "
                "one; leave one of them out"
            )
    of = bundle.manifest["part"]["of"]
    missing = [str(number) for number in range(1, of + 1) if number not in found]
    if missing:
        raise BuildError(f"{cell} is not whole: of its {of} shards {', '.join(missing)} are missing")
    return [found[number][1] for number in sorted(found)]


def _write(shards: list[FoundManifest], directory: Path, captures: Path) -> None:
    """The bundle of all shards, as if they had been captured together."""
    records = {
        record["name"]: (shard, record) for shard in shards for record in shard.manifest["entrypoints"]
    }
    # One that failed, where that is a warning, is in none.
    names = [name for name in shards[0].manifest["part"]["entrypoints"] if name in records]
    taken = []
    for name in names:
        shard, record = records[name]
        captured = Earlier("", shard).unpack(name, captures / name)
        if captured is None:
            raise ManifestError(f"nothing of {name} can be read")
        taken.append((_entrypoint(record), captured, captures / name))
    manifest = shards[0].manifest
    variants = [Variant(each["name"], tuple(each["requires"]), {}) for each in manifest["variants"]]
    write_bundle(directory, taken, variants, shards[0].built_with)


def _entrypoint(record: dict[str, Any]) -> Entrypoint:
    """What a manifest has of the configuration."""
    given = {key: record[key] for key in ("name", "target", "activate", "on_miss")}
    return Entrypoint(**given, **record["recipe"], mode=tuple(record["mode"]))
