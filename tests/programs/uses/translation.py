"""`generate` of an encoder-decoder."""

import torch
from transformers import BartConfig, BartForConditionalGeneration


def make():
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=96,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=128,
        eos_token_id=95,
        forced_eos_token_id=None,
    )
    return BartForConditionalGeneration(config).eval()


def _translate(model, length, new, **options):
    source = (torch.arange(length)[None] * 7 + 2) % 90
    ids = model.generate(
        source,
        attention_mask=torch.ones_like(source),
        max_new_tokens=new,
        min_new_tokens=new,
        do_sample=False,
        **options,
    )
    return ids.tolist()


def use(model):
    for length, new in ((5, 4), (12, 9), (30, 15)):
        yield _translate(model, length, new, num_beams=1)
    yield _translate(model, 8, 7, num_beams=3)


def workload():
    model = make()
    _translate(model, 7, 4, num_beams=1)
    _translate(model, 7, 4, num_beams=3)
