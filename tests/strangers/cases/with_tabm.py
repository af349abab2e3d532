import torch
from tabm import TabM


def ensemble():
    return TabM.make(n_num_features=5, cat_cardinalities=[3], d_out=2, k=4)


def samples():
    return [(torch.randn(8, 5), torch.randint(0, 3, (8, 1)))]
