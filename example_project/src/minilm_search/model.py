"""all-MiniLM-L6-v2: a six-layer BERT encoder, mean pooling and L2 normalisation, for inference."""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, normalize, scaled_dot_product_attention

__all__ = ["MiniLM", "untrained"]

VOCABULARY = 30522
POSITIONS = 512
WIDTH = 384
HEADS = 12
LAYERS = 6
EPSILON = 1e-12


class Table(nn.Embedding):
    def reset_parameters(self) -> None:
        # nn.Embedding's own normal_ imports torch._dynamo when the device is meta, as it is in load_model:
        # more than a second (torch 2.13). uniform_ does not.
        nn.init.uniform_(self.weight, -1, 1)


class Embeddings(nn.Module):
    """Token ids [batch, sequence] -> vectors [batch, sequence, WIDTH]."""

    def __init__(self) -> None:
        super().__init__()
        self.word = Table(VOCABULARY, WIDTH)
        self.position = Table(POSITIONS, WIDTH)
        self.segment = Table(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)

    def forward(self, input_ids: Tensor) -> Tensor:
        # A sentence on its own is all segment 0; its positions are the first rows of the table.
        places = self.position.weight[: input_ids.shape[1]] + self.segment.weight[0]
        embedded: Tensor = self.norm(self.word(input_ids) + places)
        return embedded


class Attention(nn.Module):
    """Multi-head self-attention over [batch, sequence, WIDTH]."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        attended = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        joined: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return joined

    @staticmethod
    def heads(x: Tensor) -> Tensor:
        """[batch, sequence, WIDTH] -> [batch, HEADS, sequence, WIDTH / HEADS]"""
        return x.view(*x.shape[:2], HEADS, WIDTH // HEADS).transpose(1, 2)


class Layer(nn.Module):
    """One encoder layer: attention and a feed-forward net, each added to its input and then normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.attention_norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention_norm(x + self.attention(x, mask))
        encoded: Tensor = self.norm(x + self.narrow(gelu(self.widen(x))))
        return encoded


class MiniLM(nn.Module):
    """Token ids and their mask -> one unit vector per sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = Embeddings()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        # Compiled code is guarded on requires_grad: set here, it cannot differ between build and run.
        self.requires_grad_(False)
        self.eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """int64 [batch, sequence] twice (the mask: 1 for tokens, 0 for padding) -> float32 [batch, WIDTH]."""
        mask = attention_mask[:, None, None, :].bool()
        x = self.embeddings(input_ids)
        for layer in self.layers:
            x = layer(x, mask)
        weights = attention_mask[:, :, None].to(x.dtype)
        # The sum, not the mean: normalisation takes any positive factor out again.
        return normalize((x * weights).sum(1), dim=-1)


def untrained() -> MiniLM:
    """The architecture with random weights: compiled code takes weights as inputs, so any will do."""
    torch.manual_seed(0)
    return MiniLM()
