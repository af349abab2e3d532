"""The samples of one entrypoint, run on this machine's first GPU: from the bundle, and without it.

As on a CPU (samples.py), with instances and samples moved there. Never tried on a GPU yet.
"""

from __future__ import annotations

import torch
from msgspec import structs

from hatch_precompile.entrypoints.call import Sample
from hatch_precompile.entrypoints.finding import Target
from hatch_precompile.entrypoints.placing import moved, place
from hatch_precompile.errors import VerifyError
from hatch_precompile.verify.parent import Request, SampleResult
from hatch_precompile.verify.samples import Verification

__all__ = ["run"]


def run(request: Request) -> list[SampleResult]:
    """What each sample did. Raises VerifyError where none can be run."""
    if not torch.cuda.is_available():
        raise VerifyError("there is no GPU here that torch can use")
    return _OnGpu(request).run()


class _OnGpu(Verification):
    def __init__(self, request: Request) -> None:
        super().__init__(structs.replace(request, variant=""))  # what runs is chosen by the GPU
        self.gpu_variant = request.variant
        self.device = torch.device("cuda", 0)

    def _samples(self) -> list[Sample]:
        return [moved(each, self.device) for each in super()._samples()]

    def _targets(self, samples: list[Sample]) -> list[Target]:
        targets = super()._targets(samples)
        for target in {id(each): each for each in targets}.values():
            place(target, self.device)
        return targets
