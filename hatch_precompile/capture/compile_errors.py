"""Which error a call under torch.compile has failed with: one of ours, torch's, or the author's."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import hatch_precompile
from hatch_precompile.capture.parent import TRACEBACK
from hatch_precompile.entrypoints.advice import about_gpus, own_line
from hatch_precompile.errors import BuildError, CaptureError, Unsupported
from hatch_precompile.runtime import runtime_directory
from hatch_precompile.tracing import graph_break_reasons, is_compilers_error, last_line

__all__ = ["chain_of", "failure", "models_own", "needs_a_gpu"]

_AT_MOST = 8  # lines of an error's text
# What torch adds to its errors for those who work on torch.
_ADVICE = (
    *("Set TORCHDYNAMO_VERBOSE", "set TORCH_LOGS", "Hint: Please report an issue", "Developer debug context"),
    *("For more details about this", "You can suppress this exception", "Hint: Your code may result in an"),
)
# What a C++ compiler puts before its errors: by which headers it came there.
_INCLUDED = re.compile(r"\s*(In file included )?from \S+:\d+[:,\d]*$")
# What it, an assembler or a linker says where it fails; all else are warnings, and notes to them.
_FAILED = re.compile(r"\b(error|failed): ")
_WHAT_HELPS = (
    "Put torch.compiler.disable on what is called there. What only a first call does, such as to fill a "
    "cache, `samples` can do before, by a call."
)
_OF_GRAPH = "Original traceback:"
_WRAPPERS = ("InternalTorchDynamoError", "BackendCompilerFailed", "InductorError")
_REFUSED = re.compile(r"Dynamo failed to run FX node with fake tensors: .*: got (\w+)\(['\"](.*)['\"]\)")
_OURS = tuple(str(folder) for folder in (Path(hatch_precompile.__file__).parent, runtime_directory()))


def failure(label: str, error: Exception, *, with_traceback: bool, runs_eagerly: bool = False) -> BuildError:
    """What stops the build after `error` came out of a call under torch.compile: an error of ours as it is,
    whatever torch has wrapped it in; else who has failed, torch or the author's code.

    runs_eagerly: the same call without torch.compile raises nothing.
    """
    for each in chain_of(error):
        if isinstance(each, BuildError):
            return each
    root = _root(error)
    words, *more = _words(root, error)
    told = [words, *more[:_AT_MOST]]
    compilers = runs_eagerly or is_compilers_error(error)
    place = last_line(str(error).partition("from user code:")[2])
    of_graph = last_line(str(root).partition(_OF_GRAPH)[2])  # an operation's own line
    if compilers and (place or of_graph):
        told.append(f"at {place or of_graph}")
    defect = _own_line(root)
    if compilers and defect:
        told[0] = f"{label}: hatch-precompile failed below torch.compile: {words}"
        told.append(f"at {defect}: please report this to hatch-precompile")
    elif compilers:
        told[0] = f"{label}: torch.compile failed: {words}"
    else:
        told[0] = f"{label} raised {words}"
    told += graph_break_reasons()[:3]
    if place and compilers and not defect and _REFUSED.search(str(root)) is None:  # while it traced
        told.append(_WHAT_HELPS)
    if with_traceback:
        told += "".join(traceback.format_exception(error)).splitlines()
    elif compilers:
        told.append(f"{TRACEBACK}=1 in the environment of the build adds the traceback")
    return CaptureError("\n  ".join(told))


def models_own(label: str, error: Exception, *, with_traceback: bool) -> CaptureError:
    """The error where the call raises without torch.compile, too: the sample or the model is at fault."""
    first, *more = (str(error).strip() or type(error).__name__).splitlines()
    told = [f"{label}: the model itself raises {type(error).__name__}: {first}", *more[:_AT_MOST]]
    if place := own_line(error):
        told.append(f"at {place}")
    gpu = about_gpus(error, "The model and all that it computes are")
    told.append(
        f"{gpu.removeprefix('; ')}."
        if gpu
        else "Give a sample that it takes: its call fails without torch.compile, too."
    )
    if with_traceback:
        told += "".join(traceback.format_exception(error)).splitlines()
    return CaptureError("\n  ".join(told))


def needs_a_gpu(label: str, place: str) -> Unsupported:
    """What stops the build where a result would have to be known while it is traced. place: the author's
    line, or empty"""
    return Unsupported(
        f"{label}: something would have to be computed while it is traced, and there is no GPU here",
        place or "in a call of the target",
        "What is between two graphs, a number that .item() reads and an operator without a meta kernel need "
        "one to be built. Have torch.compile take the target whole, or name a smaller one.",
    )


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """An exception, and all that it was raised from or wraps."""
    pending: list[BaseException | None] = [error]
    seen = set()
    while pending:
        each = pending.pop(0)
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            pending += [getattr(each, "inner_exception", None), each.__cause__, each.__context__]


def _root(error: BaseException) -> BaseException:
    """What an error of the compiler's was raised for."""
    for _ in range(8):
        cause = error.__cause__ if type(error).__name__ in _WRAPPERS else None
        inner: BaseException | None = getattr(error, "inner_exception", None) or cause
        if inner is None:
            break
        error = inner
    return error


def _words(root: BaseException, error: BaseException) -> list[str]:
    """The lines of an error that say something to whoever has not written torch, the first with its type."""
    kind = type(root).__name__
    text = str(root).partition("from user code:")[0].partition(_OF_GRAPH)[0] or str(error)
    lines = [line for line in text.strip().splitlines() if line.strip()]
    lines = [line for line in lines if not line.strip().startswith(_ADVICE) and not _INCLUDED.match(line)]
    first, *more = lines or [""]
    if kind == "CppCompileError":  # its warnings may be more than are shown
        more.sort(key=lambda line: _FAILED.search(line) is None)
    refused = _REFUSED.search(text)
    if refused is not None:  # an operator, for what is known of its arguments while tracing
        return [f"{refused[1]}: {refused[2]}"]
    return [first if first and kind in _WRAPPERS else f"{kind}: {first}".removesuffix(": "), *more]


def _own_line(error: BaseException) -> str:
    """Where in this package an exception was raised: `names.py:10 in constant`; or nothing."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not frames[-1].filename.startswith(_OURS):
        return ""
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}"
