"""Whether a manifest is all that one of this format must be: each name, each file, each number in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec
from msgspec import UNSET
from packaging.version import InvalidVersion, Version

from hatch_precompile.config.model import RESERVED, Entrypoint
from hatch_precompile.errors import OutsideError
from hatch_precompile.records import GraphRecord
from hatch_precompile.runtime import manifest as rules
from hatch_precompile.validation.manifests import (
    BundledEntry,
    BundledFrame,
    EntrypointRecord,
    Manifest,
    VariantRecord,
)
from hatch_precompile.validation.names import is_below

__all__ = ["FORMAT", "check_manifest", "configured", "is_of_a_capture"]

FORMAT = rules.FORMAT
"""Of the bundles that are read and written here."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VARIANT = re.compile(r"[a-z0-9][a-z0-9._-]*")
_CAPABILITY = re.compile(r"sm_[1-9][0-9]{1,2}")
_CUDA = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
_BACKEND = re.compile(r"[a-z][a-z0-9_]*")
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_TARGET = re.compile(rf"{_DOTTED.pattern}:{_DOTTED.pattern}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BUILT_WITH = {
    "torch": re.compile(r"[0-9A-Za-z.+!_-]+"),
    "torch_git": re.compile(r"[\w.+-]*"),
    "python": re.compile(r"[0-9]{1,3}\.[0-9]{1,3}"),
    "magic": re.compile(r"[0-9a-f]{8}"),
}
_NO_VERSION = {"torch": "names no version of torch", "python": "names no version of Python"}
_ONE_OF = {
    "kind": {"module class", "method", "function"},
    "activate": {"call", "compile"},
    "on_miss": {"eager", "compile", "error"},
}
_MODES = {"no_grad", "inference", "train"}
_GRAPH = r"graphs/\d+(-backward)?"
_KINDS = {
    "heads": re.compile(r"frames/\d+\.heads"),
    "entry": re.compile(r"entries/\d+\.entry"),
    "words": re.compile(r"entries/\d+\.words"),
    "source": re.compile(r"entries/\d+\.guards\.txt"),
    "guards": re.compile(r"guards\.so"),
    "library": re.compile(rf"{_GRAPH}-{_VARIANT.pattern}\.so"),
    "readable": re.compile(rf"{_GRAPH}\.txt"),
    "constant": re.compile(rf"{_GRAPH}-constant-\d+\.bin"),
    "wrapper": re.compile(rf"{_GRAPH}-{_VARIANT.pattern}\.py"),
    "weights": re.compile(rf"{_GRAPH}-{_VARIANT.pattern}\.weights"),
    "autotuning": re.compile(rf"{_GRAPH}-{_VARIANT.pattern}\.autotuning"),
    "wrapping": re.compile(r"graphs/\d+\.wrapping"),
    "code": re.compile(r"resume/\d+\.code"),
}


def check_manifest(manifest: Manifest, where: str) -> None:
    """Raise OutsideError, which calls the manifest `where`, for what a build of this format never writes."""
    if manifest.format != FORMAT:
        raise OutsideError(
            f"{where}: its bundle has format {manifest.format}, {FORMAT} is read here; build the wheel again"
        )
    if manifest.lacking:
        raise OutsideError(f"{where} has no {', '.join(manifest.lacking)}; build the wheel again")
    for problem in _problems(manifest):
        said = problem if problem.startswith("has no sha256") else f"is damaged: it {problem}"
        raise OutsideError(f"{where} {said}")


def configured(record: EntrypointRecord, where: str) -> Entrypoint:
    """What a manifest has of an entrypoint's configuration. Raises OutsideError, which calls it `where`."""
    given = {
        **msgspec.to_builtins(record.recipe or {}),
        "target": record.target,
        "name": record.name,
        "activate": record.activate,
        "on-miss": record.on_miss,
        "mode": record.mode,
    }
    try:
        return msgspec.convert(given, Entrypoint)
    except msgspec.ValidationError as error:
        raise OutsideError(f"{where} is damaged: {record.name}: {error}") from None


def _problems(manifest: Manifest) -> Iterator[str]:
    yield from _of_versions(manifest.built_with)
    yield from _of_variants(manifest)
    yield from _of_files(manifest)
    yield from _of_entrypoints(manifest)
    yield from chain.from_iterable(_of_graph(manifest, graph) for graph in manifest.graphs)
    yield from _of_frames(manifest)
    for resume in manifest.resumes:
        yield from _of_file(manifest, resume.code, "code")
        yield from _of_module(resume.module)
    yield from _of_part(manifest)


def _unless(is_so: object, problem: str) -> Iterator[str]:
    if not is_so:
        yield problem


def _of_module(name: str) -> Iterator[str]:
    yield from _unless(_DOTTED.fullmatch(name), f"has {name!r} for the name of a module")


def _of_versions(built_with: dict[str, str]) -> Iterator[str]:
    for key, pattern in _BUILT_WITH.items():
        if key not in built_with:
            yield f"does not say with which {key} it was built"
        elif not pattern.fullmatch(built_with[key]):
            yield f"{_NO_VERSION.get(key, 'has for ' + key)}: {built_with[key]!r}"
    try:
        Version(built_with["torch"])
    except InvalidVersion as error:
        yield f"names no version of torch: {error}"


def _of_variants(manifest: Manifest) -> Iterator[str]:
    yield from _twice("variants", [each.name for each in manifest.variants])
    for variant in manifest.variants:
        yield from _unless(
            _VARIANT.fullmatch(variant.name), f"has {variant.name!r} for the name of a variant"
        )
        yield from _unless(
            _BACKEND.fullmatch(variant.backend), f"has {variant.backend!r} for the backend of {variant.name}"
        )
        if variant.device is UNSET:
            for feature in variant.requires:
                yield from _unless(re.fullmatch(r"\w+", feature), f"requires {feature!r} of a CPU")
            yield from _unless(variant.run is UNSET, f"says of {variant.name}, for CPUs, whether it was run")
            continue
        yield from _unless(
            variant.device == "cuda", f"has {variant.device!r} for the device of {variant.name}"
        )
        yield from _unless(
            len(variant.requires) == 1 and _CAPABILITY.fullmatch(variant.requires[0]),
            f"requires {variant.requires!r} of a GPU, and not one capability",
        )
    if _on_gpus(manifest):
        found = manifest.built_with.get("cuda", "")
        yield from _unless(_CUDA.fullmatch(found), f"has {found!r} for the version of CUDA")


def _of_files(manifest: Manifest) -> Iterator[str]:
    for name, digest in manifest.files.items():
        yield from _unless(is_below(name), f"lists {name!r}, which leads out of the bundle")
        yield from _unless(_SHA256.fullmatch(digest), f"has no sha256 of {name!r}")


def _of_entrypoints(manifest: Manifest) -> Iterator[str]:
    yield from _twice("entrypoints", [each.name for each in manifest.entrypoints])
    for each in manifest.entrypoints:
        fine = _NAME.fullmatch(each.name) and each.name not in RESERVED
        yield from _unless(fine, f"has {each.name!r} for the name of an entrypoint")
        yield from _unless(_TARGET.fullmatch(each.target), f"has {each.target!r} for a target")
        yield from _of_module(each.home[0])
        modes = each.mode if isinstance(each.mode, list) else []
        yield from _unless(modes and set(modes) <= _MODES, f"has {each.mode!r} for the mode of {each.name}")
        for key, known in _ONE_OF.items():
            value = getattr(each, key)
            yield from _unless(value in known, f"has {value!r} for {key} of {each.name}")
        for number in each.frames:
            yield from _unless(
                number < len(manifest.frames), f"has no frame {number}, which {each.name} names"
            )


def _of_graph(manifest: Manifest, graph: GraphRecord, *, backward: bool = False) -> Iterator[str]:
    known = {each.name for each in manifest.variants if each.device is UNSET}
    compiled = [*graph.libraries, *graph.python]
    if of_a_gpu := _gpu_of(manifest, graph.readable):
        known = {of_a_gpu}
    yield from _unless(
        set(compiled) == known
        and len(compiled) == len(known)
        and graph.python.keys() == graph.kernels.keys(),
        f"has {graph.readable!r} not once for each variant",
    )
    yield from _unless(graph.weights.keys() <= known, f"has weights of {graph.readable!r} for no variant")
    yield from _unless(graph.autotuning.keys() <= known, f"has kernels of {graph.readable!r} for no variant")
    yield from _of_file(manifest, graph.readable, "readable")
    kinds = [
        ("library", [*graph.libraries.values(), *chain.from_iterable(graph.kernels.values())]),
        ("wrapper", graph.python.values()),
        ("weights", graph.weights.values()),
        ("autotuning", graph.autotuning.values()),
        ("constant", [each.file for each in graph.constants]),
        ("wrapping", [graph.wrapping] if graph.wrapping else []),
    ]
    for kind, names in kinds:
        for name in names:
            yield from _of_file(manifest, name, kind)
    if graph.backward is not None:
        yield from _unless(not backward, f"has a graph of the gradients of {graph.readable!r}, which is one")
        yield from _of_graph(manifest, graph.backward, backward=True)


def _of_frames(manifest: Manifest) -> Iterator[str]:
    graphs = _starts(each.readable for each in manifest.graphs)
    resumes = _starts(each.code for each in manifest.resumes)
    yield from _twice("entries", [entry.data for frame in manifest.frames for entry in frame.entries])
    for frame in manifest.frames:
        yield from _of_frame(manifest, frame)
        for entry in frame.entries:
            yield from _of_entry(manifest, entry, graphs, resumes)


def _starts(names: Iterable[str]) -> dict[str, range]:
    """Entrypoint to the numbers of its records, which follow each other."""
    found: dict[str, range] = {}
    for number, name in enumerate(names):
        owner = _owner(name)
        found[owner] = range(found[owner].start if owner in found else number, number + 1)
    return found


def _of_frame(manifest: Manifest, frame: BundledFrame) -> Iterator[str]:
    yield from _of_file(manifest, frame.heads, "heads")
    yield from _of_module(frame.module)
    for module, _, _ in [*frame.functions, *([frame.code] if frame.code else [])]:
        yield from _of_module(module)
    if frame.resume is not None:
        yield from _unless(frame.resume < len(manifest.resumes), f"has no resume function {frame.resume}")


def _of_entry(
    manifest: Manifest, entry: BundledEntry, graphs: dict[str, range], resumes: dict[str, range]
) -> Iterator[str]:
    yield from _of_file(manifest, entry.data, "entry")
    yield from _of_file(manifest, entry.source, "source")
    if entry.guards:
        yield from _of_file(manifest, entry.guards, "guards")
    owner = _owner(entry.data)
    own = graphs.get(owner, range(0))
    yield from _unless(
        {_owner(entry.source), _owner(entry.guards or entry.data)} == {owner},
        f"has files of another entrypoint for {entry.data!r}",
    )
    yield from _unless(
        _begins(entry.first_graph, own, len(manifest.graphs), entry.gpu is not UNSET)
        and all(each in own for each in entry.graphs),
        f"has graphs for {entry.data!r} that are not of {owner}",
    )
    variant = "" if entry.gpu is UNSET else entry.gpu.variant
    yield from _unless(
        not variant or variant in _on_gpus(manifest),
        f"has {entry.data!r} for a variant that is not for GPUs",
    )
    graphs_used = [manifest.graphs[each].readable for each in entry.graphs if each in own]
    for name in [entry.data, entry.source, *([entry.guards] if entry.guards else []), *graphs_used]:
        yield from _unless(
            _gpu_of(manifest, name) == variant, f"has {name!r} for {entry.data!r}, of another variant"
        )
    first, own = entry.first_resume, resumes.get(owner, range(0))
    yield from _unless(
        _begins(first, own, len(manifest.resumes), entry.gpu is not UNSET),
        f"has resume functions for {entry.data!r} not of {owner}",
    )


def _on_gpus(manifest: Manifest) -> dict[str, VariantRecord]:
    return {each.name: each for each in manifest.variants if each.device is not UNSET}


def _gpu_of(manifest: Manifest, name: str) -> str:
    """The variant for GPUs in whose folder a file is; "" for one of the others."""
    folder = name.partition("/")[2].partition("/")[0]
    return folder if folder in _on_gpus(manifest) else ""


def _begins(first: int, own: range, every: int, on_gpu: bool) -> bool:
    """Whether a number is where an entrypoint's records begin; what has none may begin anywhere. Those for
    GPUs come behind the others."""
    if on_gpu:
        return own.start <= first <= own.stop if own else first <= every
    return first == own.start if own else first <= every


def is_of_a_capture(name: str) -> bool:
    """Whether a capture may have a file of this name, below its folder."""
    return any(pattern.fullmatch(name) for kind, pattern in _KINDS.items() if kind != "heads")


def _of_file(manifest: Manifest, name: str, kind: str) -> Iterator[str]:
    owner, _, rest = name.partition("/")
    part, _, within = rest.partition("/")
    if part in _on_gpus(manifest):
        rest = within
    if manifest.entrypoint(owner) is None or not _KINDS[kind].fullmatch(rest):
        yield f"has {name!r} in the place of a file of the kind {kind}"
    elif name not in manifest.files:
        yield f"does not list {name}"


def _of_part(manifest: Manifest) -> Iterator[str]:
    part = manifest.part
    if part is None:
        return
    if not 1 <= part.shard <= part.of <= max(len(part.entrypoints), 1):
        yield f"is of shard {part.shard} of {part.of}, which there is not"
    yield from _twice("entrypoints", part.entrypoints)
    for entrypoint in manifest.entrypoints:
        yield from _unless(
            entrypoint.name in part.entrypoints, f"has {entrypoint.name}, which is not of the configuration"
        )


def _twice(what: str, names: list[str]) -> Iterator[str]:
    if len(set(names)) < len(names):
        yield f"has two {what} of one name"


def _owner(name: str) -> str:
    return name.partition("/")[0]
