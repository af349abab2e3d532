import torch
from vit_pytorch.na_vit import NaViT


def navit():
    return NaViT(
        image_size=32, patch_size=8, num_classes=5, dim=32, depth=1, heads=2, mlp_dim=32, dim_head=16
    )


def samples():
    return [([[torch.rand(3, 16, 32), torch.rand(3, 32, 16)], [torch.rand(3, 24, 24)]],)]
