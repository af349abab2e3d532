"""Wheels of shards in, the wheel of their whole cell out: the bundle is the one that a whole build writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatch_precompile.backends.base import Variant
from hatch_precompile.bundle.reader import FoundManifest, ManifestError, find_cells
from hatch_precompile.bundle.writer import write_bundle
from hatch_precompile.errors import BuildError
from hatch_precompile.merge.tags import merged_tag
from hatch_precompile.merge.wheels import check_same, read_wheel
from hatch_precompile.merge.zip_writer import write_wheel
from hatch_precompile.reuse.previous_wheel import Earlier
from hatch_precompile.validation.manifest_rules import check_manifest, configured
from hatch_precompile.validation.manifests import NoShardError, Part

__all__ = ["with_whole_cells"]


@dataclass(frozen=True)
class _Shard:
    """The wheel of a shard, and what its manifest says."""

    path: Path
    bundle: FoundManifest
    part: Part

    @property
    def versions(self) -> tuple[Any, Any, Any]:
        manifest = self.bundle.manifest
        return self.bundle.built_with, manifest.variants, manifest.format


@contextmanager
def with_whole_cells(wheels: Sequence[Path]) -> Iterator[list[Path]]:
    """The wheels, with one in the place of those that are shards of one cell.

    Raises BuildError where a shard is missing, or shards do not belong together.
    """
    shards: dict[str, list[_Shard]] = defaultdict(list)
    whole = []
    for path in wheels:
        shard = _shard(path)
        if shard is None:
            whole.append(path)
        else:
            shards[shard.bundle.cell].append(shard)
    with TemporaryDirectory(prefix="hatch-precompile-merge-") as folder:
        for number, (cell, parts) in enumerate(sorted(shards.items())):
            # Wheels of one Python have one name.
            whole.append(_united(cell, parts, Path(folder, str(number))))
        yield whole


def _shard(path: Path) -> _Shard | None:
    """The shard that a wheel is; None for any other. What else is wrong with one is said when it is read.

    Raises BuildError where its manifest does not say which shard.
    """
    try:
        found = find_cells(str(path))
    except NoShardError:
        raise
    except BuildError:
        return None
    parts = [bundle.manifest.part for bundle in found if bundle.manifest.part is not None]
    if not parts:
        return None
    if len(found) > 1:
        raise BuildError(f"{path} cannot be merged: it is a shard with {len(found)} bundles")
    part = parts[0]
    if not 1 <= part.shard <= part.of <= max(len(part.entrypoints), 1):
        raise BuildError(f"{path} is damaged: there is no shard {part.shard} of {part.of}")
    check_manifest(found[0].manifest, f"{path}: {found[0].where}")
    return _Shard(path, found[0], part)


def _united(cell: str, parts: list[_Shard], folder: Path) -> Path:
    """The wheel of a cell, written to a folder."""
    first, *others = [read_wheel(part.path) for part in parts]
    for other in others:
        check_same(first, other)
    shards = _all_there(cell, parts)
    directory = folder / "bundle"
    try:
        _write(shards, directory, folder / "captures")
    except BuildError as error:
        raise BuildError(f"the shards of {cell} are damaged: {error}") from error
    (bundle_folder,) = first.bundles
    tag = merged_tag({wheel.path: wheel.tags for wheel in (first, *others)})
    entries = first.beside_bundles([shards[0].bundle.built_with["torch"]], tag)
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        entries[f"{bundle_folder}{path.relative_to(directory).as_posix()}"] = path.read_bytes()
    united = folder / f"{first.stem}-{tag}.whl"
    write_wheel(united, entries, first.folder)
    return united


def _all_there(cell: str, parts: list[_Shard]) -> list[_Shard]:
    """The shards in their order, each once. Raises BuildError unless they are all those of one build."""
    first = parts[0]
    found: dict[int, _Shard] = {}
    for other in parts:
        both = f"{first.path} and {other.path} are shards of {cell}"
        if (other.part.of, other.part.entrypoints) != (first.part.of, first.part.entrypoints):
            raise BuildError(f"{both} that were planned differently: of {first.part.of} and {other.part.of}")
        if other.versions != first.versions:
            raise BuildError(f"{both}, and not built with the same")
        before = found.setdefault(other.part.shard, other)
        if before.bundle.manifest != other.bundle.manifest:
            raise BuildError(
                f"{before.path} and {other.path} are both shard {other.part.shard} of {cell}, and not the "
                "same one; leave one of them out"
            )
    missing = [str(number) for number in range(1, first.part.of + 1) if number not in found]
    if missing:
        raise BuildError(
            f"{cell} is not whole: of its {first.part.of} shards {', '.join(missing)} are missing"
        )
    return [found[number] for number in sorted(found)]


def _write(shards: list[_Shard], directory: Path, captures: Path) -> None:
    """The bundle of all shards, as if they had been captured together."""
    bundles = [shard.bundle for shard in shards]
    records = {record.name: (bundle, record) for bundle in bundles for record in bundle.whole.entrypoints}
    # One that failed, where that is a warning, is in none.
    names = [name for name in shards[0].part.entrypoints if name in records]
    taken = []
    for name in names:
        bundle, record = records[name]
        captured = Earlier("", bundle).unpack(name, captures / name)
        if captured is None:
            raise ManifestError(f"nothing of {name} can be read")
        taken.append((configured(record, bundle.where), captured, captures / name))
    variants = [
        Variant(each.name, tuple(each.requires), {}, each.backend) for each in bundles[0].whole.variants
    ]
    order = shards[0].part.entrypoints.index
    left_out = sorted(
        (
            each
            for bundle in bundles
            for each in bundle.whole.left_out
            if each.name in shards[0].part.entrypoints
        ),
        key=lambda each: order(each.name),
    )
    write_bundle(directory, taken, variants, bundles[0].built_with, left_out=left_out)
