"""The benchmarked models, each a package of a small Hatch project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

__all__ = ["MANY", "MODELS", "ROOT", "THREADS", "BenchModel"]

ROOT = Path(__file__).resolve().parent.parent
"""The repository."""


@dataclass(frozen=True)
class BenchModel:
    """One model: where its source is and what its project declares."""

    package: str
    """In packages/: ``__init__``, ``samples`` and, unless copied, ``model``."""
    target: str
    """The entrypoint."""
    instance: str | None
    """The function that builds it; None where the target is a plain function."""
    samples: str = "samples"
    """The function in the package's ``samples`` that gives the one sample."""
    copied: Mapping[str, Path] = field(default_factory=dict)
    """Files of the package that come from elsewhere in this repository."""
    requires: tuple[str, ...] = ()
    """Distributions the package needs, besides torch."""

    @property
    def target_module(self) -> str:
        return self.target.partition(":")[0]


_BERT = BenchModel(
    "bench_bert",
    "transformers.models.bert.modeling_bert:BertModel",
    "bench_bert.model:make",
    requires=("transformers",),
)
_MINILM = BenchModel(
    "bench_minilm",
    "bench_minilm.model:MiniLM",
    "bench_minilm.model:untrained",
    copied={"model.py": ROOT / "example_project/src/minilm_search/model.py"},
)

MODELS: dict[str, BenchModel] = {
    "mlp": BenchModel("bench_mlp", "bench_mlp.model:MLP", "bench_mlp.model:make"),
    "minilm": _MINILM,
    "minilm_16": replace(_MINILM, samples="sixteen"),
    "bert": _BERT,
    "gpt2": BenchModel(
        "bench_gpt2",
        "transformers.models.gpt2.modeling_gpt2:GPT2Model",
        "bench_gpt2.model:make",
        requires=("transformers",),
    ),
    "resnet": BenchModel(
        "bench_resnet",
        "transformers.models.resnet.modeling_resnet:ResNetModel",
        "bench_resnet.model:make",
        requires=("transformers",),
    ),
    "mobilenet": BenchModel(
        "bench_mobilenet", "bench_mobilenet.model:MobileNet", "bench_mobilenet.model:make"
    ),
    "efficientnet": BenchModel(
        "bench_efficientnet",
        "transformers.models.efficientnet.modeling_efficientnet:EfficientNetModel",
        "bench_efficientnet.model:make",
        requires=("transformers",),
    ),
    "vit": BenchModel(
        "bench_vit",
        "transformers.models.vit.modeling_vit:ViTModel",
        "bench_vit.model:make",
        requires=("transformers",),
    ),
    "lstm": BenchModel("bench_lstm", "bench_lstm.model:Sequence", "bench_lstm.model:make"),
    "llama": BenchModel(
        "bench_llama", "bench_llama.model:Step", "bench_llama.model:make", requires=("transformers",)
    ),
}

MANY = BenchModel("bench_many", "bench_many.model:increment", None)
"""One entrypoint with 256 entries; only its import is measured, and only when asked for."""

THREADS = BenchModel("bench_threads", "bench_threads.model:normalize", None)
"""A function that is all kernels, called with several numbers of threads; only when asked for."""
