"""How libraries are loaded where several wheels are in one process."""

from __future__ import annotations

import importlib.util
import os
import threading
from types import ModuleType
from typing import Any

import pytest

from hatch_precompile.runtime import runtime

VARIABLE = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"


def another_wheels(name: str) -> ModuleType:
    """The runtime's module once more, as a second wheel brings it."""
    own = runtime("graphs.callers")
    spec = importlib.util.spec_from_file_location(f"{own.__package__}.{name}", own.__file__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("before", [None, "12"])
def test_two_wheels_load_at_the_same_time(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the one library reads in the environment is not taken away by the other's loading."""
    monkeypatch.delenv(VARIABLE, raising=False)
    if before is not None:
        monkeypatch.setenv(VARIABLE, before)
    begun, ended = threading.Event(), threading.Event()
    seen: list[Any] = []

    class Loader:
        def __init__(self, name: str, path: str) -> None:
            self.name = name

        def create_module(self, spec: Any) -> Any:
            # The first ends while the second is in the middle, unless one waits for the other.
            if threading.current_thread().name == "first":
                begun.wait(0.5)
            else:
                begun.set()
                ended.wait(0.5)
            seen.append(os.environ.get(VARIABLE))
            module = ModuleType("library")
            module.entry = self.name  # type: ignore[attr-defined]
            return module

        def exec_module(self, module: Any) -> None:
            pass

    def load(wheel: ModuleType) -> None:
        wheel.load_library("/nowhere", "name", "entry")
        ended.set()

    threads = []
    for name in ("first", "second"):
        wheel = another_wheels(name)
        monkeypatch.setattr(wheel, "ExtensionFileLoader", Loader)
        threads.append(threading.Thread(target=load, args=(wheel,), name=name))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 2
    assert not {None, before} & set(seen)
    assert os.environ.get(VARIABLE) == before


def test_a_fork_while_another_thread_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child can load: it does not wait for a thread that it does not have."""
    wheel = another_wheels("forked")
    inside, over = threading.Event(), threading.Event()
    parent = os.getpid()

    class Loader:
        def __init__(self, name: str, path: str) -> None:
            self.name = name

        def create_module(self, spec: Any) -> Any:
            if os.getpid() == parent:
                inside.set()
                over.wait(60)
            module = ModuleType("library")
            module.entry = self.name  # type: ignore[attr-defined]
            return module

        def exec_module(self, module: Any) -> None:
            pass

    monkeypatch.setattr(wheel, "ExtensionFileLoader", Loader)
    thread = threading.Thread(target=wheel.load_library, args=("/nowhere", "name", "entry"))
    thread.start()
    inside.wait(60)
    child = os.fork()
    if child == 0:
        import signal

        signal.alarm(20)
        wheel.load_library("/nowhere", "name", "entry")
        os._exit(7)
    _, status = os.waitpid(child, 0)
    over.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 7
