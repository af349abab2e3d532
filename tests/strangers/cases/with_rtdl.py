import torch
from rtdl_revisiting_models import FTTransformer


def transformer():
    sizes = {
        "n_blocks": 1,
        "d_block": 16,
        "attention_n_heads": 2,
        "attention_dropout": 0.1,
        "ffn_d_hidden_multiplier": 2,
    }
    return FTTransformer(
        n_cont_features=4,
        cat_cardinalities=[3, 5],
        d_out=2,
        ffn_d_hidden=None,
        ffn_dropout=0.1,
        residual_dropout=0.0,
        **sizes,
    )


def samples():
    return [(torch.randn(8, 4), torch.randint(0, 3, (8, 2)))]
