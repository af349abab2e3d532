"""Programs whose kernels cost next to nothing. static.py and dynamic.py are copies of this file."""

import torch
from torch import Tensor, nn

__all__ = ["MLP", "DistilBert", "Layers", "increment", "pointwise"]


class MLP(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)))


def pointwise(x: Tensor, y: Tensor) -> Tensor:
    """Four operations."""
    return torch.tanh(x * y + 1) - x


def increment(kind: int, x: Tensor) -> Tensor:
    """The trace holds for one kind only: sixty samples need sixty entries."""
    return x + 1 + (kind - kind)


class DistilBert(nn.Module):
    """transformers' model of two tiny layers."""

    def __init__(self) -> None:
        from transformers import DistilBertConfig, DistilBertModel

        super().__init__()
        self.model = DistilBertModel(
            DistilBertConfig(vocab_size=100, dim=32, hidden_dim=64, n_heads=2, n_layers=2)
        ).eval()

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(ids).last_hidden_state


class Layer(nn.Module):
    """Sixteen weights, as a layer of BERT has."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        x = x + self.output(self.query(y) * self.key(y) + self.value(y))
        return x + self.down(torch.relu(self.up(self.after(x))))


class Layers(nn.Module):
    """Twelve of them: two hundred weights to ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(Layer() for _ in range(12)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
