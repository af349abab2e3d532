"""The bundle: captures of entrypoints in, one directory with a manifest out. See docs/bundle-format.md."""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from hatch_precompile import __version__
from hatch_precompile.backends import backend
from hatch_precompile.backends.base import Variant
from hatch_precompile.bundle.format import FORMAT
from hatch_precompile.config import Entrypoint
from hatch_precompile.config.cells import Shard
from hatch_precompile.records import CAPTURE, MARSHAL, Capture, CapturedFrame, GraphRecord, ResumeRecord
from hatch_precompile.runtime import manifest as rules
from hatch_precompile.runtime import runtime_directory
from hatch_precompile.validation.manifests import (
    BundledEntry,
    BundledFrame,
    EntrypointRecord,
    LeftOutRecord,
    Part,
    Recipe,
    VariantRecord,
)

__all__ = ["built_with", "part_of", "write_bundle", "write_runtime"]


def write_runtime(directory: Path) -> None:
    """Copy the runtime's modules, verbatim, to what becomes `<package>/_precompiled`."""
    runtime_folder = runtime_directory()
    for module in sorted(runtime_folder.rglob("*.py")):
        copy = directory / module.relative_to(runtime_folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(module, copy)


def write_bundle(
    directory: Path,
    captures: Sequence[tuple[Entrypoint, Capture, Path]],
    variants: Sequence[Variant],
    versions: Mapping[str, str],
    part: Part | None = None,
    left_out: Sequence[LeftOutRecord] = (),
    *,
    run: bool = False,
) -> list[Path]:
    """Merge the captures into `directory` and write the manifest. Returns the shared libraries.

    versions: see `built_with`; part: of which entrypoints these are some, where the wheel is for a shard;
    left_out: entrypoints that failed; run: whether the build has run what is for GPUs.

    Frames that several entrypoints share (a decorator's wrapper) become one, with the entries of all. So do
    those of an entrypoint that is captured for CPUs and for GPUs; its captures follow each other.
    """
    writer = _Writer(directory)
    for entrypoint, captured, source in captures:
        writer.add(entrypoint, captured, source)
    writer.store_once()
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "built_with": dict(versions),
        "variants": [_variant(each, run=run) for each in variants],
        "entrypoints": writer.entrypoints,
        "frames": writer.frames,
        "graphs": writer.graphs,
        "resumes": writer.resumes,
        "files": _files_in(directory),
    }
    if part is not None:
        manifest["part"] = part
    if left_out:
        manifest["left_out"] = left_out
    writer.write_heads(rules.seal_of(msgspec.json.decode(msgspec.json.encode(manifest))))
    manifest["files"] = _files_in(directory)
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    (directory / "manifest.json").write_bytes(rules.with_checksum(text))
    return sorted(directory.rglob("*.so"))


def _files_in(directory: Path) -> dict[str, str]:
    """Name to sha256."""
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def part_of(shard: Shard, entrypoints: Sequence[Entrypoint]) -> Part:
    """What a manifest says of a shard. entrypoints: all that the configuration has."""
    return Part(shard.number, shard.of, [entrypoint.name for entrypoint in entrypoints])


def built_with(torch: str, torch_git: str) -> dict[str, str]:
    """What a manifest says of this process. `torch`, `torch_git`: its version and its source revision."""
    return {
        "hatch_precompile": __version__,
        "torch": torch,
        "torch_git": torch_git,
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "magic": importlib.util.MAGIC_NUMBER.hex(),
        "platform": sysconfig.get_platform(),
    }


class _Writer:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.entrypoints: list[EntrypointRecord] = []
        self.frames: list[BundledFrame] = []
        self.graphs: list[GraphRecord] = []
        self.resumes: list[ResumeRecord] = []
        self._frame_numbers: dict[str, int] = {}
        self._heads: dict[str, list[bytes]] = {}

    def add(self, entrypoint: Entrypoint, captured: Capture, source: Path) -> None:
        prefix = f"{entrypoint.name}/{captured.gpu}".rstrip("/")
        shutil.copytree(
            source,
            self.directory / prefix,
            ignore=shutil.ignore_patterns(CAPTURE, "*.head"),
            dirs_exist_ok=True,
        )
        first_graph, first_resume = len(self.graphs), len(self.resumes)
        self.graphs += [graph.with_files(lambda _, path: f"{prefix}/{path}") for graph in captured.graphs]
        self.resumes += [replace(each, code=f"{prefix}/{each.code}") for each in captured.resumes]
        numbers = [
            self._add_frame(frame, prefix, source, first_graph, first_resume) for frame in captured.frames
        ]
        if self.entrypoints and self.entrypoints[-1].name == entrypoint.name:
            before = self.entrypoints[-1]
            self.entrypoints[-1] = replace(
                before,
                skipped=[*before.skipped, *(each for each in captured.skipped if each not in before.skipped)],
                frames=list(dict.fromkeys([*before.frames, *numbers])),
            )
            return
        self.entrypoints.append(
            EntrypointRecord(
                name=entrypoint.name,
                target=entrypoint.target,
                home=captured.home,
                kind=captured.kind,
                mode=list(entrypoint.modes),
                activate=entrypoint.activate,
                on_miss=entrypoint.on_miss,
                samples=captured.samples,
                recipe=Recipe(entrypoint.samples, entrypoint.workload, entrypoint.instance),
                made_from=captured.made_from,
                skipped=captured.skipped,
                rounded=_rounded(captured),
                frames=numbers,
            )
        )

    def write_heads(self, seal: bytes) -> None:
        """What a frame's first lookup reads is one file, however many entries there are. seal: of the
        manifest."""
        for name, heads in self._heads.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(marshal.dumps([*heads, seal], MARSHAL))

    def store_once(self) -> None:
        """One file for all libraries that are equal: of two modes, of a function that two targets call."""
        known: dict[str, str] = {}

        def kept(name: str) -> str:
            path = self.directory / name
            first = known.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), name)
            if first != name:
                path.unlink()
            return first

        # Only libraries are stored once: each other file keeps its own name.
        self.graphs = [
            graph.with_files(lambda _, path: kept(path) if path.endswith(".so") else path)
            for graph in self.graphs
        ]

    def _add_frame(
        self, frame: CapturedFrame, prefix: str, source: Path, first_graph: int, first_resume: int
    ) -> int:
        resume = None if frame.resume is None else frame.resume + first_resume
        key = repr((frame.module, frame.functions, frame.code, resume))
        number = self._frame_numbers.get(key)
        if number is None:
            number = self._frame_numbers[key] = len(self.frames)
            fields = {**asdict(frame), "resume": resume, "entries": []}
            self.frames.append(BundledFrame(**fields, heads=f"{prefix}/frames/{number}.heads"))
        heads = self._heads.setdefault(self.frames[number].heads, [])
        for entry in frame.entries:
            fields = asdict(entry)
            heads.append((source / fields.pop("head")).read_bytes())
            fields["data"] = f"{prefix}/{entry.data}"
            fields["source"] = f"{prefix}/{entry.source}"
            fields["guards"] = f"{prefix}/{entry.guards}" if entry.guards else ""
            fields["graphs"] = [graph + first_graph for graph in entry.graphs]
            placed = BundledEntry(**fields, first_graph=first_graph, first_resume=first_resume)
            self.frames[number].entries.append(placed)
        return number


def _variant(variant: Variant, *, run: bool) -> VariantRecord:
    record = VariantRecord(variant.name, variant.backend, list(variant.requires))
    device = backend(variant.backend).device
    return record if device == "cpu" else replace(record, device=device, run=run)


def _rounded(captured: Capture) -> dict[str, str]:
    """Variant to the smallest type that a graph of an entrypoint rounds factors to."""
    found: dict[str, str] = {}
    for graph in captured.graphs:
        for part in filter(None, (graph, graph.backward)):
            for variant, kind in part.rounded.items():
                found[variant] = "int8" if "int8" in (kind, found.get(variant)) else kind
    return found
