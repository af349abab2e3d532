"""One case in a fresh process: the program is loaded and called, and what that did is written down."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from tests.truth.observed import described, sharing, tensors_of

__all__ = ["Run"]

PACKAGE = "specimens"
# What torch.compile puts into a module's globals: `__compiled_fn_1`, and `assumed_0` for what the function of
# that name gave under `assume_constant_result`.
DYNAMOS_OWN = re.compile(r"\A(__|assumed_\d+\Z)")

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


class Run:
    """The process of one case, for a change to steer.

    A change loads the program and calls it as often as it likes, with what it likes around, before and
    between. `role`: "wheel", "eager" (HATCH_PRECOMPILE=off) or "compile" (off, and under torch.compile).
    """

    def __init__(self, role: str, program: dict[str, Any], site: str, parameter: Any) -> None:
        self.role = role
        self.program = program
        self.site = site
        self.parameter = parameter
        self.notes: list[tuple[str, Any]] = []
        self.served: list[bool] = []
        self.served_notes: list[int] = []  # which of the notes are of calls that were served
        self.explained = ""
        self.module: Any = None
        self.object: Any = None
        self._compiled: dict[tuple[int, int], tuple[Any, Any]] = {}

    def load(self) -> None:
        """Import the program, and make the object that it is called on."""
        self.prepare()
        with self._noting("load"):
            self.module = importlib.import_module(f"{PACKAGE}.{self.program['module']}")
            self.make()

    def prepare(self) -> None:
        """Make the package importable, and say what role this process plays."""
        if self.role != "wheel":
            os.environ["HATCH_PRECOMPILE"] = "off"
        if self.site not in sys.path:
            sys.path.insert(0, self.site)

    def make(self) -> None:
        """Make the object anew; for a function there is none."""
        torch.manual_seed(0)
        owner, _, attribute = self.program["target"].rpartition(".")
        maker = self.program["instance"] or owner or self.program["target"]
        if not attribute.islower() or owner:
            self.object = getattr(self.module, maker)()
            if isinstance(self.object, torch.nn.Module):
                self.object.train(self.program["mode"] == "train")

    @property
    def target(self) -> Any:
        """What a user calls, as it is found now."""
        owner, _, attribute = self.program["target"].rpartition(".")
        if self.object is None:
            return getattr(self.module, attribute)
        return getattr(self.object, attribute) if owner else self.object

    def samples(self) -> list[Inputs]:
        """Made anew: (positional, keyword) arguments of each call."""
        made = getattr(self.module, self.program["samples"])()
        return [((), sample) if isinstance(sample, dict) else _pair(sample) for sample in made]

    def call(
        self,
        change_inputs: Callable[[list[Any]], list[Any]] | None = None,
        *,
        around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
        through: Callable[..., Any] | None = None,
        mode: Callable[[], AbstractContextManager[Any]] | None = None,
        label: str = "call",
    ) -> None:
        """Call the target once with each sample, and note all that there is to see.

        change_inputs: makes other positional arguments of a sample's; around: makes a context for each
        call; through: called with what is called and its arguments, in place of calling it.
        """
        for number, (positional, named) in enumerate(self.samples()):
            args, kwargs = positional, named
            name = f"{label} {number}"
            if change_inputs is not None:
                names, values = list(kwargs), [*args, *kwargs.values()]
                try:
                    values = change_inputs(values)
                except Exception as error:
                    self.notes.append((f"{name}: inputs", described(error)))
                    continue
                args, kwargs = tuple(values[: len(args)]), dict(zip(names, values[len(args) :], strict=False))
            self._one(name, args, kwargs, around, through, mode or self.mode)

    def mode(self) -> AbstractContextManager[Any]:
        """The mode the entrypoint was declared for."""
        modes = {"no_grad": torch.no_grad, "inference": torch.inference_mode}
        return modes.get(self.program["mode"], contextlib.nullcontext)()

    def callable(self) -> Any:
        """What this role calls: under torch.compile, where that is the role."""
        target = self.target
        if self.role != "compile":
            return target
        key = id(getattr(target, "__func__", target)), id(self.object)
        if key not in self._compiled:
            self._compiled[key] = (target, torch.compile(target))
        return self._compiled[key][1]

    def note(self, label: str, value: Any) -> None:
        """Something else to compare."""
        self.notes.append((label, described(value)))

    def hits(self) -> int:
        """Of the first frame; -1 where nothing of a wheel is installed."""
        runtime = sys.modules.get(f"{PACKAGE}._precompiled")
        if runtime is None:
            return -1
        found = runtime.status()["entrypoints"].get(self.program["name"])
        return -1 if found is None else sum(entry["hits"] for entry in found["by_entry"])

    def _one(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        around: Callable[[], AbstractContextManager[Any]],
        through: Callable[..., Any] | None,
        mode: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        before, noted = self.hits(), len(self.notes)
        torch.manual_seed(0)
        result: Any = None
        with self._noting(name), contextlib.redirect_stdout(io.StringIO()) as said:
            called = self.callable()
            with mode(), around():
                result = called(*args, **kwargs) if through is None else through(called, *args, **kwargs)
            if self.program["mode"] == "train":
                _backward(result)
        after = self.hits()
        self.served.append(after > before)
        if self.role == "wheel" and after == before and not self.explained:
            self.explained = self._why(args, kwargs, mode)
        with _plainly():
            self.note(f"{name} gave", result)
            self.note(f"{name} left of its inputs", [args, kwargs])
            self.note(f"{name} shares", sharing([*tensors_of([args, kwargs]), *tensors_of(result)]))
            self.note(f"{name} printed", said.getvalue())
            self.note(f"{name} left of its object", self._state())
            self.note(f"{name} left of its module", self._globals())
            inputs = tensors_of([args, kwargs])
            self.note(f"{name} gradients", [tensor.grad for tensor in inputs if tensor.is_leaf])
        if after > before:
            self.served_notes += range(noted, len(self.notes))

    def _state(self) -> Any:
        if isinstance(self.object, torch.nn.Module):
            gradients = {name: p.grad for name, p in self.object.named_parameters()}
            return [dict(self.object.state_dict()), gradients, _attributes(self.object)]
        return vars(self.object) if hasattr(self.object, "__dict__") else None

    def _globals(self) -> Any:
        """What the program's module has in its globals that a call may change."""
        kinds = (bool, int, float, str, list, dict, set, torch.Tensor)
        found = {
            name: value for name, value in vars(self.module).items() if not DYNAMOS_OWN.search(str(name))
        }
        return {name: value for name, value in found.items() if type(value) in kinds}

    def _why(self, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Callable[..., Any]) -> str:
        """In the runtime's own words."""
        runtime = sys.modules.get(f"{PACKAGE}._precompiled")
        status = runtime.status() if runtime else {}
        found = status.get("entrypoints", {}).get(self.program["name"])
        if found is None:
            return str(status.get("reason", "not installed"))
        if found["left_out"]:
            return "; ".join(found["left_out"])
        own = () if self.object is None else (self.object,)
        try:
            with mode():
                reports = runtime.explain(self.program["name"], *own, *args, **kwargs)  # type: ignore[union-attr]
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "; ".join(f"{report['reason']} ({report['check']})" for report in reports)

    @contextlib.contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        """What is raised and warned within is noted; our own warnings are not part of an answer."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                yield
            except Exception as error:
                self.note(f"{name} raised", error)
        texts = sorted(
            {
                f"{each.category.__name__}: {each.message}{_place(each)}"
                for each in said
                if each.category.__name__ != "PrecompileWarning"
            }
        )
        self.note(f"{name} warned", texts)

    def report(self) -> dict[str, Any]:
        """All that goes back to the judge."""
        self.note("left of torch", _flags())
        return {
            "notes": self.notes,
            "served": self.served,
            "served_notes": self.served_notes,
            "why": self.explained,
        }


def _attributes(module: torch.nn.Module) -> Any:
    """Those that a module and the modules in it have by themselves."""
    return {
        path: {name: value for name, value in vars(inner).items() if not name.startswith("_")}
        for path, inner in module.named_modules()
    }


def _place(said: warnings.WarningMessage) -> str:
    """Where a warning of the program's own is said to be from."""
    if not str(said.message).startswith("specimen: "):
        return ""
    return f" ({Path(said.filename).name}:{said.lineno})"


def _pair(sample: tuple[Any, ...]) -> Inputs:
    if len(sample) == 2 and isinstance(sample[0], tuple) and isinstance(sample[1], dict):
        return sample[0], sample[1]
    return sample, {}


def _backward(result: Any) -> None:
    losses = [tensor.sum() for tensor in tensors_of(result) if tensor.requires_grad]
    if losses:
        sum(losses[1:], losses[0]).backward()


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Where a change has left something in force, describing is not to be changed by it."""
    with torch._C.DisableTorchFunction(), torch.device("cpu"), torch.no_grad():
        yield


def _flags() -> list[Any]:
    return [
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        str(torch.get_default_dtype()),
        torch.get_num_threads(),
        sys.gettrace() is None,
        torch._C._len_torch_function_stack(),
        torch._C._len_torch_dispatch_stack(),
    ]
