"""Embeddings of sentences by sentence-transformers' `encode`, any number of any length."""

import tempfile

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import BertConfig, BertModel

from uses.words import SENTENCES, tokenizer


def make():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        words = tokenizer()
        config = BertConfig(
            vocab_size=len(words),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
        )
        BertModel(config).save_pretrained(folder)
        words.save_pretrained(folder)
        transformer = Transformer(folder)
        return SentenceTransformer(modules=[transformer, Pooling(32)], device="cpu")


def use(model):
    for count in (1, 2, 3, 7, len(SENTENCES)):
        yield model.encode(SENTENCES[:count], batch_size=4)
    yield model.encode("bread")
    yield model.encode(["a " * length for length in range(1, 30)], batch_size=8)


def workload():
    model = make()
    model.encode(SENTENCES[:2])
    model.encode(SENTENCES[0])
