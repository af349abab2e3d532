"""What a bundle weighs, and what its guards ask, as bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

__all__ = ["FAMILIES", "GraphBar", "KindBar", "Share", "graph_bars", "guard_bars", "shares"]

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "tensors": ("TENSOR_MATCH", "DIMENSION_MARKING"),
    "sizes": ("SHAPE_ENV", "STRIDES", "NUMBERS"),
    "identities": ("TYPE_MATCH", "ID_MATCH", "OBJECT_ALIASING"),
    "torch's state": (
        *("STAND_ASIDE", "GLOBAL_STATE", "INFERENCE_MODE", "TORCH_FUNCTION_STATE"),
        *("DEFAULT_DEVICE", "DUAL_LEVEL", "SAVED_TENSORS_HOOKS"),
    ),
    "the process": ("ENVIRONMENT", "GPU", "GPU_SETTINGS", "PROCESS_STATE", "HOOKS"),
}
"""The kinds of checks (lower/guards/checks.py) by what they are about; all others are about Python values."""

_KINDS_OF_FILES = {
    ".entry": "guards and bytecode",
    ".heads": "guards and bytecode",
    ".code": "guards and bytecode",
    ".bin": "constants",
    ".wrapping": "wrappers",
    ".txt": "readable sources",
    ".autotuning": "readable sources",
    ".words": "explanations",
    ".json": "manifest",
}


@dataclass(frozen=True)
class Share:
    """A part of the bundle. `width` in percent of the whole; `variant`: of a library, else empty."""

    name: str
    size: int
    width: float
    variant: str = ""


@dataclass(frozen=True)
class GraphBar:
    """One graph. `libraries`: variant, bytes, and percent of the largest graph's."""

    name: str
    total: int
    libraries: list[Share]
    why_wrapped: str


@dataclass(frozen=True)
class KindBar:
    """One kind of check: how many there are, and that in percent of the most frequent kind's."""

    kind: str
    family: str
    count: int
    width: float


def shares(manifest: Mapping[str, Any], bundle: Path) -> list[Share]:
    """The bundle by kinds of files, libraries by variant; the largest first."""
    libraries = {
        path: variant
        for _, graph in _graphs(manifest)
        for variant, paths in graph_files(graph).items()
        for path in paths
    }
    sizes: Counter[tuple[str, str]] = Counter()
    for file in bundle.rglob("*"):
        if file.is_file():
            path = file.relative_to(bundle).as_posix()
            variant = libraries.get(path, "")
            kind = _KINDS_OF_FILES.get(PurePosixPath(path).suffix, "other")
            sizes[f"libraries, {variant}" if variant else kind, variant] += file.stat().st_size
    whole = sizes.total() or 1
    return [Share(name, size, 100 * size / whole, variant) for (name, variant), size in sizes.most_common()]


def graph_bars(manifest: Mapping[str, Any], bundle: Path) -> list[GraphBar]:
    """The libraries of every graph, the largest first. A backward graph is one of its own."""
    found = []
    for name, graph in _graphs(manifest):
        sizes = {
            variant: sum((bundle / path).stat().st_size for path in paths)
            for variant, paths in graph_files(graph).items()
        }
        found.append((name, sizes, graph.get("why_wrapped", "")))
    found.sort(key=lambda graph: -sum(graph[1].values()))
    most = max((sum(sizes.values()) for _, sizes, _ in found), default=1)
    return [
        GraphBar(
            name,
            sum(sizes.values()),
            [Share(variant, size, 100 * size / most) for variant, size in sizes.items()],
            why,
        )
        for name, sizes, why in found
    ]


def guard_bars(manifest: Mapping[str, Any]) -> list[KindBar]:
    """The checks of all entries, the most frequent kind first."""
    counts: Counter[str] = Counter()
    for frame in manifest["frames"]:
        for entry in frame["entries"]:
            counts.update(entry["by_kind"])
    most = max(counts.values(), default=1)
    return [KindBar(kind, _family(kind), count, 100 * count / most) for kind, count in counts.most_common()]


def _family(kind: str) -> str:
    return next((family for family, kinds in FAMILIES.items() if kind in kinds), "Python values")


def graph_files(graph: Mapping[str, Any]) -> dict[str, list[str]]:
    """Variant to the files a graph is called through: its library, or a Python wrapper and its kernels."""
    files = {variant: [path] for variant, path in graph.get("libraries", {}).items()}
    for variant, path in graph.get("python", {}).items():
        files[variant] = [path, *graph["kernels"][variant]]
    return files


def _graphs(manifest: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every graph with its name, such as `encoder 0` or `encoder 0, backward`."""
    for graph in manifest["graphs"]:
        entrypoint, _, file = graph["readable"].partition("/graphs/")
        name = f"{entrypoint} {file.removesuffix('.txt')}"
        yield name, graph
        if "backward" in graph:
            yield f"{name}, backward", graph["backward"]
