"""What makes a model of each architecture, and the inputs it is compiled for."""

import dataclasses

import torch
import transformers as hf


@dataclasses.dataclass(frozen=True)
class Size:
    """How wide, how deep, and how much it is given."""

    hidden: int
    layers: int
    heads: int
    vocabulary: int
    tokens: int
    pixels: int
    patch: int

    @property
    def text(self):
        return {
            "hidden_size": self.hidden,
            "intermediate_size": 4 * self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": 4 * self.tokens,
        }

    @property
    def vision(self):
        return {
            "hidden_size": self.hidden,
            "intermediate_size": 4 * self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "image_size": self.pixels,
            "patch_size": self.patch,
        }


SMALL = Size(hidden=32, layers=2, heads=4, vocabulary=100, tokens=8, pixels=32, patch=8)
LARGE = Size(hidden=768, layers=12, heads=12, vocabulary=30000, tokens=64, pixels=224, patch=16)


def gpt2_config(size):
    return hf.GPT2Config(
        n_embd=size.hidden,
        n_layer=size.layers,
        n_head=size.heads,
        vocab_size=size.vocabulary,
        n_positions=4 * size.tokens,
    )


def bert(size):
    return hf.BertModel(hf.BertConfig(**size.text))


def gpt2(size):
    return hf.GPT2LMHeadModel(gpt2_config(size))


def llama(size):
    return hf.LlamaForCausalLM(hf.LlamaConfig(**size.text, num_key_value_heads=size.heads // 2))


def vit(size):
    return hf.ViTForImageClassification(hf.ViTConfig(**size.vision))


def resnet(size):
    sizes = {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [1, 1], "layer_type": "basic"}
    return hf.ResNetForImageClassification(hf.ResNetConfig(**sizes if size is SMALL else {}))


def clip(size):
    text = {**size.text, "eos_token_id": size.vocabulary - 1}
    return hf.CLIPModel(
        hf.CLIPConfig(text_config=text, vision_config=size.vision, projection_dim=size.hidden)
    )


def clip_text(size):
    return clip(size).text_model


def clip_vision(size):
    return clip(size).vision_model


def whisper(size):
    return hf.WhisperModel(
        hf.WhisperConfig(
            d_model=size.hidden,
            encoder_layers=size.layers,
            decoder_layers=1,
            encoder_attention_heads=size.heads,
            decoder_attention_heads=size.heads,
            encoder_ffn_dim=4 * size.hidden,
            decoder_ffn_dim=4 * size.hidden,
            num_mel_bins=80,
            max_source_positions=2 * size.tokens,
            vocab_size=size.vocabulary,
            **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 1),
        )
    ).encoder


def t5(size):
    return hf.T5EncoderModel(
        hf.T5Config(
            d_model=size.hidden,
            d_kv=size.hidden // size.heads,
            d_ff=4 * size.hidden,
            num_layers=size.layers,
            num_heads=size.heads,
            vocab_size=size.vocabulary,
        )
    )


def bart(size):
    """An encoder and a decoder, which copies its configuration for its cache."""
    return hf.BartForConditionalGeneration(
        hf.BartConfig(
            vocab_size=size.vocabulary,
            d_model=size.hidden,
            encoder_layers=size.layers,
            decoder_layers=size.layers,
            encoder_attention_heads=size.heads,
            decoder_attention_heads=size.heads,
            encoder_ffn_dim=4 * size.hidden,
            decoder_ffn_dim=4 * size.hidden,
            max_position_embeddings=4 * size.tokens,
        )
    )


def vits(size):
    """Speech from text, with as much sound as its weights predict; without noise: the same each time."""
    torch.manual_seed(0)
    return hf.VitsModel(
        hf.VitsConfig(
            vocab_size=size.vocabulary,
            hidden_size=size.hidden,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            ffn_dim=4 * size.hidden,
            flow_size=size.hidden,
            spectrogram_bins=size.hidden + 1,
            duration_predictor_filter_channels=size.hidden,
            upsample_initial_channel=size.hidden,
            upsample_rates=[4, 4],
            upsample_kernel_sizes=[8, 8],
            resblock_kernel_sizes=[3],
            resblock_dilation_sizes=[[1, 3]],
            posterior_encoder_num_wavenet_layers=2,
            prior_encoder_num_wavenet_layers=2,
            use_stochastic_duration_prediction=False,
            noise_scale=0.0,
        )
    )


def ids(size, batch=1):
    return torch.arange(batch * size.tokens).reshape(batch, size.tokens) % (size.vocabulary - 2) + 1


def pixels(size, batch=1):
    return torch.linspace(-1, 1, batch * 3 * size.pixels**2).reshape(batch, 3, size.pixels, size.pixels)


def text(size):
    """One sentence, and a batch of two with a mask."""
    yield {"input_ids": ids(size)}
    mask = torch.ones_like(ids(size, 2))
    mask[1, size.tokens // 2 :] = 0
    yield {"input_ids": ids(size, 2), "attention_mask": mask}


def generation(size):
    yield {"input_ids": ids(size), "use_cache": False}


def speech(size):
    yield {"input_ids": ids(size)}


def translation(size):
    """A sentence, and what is there of its translation."""
    yield {"input_ids": ids(size), "decoder_input_ids": ids(size)[:, : size.tokens // 2]}


def prefill(size):
    """A prompt, from which the model makes its key-value cache."""
    yield {"input_ids": ids(size), "use_cache": True}


def static_cache(size):
    """A prompt into a cache of fixed length that is written in place, and a token after it."""
    torch.manual_seed(0)  # the same cache each time
    model = gpt2(size).eval()
    for before, length in ((0, size.tokens), (size.tokens, 1)):
        cache = hf.StaticCache(config=gpt2_config(size), max_cache_len=2 * size.tokens)
        if before:
            with torch.no_grad():
                model(input_ids=ids(size), past_key_values=cache)
        yield {"input_ids": ids(size)[:, :length], "past_key_values": cache}


def images(size):
    yield {"pixel_values": pixels(size)}
    yield {"pixel_values": pixels(size, 2)}


def sound(size):
    yield {"input_features": torch.linspace(-1, 1, 80 * 4 * size.tokens).reshape(1, 80, 4 * size.tokens)}
