"""Importing in every way, most of it of the zoo (tests/zoo): torch and packages are imported inside."""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Any

import probe


def in_threads_at_once() -> dict[str, Any]:
    """The package, torch and targets: the errors of the imports, and which calls are served then."""
    sys.setswitchinterval(1e-5)
    names = ["zoo.models", "zoo", "torch", "zoo.functions", "zoo.tools", "zoo.models", "zoo"]
    start, errors = threading.Barrier(len(names)), []

    def load(name: str) -> None:
        start.wait()
        try:
            importlib.import_module(name)
        except BaseException as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=load, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    import torch

    torch.set_grad_enabled(False)
    models, functions, tools = (sys.modules[f"zoo.{name}"] for name in ("models", "functions", "tools"))
    served = [
        probe.served("mlp", lambda: models.Mlp().eval()(torch.randn(4, 8))),
        probe.served("whiten", lambda: functions.whiten(torch.randn(2, 3, 4, 5))),
        probe.served("shifted", lambda: tools.Tool.shifted(torch.randn(6))),
    ]
    return {"errors": errors, "served": served}


def of_a_target_before_its_package() -> bool:
    """Whether a call is served where the module of the target was asked for first."""
    import torch
    import zoo.models

    with torch.no_grad():
        return probe.served("mlp", lambda: zoo.models.Mlp().eval()(torch.randn(4, 8)))


def by_loading_a_model(path: str) -> bool:
    """Whether a model that was saved whole is served, where nothing but torch was imported."""
    import torch

    model = torch.load(path, weights_only=False)
    with torch.no_grad():
        return probe.served("mlp", lambda: model(torch.randn(4, 8)))


def without_a_file_name_of_its_own() -> bool:
    """Whether the runtime installs anything after a loader that sets no `__file__`."""
    import zoo

    zoo._precompiled.uninstall()
    del zoo._precompiled.__file__
    zoo._precompiled.install()
    return zoo._precompiled.status()["installed"]


def of_a_target_after_uninstalling() -> dict[str, Any]:
    """Whether it is activated, and how many finders of ours watch for imports."""
    import torch  # noqa: F401
    import zoo

    zoo._precompiled.uninstall()
    import zoo.models

    return {"activated": probe.activated(zoo.models.Mlp.forward), "watching": len(_finders())}


def _finders() -> list[str]:
    """Modules of the zoo's finders on sys.meta_path."""
    modules = [type(finder).__module__ for finder in sys.meta_path]
    return [module for module in modules if module.startswith("zoo")]
