"""A model of each of timm's families: the one with the fewest layers, at the size it is made for.

Left out are families of which all are larger than 160 million parameters. `NAME()` makes it, `NAME_samples()`
its images.
"""

import timm
import torch

NAMES = [
    "beit_base_patch16_224",
    "botnet26t_256",
    "test_byobnet",
    "cait_xxs24_224",
    "coat_lite_tiny",
    "convit_tiny",
    "convmixer_1024_20_ks9_p14",
    "test_convnext3",
    "cpubone_nano",
    "crossvit_9_240",
    "csatv2",
    "darknet17",
    "cspnext_tiny",
    "davit_tiny",
    "deit_tiny_patch16_224",
    "densenet121",
    "dla34",
    "dpn48b",
    "edgenext_xx_small",
    "efficientformer_l1",
    "efficientformerv2_s0",
    "test_efficientnet_evos",
    "efficientvim_m1",
    "efficientvit_b0",
    "efficientvit_m2",
    "vit_tiny_patch16_dinov3_qkvb",
    "fasternet_t0",
    "fastvit_t8",
    "focalnet_tiny_srf",
    "gcvit_xxtiny",
    "ghostnet_050",
    "hardcorenas_a",
    "hgnet_tiny",
    "hiera_tiny_224",
    "sam2_hiera_tiny",
    "hrnet_w18_small",
    "iformer_t",
    "inception_next_atto",
    "inception_resnet_v2",
    "inception_v3",
    "inception_v4",
    "lcnetv2_small",
    "levit_128s",
    "lowformer_e1",
    "test_mambaout",
    "test_coatnet",
    "poolformer_s12",
    "resmlp_12_224",
    "lcnet_035",
    "mobilenetv5_base",
    "mobilevitv2_050",
    "mvitv2_tiny",
    "naflexvit_base_patch16_parfac_gap",
    "nasnetalarge",
    "nest_tiny",
    "nextvit_small",
    "nf_resnet26",
    "pit_ti_224",
    "pnasnet5large",
    "pvt_v2_b0",
    "qwen3_vit_88m",
    "rdnet_tiny",
    "regnetx_002",
    "repghostnet_050",
    "repvit_m1_1",
    "res2net50_48w_2s",
    "resnest14d",
    "resnet10t",
    "resnetv2_18",
    "rexnet_100",
    "selecsls42",
    "legacy_seresnet18",
    "sequencer2d_s",
    "shvit_s1",
    "skresnet18",
    "starnet_s050",
    "swiftformer_xs",
    "swin_tiny_patch4_window7_224",
    "swinv2_tiny_window8_256",
    "swinv2_cr_tiny_224",
    "tiny_vit_5m_224",
    "tnt_s_legacy_patch16_224",
    "tresnet_m",
    "twins_pcpvt_small",
    "vgg11",
    "visformer_tiny",
    "test_vit",
    "vit_tiny_r_s16_p8_224",
    "vit_srelpos_small_patch16_224",
    "samvit_base_patch16_224",
    "vitamin_small_224",
    "volo_d1_224",
    "ese_vovnet19b_slim",
    "legacy_xception",
    "xception41p",
    "xcit_nano_12_p8_224",
]


def create(name):
    """With weights that were never trained."""
    torch.manual_seed(0)
    return timm.create_model(name, pretrained=False)


def target(name):
    with torch.device("meta"):
        cls = type(create(name))
    return f"{cls.__module__}:{cls.__qualname__}"


def __getattr__(name):
    own = name.removesuffix("_samples")
    if own not in NAMES:
        raise AttributeError(name)
    if own == name:
        return lambda: create(name)

    def samples():
        with torch.device("meta"):
            channels, height, width = create(own).default_cfg["input_size"]
        yield (torch.linspace(-1, 1, channels * height * width).reshape(1, channels, height, width),)

    return samples
