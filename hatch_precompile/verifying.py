"""Verification, the process: `python -m hatch_precompile.verifying REQUEST` (see verify.py)."""

from __future__ import annotations

import importlib
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec.structs import replace

from hatch_precompile.agreement import compare, run_backward
from hatch_precompile.capture.target import (
    Sample,
    Target,
    copied,
    copy_of,
    find_targets,
    mode_context,
    samples_of,
)
from hatch_precompile.errors import BuildError, VerifyError
from hatch_precompile.events import Event, send
from hatch_precompile.processes import connect_to_parent
from hatch_precompile.verify import Outcome, Request, SampleResult

__all__ = ["main"]

_FORBIDDEN = {"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork", "socket.connect"}


def main(path: str) -> int:
    connect_to_parent()
    request = msgspec.json.decode(Path(path).read_bytes(), type=Request)
    try:
        outcome = Outcome("", _Verification(request).run())
    except BuildError as error:
        outcome = Outcome(str(error), [])
    try:
        Path(request.outcome).write_bytes(msgspec.json.encode(outcome))
    except OSError as error:
        sys.stdout.write(f"cannot write a file: {error}\n")
        return 1
    return 0


class _Verification:
    """The samples of one entrypoint, in this process: first from the bundle, then without it."""

    def __init__(self, request: Request) -> None:
        self.entrypoint = request.entrypoint
        self.mode = request.entrypoint.mode
        # What makes the samples may call the model in ways that no sample does, which `strict` would refuse.
        self.strict, os.environ["HATCH_PRECOMPILE"] = os.environ["HATCH_PRECOMPILE"], "off"
        try:
            self.runtime = importlib.import_module(f"{request.package}._precompiled")
            installation: Any = importlib.import_module(f"{request.package}._precompiled.installation")
        except ImportError as error:
            raise VerifyError(f"{request.package} cannot be imported: {error}") from error
        self.miss: type[Exception] = installation.PrecompileError
        self.variant = request.variant or None

    def run(self) -> list[SampleResult]:
        _seed()
        samples = list(samples_of(self.entrypoint))
        results = self._from_the_bundle(samples)
        self.runtime.uninstall()
        os.environ["HATCH_PRECOMPILE"] = "off"
        _seed()
        targets = self._targets_again(samples)
        return [
            result if result.problem else self._beside_eager(target, sample, result, answer, len(samples))
            for target, sample, (result, answer) in zip(targets, samples, results, strict=True)
        ]

    def _targets_again(self, samples: list[Sample]) -> list[Target]:
        """What the samples call, made anew: the first calls may have changed it."""
        if self.entrypoint.workload is None:
            return find_targets(self.entrypoint, samples)
        again = list(samples_of(self.entrypoint))
        if len(again) != len(samples):
            raise VerifyError(
                f'workload = "{self.entrypoint.workload}" makes {len(samples)} calls the first time and '
                f"{len(again)} the second; it must make the same ones each time"
            )
        return find_targets(self.entrypoint, again)

    def _from_the_bundle(self, samples: list[Sample]) -> list[tuple[SampleResult, Any]]:
        """What each sample did, and its answer."""
        os.environ["HATCH_PRECOMPILE"] = self.strict
        try:
            self.runtime.install(self.variant)
            _seed()
            targets = find_targets(self.entrypoint, samples)
        except self.miss as error:  # what is a warning elsewhere
            raise VerifyError(str(error)) from error
        sys.addaudithook(_refuse_side_effects)
        results = [
            self._call(target, sample, number, len(samples))
            for number, (target, sample) in enumerate(zip(targets, samples, strict=True), 1)
        ]
        if not any(result.problem for result, _ in results):
            self._require_all_used()
        return results

    def _require_all_used(self) -> None:
        """A function that runs eagerly because nobody asks its entries is no miss, so nothing else tells."""
        hits: dict[str, int] = {}
        for entry in self._status()["by_entry"]:
            hits[entry["function"]] = hits.get(entry["function"], 0) + entry["hits"]
        unused = [function for function, number in hits.items() if not number]
        if unused:
            raise VerifyError(f"what was compiled of {', '.join(unused)} is not used by any sample")

    def _call(self, target: Target, sample: Sample, number: int, total: int) -> tuple[SampleResult, Any]:
        call = target.call
        if self.entrypoint.activate == "compile":
            call = _without_compiling(target.compiled)
        label = f"sample {number}/{total}"
        send(Event(step="sample", sample=number, samples=total))
        hits = self._hits()
        answer, problem = None, ""
        seconds: float | None = None
        try:
            with _guarded_from_side_effects():
                answer, seconds = _run(call, sample, self.mode)
        except self.miss as error:
            problem = f"{label} is not served by any entry: {error}"
        except Exception as error:
            problem = f"{label} from the bundle raised {type(error).__name__}: {error}"
        hit = self._hits() > hits
        if not hit and not problem:
            problem = f"{label} is not served by any entry: {self._why(target, sample)}"
        return SampleResult(number, hit, seconds, None, problem), answer

    def _beside_eager(
        self, target: Target, sample: Sample, result: SampleResult, answer: Any, total: int
    ) -> SampleResult:
        """The result with how far its answer is from eager code's."""
        label = f"sample {result.sample}/{total}"
        before = _before(target.call)
        try:
            with _eagerly():
                expected, _ = _run(target.call, sample, self.mode)
        except Exception as error:
            problem = f"{label} raised {type(error).__name__} where it runs eagerly: {error}"
            return replace(result, problem=problem)
        difference = None
        said = "it draws random numbers, so only shapes and dtypes were compared with eager"
        try:
            try:
                difference = compare(answer, expected, label)
            except VerifyError:
                # Compiled code draws other random numbers than eager code, as under torch.compile.
                if before is None or not _is_random(before, sample, self.mode, expected):
                    raise
                compare(answer, expected, label, values=False)
        except VerifyError as error:
            return replace(result, problem=str(error))
        text = f"{label}: hit; {said}"
        if difference is not None:
            text = f"{label}: hit, largest difference from eager {difference:.1e}"
        send(
            Event(
                step="sample-end",
                text=text,
                sample=result.sample,
                samples=total,
                difference=difference,
                seconds=result.seconds,
            )
        )
        return replace(result, difference=difference)

    def _status(self) -> Any:
        return self.runtime.status()["entrypoints"][self.entrypoint.name]

    def _hits(self) -> int:
        status = self._status()
        if status["skipped"]:  # perhaps the target itself: any function's
            return sum(entry["hits"] for entry in status["by_entry"])
        return int(status["hits"])

    def _why(self, target: Target, sample: Sample) -> str:
        left_out = self._status()["left_out"]
        if left_out:
            return "; ".join(left_out)
        if target.kind == "module class":
            try:
                reports = self.runtime.explain(
                    self.entrypoint.name, target.call, *sample.args, **sample.kwargs
                )
            except KeyError as error:
                return str(error.args[0])
            return "; ".join(report["reason"] for report in reports)
        return "no entry's guards accept it"


def _run(call: Callable[..., Any], sample: Sample, mode: str) -> tuple[dict[str, Any], float]:
    """One call on copies of a sample: its output, the inputs as it left them, and in training the
    gradients of its parameters; and the seconds it took."""
    given = copied(sample)
    args, kwargs = given.args, given.kwargs
    _seed()
    with mode_context(mode):
        started = time.perf_counter()
        result: dict[str, Any] = {"output": call(*args, **kwargs), "inputs": (args, kwargs)}
        if mode == "train":
            run_backward(result["output"])
        seconds = time.perf_counter() - started
    if mode == "train" and isinstance(call, torch.nn.Module):
        result["gradients"] = {
            name: p.grad.clone() for name, p in call.named_parameters() if p.grad is not None
        }
        call.zero_grad(set_to_none=True)
    return result, round(seconds, 6)


def _eagerly() -> AbstractContextManager[Any]:
    """For what the package itself has under `torch.compile`: there is no compiler here."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


def _before(call: Any) -> Any:
    """What is called, as it is now; None for a module that cannot be copied. A difference then counts."""
    if not isinstance(call, torch.nn.Module):
        return call
    try:
        return copy_of(call)
    except Exception:
        return None


def _is_random(call: Callable[..., Any], sample: Any, mode: str, expected: dict[str, Any]) -> bool:
    """Whether the eager call gives another answer with another seed."""
    global _seed_value
    _seed_value += 1
    try:
        with _eagerly():
            again, _ = _run(call, sample, mode)
        compare(again, expected, "")
    except VerifyError:
        return True
    finally:
        _seed_value -= 1
    return False


def _without_compiling(compiled: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    def refuse(gm: Any, inputs: Any) -> Any:
        raise VerifyError("a graph was compiled, so some frame was not served by an entry")

    return compiled(refuse)


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
