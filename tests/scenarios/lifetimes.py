"""What goes when what it belonged to goes, without the garbage collector (tests/transparency/lab)."""

from __future__ import annotations

import builtins
import gc
import importlib
import sys
import warnings
import weakref
from types import FunctionType
from typing import Any
from unittest import mock

import probe
import torch
from lab import core

torch.set_grad_enabled(False)

References = dict[str, weakref.ref[Any]]


def _alive(references: References) -> list[str]:
    return [name for name, reference in references.items() if reference() is not None]


def _use(x: torch.Tensor, times: int) -> References:
    """Calls of an instance, and one after each change of its weights."""
    model = core.Base()
    references = {"model": weakref.ref(model), "weight": weakref.ref(model.weight), "input": weakref.ref(x)}
    for _ in range(times):
        output = model(x)
    references["output"] = weakref.ref(output)
    model.load_state_dict(model.state_dict())
    model(x)
    model.weight.mul_(2)
    model(x)
    model.weight = torch.nn.Parameter(torch.ones(4))
    torch.testing.assert_close(model(x), torch.relu(x))
    return references


def _parts(installation: Any) -> References:
    """Of what an installation has."""
    frame = installation.entrypoints["base"].frames[0]
    named = {
        "installation": installation,
        "entrypoint": installation.entrypoints["base"],
        "site": frame.sites[0],
        "entry": frame.entries[0],
        "run": next(iter(frame.sites[0].runs.values())),
        "bundle": installation.loaded_bundle,
        **{f"frame {number}": each for number, each in enumerate(installation.frames)},
    }
    return {name: weakref.ref(each) for name, each in named.items()}


def _names() -> list[str]:
    return [name for name in vars(builtins) if name.startswith("__precompiled_lab_")]


def without_the_collector() -> dict[str, Any]:
    """What is alive after each step, with the hits at the end."""
    from lab import _precompiled

    warnings.simplefilter("ignore")
    core.Base()(torch.ones(4))
    core.Base()(torch.ones(3, 4).double())  # imports make garbage of their own
    gc.collect()
    gc.disable()
    found = {
        "hits": _alive(_use(torch.ones(4), 14)),
        "hits, and misses": _alive(_use(torch.ones(2, 4), 5)),  # the tenth is explained
    }
    parts = _parts(_precompiled._installation)
    names = len(_names())
    _precompiled.uninstall()
    found["uninstalled"] = [*_alive(parts), *_names()]
    _precompiled.install()
    found["hits of the next"] = _alive(_use(torch.ones(4), 3))
    return {**found, "names": names > 0, "count": probe.hits("base", "lab")}


def _drop() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "lab"]:
        del sys.modules[name]


def imported_again_and_again(times: int) -> dict[str, Any]:
    """Uninstalled, dropped, imported and called: how many classes and modules stay, which functions of
    earlier times, and hits of each."""
    classes, modules, hits, functions = [], [], [], []
    finders = _finders()
    for _ in range(times):
        sys.modules["lab._precompiled"].uninstall()
        _drop()
        again: Any = importlib.import_module("lab.core")
        model = again.Base()
        model(torch.ones(4))
        hits.append(probe.hits("base", "lab"))
        classes.append(weakref.ref(again.Base))
        modules += [
            weakref.ref(sys.modules[f"lab.{name}"]) for name in ("core", "_precompiled.calling.serving")
        ]
        functions.append(_functions())
    del model, again
    gc.collect()
    return {
        "classes": sum(each() is not None for each in classes),
        "modules": sum(each() is not None for each in modules),
        "functions": sorted({name for each in functions[:-1] for name in _alive(each)}),
        "hits": set(hits) == {1},
        "finders": _finders() - finders,
    }


def _functions() -> References:
    """Of the package's modules: one that is alive keeps all that its module has."""
    return {
        f"{module.__name__}.{name}": weakref.ref(value)
        for module in [each for key, each in sys.modules.items() if key.startswith("lab.")]
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__globals__ is vars(module)
    }


def _finders() -> int:
    return sum(type(each).__module__.startswith("lab.") for each in sys.meta_path)


def patched_in_the_first_call() -> dict[str, Any]:
    """A helper is another function while the first call is made, and again later."""
    x = torch.ones(4)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with mock.patch("lab.core.inner", side_effect=lambda x: x):
            patched = [core.outer(x).tolist() for _ in range(3)]
            left_out = len(probe.status("outer", "lab")["left_out"])
        before = probe.hits("outer", "lab")
        answers = [core.outer(x) for _ in range(9)]
    for answer in answers:
        torch.testing.assert_close(answer, torch.sin(x) * 2)
    return {
        "patched": patched == [[2.0] * 4] * 3,
        "said": len(said),
        "left_out": [left_out, len(probe.status("outer", "lab")["left_out"])],
        "served": probe.hits("outer", "lab") - before > 3,
    }
