"""The samples of an entrypoint: what its samples function returns, its workload calls, or was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hatch_precompile.config import Entrypoint
from hatch_precompile.errors import CaptureError
from hatch_precompile.target.call import Sample
from hatch_precompile.target.finding import find_reference
from hatch_precompile.target.recorded import sample_of
from hatch_precompile.target.workload import recorded_calls
from hatch_precompile.traffic.samples import embedded_calls, is_recorded

__all__ = ["as_sample", "samples_of"]


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
    function = find_reference(entrypoint.samples, "samples")
    try:
        samples = list(function())
    except Exception as error:
        raise CaptureError(
            f'samples = "{entrypoint.samples}" raised {type(error).__name__}: {error}'
        ) from error
    if not samples:
        raise CaptureError(f'samples = "{entrypoint.samples}" returned no sample')
    for number, sample in enumerate(samples, 1):
        yield as_sample(sample, f'samples = "{entrypoint.samples}": sample {number}')


def as_sample(sample: Any, what: str) -> Sample:
    """Read one of the forms a sample has. Raises CaptureError, which calls it `what`, for another form."""
    if isinstance(sample, dict):
        return Sample((), sample)
    if isinstance(sample, tuple):
        if len(sample) == 2 and isinstance(sample[0], tuple) and isinstance(sample[1], dict):
            return Sample(*sample)
        return Sample(sample, {})
    raise CaptureError(
        f"{what} is a {type(sample).__name__}; "
        "a sample is a tuple (args), a dict (kwargs) or a pair (tuple, dict)"
    )
