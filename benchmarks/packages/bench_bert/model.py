"""BERT-base as transformers has it."""

import torch
from torch import nn
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertModel

__all__ = ["make"]


def make() -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = BertModel(BertConfig(num_hidden_layers=12))
    return model.eval()
