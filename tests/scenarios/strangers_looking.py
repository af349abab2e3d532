"""Calls of a package whose process is full of things that must not be looked at (tests/strangers/looking)."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import looking.functions as functions
import looking.metrics as metrics
import looking.models as models
import looking.things as things
import probe
import torch
from looking import _precompiled


def counted() -> dict[str, list[int]]:
    """Hits and misses of each entrypoint."""
    entrypoints = _precompiled.status()["entrypoints"]
    return {name: [each["hits"], each["misses"]] for name, each in entrypoints.items()}


def _like_the_samples() -> None:
    with torch.no_grad():
        for cls in (models.Net, models.Base, models.Derived):
            model = cls().eval()
            for _ in range(12):
                model(torch.ones(4, 8))
        functions.columns([torch.ones(3, 4), torch.ones(3, 4)])
        functions.mentioning(torch.ones(4, 8))
        metrics.workload()


def each_as_its_sample() -> dict[str, Any]:
    """Two calls of each, what they counted, and what was run that nobody called."""
    _like_the_samples()
    _like_the_samples()
    return {"counted": counted(), "ran": things.RAN}


def answers() -> list[Any]:
    """What calls answer, those that are served and others."""
    found: list[Any] = []
    with torch.no_grad():
        for size in (4, 5):
            torch.manual_seed(0)
            net, base, derived = models.Net().eval(), models.Base().eval(), models.Derived().eval()
            found += [model(torch.ones(size, 8)).tolist() for model in (net, base, derived)]
            pictures = functions.columns([torch.ones(3, 4), torch.ones(5, size)])
            found += [[list(picture.shape), list(picture.stride())] for picture in pictures]
            found.append(functions.mentioning(torch.ones(size, 8)).tolist())
        metric = metrics.workload()
        metric.update(torch.ones(7), weight=2.0)
        found.append([metric.total.item(), metric.count])
    return found


def of_a_class_and_another_derived_from_it() -> dict[str, Any]:
    """Misses, by entrypoint, that a call of each class counts: of those declared, and of one that is not."""

    class Foreign(models.Derived):
        pass

    missed: dict[str, Any] = {}
    with torch.no_grad():
        for cls in (models.Base, models.Derived, Foreign):
            model = cls().eval()
            before = counted()
            outcome = probe.attempt(functools.partial(model, torch.ones(5, 8)))
            after = counted()
            missed[cls.__name__] = {name: after[name][1] - before[name][1] for name in ("base", "derived")}
            missed[cls.__name__]["raised"] = str(outcome) if isinstance(outcome, Exception) else ""
    return missed


def _strided() -> torch.Tensor:
    return torch.ones(8, 4).t()


def _double(net: Any) -> None:
    net.double()


def _trained(net: Any) -> None:
    net.train()


def _frozen(net: Any) -> None:
    net.requires_grad_(False)


def _frozen_in_a_block(net: Any) -> None:
    net.blocks[1].linear.requires_grad_(False)


def _without_an_attribute(net: Any) -> None:
    del net.scale


def _with_another_attribute(net: Any) -> None:
    net.scale = things.Words("x")


def _with_a_hostile_attribute(net: Any) -> None:
    net.scale = things.Hostile()


def _with_a_hook(net: Any) -> None:
    net.blocks[0].register_forward_hook(lambda *_: None)


def _with_fewer_blocks(net: Any) -> None:
    del net.blocks[2]


def _with_another_block(net: Any) -> None:
    net.blocks[2] = torch.nn.Linear(8, 8)


def _with_shared_parts(net: Any) -> None:
    net.blocks[2] = net.blocks[1]


def _with_shared_weights(net: Any) -> None:
    net.blocks[2].linear.weight = net.blocks[1].linear.weight


MISSES: dict[str, tuple[Callable[[Any], object], Callable[[], Any]]] = {
    "size": (lambda net: None, lambda: torch.ones(5, 8)),
    "dtype": (_double, lambda: torch.ones(4, 8, dtype=torch.double)),
    "dtype of the input": (lambda net: None, lambda: torch.ones(4, 8, dtype=torch.double)),
    "strides": (lambda net: None, _strided),
    "layout": (lambda net: None, lambda: torch.ones(4, 8).to_sparse()),
    "device": (lambda net: None, lambda: torch.ones(4, 8, device="meta")),
    "requires_grad": (lambda net: None, lambda: torch.ones(4, 8, requires_grad=True)),
    "a subclass": (lambda net: None, lambda: torch.nn.Parameter(torch.ones(4, 8))),
    "another class": (lambda net: None, things.Hostile),
    "nothing": (lambda net: None, lambda: None),
    "training": (_trained, lambda: torch.ones(4, 8)),
    "frozen": (_frozen, lambda: torch.ones(4, 8)),
    "frozen in a block": (_frozen_in_a_block, lambda: torch.ones(4, 8)),
    "a missing attribute": (_without_an_attribute, lambda: torch.ones(4, 8)),
    "another attribute": (_with_another_attribute, lambda: torch.ones(4, 8)),
    "a hostile attribute": (_with_a_hostile_attribute, lambda: torch.ones(4, 8)),
    "a hook": (_with_a_hook, lambda: torch.ones(4, 8)),
    "fewer blocks": (_with_fewer_blocks, lambda: torch.ones(4, 8)),
    "another block": (_with_another_block, lambda: torch.ones(4, 8)),
    "shared parts": (_with_shared_parts, lambda: torch.ones(4, 8)),
    "shared weights": (_with_shared_weights, lambda: torch.ones(4, 8)),
}


def explained() -> dict[str, Any]:
    """For each kind of miss what `explain` says before the entry is loaded, when it is, and when its guard is
    native code; whether anything was loaded by that, and what the call itself does."""
    found: dict[str, dict[str, Any]] = {kind: {} for kind in MISSES}
    served = _made(models.Net)
    for loaded in ("at first", "loaded", "native"):
        for kind, (change, arguments) in MISSES.items():
            net = _made(models.Net)
            change(net)
            with torch.no_grad():
                (report,) = _precompiled.explain("net", net, arguments())
            found[kind][loaded] = [report["hit"], report["reason"], report["remedy"]]
        if loaded == "at first":
            found["size"]["loads"] = _precompiled.status()["entrypoints"]["net"]["loaded"]
        with torch.no_grad():
            for _ in range(1 if loaded == "at first" else 13):
                served(torch.ones(4, 8))
    found["size"]["counted"] = counted()["net"]
    found["size"]["ran"] = things.RAN
    return found


def explained_before_an_import() -> list[Any]:
    """What `explain` says where the target imports a module itself, before and after a call that fits."""
    (before,) = _precompiled.explain("mentioning", torch.ones(5, 8))
    imported = "looking.late" in sys.modules
    with torch.no_grad():
        functions.mentioning(torch.ones(4, 8))
        (after,) = _precompiled.explain("mentioning", torch.ones(5, 8))
    return [before["reason"], before["remedy"], imported, after["reason"]]


def missed_in_every_way() -> dict[str, Any]:
    """The errors of calls that miss, each in its way; and what was run of the strange things."""
    raised = {}
    for kind, (change, arguments) in MISSES.items():
        net = _made(models.Net)
        change(net)
        with torch.no_grad():
            outcome = probe.attempt(functools.partial(net, arguments()))
        raised[kind] = type(outcome).__name__ if isinstance(outcome, Exception) else ""
    return {"raised": raised, "ran": things.RAN, "counted": counted()}


def _made(cls: Any) -> Any:
    """A model, whose constructor's calls are no matter here."""
    switch = sys.modules.get("looking._precompiled.torch_internals.torch_frames")
    with switch.at_work() if switch is not None else contextlib.nullcontext():
        return cls().eval()


def explained_in_modes() -> dict[str, Any]:
    """What `explain` says of a call that would be served but for who watches, and what these saw."""
    seen: list[str] = []

    class Watching(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            seen.append(str(function))
            return function(*args, **kwargs or {})

    class Dispatching(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            seen.append(str(function))
            return function(*args, **kwargs or {})

    net, x = _made(models.Net), torch.ones(4, 8)
    found: dict[str, Any] = {}
    with torch.no_grad():
        for mode in (Watching, Dispatching):
            with mode():
                (report,) = _precompiled.explain("net", net, x)
            found[mode.__name__] = [report["hit"], report["reason"]]
    return {"reasons": found, "seen": seen}


def kept() -> list[bool]:
    """Which of these live on without the garbage collector: model and input of ten misses, of a call that
    `explain` explained, and of one that was served."""
    gc.collect()
    gc.disable()
    found = []
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        for calls, size, explain in ((11, 5, False), (0, 5, True), (1, 4, False)):
            model, x = models.Base().eval(), torch.ones(size, 8)
            references = weakref.ref(model), weakref.ref(model.linear), weakref.ref(x)
            for _ in range(calls):
                model(x)
            if explain:
                _precompiled.explain("base", model, x)
            del model, x
            found += [reference() is not None for reference in references]
    return found


def at_work() -> dict[str, Any]:
    """Whether the switch was set whenever a runtime did one of its own things, and whether it is now."""
    runtime: dict[str, Any] = {
        name.rpartition(".")[2]: importlib.import_module(f"looking._precompiled.{name}")
        for name in (
            *("loading.bundle", "values.constants", "recording.described", "loading.entries"),
            *("explaining.explanation", "explaining.refusal", "graphs.callers", "dependencies.comparison"),
            *("torch_internals.torch_frames", "torch_internals.torch_private"),
        )
    }
    busy = runtime["torch_frames"].busy
    beside: dict[str, int] = {}
    inside: dict[str, int] = {}

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            where = inside if threading.get_ident() in busy else beside
            where[name] = where.get(name, 0) + 1
            return function(*args, **kwargs)

        return call

    own = (
        *((runtime["entries"], name) for name in ("check_dependencies", "decode", "_import", "native_guard")),
        *((runtime[name], "resolve") for name in ("constants", "comparison")),
        *((runtime[name], "first_failure") for name in ("refusal", "explanation")),
        *((runtime["bundle"].Bundle, name) for name in ("graph", "guards")),
        (runtime["constants"], "check"),
        (runtime["torch_private"], "tensor_guards"),
        (runtime["callers"], "load_library"),
        (runtime["described"].Form, "describe"),
    )
    for owner, name in own:
        setattr(owner, name, watched(f"{owner.__name__.rpartition('.')[2]}.{name}", getattr(owner, name)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _like_the_samples()
        missed_in_every_way()
        explained()
    return {"inside": sorted(inside), "beside": sorted(beside), "left": sorted(busy)}
