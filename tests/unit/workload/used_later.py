"""What a workload imports while it runs."""

import torch
from used_model import double


def again():
    double(torch.zeros(2))
