"""The ways to ship a model: what each prepares once, and how its process makes the model callable.

The parent reads the table; the measured process calls ``prepare`` or ``open``. torch, ONNX Runtime and
OpenVINO are imported in the functions that need them: the parent, and whoever does without one, stays light.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["BEFORE", "BFLOAT16", "QUANTIZED", "WAYS", "Call", "Job", "Way"]

BEFORE = "wheel_before"
"""The way that another revision of this project is measured as; only where one is named."""

QUANTIZED = "quantized"
"""In the place of an entrypoint's instance: its model, quantized by torchao."""

BFLOAT16 = "in_bfloat16"
"""The same: its model in bfloat16, and what it is called with."""

Call = Callable[[], object]


@dataclass(frozen=True)
class Job:
    """A model, one sample of inputs for it, and the folder its way may keep files in.

    Of a way that runs without torch there is the folder only.
    """

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
    without_torch: bool = False
    """Whether a run needs no torch: it has the model and its inputs as files."""
    settings: Mapping[str, str] | None = None
    """Of a wheel: keys of its entrypoint, beside target and samples."""


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


def _freezing(job: Job) -> Call:
    import torch._inductor.config

    torch._inductor.config.freezing = True
    return _compiled(job)


def _max_autotune(job: Job) -> Call:
    import torch._inductor.config

    torch._inductor.config.freezing = True  # without it the choice is between libraries only
    compiled = torch.compile(job.model, mode="max-autotune")
    return lambda: compiled(*job.args, **job.kwargs)


def _in_bfloat16(job: Job) -> Job:
    import torch

    whole = [value.bfloat16() if torch.is_floating_point(value) else value for value in job.args]
    return Job(job.model.bfloat16(), tuple(whole), job.kwargs, job.work)


def _bfloat16(job: Job) -> Call:
    return _eager(_in_bfloat16(job))


def _bfloat16_frozen(job: Job) -> Call:
    return _freezing(_in_bfloat16(job))


def _quantized(job: Job) -> Call:
    import torch
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    if not any(isinstance(module, torch.nn.Linear) for module in job.model.modules()):
        raise RuntimeError("the model has no nn.Linear, which is what torchao quantizes")
    quantize_(job.model, Int8DynamicActivationInt8WeightConfig())
    return _eager(job)


def _quantized_and_compiled(job: Job) -> Call:
    _quantized(job)
    return _compiled(job)


def _export_to_onnx(job: Job) -> None:
    import numpy
    import torch

    values = [value for value in (*job.args, *job.kwargs.values()) if torch.is_tensor(value)]
    names = [f"input{number}" for number in range(len(values))]
    model = str(job.work / "model.onnx")
    torch.onnx.export(
        job.model, job.args, model, kwargs=dict(job.kwargs), input_names=names, dynamo=True, verbose=False
    )
    numpy.savez(job.work / "inputs.npz", **dict(zip(names, (value.numpy() for value in values), strict=True)))


def _quantize(job: Job) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    _export_to_onnx(job)
    quantize_dynamic(job.work / "model.onnx", job.work / "int8.onnx", weight_type=QuantType.QInt8)


def _inputs(job: Job) -> dict[str, Any]:
    import numpy

    with numpy.load(job.work / "inputs.npz") as inputs:
        return dict(inputs)


def _onnxruntime(job: Job, file: str = "model.onnx") -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(job.work / file, options, providers=["CPUExecutionProvider"])
    inputs = _inputs(job)
    return lambda: session.run(None, inputs)


def _onnxruntime_int8(job: Job) -> Call:
    return _onnxruntime(job, "int8.onnx")


def _openvino(job: Job, precision: str = "f32") -> Call:
    import openvino

    core = openvino.Core()
    settings = {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": len(os.sched_getaffinity(0)),
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = core.compile_model(core.read_model(job.work / "model.onnx"), "CPU", settings)
    inputs = list(_inputs(job).values())
    return lambda: compiled(inputs)


def _openvino_bfloat16(job: Job) -> Call:
    return _openvino(job, "bf16")


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
    # Frozen graphs are not cached.
    "freezing": Way("torch.compile, freezing", _freezing, heavy=True),
    "max_autotune": Way("torch.compile, freezing, max-autotune", _max_autotune, heavy=True),
    "freezing_bfloat16": Way("torch.compile, freezing, bfloat16", _bfloat16_frozen, heavy=True),
    "torchao": Way("torch.compile, quantized by torchao", _quantized_and_compiled, heavy=True),
    "onnxruntime": Way("ONNX Runtime", _onnxruntime, _export_to_onnx, compiler=False, without_torch=True),
    "onnxruntime_int8": Way(
        "ONNX Runtime, int8", _onnxruntime_int8, _quantize, compiler=False, without_torch=True
    ),
    "openvino": Way("OpenVINO", _openvino, compiler=False, without_torch=True, prepared_by="onnxruntime"),
    "openvino_bfloat16": Way(
        "OpenVINO, bfloat16",
        _openvino_bfloat16,
        compiler=False,
        without_torch=True,
        prepared_by="onnxruntime",
    ),
    "wheel": Way("precompiled wheel", _eager, compiler=False, settings={}),
    "wheel_fixed": Way(
        "precompiled wheel, fixed weights", _eager, compiler=False, settings={"weights": "fixed"}
    ),
    "wheel_medium": Way(
        "precompiled wheel, fixed weights, bfloat16 layers",
        _eager,
        compiler=False,
        settings={"weights": "fixed", "float32-matmul-precision": "medium"},
    ),
    "wheel_bfloat16": Way(
        "precompiled wheel, fixed weights, the model in bfloat16",
        _bfloat16,
        compiler=False,
        settings={"weights": "fixed", "instance": BFLOAT16},
    ),
    "wheel_int8": Way(
        "precompiled wheel, fixed weights, quantized by torchao",
        _quantized,
        compiler=False,
        settings={"weights": "fixed", "instance": QUANTIZED},
    ),
    BEFORE: Way("precompiled wheel, of the revision before", _eager, compiler=False, settings={}),
}
"""By the name they have on the command line and in bench.json. A wheel calls the model as eager does: what
differs is the package installed. Its build is a project's, in projects.py."""
