"""`hatch-precompile explain`: the runtime's own explanation of a call, for an installed package."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from hatch_precompile.errors import CaptureError, unforeseen
from hatch_precompile.runtime import RUNTIME_PACKAGE

__all__ = ["ExplainError", "explain_call"]


class ExplainError(Exception):
    """The question cannot be put. Its text is a sentence for who asked."""


def explain_call(entrypoint: str, inputs: str, mode: str) -> list[dict[str, Any]]:
    """The runtime's reports on a call, the nearest entry first.

    entrypoint: `package:name`; inputs: `module:function`, found in the working directory as well. Raises
    ExplainError where something of these is not there.
    """
    package, _, name = entrypoint.partition(":")
    if not name:
        raise ExplainError(f"{entrypoint!r} is not of the form PACKAGE:ENTRYPOINT")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    _import(package)
    try:
        runtime = importlib.import_module(f"{package}.{RUNTIME_PACKAGE}")
    except ImportError:
        raise ExplainError(
            f"the installed package {package} carries no bundle; an editable install or an sdist never does"
        ) from None
    except Exception as error:
        raise _damaged(package, error) from error
    if importlib.util.find_spec("torch") is None:
        raise ExplainError(f"torch is not installed here, and what {package} carries needs it")
    args, kwargs = _inputs(inputs)
    from hatch_precompile.entrypoints.call import mode_context

    try:
        for record in _targets(runtime, name):
            _import(record.partition(":")[0])
        with mode_context(mode):
            reports: list[dict[str, Any]] = runtime.explain(name, *args, **kwargs)
    except ExplainError:
        raise
    except (KeyError, RuntimeError, TypeError) as error:
        raise ExplainError(str(error.args[0] if error.args else error)) from error
    except Exception as error:
        raise _damaged(package, error) from error
    return sorted(reports, key=lambda report: -report["passed"])


def _damaged(package: str, error: Exception) -> ExplainError:
    return ExplainError(f"what {package} carries is damaged: {unforeseen(error)}; reinstall the package")


def _targets(runtime: Any, name: str) -> list[str]:
    """The target of an entrypoint, whose module has to be imported before it is active."""
    entrypoints = runtime.status()["entrypoints"]
    return [entrypoints[name]["target"]] if name in entrypoints else []


def _inputs(reference: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    module, _, function = reference.partition(":")
    if not function:
        raise ExplainError(f"{reference!r} is not of the form MODULE:FUNCTION")
    found = getattr(_import(module), function, None)
    if not callable(found):
        raise ExplainError(f"{module} has no function {function}")
    from hatch_precompile.entrypoints.samples import as_sample

    try:
        sample = as_sample(found(), f"what {reference} returned")
    except CaptureError as error:
        raise ExplainError(str(error)) from error
    except Exception as error:  # whatever its author's code raises
        raise ExplainError(f"{reference} cannot be called: {unforeseen(error)}") from error
    return sample.args, sample.kwargs


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ExplainError(f"{module} cannot be imported: {error}") from error
    except Exception as error:  # whatever its author's code raises
        raise ExplainError(f"{module} cannot be imported: {unforeseen(error)}") from error
