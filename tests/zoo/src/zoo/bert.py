"""A model of a dependency, with random weights."""

import torch
from transformers import BertConfig, BertModel


def small():
    config = BertConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
    )
    return BertModel(config)


def sentences():
    ids = torch.arange(2 * 7).reshape(2, 7)
    return [((), {"input_ids": ids, "attention_mask": torch.ones_like(ids)})]
