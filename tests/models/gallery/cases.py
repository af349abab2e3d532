"""The models of the gallery."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Case:
    """A target, and where `NAME()` makes an instance and `NAME_samples()` its inputs.

    model, samples: what these are made from in gallery.models; own: the name there, where it is another
    """

    target: str
    model: str
    samples: str
    module: str = "gallery.small"
    own: str = ""


def _models(name):
    return f"transformers.models.{name}.modeling_{name}"


CASES = {
    "bert": Case(f"{_models('bert')}:BertModel", "bert", "text"),
    "gpt2": Case(f"{_models('gpt2')}:GPT2LMHeadModel", "gpt2", "generation"),
    "gpt2_prefill": Case(f"{_models('gpt2')}:GPT2LMHeadModel", "gpt2", "prefill"),
    "gpt2_static_cache": Case(f"{_models('gpt2')}:GPT2LMHeadModel", "gpt2", "static_cache"),
    "llama": Case(f"{_models('llama')}:LlamaForCausalLM", "llama", "generation"),
    "vit": Case(f"{_models('vit')}:ViTForImageClassification", "vit", "images"),
    "resnet": Case(f"{_models('resnet')}:ResNetForImageClassification", "resnet", "images"),
    "clip_text": Case(f"{_models('clip')}:CLIPTextModel", "clip_text", "text"),
    "clip_vision": Case(f"{_models('clip')}:CLIPVisionModel", "clip_vision", "images"),
    "whisper": Case(f"{_models('whisper')}:WhisperEncoder", "whisper", "sound"),
    "bart": Case(f"{_models('bart')}:BartForConditionalGeneration", "bart", "translation"),
    "t5": Case(f"{_models('t5')}:T5EncoderModel", "t5", "text"),
}

# Models that torch.compile leaves in pieces, at what the data decides.
IN_PIECES = {
    "vits": Case(f"{_models('vits')}:VitsModel", "vits", "speech"),
}
