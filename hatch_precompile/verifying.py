"""Verification, the process: `python -m hatch_precompile.verifying REQUEST` (see verify.py)."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import torch

from hatch_precompile.config import Entrypoint
from hatch_precompile.errors import BuildError, VerifyError
from hatch_precompile.processes import end_with_parent, leave_reason, say
from hatch_precompile.verify import FAILED, Request

__all__ = ["main"]

_FORBIDDEN = {"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork", "socket.connect"}


def main(path: str) -> int:
    end_with_parent()
    request = msgspec.json.decode(Path(path).read_bytes(), type=Request)
    try:
        _verify_here(request)
    except BuildError as error:
        leave_reason(Path(request.error), str(error))
        return FAILED
    return 0


def _verify_here(request: Request) -> None:
    from hatch_precompile.capture.target import find_target, samples_of

    entrypoint = request.entrypoint
    # What makes the samples may call the model in ways that no sample does, which `strict` would refuse.
    strict, os.environ["HATCH_PRECOMPILE"] = os.environ["HATCH_PRECOMPILE"], "off"
    runtime = importlib.import_module(f"{request.package}._precompiled")
    _seed()
    samples = list(samples_of(entrypoint))
    os.environ["HATCH_PRECOMPILE"] = strict
    runtime.install()
    _seed()
    target = find_target(entrypoint)
    call = _without_compiling(target.compiled) if entrypoint.activate == "compile" else target.call
    sys.addaudithook(_refuse_side_effects)
    answers = []
    for number, sample in enumerate(samples, 1):
        label = f"sample {number}/{len(samples)}"
        hits = _hits(runtime, entrypoint.name)
        try:
            with _guarded_from_side_effects():
                answers.append(_run(call, sample, entrypoint.mode))
        except Exception as error:
            raise VerifyError(f"{label} from the bundle raised {type(error).__name__}: {error}") from error
        if _hits(runtime, entrypoint.name) == hits:
            why = _why(runtime, entrypoint, target, sample)
            raise VerifyError(f"{label} is not served by any entry: {why}")
    runtime.uninstall()
    _seed()
    target = find_target(entrypoint)
    for number, (sample, answer) in enumerate(zip(samples, answers, strict=True), 1):
        label = f"sample {number}/{len(samples)}"
        before = copy.deepcopy(target.call) if isinstance(target.call, torch.nn.Module) else target.call
        expected = _run(target.call, sample, entrypoint.mode)
        try:
            difference = _compare(answer, expected, label)
        except VerifyError:
            # Compiled code draws other random numbers than eager code, as under torch.compile.
            if not _is_random(before, sample, entrypoint.mode, expected):
                raise
            _compare(answer, expected, label, values=False)
            say(f"{label}: hit; it draws random numbers, so only shapes and dtypes were compared with eager")
        else:
            say(f"{label}: hit, largest difference from eager {difference:.1e}")


def _run(call: Callable[..., Any], sample: Any, mode: str) -> dict[str, Any]:
    """One call on copies of a sample: its output, the inputs as it left them, and in training the
    gradients of its parameters."""
    from hatch_precompile.capture.target import mode_context

    args, kwargs = copy.deepcopy((sample.args, sample.kwargs))
    _seed()
    with mode_context(mode):
        result: dict[str, Any] = {"output": call(*args, **kwargs), "inputs": (args, kwargs)}
    if mode == "train":
        losses = [value.sum() for _, value in _leaves(result["output"]) if _has_gradient(value)]
        if losses:
            sum(losses[1:], losses[0]).backward()
        if isinstance(call, torch.nn.Module):
            result["gradients"] = {name: p.grad for name, p in call.named_parameters()}
            call.zero_grad(set_to_none=True)
            result["gradients"] = {
                name: g.clone() for name, g in result["gradients"].items() if g is not None
            }
    return result


def _has_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_random(call: Callable[..., Any], sample: Any, mode: str, expected: dict[str, Any]) -> bool:
    """Whether the eager call gives another answer with another seed."""
    global _seed_value
    _seed_value += 1
    try:
        _compare(_run(call, sample, mode), expected, "")
    except VerifyError:
        return True
    finally:
        _seed_value -= 1
    return False


def _without_compiling(compiled: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    def refuse(gm: Any, inputs: Any) -> Any:
        raise VerifyError("a graph was compiled, so some frame was not served by an entry")

    return compiled(refuse)


def _hits(runtime: Any, name: str) -> int:
    return int(runtime.status()["entrypoints"][name]["hits"])


def _why(runtime: Any, entrypoint: Entrypoint, target: Any, sample: Any) -> str:
    left_out = runtime.status()["entrypoints"][entrypoint.name]["left_out"]
    if left_out:
        return "; ".join(left_out)
    if target.kind == "module class":
        reports = runtime.explain(entrypoint.name, target.call, *sample.args, **sample.kwargs)
        return "; ".join(report["reason"] for report in reports)
    return "no entry's guards accept it"


_seed_value = 0


def _seed() -> None:
    torch.manual_seed(_seed_value)
    random.seed(_seed_value)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(_seed_value)


_armed = False


class _guarded_from_side_effects:  # noqa: N801 - reads as a statement where it is used
    def __enter__(self) -> None:
        global _armed
        _armed = True

    def __exit__(self, *_: object) -> None:
        global _armed
        _armed = False


def _refuse_side_effects(event: str, args: tuple[Any, ...]) -> None:
    if not _armed:
        return
    if event in _FORBIDDEN:
        raise VerifyError(f"the compiled call tried {event}")
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        raise VerifyError(f"the compiled call tried to write {args[0]}")


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, (Mapping, tuple, list)):
        yield f"type of {path or 'it'}", type(value).__qualname__
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{path}[{key!r}]")
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for spec in dataclasses.fields(value):
            yield from _leaves(getattr(value, spec.name), f"{path}.{spec.name}")
    else:
        yield path, value


def _compare(actual: Any, expected: Any, label: str, *, values: bool = True) -> float:
    """The largest absolute difference. Raises VerifyError where the outputs do not agree."""
    ours, theirs = dict(_leaves(actual)), dict(_leaves(expected))
    if list(ours) != list(theirs):
        raise VerifyError(f"{label}: the bundle returns {list(ours)}, eager {list(theirs)}")
    largest = 0.0
    for path, value in ours.items():
        other = theirs[path]
        if not isinstance(value, torch.Tensor):
            if isinstance(value, (int, float, str, bool, bytes, type(None))) and value != other:
                raise VerifyError(f"{label}: {path} is {value!r}, with eager {other!r}")
            continue
        if not values:
            if (value.shape, value.dtype) != (other.shape, other.dtype):
                raise VerifyError(f"{label}: {path} is {value.dtype} {tuple(value.shape)}, not as with eager")
            continue
        try:
            torch.testing.assert_close(value, other, equal_nan=True)
        except AssertionError as error:
            raise VerifyError(f"{label}: {path} differs from eager: {error}") from None
        if value.numel() and not value.is_complex():
            largest = max(
                largest, float((value.detach().double() - other.detach().double()).abs().nan_to_num().max())
            )
    return largest


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
