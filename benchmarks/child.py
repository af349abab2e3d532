"""The measured process: child.py PHASE WAY TARGET INSTANCE SAMPLES WORK.

INSTANCE, package.module:function, builds the model; SAMPLES of package.samples gives its inputs. TARGET is
the module of the model's class: where that lives in a dependency it is imported first, so that what the
package's import costs can be told apart. PHASE is "prepare" or "run"; a run prints its measurements as JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from inside import announce, compilers_imported, resident_mb, served, steady_state, timed
from ways import WAYS, Job


def load(target: str, instance: str, samples: str, work: Path) -> tuple[Job, float]:
    """The job, and the seconds the imports of the package and of the instance's module took."""
    module, _, function = instance.partition(":")
    package = package_of(instance)
    if package_of(target) != package:
        importlib.import_module(target)
    import_s = timed(lambda: importlib.import_module(module))
    args, kwargs = next(iter(getattr(importlib.import_module(f"{package}.samples"), samples)()))
    return Job(getattr(sys.modules[module], function)(), args, kwargs, work), import_s


def package_of(name: str) -> str:
    return name.partition(":")[0].partition(".")[0]


def measure(way: str, job: Job) -> dict[str, Any]:
    """First call, second call, steady state and memory of one way."""
    built = time.perf_counter()
    call = WAYS[way].open(job)
    opened = time.perf_counter()
    call()
    first = time.perf_counter()
    announce()
    fields: dict[str, Any] = {
        "after_model_s": first - built,
        "first_call_ms": (first - opened) * 1e3,
        "second_call_ms": timed(call) * 1e3,
    }
    fields["steady_ms"], fields["least_ms"] = (seconds * 1e3 for seconds in steady_state(call))
    fields["rss_mb"], fields["peak_mb"] = resident_mb()
    return fields


def main(phase: str, way: str, target: str, instance: str, samples: str, work: str) -> None:
    if phase == "run" and WAYS[way].without_torch:
        nothing: Any = None
        print(json.dumps(measure(way, Job(nothing, (), {}, Path(work)))), flush=True)
        return
    torch_s = timed(lambda: importlib.import_module("torch"))
    import torch

    with torch.no_grad():
        job, import_s = load(target, instance, samples, Path(work))
        if phase == "prepare":
            prepare = WAYS[way].prepare
            assert prepare is not None, f"{way} has nothing to prepare"
            prepare(job)
            return
        fields = measure(way, job)
    if WAYS[way].settings is not None:
        hits, misses = served(package_of(instance))
        if not hits or misses:
            raise RuntimeError(f"the bundle does not serve the model: {hits} hits, {misses} misses")
        fields |= {"hits": hits, "misses": misses}
    fields |= {
        "torch_import_ms": torch_s * 1e3,
        "import_ms": import_s * 1e3,
        "imported": compilers_imported(),
    }
    fields["install_and_first_ms"] = fields["import_ms"] + fields["first_call_ms"] - fields["second_call_ms"]
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
