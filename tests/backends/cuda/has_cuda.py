"""Whether this Python has a torch that is built for CUDA; a sentence where it has not, and exit code 1."""

import sys

import torch

if torch.version.cuda is None:
    sys.exit(
        f"make test-cuda needs a torch that is built for CUDA, and torch {torch.__version__} of "
        f"{sys.executable} is not: name another Python, as in CUDA_PYTHON=/path/to/bin/python"
    )
