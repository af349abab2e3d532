"""CLIP: which of several texts fits an image."""

import torch
from transformers import CLIPConfig, CLIPModel

from uses.words import SENTENCES, tokenizer


def make():
    torch.manual_seed(0)
    words = tokenizer()
    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = CLIPConfig(
        text_config={**small, "vocab_size": len(words), "eos_token_id": 3, "max_position_embeddings": 64},
        vision_config={**small, "image_size": 32, "patch_size": 8},
        projection_dim=16,
    )
    return words, CLIPModel(config).eval()


def _fitting(made, texts, images):
    words, model = made
    given = words(texts, padding=True, return_tensors="pt")
    pixels = torch.linspace(-1, 1, images * 3 * 32 * 32).reshape(images, 3, 32, 32)
    with torch.inference_mode():
        found = model(
            input_ids=given["input_ids"], attention_mask=given["attention_mask"], pixel_values=pixels
        )
    return found.logits_per_image.softmax(-1).tolist()


def use(made):
    for texts, images in ((2, 1), (5, 1), (9, 3), (3, 4)):
        yield _fitting(made, SENTENCES[:texts], images)


def workload():
    made = make()
    _fitting(made, SENTENCES[:3], 2)
    _fitting(made, SENTENCES[:3], 1)
