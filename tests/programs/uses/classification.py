"""A text-classification pipeline of transformers, of one text and of several."""

import torch
from transformers import BertConfig, BertForSequenceClassification, pipeline

from uses.words import SENTENCES, tokenizer


def make():
    torch.manual_seed(0)
    words = tokenizer()
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    )
    model = BertForSequenceClassification(config).eval()
    return pipeline("text-classification", model=model, tokenizer=words, device="cpu")


def use(classify):
    for text in SENTENCES:
        yield classify(text)[0]["score"]
    for size in (2, 3, 5):
        yield [found["score"] for found in classify(SENTENCES, batch_size=size)]


def workload():
    classify = make()
    classify(SENTENCES[0])
    classify(SENTENCES[:2], batch_size=2)
