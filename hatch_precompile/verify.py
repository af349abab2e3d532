"""Runs every sample from the finished bundle in a clean process, and compares it with eager.

`verify` is the build's side. `python -m hatch_precompile.verify REQUEST` is the process: no compiler,
no home, an empty PATH; while a sample runs, starting a process, writing a file or opening a
connection fails.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hatch_precompile.config import Entrypoint
from hatch_precompile.errors import BuildError, VerifyError
from hatch_precompile.processes import run_module, say

__all__ = ["Request", "main", "verify"]

FAILED = 3
_FORBIDDEN = {"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork", "socket.connect"}


class Request(msgspec.Struct, frozen=True):
    """One entrypoint to verify; `package` must be importable with its bundle."""

    entrypoint: Entrypoint
    package: str
    error: str


def verify(
    entrypoint: Entrypoint,
    package: str,
    *,
    site: Path,
    source_roots: Sequence[Path],
    work: Path,
    timeout: float,
    report: Callable[[str], None],
) -> None:
    """Raise VerifyError unless every sample hits and agrees with eager (torch.testing's tolerances).

    site: a directory that holds the package with its bundle, searched before the sources.
    """
    work.mkdir(parents=True, exist_ok=True)
    empty = work / "empty"
    empty.mkdir()
    request = work / "request.json"
    error = work / "error.txt"
    request.write_bytes(msgspec.json.encode(Request(entrypoint, package, str(error))))
    finished = run_module(
        "hatch_precompile.verify",
        [str(request)],
        paths=[site, *source_roots],
        environment={"PATH": str(empty), "HATCH_PRECOMPILE": "strict", "CXX": str(empty / "no-compiler")},
        inherit=False,
        quiet_limit=timeout,
        on_line=report,
    )
    if finished.returncode == 0:
        return
    if error.exists():
        raise VerifyError(f"entrypoint {entrypoint.name}: {error.read_text()}")
    ending = f"was silent for {timeout:.0f} s" if finished.timed_out else f"ended with {finished.returncode}"
    raise VerifyError(
        f"entrypoint {entrypoint.name}: the verifying process {ending}:\n" + "\n".join(finished.tail[-20:])
    )


def main(path: str) -> int:
    request = msgspec.json.decode(Path(path).read_bytes(), type=Request)
    try:
        _verify_here(request)
    except BuildError as error:
        Path(request.error).write_text(str(error))
        return FAILED
    return 0


def _verify_here(request: Request) -> None:
    import torch

    from hatch_precompile.capture.target import find_target, mode_context, samples_of

    entrypoint = request.entrypoint
    runtime = importlib.import_module(f"{request.package}._precompiled")
    importlib.import_module(request.package)
    _seed(torch)
    samples = list(samples_of(entrypoint))
    _seed(torch)
    target = find_target(entrypoint)
    call = _without_compiling(target.compiled) if entrypoint.activate == "compile" else target.call
    sys.addaudithook(_refuse_side_effects)
    answers = []
    for number, sample in enumerate(samples, 1):
        label = f"sample {number}/{len(samples)}"
        args, kwargs = copy.deepcopy((sample.args, sample.kwargs))
        hits = _hits(runtime, entrypoint.name)
        _seed(torch)
        try:
            with mode_context(entrypoint.mode), _guarded_from_side_effects():
                answers.append(call(*args, **kwargs))
        except Exception as error:
            raise VerifyError(f"{label} from the bundle raised {type(error).__name__}: {error}") from error
        if _hits(runtime, entrypoint.name) == hits:
            raise VerifyError(
                f"{label} is not served by any entry: {_why(runtime, entrypoint, target, sample)}"
            )
    runtime.uninstall()
    _seed(torch)
    target = find_target(entrypoint)
    for number, (sample, answer) in enumerate(zip(samples, answers, strict=True), 1):
        _seed(torch)
        with mode_context(entrypoint.mode):
            expected = target.call(*sample.args, **sample.kwargs)
        difference = _compare(torch, answer, expected, f"sample {number}/{len(samples)}")
        say(f"sample {number}/{len(samples)}: hit, largest difference from eager {difference:.1e}")


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


def _seed(torch: Any) -> None:
    torch.manual_seed(0)
    random.seed(0)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(0)


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


def _leaves(value: Any, path: str = "output") -> Iterator[tuple[str, Any]]:
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


def _compare(torch: Any, actual: Any, expected: Any, label: str) -> float:
    """The largest absolute difference. Raises VerifyError where the outputs do not agree."""
    if type(actual) is not type(expected):
        raise VerifyError(
            f"{label}: the bundle returns a {type(actual).__name__}, eager a {type(expected).__name__}"
        )
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
        try:
            torch.testing.assert_close(value, other, equal_nan=True)
        except AssertionError as error:
            raise VerifyError(f"{label}: {path} differs from eager: {error}") from None
        if value.numel() and not value.is_complex():
            largest = max(largest, float((value.double() - other.double()).abs().nan_to_num().max()))
    return largest


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
