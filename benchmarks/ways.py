"""The ways to ship a compiled model: what each prepares once, and how its process makes the model callable.

The parent reads the table; the measured process calls ``prepare`` or ``open``. torch is imported inside the
functions that need it, so that the parent stays light.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["WAYS", "Call", "Job", "Way"]

Call = Callable[[], object]


@dataclass(frozen=True)
class Job:
    """A model, one sample of inputs for it, and the folder its way may keep files in."""

    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    work: Path


@dataclass(frozen=True)
class Way:
    """One way to ship a model."""

    title: str
    open: Callable[[Job], Call]
    """In the measured process, after the model is built: gives what is then called."""
    prepare: Callable[[Job], object] | None = None
    """In a process of its own, before anything is measured."""
    cache: str = "fresh"
    """The inductor cache folder of a run: "kept" (the one prepared), "fresh" (empty), or "dynamo" (empty but
    for what dynamo stored in the one prepared)."""
    compiler: bool = True
    """Whether a run may reach a C++ compiler."""
    prepared_by: str = ""
    """The way whose preparation it uses, where that is not its own."""
    heavy: bool = False
    """Whether a run takes many seconds, so that fewer are made."""


def _eager(job: Job) -> Call:
    return lambda: job.model(*job.args, **job.kwargs)


def _compiled(job: Job) -> Call:
    import torch

    compiled = torch.compile(job.model)
    return lambda: compiled(*job.args, **job.kwargs)


def _compile_once(job: Job) -> None:
    _compiled(job)()


def _save_artifacts(job: Job) -> None:
    import torch

    _compiled(job)()
    artifacts = torch.compiler.save_cache_artifacts()
    if artifacts is None:
        raise RuntimeError("torch.compiler.save_cache_artifacts() had nothing to save")
    (job.work / "artifacts.bin").write_bytes(artifacts[0])


def _load_artifacts(job: Job) -> Call:
    import torch

    torch.compiler.load_cache_artifacts((job.work / "artifacts.bin").read_bytes())
    return _compiled(job)


def _caching_precompile(job: Job) -> Call:
    import logging

    import torch._dynamo.config

    # It warns once per guard it drops: a page per model.
    logging.getLogger("torch._dynamo.guards").setLevel(logging.ERROR)
    torch._dynamo.config.caching_precompile = True
    return _compiled(job)


def _save_precompile(job: Job) -> None:
    _caching_precompile(job)()
    from torch._dynamo.precompile_context import PrecompileContext

    PrecompileContext.save_to_dynamo_cache()


def _package(job: Job) -> None:
    import torch
    import torch._inductor

    program = torch.export.export(job.model, job.args, dict(job.kwargs))
    torch._inductor.aoti_compile_and_package(program, package_path=str(job.work / "model.pt2"))


def _aoti(job: Job) -> Call:
    import torch._inductor

    loaded = torch._inductor.aoti_load_package(str(job.work / "model.pt2"))
    return lambda: loaded(*job.args, **job.kwargs)


def _aoti_raw(job: Job) -> Call:
    import torch

    # The loader object under aoti_load_package: takes and gives flat lists of tensors, checks nothing.
    loader = torch._C._aoti.AOTIModelPackageLoader(str(job.work / "model.pt2"), "model", False, 1, -1)
    flat = [value for value in (*job.args, *job.kwargs.values()) if torch.is_tensor(value)]
    return lambda: loader.boxed_run(list(flat))


WAYS: dict[str, Way] = {
    "eager": Way("eager", _eager, compiler=False),
    "cold": Way("torch.compile, cold", _compiled, heavy=True),
    "fxcache": Way("torch.compile, FX cache warm, same machine", _compiled, _compile_once, cache="kept"),
    "megacache": Way("Mega-cache, fresh machine", _load_artifacts, _save_artifacts, heavy=True),
    "caching_precompile": Way(
        "caching_precompile, same machine", _caching_precompile, _save_precompile, cache="kept"
    ),
    "caching_precompile_nocc": Way(
        "caching_precompile, fresh machine without a compiler",
        _caching_precompile,
        _save_precompile,
        cache="dynamo",
        compiler=False,
        prepared_by="caching_precompile",
    ),
    "aoti": Way("AOTInductor, aoti_load_package, fresh machine", _aoti, _package, heavy=True),
    "aoti_raw": Way("AOTInductor, raw loader", _aoti_raw, _package, compiler=False, prepared_by="aoti"),
    "wheel": Way("precompiled wheel", _eager, compiler=False),
}
"""By the name they have on the command line and in bench.json. ``wheel`` calls the model as eager does: what
differs is the package installed. Its build is a project's, in projects.py."""
