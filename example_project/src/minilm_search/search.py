"""Texts to embeddings, and a query to the lines nearest to it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minilm_search.weights import load_model, load_tokenizer

__all__ = ["Embedder", "Match", "best_matches"]

BATCH = 32


@dataclass(frozen=True)
class Match:
    index: int  # of the line among those searched
    score: float  # cosine similarity to the query


class Embedder:
    """The trained model and its tokenizer."""

    def __init__(self) -> None:
        self.tokenizer = load_tokenizer()
        self.model = load_model()

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors, float32 [len(texts), 384], in the order of the texts."""
        # Neighbours in length share a batch, so little of a batch is padding.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        vectors = torch.empty(len(texts), 384)
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            vectors[chosen] = self._embed_batch([texts[index] for index in chosen])
        return vectors

    def _embed_batch(self, texts: list[str]) -> Tensor:
        encoded = self.tokenizer.encode_batch(texts)
        input_ids = torch.tensor([text.ids for text in encoded])
        attention_mask = torch.tensor([text.attention_mask for text in encoded])
        with torch.no_grad():
            vectors: Tensor = self.model(input_ids, attention_mask)
        return vectors


def best_matches(embedder: Embedder, query: str, lines: Sequence[str], top: int) -> list[Match]:
    """The `top` lines nearest to the query, best first."""
    scores = embedder.embed(lines) @ embedder.embed([query])[0]
    best = scores.topk(min(top, len(lines)))
    return [Match(int(index), float(score)) for score, index in zip(*best, strict=True)]
