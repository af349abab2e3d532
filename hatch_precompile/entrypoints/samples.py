"""The samples of an entrypoint: what its samples function returns, its workload calls, or was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import torch

from hatch_precompile.config import Entrypoint
from hatch_precompile.entrypoints.advice import about_gpus
from hatch_precompile.entrypoints.call import Sample
from hatch_precompile.entrypoints.recorded import sample_of
from hatch_precompile.entrypoints.references import find_reference
from hatch_precompile.entrypoints.workload import recorded_calls
from hatch_precompile.errors import CaptureError
from hatch_precompile.traffic.samples import embedded_calls, is_recorded

__all__ = ["as_sample", "samples_of"]

_AT_MOST = 1000  # samples of a function that makes them


def samples_of(entrypoint: Entrypoint) -> Iterator[Sample]:
    """Call the entrypoint's samples function, or run its workload, for each of its modes. A recorded
    call is made in its own mode.

    Raises CaptureError for a sample of another form, and for a workload without a call of the target.
    """
    if is_recorded(entrypoint):
        for number, content in enumerate(embedded_calls(entrypoint), 1):
            yield sample_of(content, f"recorded call {number}")
        return
    for mode in entrypoint.modes:
        if entrypoint.workload is not None:
            yield from recorded_calls(entrypoint, entrypoint.workload, mode)
        else:
            yield from (replace(sample, mode=mode) for sample in _made(entrypoint))


def _made(entrypoint: Entrypoint) -> Iterator[Sample]:
    assert entrypoint.samples is not None
    key = f'samples = "{entrypoint.samples}"'
    function = find_reference(entrypoint.samples, "samples")
    if not callable(function):
        raise CaptureError(f"{key} is a {type(function).__name__}; name a function that yields samples")
    try:
        returned = function()
        if isinstance(returned, torch.Tensor):
            raise CaptureError(f"{key} returned a tensor; {_FORM}")
        if returned is None:
            raise CaptureError(f"{key} returned nothing; {_FORM}")
        samples = list(islice(returned, _AT_MOST + 1))
    except CaptureError:
        raise
    except Exception as error:
        raise CaptureError(f"{key} raised {type(error).__name__}: {error}{_advice_on(error)}") from error
    if not samples:
        raise CaptureError(f"{key} returned no sample")
    if len(samples) > _AT_MOST:
        raise CaptureError(
            f"{key} returned more than {_AT_MOST} samples, each of which is traced and verified: give one "
            "for each kind of call, and declare sizes that vary in dynamic-shapes"
        )
    if isinstance(returned, (tuple, dict)) and not isinstance(samples[0], (tuple, dict)):
        raise CaptureError(f"{key} returned a {type(returned).__name__}, which is one sample: yield it")
    for number, sample in enumerate(samples, 1):
        yield as_sample(sample, f"{key}: sample {number}")


def _advice_on(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "; a build runs in a folder of its own: find the file by the module's __file__"
    return about_gpus(error, "samples are")


def as_sample(sample: Any, what: str) -> Sample:
    """Read one of the forms a sample has. Raises CaptureError, which calls it `what`, for another form."""
    if isinstance(sample, dict):
        return Sample((), sample)
    if isinstance(sample, tuple):
        if len(sample) == 2 and isinstance(sample[0], tuple) and isinstance(sample[1], dict):
            return Sample(*sample)
        return Sample(sample, {})
    raise CaptureError(f"{what} is a {type(sample).__name__}; {_FORM}")


_FORM = "a sample is a tuple (args), a dict (kwargs) or a pair (tuple, dict), as in `yield (x,)`"
