"""`make models`: models that nobody here wrote, each built, called in fresh processes, beside eager code.

make models                                    all, small: some 440
make models MODELS="--models bert,nn_lstm"     some
make models MODELS="--size large"              a dozen of transformers in their true sizes
make models MODELS="--resume --jobs 4"         go on with a run that was stopped

Writes build/models.json and models.md. Of a model that fails, torch.compile is asked whether it compiles
it whole. One that the build refuses for a frame in pieces is built again with what the sentence advises:
fullgraph = true, or else on-skip = "eager", and then timed beside torch.compile.
Exits with 1 if one that it compiles whole failed, or if one ended in anything but a sentence.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import dataclasses
import importlib.util
import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support"), str(HERE)]

import played  # noqa: E402
from gallery.cases import CASES, IN_PIECES, Case  # noqa: E402

from hatch_precompile.errors import BuildError  # noqa: E402
from hatch_precompile.processes import preloaded  # noqa: E402
from tests.conftest import Site, build_entrypoints, preload  # noqa: E402

# What is imported once for all models of a library: for a small model it is most of a process's time.
# Nothing of another library, or what a wheel imports would not be seen.
LIBRARIES = {
    "transformers": ("transformers.modeling_utils", "transformers.generation.utils"),
    "timm": ("timm.models",),
    "diffusers": ("diffusers.models.autoencoders.autoencoder_kl", "diffusers.models.unets.unet_2d"),
    "kornia": ("kornia",),
    "torch_geometric": ("torch_geometric.nn",),
    "torchvision": ("torchvision.models",),
    "x_transformers": ("x_transformers",),
}

COLUMNS = {
    "frames": "frames",
    "entries": "entries",
    "graphs": "graphs",
    "guards": "guards",
    "rebound": "rebound",
    "dropped": "dropped",
    "native": "native graphs",
    "wrapped": "wrapped graphs",
    "build_s": "build s",
    "install_ms": "install ms",
    "first_ms": "first call ms",
    "eager_first_ms": "eager first call ms",
    "speedup": "times as fast as eager",
    "hit": "hit",
}


class Run:
    """The results of a run, and where they are kept."""

    def __init__(self, out: Path, resume: bool) -> None:
        self.results: dict[str, dict[str, Any]] = {}
        self._out = out
        out.mkdir(parents=True, exist_ok=True)
        if resume and (out / "models.json").exists():
            self.results = json.loads((out / "models.json").read_text())["models"]

    def add(self, name: str, result: dict[str, Any]) -> None:
        self.results[name] = result
        print(f"{name}: {'fine' if fine(result) else result}", flush=True)
        ordered = dict(sorted(self.results.items()))
        summary = {"models": ordered, **self.summary()}
        (self._out / "models.json").write_text(json.dumps(summary, indent=1) + "\n")
        (self._out / "models.md").write_text(_table(ordered))

    def summary(self) -> dict[str, Any]:
        """`whole`: those that torch.compile compiles whole; `share`: how many of these are fine."""
        whole = [result for result in self.results.values() if result.get("whole", fine(result))]
        passed = sum(map(fine, whole))
        return {
            "tried": len(self.results),
            "whole": len(whole),
            "fine": passed,
            "share": round(passed / len(whole), 4) if whole else None,
            "failed": sorted(name for name, result in self.results.items() if not fine(result)),
        }


def fine(result: dict[str, Any]) -> bool:
    return "error" not in result and result["hit"] and not result["dropped"] and not result["imported"]


def main() -> int:
    options = _arguments()
    known = dict(_cases(options.size))
    names = options.models or list(known)
    if unknown := sorted(set(names) - set(known)):
        sys.exit(f"no such model: {', '.join(unknown)}")
    run = Run(options.out, options.resume)
    left: dict[str, list[str]] = {}
    for name in names:
        if name not in run.results:
            left.setdefault(known[name].target.partition(".")[0], []).append(name)
    # Processes: builds of one process end together.
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as headers:
        for library, of_it in left.items():
            start = partial(_start, LIBRARIES.get(library, ()), Path(headers))
            with ProcessPoolExecutor(options.jobs, mp_context=context, initializer=start) as pool:
                futures = {pool.submit(_result, name, known[name]): name for name in of_it}
                for future in as_completed(futures):
                    run.add(futures[future], future.result())
    summary = run.summary()
    print(json.dumps(summary))
    return int(any(result.get("whole", True) and not fine(result) for result in run.results.values()))


_headers: Path | None = None


def _start(libraries: tuple[str, ...], headers: Path) -> None:
    """In each process that builds and plays, before it does."""
    global _headers
    _headers = headers
    preload(*libraries)
    servers = contextlib.ExitStack()
    servers.enter_context(preloaded(played.MODULE, "torch", *libraries, inherit=False))
    atexit.register(servers.close)


def _cases(size: str) -> Iterator[tuple[str, Case]]:
    for name, case in CASES.items():
        yield name, dataclasses.replace(case, module=f"gallery.{size}")
    if size == "large":
        return
    yield from IN_PIECES.items()
    from gallery import shrunk

    for name in shrunk.KINDS:
        yield f"tiny_{name}", Case(shrunk.target(name), "", "", "gallery.shrunk", name)
    from gallery import libraries

    for name in [*libraries.LAYERS, *libraries.FUNCTIONS]:
        needed = name.partition("_")[0].replace("x", "x_transformers").replace("geometric", "torch_geometric")
        if needed == "nn" or importlib.util.find_spec(needed):
            yield name, Case(libraries.target(name), "", "", "gallery.libraries", name)
    if importlib.util.find_spec("timm"):
        from gallery import timm_families

        for name in timm_families.NAMES:
            yield f"timm_{name}", Case(timm_families.target(name), "", "", "gallery.timm_families", name)


def _entrypoint(name: str, case: Case) -> dict[str, Any]:
    own = case.own or name
    table = {"target": case.target, "name": name, "samples": f"{case.module}:{own}_samples"}
    if case.target.rpartition(":")[2][0].isupper():
        table["instance"] = f"{case.module}:{own}"
    return table


def _result(name: str, case: Case) -> dict[str, Any]:
    try:
        return _measure(name, case)
    except (BuildError, AssertionError) as error:  # of the build, or of a process that calls the model
        failed: dict[str, Any] = {"error": str(error)}
    except Exception:
        return {"error": traceback.format_exc(), "whole": True}
    if "With fullgraph = true" in failed["error"]:
        try:
            return {"fullgraph": True, **_measure(name, case, fullgraph=True)}
        except (BuildError, AssertionError) as error:
            failed["fullgraph"] = {"error": str(error)}
    failed["whole"] = _is_whole(name, case)
    if "leaves a frame uncompiled" in failed["error"]:
        # What the sentence advises, and what torch.compile does of itself: also of what it takes whole only
        # where it must, with numbers and sizes that depend on data.
        try:
            failed["on_skip"] = _measure(name, case, **{"on-skip": "eager"})
        except (BuildError, AssertionError) as error:
            failed["on_skip"] = {"error": str(error)}
        try:
            compiled_s = Site(HERE, timeout=900).play(
                "models.compiled_calls",
                environment={"PATH": os.environ["PATH"]},  # with a compiler
                **_arguments_of(name, case),
            )
            failed["torch_compile"] = {"call_ms": round(compiled_s * 1e3, 3)}
        except AssertionError as error:  # of the process: torch.compile ended it
            failed["torch_compile"] = {"error": str(error).strip().splitlines()[-1]}
    return failed


def _measure(name: str, case: Case, **options: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        said: list[str] = []
        site = build_entrypoints(
            "gallery",
            [_entrypoint(name, case) | options],
            HERE,
            Path(folder) / "work",
            said.append,
            headers=_headers,
        )
        build_s = time.monotonic() - start
        timed = partial(
            played.play,
            site.directory,
            "models.timed_calls",
            timeout=1800,  # some are large
            **_arguments_of(name, case),
        )
        eager = timed(environment={"HATCH_PRECOMPILE": "off"})
        ours = timed(environment={})
        manifest = json.loads((site.directory / "gallery/_precompiled/bundle/manifest.json").read_text())
    entries = [entry for frame in manifest["frames"] for entry in frame["entries"]]
    wrapped = sum("wrapping" in graph for graph in manifest["graphs"])
    return {
        "frames": len(manifest["frames"]),
        "entries": len(entries),
        "graphs": len(manifest["graphs"]),
        "guards": sum(entry["checks"] for entry in entries),
        "rebound": sum(entry["rebound"] for entry in entries),
        "dropped": sum(entry["dropped"] for entry in entries),
        "native": len(manifest["graphs"]) - wrapped,
        "wrapped": wrapped,
        "build_s": round(build_s, 1),
        "install_ms": round(ours["install_ms"] - eager["install_ms"], 2),
        "first_ms": round(ours["first_s"] * 1e3, 2),
        "eager_first_ms": round(eager["first_s"] * 1e3, 2),
        "call_ms": round(ours["call_s"] * 1e3, 3),
        "eager_call_ms": round(eager["call_s"] * 1e3, 3),
        "speedup": round(eager["call_s"] / ours["call_s"], 2),
        "largest_difference": ours["largest_difference"],
        "imported": [module for module in ours["imported"] if module not in eager["imported"]],
        # In pieces, each counts.
        "hit": ours["hits"] >= (1 if "on-skip" in options else ours["calls"]) and ours["misses"] == 0,
    }


def _arguments_of(name: str, case: Case) -> dict[str, Any]:
    return {"name": name, "own": case.own or name, "module": case.module, "target": case.target}


def _is_whole(name: str, case: Case) -> bool:
    """Whether torch.compile itself compiles the model whole."""
    site = Site(HERE, timeout=900)
    try:
        return bool(site.play("models.whole", **_arguments_of(name, case)))
    except AssertionError:  # of the process: torch.compile ended it
        return False


def _table(results: dict[str, dict[str, Any]]) -> str:
    rows = ["| model | " + " | ".join(COLUMNS.values()) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, result in results.items():
        if "error" in result:
            rows.append(f"| {name} | failed: {_first_words(result['error'])} |")
        else:
            rows.append(f"| {name} | " + " | ".join(str(result[key]) for key in COLUMNS) + " |")
    return "\n".join(rows) + "\n"


def _first_words(error: str) -> str:
    """The sentence, and where it is."""
    return " ".join(error.strip().splitlines()[:2]).replace("|", "/")


def _arguments() -> argparse.Namespace:
    split: Callable[[str], list[str]] = lambda text: text.split(",")  # noqa: E731
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=("small", "large"), default="small")
    parser.add_argument("--models", type=split, default=[])
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=ROOT / "build")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
