"""`generate` of a decoder, greedy and by beams, with a cache that grows."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def make():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


def generate(model, length, new, **options):
    prompt = (torch.arange(length)[None] * 7 + 2) % 96
    ids = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=new, do_sample=False, **options
    )
    return ids.tolist()


def use(model):
    for length, new in ((5, 4), (12, 9), (30, 20), (2, 2)):
        yield generate(model, length, new)
    yield generate(model, 6, 8, num_beams=3)
    yield generate(model, 9, 12, num_beams=3)


def workload():
    model = make()
    generate(model, 7, 4)
    generate(model, 7, 4, num_beams=3)
