"""What a fresh process needs to say what happened in it. Imports torch only where it must."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

MARK = "::result::"


def result(**values: Any) -> None:
    """Hand values to the test."""
    _hand_over(values)


def _hand_over(value: Any) -> None:
    print(f"\n{MARK}{json.dumps(value)}", flush=True)


def argument() -> Any:
    """What the test passed as `stdin`."""
    return json.load(sys.stdin)


def play(module: str, function: str) -> None:
    """Run a scenario of tests/scenarios with the keyword arguments of the test, and hand it the answer."""
    _hand_over(getattr(importlib.import_module(module), function)(**argument()))


def play_all(module: str, functions: Sequence[str]) -> None:
    """The same with several scenarios, one after another in this process."""
    scenarios = importlib.import_module(module)
    _hand_over({name: getattr(scenarios, name)() for name in functions})


def loaded(*names: str) -> list[str]:
    """Which of these modules have been imported."""
    return [name for name in names if name in sys.modules]


def compilers() -> list[str]:
    return loaded("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "hatch_precompile")


def status(name: str, package: str = "zoo") -> Any:
    return sys.modules[f"{package}._precompiled"].status()["entrypoints"][name]


def hits(name: str, package: str = "zoo") -> int:
    return status(name, package)["hits"]


def misses(name: str, package: str = "zoo") -> int:
    return status(name, package)["misses"]


def served(name: str, call: Callable[[], object], package: str = "zoo") -> bool:
    """Whether an entry took this call."""
    before = hits(name, package)
    call()
    return hits(name, package) > before


class Backend:
    """A backend of torch.compile that counts what it is asked to compile, and leaves it as it is."""

    def __init__(self) -> None:
        self.compiled = 0

    def __call__(self, graph: Any, inputs: object) -> Any:
        self.compiled += 1
        return graph.forward


def outcome(call: Callable[[], Any]) -> Any:
    """A call's tensor, or the error it raises, as something to compare."""
    return described(attempt(call))


def _original(code: CodeType) -> CodeType:
    """The code behind a prologue, of whatever wheel."""
    while code.co_consts[-2:-1] == ("__precompiled_original__",):
        code = code.co_consts[-1]
    return code


def activated(function: Any) -> bool:
    """Whether a function has a prologue that asks for compiled code."""
    code = getattr(function, "__func__", function).__code__
    return _original(code) is not code


class _Eager:
    """A function or a module, called as if no wheel were installed: not while other threads call it."""

    def __init__(self, call: Any) -> None:
        self._call = call
        function = type(call).forward if hasattr(type(call), "forward") else call
        self._functions: list[Any] = []
        while function is not None:
            function = getattr(function, "__func__", function)
            self._functions.append(function)
            function = vars(function).get("__wrapped__")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        codes = [function.__code__ for function in self._functions]
        for function in self._functions:
            function.__code__ = _original(function.__code__)
        try:
            return self._call(*args, **kwargs)
        finally:
            for function, code in zip(self._functions, codes, strict=True):
                function.__code__ = code


def eager(call: Any) -> Any:
    """A function or a module as it is without compiled code."""
    return vars(call).get("eager_twin") or _Eager(call)


def replica(module: Any) -> Any:
    """A copy as torch.nn.parallel.replicate makes one for each GPU: its parameters are plain attributes."""
    copy = module._replicate_for_data_parallel()
    copy._former_parameters = {}
    for name, child in module._modules.items():
        setattr(copy, name, replica(child))
    for name, parameter in module._parameters.items():
        if parameter is None:
            copy._parameters[name] = None
        else:
            copy._former_parameters[name] = parameter
            setattr(copy, name, parameter.detach().clone())
    for name, buffer in module._buffers.items():
        setattr(copy, name, buffer.clone())
    return copy


def attempt(call: Callable[[], Any]) -> Any:
    """What a call returns, or the error it raises."""
    import torch

    torch.manual_seed(0)
    try:
        return call()
    except Exception as error:
        return error


def described(value: Any) -> Any:
    """A tensor or an error as data."""
    import torch

    if isinstance(value, Exception):
        return f"{type(value).__name__}: {value}"
    facts = [type(value).__name__, str(value.dtype), list(value.shape), value.requires_grad]
    plain = value.detach().as_subclass(torch.Tensor)
    return facts if plain.device.type == "meta" else [*facts, plain.tolist()]


def forbid_side_effects() -> list[str]:
    """From here on, starting a process, writing a file or opening a connection is remembered and refused."""
    import os

    done: list[str] = []
    processes = (
        "subprocess.Popen",
        "os.system",
        "os.posix_spawn",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "pty.spawn",
    )
    files = (
        "os.mkdir",
        "os.rename",
        "os.remove",
        "os.rmdir",
        "os.link",
        "os.symlink",
        "os.truncate",
        "os.chmod",
    )
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT

    def hook(event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and (
            set(args[1] or "") & set("wax+") or (isinstance(args[2], int) and args[2] & writing)
        )
        if writes or event in processes or event in files or event == "socket.connect":
            done.append(f"{event} {args}")
            raise PermissionError(f"{event} {args}")

    sys.addaudithook(hook)
    return done
