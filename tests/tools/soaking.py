"""One long stretch in a process of its own: `python -m tests.tools.soaking PART COUNT on|off`.

It prints a line of JSON: what the process had after a tenth, and at each fifth from there to the end.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.tools.guest import PACKAGE, Guest

Step = Callable[[int], float]
"""Takes the step's number, and gives a number made of its answers."""


def calls() -> Step:
    """Calls of everything: several sizes, modes and dtypes, of which an entry serves about three in four."""
    guest = Guest()
    model, pictures = guest.classifier(), guest.pictures()
    precise = guest.classifier().double()
    sizes = itertools.cycle([guest.rows(count) for count in (2, 3, 4, 17, 64, 1, 65)])
    images, other_images, rows = guest.images(), guest.images(3), guest.rows()
    doubles = rows.double()

    def with_gradients() -> float:
        loss = model(rows).sum()
        loss.backward()
        return float(loss)

    def in_inference() -> float:
        with torch.inference_mode():
            return float(model(rows).sum())

    def without(call: Callable[[], torch.Tensor]) -> float:
        with torch.no_grad():
            return float(call().sum())

    kinds: list[Callable[[], float]] = [
        *[lambda: without(lambda: model(next(sizes)))] * 9,
        *[in_inference] * 2,
        *[lambda: without(lambda: guest.package.normalize(rows))] * 4,
        lambda: without(lambda: guest.package.summarize(rows).mean),
        lambda: without(lambda: pictures(images)),
        lambda: without(lambda: pictures(other_images)),
        lambda: without(lambda: precise(doubles)),
        with_gradients,
    ]

    def step(number: int) -> float:
        if number % 1000 == 0:
            model.zero_grad()
        return kinds[number % len(kinds)]()

    return step


def instances() -> Step:
    """An instance is made, called where an entry serves it and where none does, and dropped."""
    guest = Guest()

    def step(number: int) -> float:
        kinds = ((guest.classifier, guest.rows()), (guest.pictures, guest.images()))
        make, given = kinds[number % 2]
        model = make()
        with torch.no_grad():
            return float(model(given).sum() + model(given).sum() + model(given[:1]).sum())

    return step


def weights() -> Step:
    """Weights are changed in one of the ways that there are, and used."""
    guest = Guest()
    kinds = ((guest.classifier(), guest.rows()), (guest.pictures(), guest.images()))
    states = [{name: value.clone() for name, value in model.state_dict().items()} for model, _ in kinds]

    def assigned(model: Any, state: Any) -> None:
        model.load_state_dict({name: value.clone() for name, value in state.items()}, assign=True)

    def of_data(model: Any, state: Any) -> None:
        for name, parameter in model.named_parameters():
            parameter.data = state[name].clone()

    def in_place(model: Any, state: Any) -> None:
        for name, parameter in model.named_parameters():
            parameter.copy_(state[name])

    def replaced(model: Any, state: Any) -> None:
        for path, module in model.named_modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                value = state[f"{path}.{name}" if path else name].clone()
                setattr(module, name, torch.nn.Parameter(value, parameter.requires_grad))

    ways = [lambda model, state: model.load_state_dict(state), assigned, of_data, in_place, replaced]

    def step(number: int) -> float:
        which = number % 2
        model, given = kinds[which]
        factor = 1 + number % 7 / 7
        with torch.no_grad():
            state = {
                name: value * factor if value.is_floating_point() else value
                for name, value in states[which].items()
            }
            ways[number // 2 % len(ways)](model, state)
            return float(model(given).sum() + model(given).sum())

    return step


# Modules of the runtime that are there after calls that are hits.
NEEDED = (
    *("calling.activation", "calling.prologue", "calling.serving"),
    *("dependencies.call_checks", "dependencies.comparison", "dependencies.fingerprints"),
    *("errors", "explaining.overview", "graphs.callers", "graphs.weights", "import_hooks", "imports"),
    *("installation",),
    *("loading.bundle", "loading.entries", "loading.guards", "loading.helpers", "loading.manifest"),
    *("loading.variants",),
    *("torch_internals.torch_frames", "torch_internals.torch_private", "values.constants"),
    *("values.references", "values.static_lookup"),
)


def loaded() -> list[str]:
    """The names of the runtime's modules that are there, less those of backends. Libraries are modules."""
    start = f"{PACKAGE}._precompiled."
    names = [name.removeprefix(start) for name in sys.modules if name.startswith(start)]
    files = {
        name: str(sys.modules[start + name].__file__) for name in names if not name.startswith("backends")
    }
    return sorted(name for name, file in files.items() if file.endswith(".py") and "__init__" not in file)


def imports() -> Step:
    """The package is uninstalled, dropped from sys.modules, imported again, and called.

    Python's modules are circles, which a collector takes: without it each that is dropped stays. So the
    process of eager code imports the runtime's modules, too: what is compared is what is left beside them.
    """
    eager = os.environ["HATCH_PRECOMPILE"] == "off"

    def step(number: int) -> float:
        runtime = sys.modules.get(f"{PACKAGE}._precompiled")
        if runtime is not None:
            runtime.uninstall()
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
        importlib.import_module(f"{PACKAGE}.model")
        guest = Guest()
        model, pictures = guest.classifier(), guest.pictures()
        with torch.no_grad():
            answer = float(model(guest.rows()).sum() + pictures(guest.images()).sum())
        if eager:
            for name in ("backends", *NEEDED):
                importlib.import_module(f"{PACKAGE}._precompiled.{name}")
        else:
            assert guest.hits() == 2, f"round {number} was not served"
            assert loaded() == list(NEEDED), {*loaded()} ^ {*NEEDED}
        return answer

    return step


def kept() -> list[str]:
    """Of what serves calls, what is there after uninstall(), without the collector."""
    guest = Guest()
    runtime = sys.modules[f"{PACKAGE}._precompiled"]
    guest.plain_calls()
    runtime.explain("classifier", guest.classifier(), guest.rows(3).double())
    gc.collect()
    gc.disable()
    for _ in range(20):  # the tenth comes by native guards
        guest.plain_calls()
    runtime.explain("classifier", guest.classifier(), guest.rows(3).double())
    installation = runtime._installation
    frames = installation.frames
    assert any(entry.hits > 10 for frame in frames for entry in frame.entries)
    named = {"installation": installation, "bundle": installation.loaded_bundle}
    for number, frame in enumerate(frames):
        named[f"frame {number}"] = frame
        named |= {f"site {number}.{place}": each for place, each in enumerate(frame.sites)}
        named |= {f"entry {number}.{place}": each for place, each in enumerate(frame.entries)}
    alive = {name: weakref.ref(each) for name, each in named.items()}
    del installation, frames, frame, named
    runtime.uninstall()
    return [name for name, reference in alive.items() if reference() is not None]


PARTS = {part.__name__: part for part in (calls, instances, weights, imports)}
FIFTHS = 5


def warm(count: int) -> int:
    """The steps before anything is measured: some things are made after ten calls of one kind."""
    return max(count // 10, min(count // 2, 50))


def soaked(part: str, count: int, *, collector: bool) -> dict[str, Any]:
    """What the process had after a tenth and at each fifth: bytes, objects, open files, mapped regions."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    step = PARTS[part]()
    total = 0.0
    first = warm(count)
    for number in range(first):
        total += step(number)
    gc.collect()
    if not collector:
        gc.disable()
    had = [_has(collector)]
    started = time.perf_counter()
    marks = {first + (count - first) * fifth // FIFTHS for fifth in range(1, FIFTHS + 1)}
    for number in range(first, count):
        total += step(number)
        if number + 1 in marks:
            had.append(_has(collector))
    seconds = time.perf_counter() - started
    runtime = sys.modules[f"{PACKAGE}._precompiled"].status()
    entrypoints = {each["target"]: (each["hits"], each["misses"]) for each in runtime["entrypoints"].values()}
    return {
        "had": had,
        "total": total,
        "seconds": round(seconds, 1),
        "hits": sum(hits for hits, _ in entrypoints.values()),
        "misses": sum(misses for _, misses in entrypoints.values()),
        "prepared_bytes": runtime.get("prepared_bytes", 0),
        "garbage": gc.collect(),
    }


def _has(collector: bool) -> dict[str, int]:
    if collector:
        gc.collect()
    smaps = dict(line.split()[:2] for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return {
        "rss_kb": int(smaps["Rss:"]),
        "private_kb": int(smaps["Private_Clean:"]) + int(smaps["Private_Dirty:"]),
        "objects": len(gc.get_objects()),
        "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - a number
        "regions": len(Path("/proc/self/maps").read_text().splitlines()),
    }


if __name__ == "__main__":
    print(json.dumps(soaked(sys.argv[1], int(sys.argv[2]), collector=sys.argv[3] == "on")))
