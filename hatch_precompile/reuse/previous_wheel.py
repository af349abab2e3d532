"""The bundle of an earlier wheel, given back as the captures that it was written from.

Nothing of it is run, and no name of a file is taken from it: its records are those of validation/, in which
each name has the form that a capture gives it, and what is written is what these records name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict, replace

from hatch_precompile.bundle.format import FORMAT
from hatch_precompile.bundle.reader import FoundManifest, ManifestError, find_cells, heads_of, verified
from hatch_precompile.errors import BuildError
from hatch_precompile.records import CAPTURE, Capture, CapturedEntry, CapturedFrame, GraphRecord
from hatch_precompile.validation.manifest_rules import is_of_a_capture
from hatch_precompile.validation.manifests import BundledEntry, BundledFrame, EntrypointRecord

__all__ = ["Earlier", "find_earlier"]


@dataclass(frozen=True)
class Earlier:
    """What of a wheel was built with just what builds now. `wheel`: its file's name, for messages."""

    wheel: str
    bundle: FoundManifest

    def unpack(self, entrypoint: str, directory: Path) -> Capture | None:
        """Write the capture of an entrypoint to `directory`, as a capturing process does; None if the
        wheel has none.

        Raises BuildError where a file of it is damaged.
        """
        try:
            record = self.bundle.whole.entrypoint(entrypoint)
            if record is None or record.made_from is None or self._has_code_for_gpus(record):
                return None
            return _Unpacking(self, record, record.made_from, directory).run()
        except BuildError as error:
            source = self.wheel or "the wheel of a shard"
            raise BuildError(f"nothing can be taken over from {source}: {error}") from error

    def _has_code_for_gpus(self, record: EntrypointRecord) -> bool:
        """An entrypoint with code for GPUs comes from several captures, which are not taken apart again."""
        frames = (self.bundle.whole.frames[number] for number in record.frames)
        return any(entry.gpu is not UNSET for frame in frames for entry in frame.entries)


def find_earlier(wheel: Path, package: str, built_with: Mapping[str, str]) -> tuple[Earlier | None, str]:
    """The bundle in a wheel, or the cell of a merged one, that was built with the same versions; and if there
    is none, why.

    built_with: of the bundle that is being built; the CUDA in it is not compared. Raises BuildError where the
    file cannot be read.
    """

    def versions(found: Mapping[str, str]) -> dict[str, str]:
        return {key: value for key, value in found.items() if key != "cuda"}

    try:
        found = [each for each in find_cells(str(wheel)) if each.package == package]
    except (BuildError, OSError) as error:
        raise BuildError(f"nothing can be taken over from {wheel}: {error}") from error
    if not found:
        return None, f"it has no bundle of {package}"
    for bundle in found:
        if bundle.manifest.format == FORMAT and versions(bundle.built_with) == versions(built_with):
            return Earlier(wheel.name, bundle), ""
    nearest = max(found, key=lambda each: len(each.built_with.items() & built_with.items()))
    other = [
        f"{key} {nearest.built_with.get(key)}, not {value}"
        for key, value in built_with.items()
        if nearest.built_with.get(key) != value
    ]
    return None, "it was built with " + (", ".join(other) or "another format of bundles")


class _Unpacking:
    """One entrypoint's records, with the numbers and paths that they had in its capture."""

    def __init__(
        self,
        earlier: Earlier,
        record: EntrypointRecord,
        made_from: dict[str, str],
        directory: Path,
    ) -> None:
        self.bundle = earlier.bundle
        self.manifest = earlier.bundle.whole
        self.record = record
        self.made_from = made_from
        self.directory = directory
        self.prefix = f"{record.name}/"
        self.wheel = earlier.wheel
        self.written: set[str] = set()

    def run(self) -> Capture:
        self.directory.mkdir(parents=True, exist_ok=True)
        for stored in self.manifest.files:
            if stored.startswith(self.prefix) and is_of_a_capture(stored.removeprefix(self.prefix)):
                self._taken(stored)
        result = Capture(
            name=self.record.name,
            target=self.record.target,
            home=self.record.home,
            kind=self.record.kind,
            samples=self.record.samples,
            frames=[self._frame(self.manifest.frames[number]) for number in self.record.frames],
            graphs=[
                self._graph(each, f"graphs/{number}")
                for number, each in enumerate(
                    each for each in self.manifest.graphs if each.readable.startswith(self.prefix)
                )
            ],
            resumes=[
                replace(each, code=self._taken(each.code))
                for each in self.manifest.resumes
                if each.code.startswith(self.prefix)
            ],
            seconds=0.0,
            skipped=self.record.skipped,
            made_from=self.made_from,
            taken_from=self.wheel,
        )
        (self.directory / CAPTURE).write_bytes(msgspec.json.encode(result))
        return result

    def _frame(self, frame: BundledFrame) -> CapturedFrame:
        entries, first_resume = [], 0
        for entry, head in zip(frame.entries, heads_of(self.bundle, frame), strict=True):
            if not entry.data.startswith(self.prefix):  # of another entrypoint with the same frame
                continue
            first_resume = entry.first_resume
            entries.append(self._entry(entry, head))
        resume = None if frame.resume is None else frame.resume - first_resume
        if resume is not None and resume < 0:
            raise ManifestError(f"{frame.heads} has a resume function of another entrypoint")
        fields = {**asdict(frame), "resume": resume, "entries": entries}
        del fields["heads"]
        return CapturedFrame(**fields)

    def _entry(self, entry: BundledEntry, head: bytes) -> CapturedEntry:
        fields = asdict(entry)
        fields["data"] = data = self._taken(entry.data)
        fields["source"] = self._taken(entry.source)
        fields["guards"] = self._taken(entry.guards) if entry.guards else ""
        fields["graphs"] = [graph - fields["first_graph"] for graph in entry.graphs]
        del fields["first_graph"], fields["first_resume"]
        name = data.removesuffix(".entry") + ".head"
        self._write(name, head)
        return CapturedEntry(**fields, head=name)

    def _graph(self, graph: GraphRecord, name: str) -> GraphRecord:
        """A graph's record. `name` starts the names of its files; what is equal to another graph's library
        is stored once, and comes back to its own place."""
        if graph.readable != f"{self.prefix}{name}.txt":
            raise ManifestError(f"{graph.readable} is not in its place, {self.prefix}{name}.txt")
        return graph.with_files(lambda end, stored: self._taken(stored, f"{name}{end}"))

    def _taken(self, stored: str, name: str | None = None) -> str:
        """Copy a file of the bundle, by default to its own place; returns that."""
        name = name if name is not None else stored.removeprefix(self.prefix)
        if name not in self.written:
            self.written.add(name)
            self._write(name, verified(self.bundle, stored))
        return name

    def _write(self, name: str, content: bytes) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
