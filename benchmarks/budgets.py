"""The project's budgets: ratios within one run of the benchmarks, each with what it may be at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ways import BEFORE

__all__ = ["Budget", "Verdict", "ahead", "judge"]

Results = Mapping[str, Mapping[str, Any]]
"""By way: its fields."""


@dataclass(frozen=True)
class Budget:
    """A figure of one model and its limit."""

    what: str
    limit: float
    unit: str
    """"x" for a ratio, "ms" for a difference."""
    figure: Callable[[Results], float]
    """Raises KeyError if a way it needs was not measured, or failed."""
    models: tuple[str, ...] = ()
    """The models it holds for; empty: all."""


@dataclass(frozen=True)
class Verdict:
    """What became of one budget for one model; ``value`` is None where it was not measured."""

    what: str
    model: str
    limit: float
    unit: str
    value: float | None

    @property
    def passed(self) -> bool | None:
        return None if self.value is None else self.value <= self.limit


def _against_eager(field: str) -> Callable[[Results], float]:
    return lambda ways: float(ways["wheel"][field] / ways["eager"][field])


def _least(way: str, other: str) -> Callable[[Results], float]:
    """Of the shortest calls of two ways, the ratio: what else the machine does is in the medians."""
    return lambda ways: float(ways[way]["least_ms"] / ways[other]["least_ms"])


def _against_torch_compile(ways: Results) -> float:
    # The warm one is measured as often as the wheel, in the same turns; the code it runs is the cold one's.
    jit = ways["fxcache"] if "steady_ms" in ways.get("fxcache", {}) else ways["cold"]
    return float(ways["wheel"]["steady_ms"] / jit["steady_ms"])


_TRANSFORMERS = ("minilm", "minilm_16", "bert")
_BESIDE_OTHERS = (*_TRANSFORMERS, "gpt2", "resnet", "mobilenet", "efficientnet", "vit", "lstm", "llama")

BUDGETS = (
    Budget("whole process to first output, against eager", 1.05, "x", _against_eager("process_s")),
    Budget(
        "added to import of the package, one entrypoint",
        2.5,
        "ms",
        lambda ways: ways["wheel"]["import"]["added_ms"],
    ),
    Budget(
        "added to import of the package, 256 entries",
        10,
        "ms",
        lambda ways: ways["wheel"]["import"]["added_ms"],
        models=("many",),
    ),
    Budget(
        "install and first call, over the second call",
        15,
        "ms",
        lambda ways: ways["wheel"]["install_and_first_ms"],
        models=("bert",),
    ),
    Budget(
        "kernels for any number of threads, against those for the number there is",
        1.1,
        "x",
        lambda ways: max(each["ratio"] for each in ways["wheel"]["threads"].values()),
        models=("threads",),
    ),
    Budget("steady state per call, against torch.compile", 1.0, "x", _against_torch_compile),
    Budget("a call, against the wheel of the revision before", 1.03, "x", _least("wheel", BEFORE)),
    *(
        Budget(f"a call with fixed weights, {what}", limit, "x", _least(way, other), models)
        for what, limit, way, other, models in (
            ("against ONNX Runtime", 1.0, "wheel_fixed", "onnxruntime", _BESIDE_OTHERS),
            ("against OpenVINO", 1.1, "wheel_fixed", "openvino", _BESIDE_OTHERS),
            ("bfloat16, against OpenVINO's", 1.15, "wheel_medium", "openvino_bfloat16", _TRANSFORMERS),
            ("of bfloat16, against OpenVINO's", 1.15, "wheel_bfloat16", "openvino_bfloat16", _BESIDE_OTHERS),
            ("int8, against ONNX Runtime's", 1.2, "wheel_int8", "onnxruntime_int8", _TRANSFORMERS),
        )
    ),
    # What packing weights cannot make faster must not become slower by it.
    *(
        Budget(f"a call, {what}", 1.03, "x", _least(way, other))
        for what, way, other in (
            ("with fixed weights against read ones", "wheel_fixed", "wheel"),
            ("with read weights against eager code", "wheel", "eager"),
        )
    ),
    Budget("resident memory, against eager", 1.05, "x", _against_eager("rss_mb")),
    Budget(
        "build, against the whole process of a cold torch.compile",
        1.5,
        "x",
        lambda ways: ways["wheel"]["build_s"] / ways["cold"]["process_s"],
    ),
)


_RIVALS = ("cold", "fxcache", "freezing", "onnxruntime", "openvino")


def ahead(models: Mapping[str, Results]) -> Iterator[tuple[str, str, float]]:
    """Each model whose wheel with fixed weights was measured beside others' ways: its name, the fastest of
    those with the same numbers, and the wheel's least time over that one's."""
    for model, ways in models.items():
        found = {way: ways[way]["least_ms"] for way in _RIVALS if "least_ms" in ways.get(way, {})}
        if found and "least_ms" in ways.get("wheel_fixed", {}):
            best = min(found, key=found.__getitem__)
            yield model, best, ways["wheel_fixed"]["least_ms"] / found[best]


def judge(models: Mapping[str, Results]) -> Iterator[Verdict]:
    """Every budget for every model it holds for."""
    for budget in BUDGETS:
        for model, ways in models.items():
            if (model in budget.models) if budget.models else model not in ("many", "threads"):
                yield Verdict(budget.what, model, budget.limit, budget.unit, _value(budget, ways))


def _value(budget: Budget, ways: Results) -> float | None:
    try:
        return budget.figure(ways)
    except KeyError:
        return None
