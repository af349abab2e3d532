"""A wheel for GPUs, checked on one: agreement with eager code, times, streams, threads, CUDA graphs, views.

    python tests/gpu/check.py WHEEL --results FILE                         with a GPU, at most ten minutes
    python tests/gpu/check.py WHEEL --results FILE --stand-in cuda-sm90    without, as far as that goes

The wheel is that of tests/gpu/project, built anywhere. Each step is a process of its own. One whose result is
in the file is not done again, so that a run that was cut short goes on. Steps need torch and the standard
library; `same` and `tune` need this repository's plugin and a C++ compiler, too, and are left out without.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import datetime
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
MARK = "@@"
# Name, samples, mode of each entrypoint (project/pyproject.toml).
ENTRYPOINTS = {
    "encoder": ("Encoder", "batches", "no_grad"),
    "halfencoder": ("HalfEncoder", "half_batches", "no_grad"),
    "decoder": ("Decoder", "tokens", "no_grad"),
    "vision": ("Vision", "images", "no_grad"),
    "trained": ("Trained", "rows", "train"),
    "reductions": ("reductions", "wide_rows", "no_grad"),
    "scaled": ("scaled", "pairs", "no_grad"),
    "doubled": ("doubled", "rows", "no_grad"),
}
TIMED = ("encoder", "halfencoder", "decoder", "vision")
OF_SEVERAL = ("streams", "threads", "fresh", "graph", "views", "sizes", "second", "imports")


def steps() -> list[str]:
    """In the order of their worth, should the time end."""
    agree = [f"agree:{name}" for name in ENTRYPOINTS]
    cold = [f"cold:{name}:{how}" for name in TIMED for how in ("ours", "eager", "compile")]
    of_aoti = [f"{step}:{name}{more}" for name in TIMED for step, more in _OF_AOTI]
    return [
        "about",
        *agree,
        *OF_SEVERAL,
        *(f"time:{name}" for name in TIMED),
        *cold,
        "same",
        "tune",
        *of_aoti,
    ]


# A package of AOTInductor's, made, called first in a fresh process, and timed beside ours.
_OF_AOTI = (("pack", ""), ("cold", ":aoti"), ("time", ":aoti"))


# -- in the process of a step ------------------------------------------------------------------------


def on_a_stand_in() -> bool:
    return "HATCH_PRECOMPILE_CARD" in os.environ


def made(name: str, device: str = "cuda:0") -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
    """What is called, with what, and the context in which."""
    import gauge.models as models
    import torch

    target, samples, mode = ENTRYPOINTS[name]
    torch.manual_seed(0)
    call = getattr(models, target)
    if isinstance(call, type):
        call = call().to(device).train(mode == "train")
    (inputs,) = getattr(models, samples)()
    return (
        call,
        tuple(each.to(device) for each in inputs),
        torch.no_grad if mode != "train" else torch.enable_grad,
    )


def hits() -> int:
    import gauge

    return sum(each["hits"] for each in gauge._precompiled.status()["entrypoints"].values())


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    import gauge

    gauge._precompiled.uninstall()
    try:
        yield
    finally:
        gauge._precompiled.install()


def answered(call: Callable[..., Any], inputs: tuple[Any, ...], context: Any) -> list[Any]:
    """Results, inputs as they are left and, in training, gradients."""
    import torch

    given = tuple(each.clone() if not on_a_stand_in() else each for each in inputs)
    with context():
        result = call(*given)
        found = [*(result if isinstance(result, tuple) else [result]), *given]
        if context is torch.enable_grad:
            result.backward()
            found += [each.grad.clone() for each in call.parameters()]  # type: ignore[attr-defined]
            call.zero_grad()  # type: ignore[attr-defined]
    return found


def difference(ours: list[Any], expected: list[Any]) -> dict[str, Any]:
    """The largest difference, and whether all agree: within 1e-4, or 1e-2 of the half types."""
    import torch

    largest, problem = 0.0, ""
    for number, (one, other) in enumerate(zip(ours, expected, strict=True)):
        if one.dtype.is_floating_point and one.numel():
            largest = max(largest, (one.float() - other.float()).abs().max().item())
        half = one.dtype in (torch.half, torch.bfloat16)
        tolerances = {"rtol": 1.6e-2, "atol": 1e-2} if half else {"rtol": 1e-4, "atol": 1e-4}
        try:
            torch.testing.assert_close(one, other, **tolerances)
        except AssertionError as error:
            problem = problem or f"output {number}: {' '.join(str(error).split())[:200]}"
    return {"largest": largest, "agrees": not problem, "problem": problem}


def compared(
    call: Callable[..., Any], inputs: tuple[Any, ...], context: Any, *, served: int = 1
) -> dict[str, Any]:
    """A call from the wheel beside eager code's; on a stand-in whether it is served, and its launches."""
    before = hits()
    if on_a_stand_in():
        from hatch_precompile.backends.cuda import BACKEND

        ended = ""
        with BACKEND.launches_recorded() as launches:
            try:
                with context():
                    call(*inputs)
            except RuntimeError as error:
                ended = str(error).splitlines()[0]
        return {"served": hits() - before == served, "launches": len(launches), "ended": ended}
    import torch

    ours = answered(call, inputs, context)
    torch.cuda.synchronize()
    served_here = hits() - before == served
    with eagerly():
        expected = answered(call, inputs, context)
    return {"served": served_here, **difference(ours, expected)}


def about() -> dict[str, Any]:
    import gauge
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "card": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "cards": torch.cuda.device_count(),
        "multiprocessors": properties.multi_processor_count,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": sys.version.split()[0],
        "wheel": gauge._precompiled.status()["gpu_variants"],
        "stand-in": on_a_stand_in(),
    }


def agree(name: str) -> dict[str, Any]:
    return compared(*made(name))


def streams() -> dict[str, Any]:
    """Input that is written late on a stream: kernels on another one would read it too early."""
    import torch

    call, (x,), context = made("encoder")
    stream = torch.cuda.Stream()
    if on_a_stand_in():
        with torch.cuda.stream(stream):
            return compared(call, (x,), context)
    with context(), torch.cuda.stream(stream):
        call(x)  # its libraries are there
        late = torch.zeros_like(x)
        torch.cuda.synchronize()
        torch.cuda._sleep(200_000_000)
        late.copy_(x)
        ours = call(late)
    torch.cuda.synchronize()
    with eagerly(), context():
        expected = call(x)
    return difference([ours], [expected])


def threads() -> dict[str, Any]:
    """Four threads with a stream each; the first calls of all at once."""
    import torch

    call, (x,), context = made("encoder")
    found: dict[int, Any] = {}
    ready = threading.Barrier(4)

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        with context(), torch.cuda.stream(stream):
            ready.wait()
            for _ in range(20):
                try:
                    found[number] = call(x)
                except RuntimeError as error:  # on a stand-in
                    found[number] = error
                    break
            stream.synchronize()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if on_a_stand_in():
        return {"served": hits() >= 4}
    with eagerly(), context():
        expected = call(x)
    return {"hits": hits(), **difference([found[number] for number in range(4)], [expected] * 4)}


def fresh() -> dict[str, Any]:
    """A call in a thread that has asked CUDA for nothing: its memory is what a call before it left."""
    call, inputs, context = made("scaled")
    found: dict[str, Any] = {"first": compared(call, inputs, context)}
    before = hits()

    def work() -> None:
        if on_a_stand_in():
            found.update(compared(call, inputs, context))
            return
        with context():
            found["ours"] = call(*inputs)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if on_a_stand_in():
        return found
    served = hits() == before + 1
    with eagerly(), context():
        expected = call(*inputs)
    return {"served": served, **difference([found["ours"]], [expected])}


def graph() -> dict[str, Any]:
    """A call inside of a CUDA graph, which is replayed with another input."""
    import torch

    if on_a_stand_in():
        return {"left out": "nothing can be captured on a stand-in"}
    call, (x,), context = made("encoder")
    kept = x.clone()
    side = torch.cuda.Stream()
    with context(), torch.cuda.stream(side):
        for _ in range(3):
            call(kept)
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with context(), torch.cuda.graph(recorded):
        ours = call(kept)
    kept.copy_(x * 2)
    recorded.replay()
    torch.cuda.synchronize()
    with eagerly(), context():
        expected = call(x * 2)
    return difference([ours], [expected])


def views() -> dict[str, Any]:
    """Views that begin at no multiple of 16 bytes, read and written."""
    import torch

    call, (x, y), context = made("scaled")
    memory = torch.empty(x.numel() + 1, device="cuda")
    shifted = memory[1:].view(x.shape)
    shifted.copy_(x)
    found = {"read": compared(call, (shifted, y), context)}
    write, (rows,), context = made("doubled")
    memory = torch.empty(rows.numel() + 1, device="cuda")
    if on_a_stand_in():
        return {**found, "written": compared(write, (memory[1:].view(rows.shape),), context)}
    memory.fill_(7)
    view = memory[1:].view(rows.shape)
    view.copy_(rows)
    before = hits()
    with context():
        result = write(view)
    expected = torch.cat([torch.full((1,), 7.0, device="cuda"), (rows * 2).flatten()])
    return {
        **found,
        "written": {
            "served": hits() == before + 1,
            **difference([result, memory], [rows * 2 + 1, expected]),
        },
    }


def sizes() -> dict[str, Any]:
    import torch

    call, (x,), context = made("encoder")
    found = {}
    for batch in (2, 3, 17, 64):
        given = torch.randn(batch, *x.shape[1:]).to(x.device)
        found[str(batch)] = compared(call, (given,), context)
    return found


def second() -> dict[str, Any]:
    import torch

    if torch.cuda.device_count() < 2:
        return {"left out": "there is one GPU"}
    return {name: compared(*made(name, "cuda:1")) for name in ("encoder", "scaled", "vision")}


def imports() -> dict[str, Any]:
    """What a first call loads and starts."""
    started: list[str] = []
    watched = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork")
    sys.addaudithook(lambda event, _: started.append(event) if event in watched else None)
    call, inputs, context = made("encoder")
    with contextlib.suppress(RuntimeError), context():
        call(*inputs)
    compilers = ("triton", "torch._dynamo", "torch._inductor")
    loaded = sorted({name.partition(".")[0] for name in sys.modules if name.startswith(compilers)})
    return {"served": hits() == 1, "compilers": loaded, "started": started}


def packed(name: str) -> Path:
    """Where AOTInductor's package of a model is, beside the results."""
    return Path(os.environ["GAUGE_PACKED"], f"gauge-{name}.pt2")


def pack(name: str) -> dict[str, Any]:
    """A package of AOTInductor's, and the seconds that it takes."""
    import torch

    if on_a_stand_in():
        return {"left out": "AOTInductor runs kernels to choose among them"}
    call, inputs, context = made(name)
    started = time.perf_counter()
    with eagerly(), context():
        exported = torch.export.export(call, inputs)
        torch._inductor.aoti_compile_and_package(exported, package_path=str(packed(name)))
    return {"seconds": round(time.perf_counter() - started, 1), "bytes": packed(name).stat().st_size}


def timed(name: str, other: str = "compile") -> dict[str, Any]:
    """Microseconds of a call until the GPU is done with it, and until it returns: the least of five rounds,
    the ways by turns. other: `compile` or `aoti`"""
    import torch

    call, inputs, context = made(name)
    if on_a_stand_in():
        return {"left out": "nothing is computed on a stand-in"}
    if other == "aoti":
        compiled = torch._inductor.aoti_load_package(str(packed(name)))
    else:
        compiled = torch.compile(copy.deepcopy(call), dynamic=False)
    with eagerly(), context():
        for _ in range(5):
            compiled(*inputs)

    def measure(function: Callable[..., Any]) -> tuple[float, float]:
        for _ in range(10):
            function(*inputs)
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(100):
            function(*inputs)
        end.record()
        torch.cuda.synchronize()
        host = []
        for _ in range(20):
            started = time.perf_counter()
            function(*inputs)
            host.append(time.perf_counter() - started)
            torch.cuda.synchronize()
        return begin.elapsed_time(end) * 10, statistics.median(host) * 1e6

    rounds: dict[str, list[tuple[float, float]]] = {"ours": [], "eager": [], other: []}
    with context():
        for _ in range(5):
            rounds["ours"].append(measure(call))
            with eagerly():
                rounds["eager"].append(measure(call))
                rounds[other].append(measure(compiled))
    return {
        way: {"call": round(min(one for one, _ in found), 2), "host": round(min(two for _, two in found), 2)}
        for way, found in rounds.items()
    }


def cold(name: str, way: str) -> dict[str, Any]:
    """Seconds from a model that is made to its first answer, in a process that has imported torch."""
    import torch

    call, inputs, context = made(name)
    torch.zeros(1).cuda()
    if on_a_stand_in():
        return {"left out": "nothing is computed on a stand-in"}
    torch.cuda.synchronize()
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        if way != "ours":
            stack.enter_context(eagerly())
        with context():
            if way == "compile":
                call = torch.compile(call)
            elif way == "aoti":
                call = torch._inductor.aoti_load_package(str(packed(name)))
            call(*inputs)
        torch.cuda.synchronize()
    return {"seconds": round(time.perf_counter() - started, 4), "hits": hits() if way == "ours" else 0}


def same() -> dict[str, Any]:
    """Whether what is compiled with the true driver is what is compiled with a stand-in, byte for byte."""
    if on_a_stand_in():
        return {"left out": "there is no true driver"}
    try:
        from hatch_precompile.backends.cuda import BACKEND
        from hatch_precompile.backends.cuda.cards import variant_of
    except ImportError as error:
        return {"left out": str(error)}
    import torch

    variant = variant_of(*torch.cuda.get_device_capability(0))
    if variant is None:
        return {"left out": "there is no variant for this card"}
    names = ("noise", "pointwise", "convolution")
    found = {}
    with tempfile.TemporaryDirectory() as made_in:
        folders = [Path(made_in, each) for each in ("true", "stood-in")]
        around = BACKEND.surroundings(BACKEND.variant(variant), Path(made_in, "work"))
        common = {"PYTHONPATH": str(REPOSITORY), "PYTHONHASHSEED": "0", "TRITON_DISABLE_LINE_INFO": "1"}
        for folder, more in zip(folders, ({}, around.environment), strict=True):
            folder.mkdir()
            environment = {
                **os.environ,
                **common,
                **more,
                "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            }
            command = [sys.executable, "-m", "tests.backends.cuda.compiled", variant, str(folder), *names]
            subprocess.run(command, cwd=REPOSITORY, env=environment, check=True)
        for library in sorted(folders[1].glob("*.so")):
            other = folders[0] / library.name
            found[library.name] = other.exists() and other.read_bytes() == library.read_bytes()
    return {"variant": variant, "same": found}


def tune() -> dict[str, Any]:
    """The kernels that another configuration makes faster: their names, microseconds now, and then."""
    if on_a_stand_in():
        return {"left out": "nothing can be measured"}
    missing = [each for each in ("click", "msgspec", "rich") if importlib.util.find_spec(each) is None]
    if missing:
        return {"left out": f"{', '.join(missing)} is not installed"}
    with tempfile.TemporaryDirectory() as folder:
        output = ["--output", str(Path(folder, "tuned.json")), "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "hatch_precompile", "tune", "gauge", *output],
            env={**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{REPOSITORY}"},
            capture_output=True,
            text=True,
            check=False,
        )
    if not done.stdout:
        return {"failed": done.stderr[-2000:]}
    told = json.loads(done.stdout)
    times = {each["name"]: [each["before"], each["microseconds"]] for each in told["tuned"]}
    return {"variant": told["variant"], "tuned": times, "problems": told["problems"]}


def played(step: str) -> dict[str, Any]:
    name, *arguments = step.split(":")
    functions: dict[str, Callable[..., dict[str, Any]]] = {**globals(), "time": timed}
    return functions[name](*arguments)


# -- around them -------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--stand-in", default="", help="a variant, of whose card two are stood in for")
    parser.add_argument("--limit", type=float, default=570, help="seconds for all steps")
    parser.add_argument("--only", nargs="*", default=[], help="the beginnings of steps")
    parser.add_argument("--step", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.step:
        print(MARK + json.dumps(played(asked.step)))
        return 0
    results = json.loads(asked.results.read_text()) if asked.results.exists() else {}
    results.setdefault("began", datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))
    end = time.monotonic() + asked.limit
    with tempfile.TemporaryDirectory() as site:
        with zipfile.ZipFile(asked.wheel) as archive:
            archive.extractall(site)
        environment = {
            **os.environ,
            "PYTHONPATH": f"{site}:{REPOSITORY}",
            "HATCH_PRECOMPILE": "strict",
            "GAUGE_PACKED": str(asked.results.resolve().parent),
        }
        if asked.stand_in:
            sys.path.insert(0, str(REPOSITORY))
            from hatch_precompile.backends.cuda import standin
            from hatch_precompile.backends.cuda.cards import CARDS

            environment |= standin.environment_with(
                standin.build(Path(site, "standin")), CARDS[asked.stand_in]
            )
        for step in steps():
            if step in results or (asked.only and not step.startswith(tuple(asked.only))):
                continue
            left = end - time.monotonic()
            if left < 10:
                print("no time left; run it again to go on")
                break
            results[step] = _run(asked, step, environment, left)
            asked.results.write_text(json.dumps(results, indent=1) + "\n")
            print(f"{step}: {json.dumps(results[step])}", flush=True)
    return 0


def _run(asked: argparse.Namespace, step: str, environment: dict[str, str], left: float) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__)), str(asked.wheel), "--results", os.devnull, "--step", step]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as empty:  # or torch.compile would find what an earlier step compiled
        try:
            done = subprocess.run(
                command,
                env={**environment, "TORCHINDUCTOR_CACHE_DIR": empty},
                capture_output=True,
                text=True,
                check=False,
                timeout=min(left, 180),
            )
        except subprocess.TimeoutExpired:
            return {"failed": "it took too long"}
    marked = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    taken = {"took": round(time.monotonic() - started, 1)}
    if done.returncode or not marked:
        return {"failed": done.stderr.strip()[-800:], **taken}
    return {**json.loads(marked[-1].removeprefix(MARK)), **taken}


if __name__ == "__main__":
    sys.exit(main())
