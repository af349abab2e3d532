"""An entrypoint of the zoo (tests/zoo) that lives in a dependency: transformers' BertModel."""

from __future__ import annotations

import sys
from typing import Any

import probe
import torch
import transformers.models.bert.modeling_bert  # noqa: F401

torch.set_grad_enabled(False)


def _parts_of_compilers() -> set[str]:
    return {name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))}


IMPORTED_BY_TRANSFORMERS = _parts_of_compilers()

import zoo.bert  # noqa: E402


def _inputs() -> dict[str, torch.Tensor]:
    ids = torch.randint(0, 50, (2, 7))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def calls_of_two_models() -> dict[str, Any]:
    """Beside eager code: the largest difference, whether outputs are built alike; hits, misses, imports."""
    torch.manual_seed(0)
    differences, alike = [], []
    inputs = _inputs()
    for _ in range(2):
        model = zoo.bert.small().eval()
        got, expected = model(**inputs), probe.eager(model)(**inputs)
        alike.append(list(got) == list(expected) and type(got) is type(expected))
        differences += [float((got[key] - expected[key]).abs().max()) for key in got]
    return {
        "largest difference": max(differences),
        "alike": alike,
        "hits": probe.hits("bert"),
        "misses": probe.misses("bert"),
        "imported": sorted(_parts_of_compilers() - IMPORTED_BY_TRANSFORMERS),
    }


def beside_another_model() -> bool:
    """Whether it is served where another model was made before: transformers keeps a registry of them."""
    from transformers import GPT2Config, GPT2Model

    GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=9, n_positions=8))
    model = zoo.bert.small().eval()
    return bool(probe.served("bert", lambda: model(**_inputs())))


def other_calls() -> dict[str, bool]:
    """Which are served."""
    model, inputs = zoo.bert.small().eval(), _inputs()
    longer = {name: tensor.repeat(1, 2) for name, tensor in inputs.items()}
    seen = {
        "longer": probe.served("bert", lambda: model(**longer)),
        "hidden": probe.served("bert", lambda: model(**inputs, output_hidden_states=True)),
    }
    model.config._attn_implementation = "eager"
    return {**seen, "other": probe.served("bert", lambda: model(**inputs))}
