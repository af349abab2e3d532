"""The bundle of an earlier wheel, given back as the captures that it was written from."""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hatch_precompile.bundle.format import FORMAT
from hatch_precompile.bundle.reader import (
    FoundManifest,
    ManifestError,
    entrypoint_names,
    find_cells,
    verified,
)
from hatch_precompile.errors import BuildError
from hatch_precompile.records import CAPTURE, Capture

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
        if entrypoint not in entrypoint_names(self.bundle):
            return None
        record = next(each for each in self.bundle.manifest["entrypoints"] if each["name"] == entrypoint)
        if "made_from" not in record:
            return None
        try:
            return _Unpacking(self, record, directory).run()
        except ManifestError as error:
            raise BuildError(f"nothing can be taken over from {self.wheel}: {error}") from error


def find_earlier(wheel: Path, package: str, built_with: Mapping[str, str]) -> tuple[Earlier | None, str]:
    """The bundle in a wheel, or the cell of a merged one, that was built with the same versions; and if there
    is none, why.

    built_with: of the bundle that is being built. Raises BuildError where the file cannot be read.
    """
    try:
        found = [each for each in find_cells(str(wheel)) if each.package == package]
    except (ManifestError, OSError) as error:
        raise BuildError(f"nothing can be taken over from {wheel}: {error}") from error
    if not found:
        return None, f"it has no bundle of {package}"
    for bundle in found:
        if bundle.manifest.get("format") == FORMAT and bundle.built_with == dict(built_with):
            return Earlier(wheel.name, bundle), ""
    nearest = max(found, key=lambda each: len(each.built_with.items() & built_with.items()))
    other = [
        f"{key} {nearest.built_with.get(key)}, not {value}"
        for key, value in built_with.items()
        if nearest.built_with.get(key) != value
    ]
    return None, "it was built with " + (", ".join(other) or "another format of bundles")


class _Unpacking:
    """One entrypoint's records with their numbers and paths as they were before they met the others'."""

    def __init__(self, earlier: Earlier, record: dict[str, Any], directory: Path) -> None:
        self.bundle = earlier.bundle
        self.manifest = earlier.bundle.manifest
        self.record = record
        self.directory = directory
        self.prefix = f"{record['name']}/"
        self.wheel = earlier.wheel

    def run(self) -> Capture:
        graphs = [each for each in self.manifest["graphs"] if each["readable"].startswith(self.prefix)]
        resumes = [each for each in self.manifest["resumes"] if each["code"].startswith(self.prefix)]
        self._copy_files()
        captured = {
            "name": self.record["name"],
            "target": self.record["target"],
            "home": self.record["home"],
            "kind": self.record["kind"],
            "samples": self.record["samples"],
            "frames": [self._frame(number) for number in self.record["frames"]],
            "graphs": [
                self._graph(each, self._own(each["readable"]).removesuffix(".txt")) for each in graphs
            ],
            "resumes": [{**each, "code": self._own(each["code"])} for each in resumes],
            "seconds": 0.0,
            "skipped": self.record["skipped"],
            "made_from": self.record["made_from"],
            "taken_from": self.wheel,
        }
        result = msgspec.convert(captured, Capture, str_keys=True)
        (self.directory / CAPTURE).write_bytes(msgspec.json.encode(result))
        return result

    def _copy_files(self) -> None:
        for name in self.manifest["files"]:
            if name.startswith(self.prefix) and not name.endswith(".heads"):
                self._write(self._own(name), verified(self.bundle, name))

    def _frame(self, number: int) -> dict[str, Any]:
        frame = self.manifest["frames"][number]
        heads = marshal.loads(verified(self.bundle, frame["heads"]))
        entries, first_resume = [], 0
        for entry, head in zip(frame["entries"], heads, strict=True):
            if not entry["data"].startswith(self.prefix):  # of another entrypoint with the same frame
                continue
            first_resume = entry["first_resume"]
            data = self._own(entry["data"])
            own = {
                **entry,
                "data": data,
                "head": data.removesuffix(".entry") + ".head",
                "source": self._own(entry["source"]),
                "guards": self._own(entry["guards"]) if entry["guards"] else "",
                "graphs": [graph - entry["first_graph"] for graph in entry["graphs"]],
            }
            self._write(own["head"], head)
            entries.append(own)
        resume = None if frame["resume"] is None else frame["resume"] - first_resume
        return {**frame, "resume": resume, "entries": entries}

    def _graph(self, graph: dict[str, Any], name: str) -> dict[str, Any]:
        """A graph's record. `name` starts the names of its files; what is equal to another graph's library
        is stored once, and comes back to its own place."""
        record = dict(graph)
        record["libraries"] = {
            variant: self._restored(stored, f"{name}-{variant}.so")
            for variant, stored in graph.get("libraries", {}).items()
        }
        record["kernels"] = {
            variant: [
                self._restored(each, f"{name}-{variant}-{number}.so") for number, each in enumerate(stored)
            ]
            for variant, stored in graph.get("kernels", {}).items()
        }
        record["python"] = {variant: self._own(path) for variant, path in graph.get("python", {}).items()}
        record["constants"] = [
            {**constant, "file": self._own(constant["file"])} for constant in graph.get("constants", [])
        ]
        record["weights"] = {variant: self._own(path) for variant, path in graph.get("weights", {}).items()}
        for key in ("readable", "wrapping"):
            record[key] = self._own(graph[key]) if key in graph else ""
        if "backward" in graph:
            record["backward"] = self._graph(graph["backward"], f"{name}-backward")
        return record

    def _restored(self, stored: str, name: str) -> str:
        if stored != self.prefix + name:
            self._write(name, verified(self.bundle, stored))
        return name

    def _own(self, path: str) -> str:
        return path.removeprefix(self.prefix)

    def _write(self, name: str, content: bytes) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
