"""Models of transformers made small by the names in their configurations, and inputs for them.

`NAME()` makes the base model of a type, and `NAME_samples()` its inputs, for each in `architectures.py`.
"""

import inspect
from functools import partial

import torch
import transformers as hf
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from gallery.architectures import NAMES

HIDDEN, HEADS, LAYERS, VOCABULARY, TOKENS, PIXELS = 32, 4, 2, 128, 8, 32

# What a number of a configuration becomes at most.
SIZES = {
    VOCABULARY: "vocab_size n_vocab num_embeddings",
    2 * TOKENS * HEADS: "max_position_embeddings n_positions max_source_positions max_target_positions",
    2 * HIDDEN: "intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim n_inner d_inner "
    "moe_intermediate_size feed_forward_hidden_size",
    HIDDEN: "hidden_size d_model n_embd embed_dim dim hidden_dim embedding_size projection_dim emb_dim",
    PIXELS: "image_size crop_size",
    HIDDEN // HEADS: "head_dim d_kv d_head attention_head_dim head_size patch_size",
    HEADS: "num_attention_heads num_heads n_head n_heads encoder_attention_heads decoder_attention_heads "
    "attention_heads num_attention_heads_encoder num_experts num_local_experts n_routed_experts",
    LAYERS: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_encoder_layers "
    "num_decoder_layers num_hidden_groups num_key_value_heads num_experts_per_tok num_experts_per_token",
}
AT_MOST = {name: size for size, names in SIZES.items() for name in names.split()}
# Tokens that mean something, which have to be in the vocabulary.
TOKEN = "_token_id"


def shrink(config):
    """Make what a configuration says small, and the configurations in it."""
    for name, value in list(vars(config).items()):
        if isinstance(value, hf.PreTrainedConfig):
            shrink(value)
        elif name in AT_MOST and type(value) is int:
            setattr(config, name, min(value, AT_MOST[name]))
        elif name == "depths" and isinstance(value, (list, tuple)):
            config.depths = [1] * len(value)
        elif name == "layer_types" and isinstance(value, list):
            kinds = list(dict.fromkeys(value))
            config.layer_types = kinds[:LAYERS] if len(kinds) > 1 else value[:LAYERS]
        elif name.endswith(TOKEN) and type(value) is int and value >= VOCABULARY:
            setattr(config, name, 1)
    return config


def _class(kind):
    name = MODEL_MAPPING_NAMES[kind]
    return getattr(hf, name if isinstance(name, str) else name[0])


def make(kind):
    torch.manual_seed(0)  # in some the weights decide how large something is
    return _class(kind)(shrink(CONFIG_MAPPING[kind]())).eval()


def samples(kind):
    """One call, with what the parameters' names ask for."""
    config = shrink(CONFIG_MAPPING[kind]())
    ids = torch.arange(2, TOKENS + 2)[None]
    known = {
        "input_ids": lambda: ids,
        "decoder_input_ids": lambda: ids[:, : TOKENS // 2],
        "pixel_values": lambda: _image(config),
        "input_features": lambda: _sound(config),
        "input_values": lambda: torch.linspace(-1, 1, 4000)[None],
    }
    parameters = inspect.signature(_class(kind).forward).parameters
    yield {name: known[name]() for name in parameters if name in known}


def _image(config):
    part = next((each for each in _parts(config) if hasattr(each, "image_size")), None)
    size = getattr(part, "image_size", PIXELS)
    size = size[0] if isinstance(size, (list, tuple)) else size
    channels = getattr(part, "num_channels", 3) or 3
    return torch.linspace(-1, 1, channels * size * size).reshape(1, channels, size, size)


def _sound(config):
    bands = next((each.num_mel_bins for each in _parts(config) if hasattr(each, "num_mel_bins")), 80)
    frames = 2 * getattr(config, "max_source_positions", 2 * TOKENS * HEADS)
    return torch.linspace(-1, 1, bands * frames).reshape(1, bands, frames)


def _parts(config):
    return [config, *(each for each in vars(config).values() if isinstance(each, hf.PreTrainedConfig))]


def identifier(kind):
    return kind.replace("-", "_").replace(".", "_")


KINDS = {identifier(kind): kind for kind in NAMES}


def target(name):
    cls = _class(KINDS[name])
    return f"{cls.__module__}:{cls.__qualname__}"


def __getattr__(name):
    for suffix, function in (("_samples", samples), ("", make)):
        kind = KINDS.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if kind:
            return partial(function, kind)
    raise AttributeError(name)
