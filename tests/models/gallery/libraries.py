"""Layers of torch.nn, and models and functions of other libraries: `NAME()` and `NAME_samples()`.

A function is its own target; NAME() is asked of classes alone.
"""

import torch
from torch import nn

SEQUENCE = (2, 6, 16)
IMAGE = (1, 3, 16, 16)


def ramp(*shape):
    numbers = torch.linspace(-1, 1, int(torch.tensor(shape).prod()))
    return numbers.reshape(shape)


def rising(count, *shape):
    return (torch.arange(int(torch.tensor(shape).prod())) % count).reshape(shape)


def image():
    return ramp(*IMAGE).abs()


def speckled():
    """Without edges that are all alike, among which rounding decides."""
    return torch.rand(*IMAGE, generator=torch.Generator().manual_seed(0))


class Holding(nn.Module):
    """A model that is one layer of torch.nn, which is no target itself."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *args):
        return self.layer(*args)


# name: what makes it, and what its one call gets. The target is the class of what is made, or Holding.
LAYERS = {
    "nn_linear": (lambda: nn.Linear(16, 8), lambda: [ramp(*SEQUENCE)]),
    "nn_bilinear": (lambda: nn.Bilinear(16, 16, 4), lambda: [ramp(3, 16), ramp(3, 16)]),
    "nn_conv1d": (lambda: nn.Conv1d(6, 4, 3), lambda: [ramp(*SEQUENCE)]),
    "nn_conv2d": (lambda: nn.Conv2d(3, 4, 3, padding=1), lambda: [ramp(*IMAGE)]),
    "nn_conv3d": (lambda: nn.Conv3d(1, 2, 3), lambda: [ramp(1, 1, 5, 6, 7)]),
    "nn_conv_transpose2d": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), lambda: [ramp(*IMAGE)]),
    "nn_batch_norm": (lambda: nn.BatchNorm2d(3), lambda: [ramp(*IMAGE)]),
    "nn_instance_norm": (lambda: nn.InstanceNorm2d(3), lambda: [ramp(*IMAGE)]),
    "nn_group_norm": (lambda: nn.GroupNorm(3, 3), lambda: [ramp(*IMAGE)]),
    "nn_layer_norm": (lambda: nn.LayerNorm(16), lambda: [ramp(*SEQUENCE)]),
    "nn_rms_norm": (lambda: nn.RMSNorm(16), lambda: [ramp(*SEQUENCE)]),
    "nn_embedding": (lambda: nn.Embedding(10, 4), lambda: [rising(10, 2, 6)]),
    "nn_embedding_bag": (lambda: nn.EmbeddingBag(10, 4), lambda: [rising(10, 2, 6)]),
    "nn_adaptive_pool": (lambda: nn.AdaptiveAvgPool2d(4), lambda: [ramp(*IMAGE)]),
    "nn_max_pool": (lambda: nn.MaxPool2d(2), lambda: [ramp(*IMAGE)]),
    "nn_upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), lambda: [ramp(*IMAGE)]),
    "nn_pixel_shuffle": (lambda: nn.PixelShuffle(2), lambda: [ramp(1, 4, 4, 4)]),
    "nn_unfold": (lambda: nn.Unfold(3), lambda: [ramp(*IMAGE)]),
    "nn_softmax": (lambda: nn.Softmax(-1), lambda: [ramp(*SEQUENCE)]),
    "nn_gelu": (nn.GELU, lambda: [ramp(*SEQUENCE)]),
    "nn_prelu": (nn.PReLU, lambda: [ramp(*SEQUENCE)]),
    "nn_dropout": (nn.Dropout, lambda: [ramp(*SEQUENCE)]),
    "nn_cross_entropy": (nn.CrossEntropyLoss, lambda: [ramp(6, 16), rising(16, 6)]),
    "nn_mse": (nn.MSELoss, lambda: [ramp(6, 16), ramp(6, 16) * 2]),
    "nn_cosine": (nn.CosineSimilarity, lambda: [ramp(6, 16), ramp(6, 16) + 1]),
    "nn_rnn": (lambda: nn.RNN(16, 8, batch_first=True), lambda: [ramp(*SEQUENCE)]),
    "nn_lstm": (lambda: nn.LSTM(16, 8, num_layers=2, batch_first=True), lambda: [ramp(*SEQUENCE)]),
    "nn_gru": (lambda: nn.GRU(16, 8, bidirectional=True), lambda: [ramp(*SEQUENCE)]),
    "nn_lstm_cell": (lambda: nn.LSTMCell(16, 8), lambda: [ramp(2, 16)]),
    "nn_attention": (lambda: nn.MultiheadAttention(16, 4, batch_first=True), lambda: [ramp(*SEQUENCE)] * 3),
    "nn_encoder_layer": (
        lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
        lambda: [ramp(*SEQUENCE)],
    ),
    "nn_encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2),
        lambda: [ramp(*SEQUENCE)],
    ),
    "nn_decoder_layer": (
        lambda: nn.TransformerDecoderLayer(16, 4, 32, batch_first=True),
        lambda: [ramp(*SEQUENCE)] * 2,
    ),
    "nn_transformer": (
        lambda: nn.Transformer(16, 4, 1, 1, 32, batch_first=True),
        lambda: [ramp(*SEQUENCE)] * 2,
    ),
    "nn_sequential": (
        lambda: nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)),
        lambda: [ramp(*SEQUENCE)],
    ),
}


def _x_transformer():
    from x_transformers import Decoder, TransformerWrapper

    return TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=Decoder(dim=32, depth=2, heads=4))


def _x_encoder():
    from x_transformers import Encoder

    return Encoder(dim=32, depth=2, heads=4)


def _x_vision():
    from x_transformers import Encoder, ViTransformerWrapper

    return ViTransformerWrapper(image_size=16, patch_size=8, attn_layers=Encoder(dim=32, depth=1, heads=4))


def _unet():
    from diffusers import UNet2DModel

    blocks = {
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    }
    return UNet2DModel(
        sample_size=16, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=4, **blocks
    )


def _conditional_unet():
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(16, 32),
        layers_per_block=1,
        norm_num_groups=4,
        cross_attention_dim=16,
        attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )


def _vae():
    from diffusers import AutoencoderKL

    return AutoencoderKL(block_out_channels=(16,), norm_num_groups=4, latent_channels=4)


def _dit():
    from diffusers import DiTTransformer2DModel

    return DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, num_layers=1, sample_size=8, norm_num_groups=4
    )


def _gcn():
    from torch_geometric.nn import GCN

    return GCN(8, 16, num_layers=2, out_channels=4)


def _sage():
    from torch_geometric.nn import GraphSAGE

    return GraphSAGE(8, 16, num_layers=2)


def _edges():
    return torch.tensor([[0, 1, 2, 3, 1], [1, 0, 3, 2, 2]])


def _rearranging():
    from einops.layers.torch import Rearrange, Reduce

    return nn.Sequential(
        Rearrange("b c (h a) (w b2) -> b (h w) (c a b2)", a=4, b2=4), Reduce("b n d -> b d", "mean")
    )


LAYERS |= {
    "x_transformers_decoder": (_x_transformer, lambda: [rising(64, 1, 16)]),
    "x_transformers_encoder": (_x_encoder, lambda: [ramp(1, 8, 32)]),
    "x_transformers_vision": (_x_vision, lambda: [ramp(*IMAGE)]),
    "einops_layers": (_rearranging, lambda: [ramp(*IMAGE)]),
    "diffusers_unet": (_unet, lambda: [ramp(1, 3, 16, 16), torch.tensor(7)]),
    "diffusers_conditional_unet": (
        _conditional_unet,
        lambda: [ramp(1, 4, 16, 16), torch.tensor(7), ramp(1, 5, 16)],
    ),
    "diffusers_vae": (_vae, lambda: [ramp(*IMAGE)]),
    "diffusers_dit": (_dit, lambda: [ramp(1, 4, 8, 8), torch.tensor([7]), torch.tensor([3])]),
    "geometric_gcn": (_gcn, lambda: [ramp(4, 8), _edges()]),
    "geometric_sage": (_sage, lambda: [ramp(4, 8), _edges()]),
}

# name: the target, and what its one call gets.
FUNCTIONS = {
    "einops_rearrange": ("gallery.libraries:rearranges", lambda: [ramp(*SEQUENCE)]),
    "einops_reduce": ("gallery.libraries:reduces", lambda: [ramp(*SEQUENCE)]),
    "einops_repeat": ("gallery.libraries:repeats", lambda: [ramp(*SEQUENCE)]),
    "einops_einsum": ("gallery.libraries:sums", lambda: [ramp(*SEQUENCE), ramp(*SEQUENCE)]),
    "kornia_gaussian": ("kornia.filters:gaussian_blur2d", lambda: [image(), (3, 3), (1.5, 1.5)]),
    "kornia_median": ("kornia.filters:median_blur", lambda: [image(), (3, 3)]),
    "kornia_sobel": ("kornia.filters:sobel", lambda: [image()]),
    "kornia_canny": ("kornia.filters:canny", lambda: [speckled()]),
    "kornia_laplacian": ("kornia.filters:laplacian", lambda: [image(), 3]),
    "kornia_bilateral": ("kornia.filters:bilateral_blur", lambda: [image(), (3, 3), 0.1, (1.5, 1.5)]),
    "kornia_rgb_to_gray": ("kornia.color:rgb_to_grayscale", lambda: [image()]),
    "kornia_rgb_to_hsv": ("kornia.color:rgb_to_hsv", lambda: [image()]),
    "kornia_rgb_to_lab": ("kornia.color:rgb_to_lab", lambda: [image()]),
    "kornia_brightness": ("kornia.enhance:adjust_brightness", lambda: [image(), 0.2]),
    "kornia_equalize": ("kornia.enhance:equalize_clahe", lambda: [ramp(1, 3, 64, 64).abs()]),
    "kornia_sharpness": ("kornia.enhance:sharpness", lambda: [image(), 0.5]),
    "kornia_dilation": ("kornia.morphology:dilation", lambda: [image(), torch.ones(3, 3)]),
    "kornia_erosion": ("kornia.morphology:erosion", lambda: [image(), torch.ones(3, 3)]),
    "kornia_rotate": ("kornia.geometry:rotate", lambda: [image(), torch.tensor([30.0])]),
    "kornia_resize": ("kornia.geometry:resize", lambda: [image(), (8, 8)]),
    "kornia_warp_affine": (
        "kornia.geometry:warp_affine",
        lambda: [image(), torch.eye(2, 3)[None], (16, 16)],
    ),
    "kornia_pyrdown": ("kornia.geometry:pyrdown", lambda: [image()]),
    "kornia_ssim": ("kornia.metrics:ssim", lambda: [image(), image() * 0.5, 5]),
    "kornia_quaternion": ("kornia.geometry:quaternion_to_rotation_matrix", lambda: [ramp(2, 4)]),
    "kornia_harris": ("kornia.feature:harris_response", lambda: [image()]),
}


def rearranges(x):
    from einops import rearrange

    return rearrange(x, "b (h w) c -> b c h w", h=2) * 2


def reduces(x):
    from einops import reduce

    return reduce(x, "b n c -> b c", "max")


def repeats(x):
    from einops import repeat

    return repeat(x, "b n c -> b (n 2) c") + 1


def sums(x, y):
    from einops import einsum

    return einsum(x, y, "b n c, b m c -> b n m")


def target(name):
    if name in FUNCTIONS:
        return FUNCTIONS[name][0]
    cls = type(_made(name))
    return f"{cls.__module__}:{cls.__qualname__}"


def _made(name):
    layer = LAYERS[name][0]()
    return (Holding(layer) if type(layer).__module__.startswith("torch.") else layer).eval()


def __getattr__(name):
    own = name.removesuffix("_samples")
    if name in LAYERS:
        return lambda: _made(name)
    if own in LAYERS or own in FUNCTIONS:
        arguments = (LAYERS.get(own) or FUNCTIONS[own])[1]

        def samples():
            yield tuple(arguments())

        return samples
    raise AttributeError(name)
