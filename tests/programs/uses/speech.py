"""Whisper: a wave in, tokens out."""

import math

import torch
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration


def make():
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=96,
        num_mel_bins=16,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=50,
        max_target_positions=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config).eval()
    return WhisperFeatureExtractor(feature_size=16, chunk_length=1), model


def _wave(seconds, pitch):
    return torch.sin(torch.arange(int(16000 * seconds)) * 2 * math.pi * pitch / 16000).numpy()


def _transcribe(made, wave, new):
    features, model = made
    heard = features(wave, sampling_rate=16000, return_tensors="pt")
    return model.generate(
        heard.input_features, max_new_tokens=new, min_new_tokens=new, do_sample=False
    ).tolist()


def use(made):
    for seconds, pitch, new in ((0.5, 440, 5), (1, 220, 12), (0.9, 880, 20)):
        yield _transcribe(made, _wave(seconds, pitch), new)


def workload():
    _transcribe(make(), _wave(1, 440), 4)
