"""Importing in every way, most of it of the zoo (tests/zoo): torch and packages are imported inside."""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
import warnings
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


def of_another_function_of_the_same_name() -> dict[str, Any]:
    """Answers of programs.scenarios, of which plus_one has changed; what is said, active and served."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        import programs
        import torch
        from programs import scenarios

        with torch.no_grad():
            answers = [
                function(torch.ones(3, 2)).tolist() for function in (scenarios.plus_one, scenarios.plus_rows)
            ]
    entrypoints = programs._precompiled.status()["entrypoints"]
    entries = [entrypoints[name] for name in ("plus_one", "plus_rows")]
    return {
        "answers": answers,
        "said": [str(warning.message) for warning in said],
        "active": [entry["active"] for entry in entries],
        "hits": [entry["hits"] for entry in entries],
    }


def of_nothing_but_the_package() -> list[str]:
    """What a lazy package has imported that it should not."""
    import zoo  # noqa: F401

    return probe.loaded("torch", "zoo.models", "hashlib")


def by_a_statement(statement: str) -> dict[str, Any]:
    """A call after a statement that imports."""
    exec(statement, {})
    return _a_call()


def after_setting_a_number_of_threads(threads: int) -> dict[str, Any]:
    """The same after this."""
    import torch

    torch.set_num_threads(threads)
    return _a_call()


def _a_call() -> dict[str, Any]:
    import native

    return native.a_call()


def of_a_target_after_another_was_used() -> dict[str, Any]:
    """Whether it is active before and after it is imported, and the hits of a call."""
    import torch

    _a_call()
    import zoo

    before = probe.status("whiten")["active"]
    import zoo.functions

    with torch.no_grad():
        zoo.functions.whiten(torch.randn(2, 3, 4, 5))
    return {"before": before, "after": probe.status("whiten")["active"], "hits": probe.hits("whiten")}


def of_the_package_after_its_target() -> int:
    """Hits of a call where the target's module is there before the shim runs, as for one in a dependency."""
    import torch

    init = sys.modules["zoo"] = type(sys)("zoo")
    init.__path__ = [path + "/zoo" for path in sys.path if path.endswith("installed")]
    functions = importlib.import_module("zoo.functions")
    del sys.modules["zoo"]
    importlib.import_module("zoo")
    with torch.no_grad():
        functions.whiten(torch.randn(2, 3, 4, 5))
    return probe.hits("whiten")


def of_a_target_that_fails() -> None:
    import torch  # noqa: F401
    import zoo
    import zoo.models  # noqa: F401


def looks_of_modules_and_functions() -> dict[str, Any]:
    import torch  # noqa: F401
    import zoo
    import zoo.functions
    import zoo.models
    import zoo.tools

    return {
        "loader": type(zoo.models.__loader__).__name__,
        "spec": type(zoo.models.__spec__.loader).__name__,
        "source of a class": inspect.getsource(zoo.models.Mlp).splitlines()[0],
        "source of a function": inspect.getsource(zoo.functions.whiten).splitlines()[0],
        "name": zoo.functions.whiten.__qualname__,
        "signature": str(inspect.signature(zoo.tools.Tool.apply)),
    }


def of_every_target() -> dict[str, list[str]]:
    """Our finders before and after it."""
    import torch  # noqa: F401
    import zoo

    before = _finders()
    import zoo.bert
    import zoo.functions
    import zoo.models
    import zoo.tools
    import zoo.used  # noqa: F401

    return {"before": before, "after": _finders()}


def with_warnings_as_errors() -> bool:
    warnings.simplefilter("error")
    import zoo  # noqa: F401

    return True
