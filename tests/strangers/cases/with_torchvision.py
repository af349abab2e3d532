import torch
from torchvision.models import resnet18
from torchvision.models.feature_extraction import create_feature_extractor


class Features(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.extract = create_feature_extractor(resnet18(weights=None), {"layer1": "low", "layer3": "high"})

    def forward(self, image):
        found = self.extract(image)
        return found["low"].mean((2, 3)), found["high"]


def samples():
    return [(torch.rand(1, 3, 64, 64),)]
