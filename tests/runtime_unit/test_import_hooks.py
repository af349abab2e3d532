"""Waiting for modules: the callback comes after their code has run, and nothing else changes."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from hatch_precompile.runtime import runtime

watching = runtime("import_hooks")
is_imported = runtime("imports").is_imported


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Write modules that can be imported for the length of a test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = set(sys.modules)
    finders = list(sys.meta_path)

    def write(**sources: str) -> None:
        for name, source in sources.items():
            path = tmp_path / name.replace("__", "/")
            path = path / "__init__.py" if source.startswith("# package") else path.with_suffix(".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(source)
        importlib.invalidate_caches()

    yield write
    sys.meta_path[:] = finders
    for name in set(sys.modules) - modules:
        del sys.modules[name]


class Seen(list[Any]):
    """What was there each time the callback ran."""

    def __init__(self, look: Callable[[], Any]) -> None:
        self.look = look

    def __call__(self) -> None:
        self.append(self.look())


def test_the_callback_runs_once_the_modules_code_has_run(write: Callable[..., None]) -> None:
    write(watched_a="early = 1\nlate = 2")
    seen = Seen(lambda: (sys.modules["watched_a"].late, is_imported("watched_a")))
    watching.when_imported({"watched_a"}, seen)
    assert seen == []
    importlib.import_module("watched_a")
    importlib.import_module("watched_a")
    assert seen == [(2, True)]


def test_a_module_that_is_still_running_is_not_imported(write: Callable[..., None]) -> None:
    write(watched_outer="import watched_inner\nlate = 1", watched_inner="")
    seen = Seen(lambda: is_imported("watched_outer"))
    watching.when_imported({"watched_inner", "watched_outer"}, seen)
    importlib.import_module("watched_outer")
    assert seen == [False, True]


def test_modules_of_a_package_can_be_waited_for(write: Callable[..., None]) -> None:
    write(watched_pkg="# package", watched_pkg__part="value = 3")
    seen = Seen(lambda: sys.modules["watched_pkg.part"].value)
    watching.when_imported({"watched_pkg.part"}, seen)
    importlib.import_module("watched_pkg")
    assert seen == []
    importlib.import_module("watched_pkg.part")
    assert seen == [3]


def test_nothing_stays_on_the_import_system(write: Callable[..., None]) -> None:
    write(watched_b="", watched_c="")
    before = list(sys.meta_path)
    watching.when_imported({"watched_b", "watched_c"}, lambda: None)
    importlib.import_module("watched_b")
    assert sys.meta_path != before
    importlib.import_module("watched_c")
    assert sys.meta_path == before


def test_waiting_for_nothing_leaves_the_import_system_alone() -> None:
    before = list(sys.meta_path)
    watching.when_imported(set(), lambda: None)
    assert sys.meta_path == before


def test_the_waiting_can_be_ended(write: Callable[..., None]) -> None:
    write(watched_d="")
    before = list(sys.meta_path)
    seen = Seen(lambda: True)
    stop = watching.when_imported({"watched_d"}, seen)
    stop()
    assert sys.meta_path == before
    importlib.import_module("watched_d")
    stop()
    assert seen == []


def test_two_waiting_for_the_same_module_are_both_called(write: Callable[..., None]) -> None:
    write(watched_e="value = 1")
    first, second = Seen(lambda: sys.modules["watched_e"].value), Seen(lambda: sys.modules["watched_e"].value)
    watching.when_imported({"watched_e"}, first)
    watching.when_imported({"watched_e"}, second)
    importlib.import_module("watched_e")
    assert (first, second) == ([1], [1])


def test_the_module_keeps_its_own_loader_and_spec(write: Callable[..., None]) -> None:
    write(watched_f="", plain_f="")
    watching.when_imported({"watched_f"}, lambda: None)
    watched, plain = importlib.import_module("watched_f"), importlib.import_module("plain_f")
    assert type(watched.__loader__) is type(plain.__loader__)
    assert type(watched.__spec__.loader) is type(plain.__spec__.loader)
    assert importlib.reload(watched) is watched


def test_a_modules_own_error_is_what_is_raised(write: Callable[..., None]) -> None:
    write(watched_g="1 / 0")
    seen = Seen(lambda: True)
    watching.when_imported({"watched_g"}, seen)
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("watched_g")
    assert seen == []
    assert not is_imported("watched_g")


def test_a_module_that_does_not_exist_is_the_usual_error(write: Callable[..., None]) -> None:
    watching.when_imported({"watched_missing"}, lambda: None)
    with pytest.raises(ModuleNotFoundError, match="No module named 'watched_missing'"):
        importlib.import_module("watched_missing")


class TestAskingIsNotImporting:
    """`importlib.util.find_spec` is how libraries ask whether a module is installed."""

    def test_the_import_that_follows_is_noticed(self, write: Callable[..., None]) -> None:
        write(watched_n="value = 1")
        before = list(sys.meta_path)
        seen = Seen(lambda: sys.modules["watched_n"].value)
        watching.when_imported({"watched_n"}, seen)
        assert importlib.util.find_spec("watched_n") is not None
        assert importlib.util.find_spec("watched_n") is not None
        assert seen == []
        importlib.import_module("watched_n")
        assert seen == [1]
        assert sys.meta_path == before

    def test_from_many_threads(self, write: Callable[..., None]) -> None:
        write(watched_o="value = 1", watched_p="value = 2")
        seen = Seen(lambda: [name for name in ("watched_o", "watched_p") if name in sys.modules])
        watching.when_imported({"watched_o", "watched_p"}, seen)
        start = threading.Barrier(8)
        found = []

        def ask() -> None:
            start.wait()
            for name in ("watched_o", "watched_p") * 20:
                found.append(importlib.util.find_spec(name))
            importlib.import_module("watched_o")

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8 * 40
        assert None not in found
        assert seen == [["watched_o"]]
        importlib.import_module("watched_p")
        assert seen == [["watched_o"], ["watched_o", "watched_p"]]

    def test_of_a_parent_package(self, write: Callable[..., None]) -> None:
        write(watched_q="# package", watched_q__part="value = 3")
        seen = Seen(lambda: sys.modules["watched_q.part"].value)
        watching.when_imported({"watched_q", "watched_q.part"}, lambda: None)
        watching.when_imported({"watched_q.part"}, seen)
        assert importlib.util.find_spec("watched_q.part") is not None  # imports the package
        importlib.import_module("watched_q.part")
        assert seen == [3]

    def test_by_another_finder_that_asks_all_of_them(
        self, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As wrapt's import hooks do."""
        write(watched_r="value = 4")
        seen = Seen(lambda: sys.modules["watched_r"].value)
        watching.when_imported({"watched_r"}, seen)
        asking: set[str] = set()

        class Asking:
            def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
                if name in asking:
                    return None
                asking.add(name)
                try:
                    return importlib.util.find_spec(name)
                finally:
                    asking.discard(name)

        for place in (0, 2):
            monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
            sys.meta_path.insert(place, Asking())  # type: ignore[arg-type]
        importlib.import_module("watched_r")
        assert seen == [4]

    def test_a_module_that_is_executed_without_being_imported(self, write: Callable[..., None]) -> None:
        write(watched_s="value = 5")
        seen = Seen(lambda: sys.modules["watched_s"].value)
        watching.when_imported({"watched_s"}, seen)
        spec = importlib.util.find_spec("watched_s")
        assert spec is not None
        assert spec.loader is not None
        apart = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(apart)
        assert (apart.value, seen, is_imported("watched_s")) == (5, [], False)
        importlib.import_module("watched_s")
        assert seen == [5]

    def test_a_module_that_is_imported_when_it_is_first_used(self, write: Callable[..., None]) -> None:
        """importlib.util.LazyLoader, as its documentation has it."""
        write(watched_t="value = 6")
        seen = Seen(lambda: sys.modules["watched_t"].value)
        watching.when_imported({"watched_t"}, seen)
        spec = importlib.util.find_spec("watched_t")
        assert spec is not None
        assert spec.loader is not None
        spec.loader = importlib.util.LazyLoader(spec.loader)  # type: ignore[arg-type]
        module = importlib.util.module_from_spec(spec)
        sys.modules["watched_t"] = module
        spec.loader.exec_module(module)
        assert seen == []
        assert module.value == 6
        assert seen == [6]

    def test_a_reload_is_not_an_import(self, write: Callable[..., None]) -> None:
        write(watched_u="value = 7", watched_v="")
        seen = Seen(lambda: sys.modules["watched_u"].value)
        watching.when_imported({"watched_u", "watched_v"}, seen)
        module = importlib.import_module("watched_u")
        assert importlib.reload(module) is module
        assert importlib.reload(module) is module
        assert seen == [7]
        importlib.import_module("watched_v")
        assert seen == [7, 7]


def test_one_that_failed_to_import_is_waited_for_again(write: Callable[..., None], tmp_path: Path) -> None:
    write(watched_h="1 / 0")
    seen = Seen(lambda: sys.modules["watched_h"].value)
    watching.when_imported({"watched_h"}, seen)
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("watched_h")
    (tmp_path / "watched_h.py").write_text("value = 'at the second attempt'")
    importlib.invalidate_caches()
    importlib.import_module("watched_h")
    assert seen == ["at the second attempt"]


class TestInProgress:
    """The waiting may begin while the module is being imported, so that nobody is asked to find it."""

    @pytest.fixture
    def midway(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
        """Have a module's code run something when it comes to `sys.midway()`."""
        return lambda action: monkeypatch.setattr(sys, "midway", action, raising=False)

    def test_the_callback_runs_when_that_ends(self, write: Callable[..., None], midway: Any) -> None:
        seen = Seen(lambda: (sys.modules["watched_i"].late, is_imported("watched_i")))
        before = list(sys.meta_path)
        write(watched_i="import sys; sys.midway()\nlate = 2")
        midway(lambda: watching.when_imported({"watched_i"}, seen))
        importlib.import_module("watched_i")
        assert seen == [(2, True)]
        assert sys.meta_path == before

    def test_two_may_wait(self, write: Callable[..., None], midway: Any) -> None:
        first, second = Seen(lambda: sys.modules["watched_j"].late), Seen(lambda: None)
        write(watched_j="import sys; sys.midway()\nlate = 2")
        midway(lambda: [watching.when_imported({"watched_j"}, seen) for seen in (first, second)])
        spec = importlib.import_module("watched_j").__spec__
        assert (first, second) == ([2], [None])
        assert type(spec) is ModuleSpec

    def test_one_that_fails_is_waited_for_again(
        self, write: Callable[..., None], midway: Any, tmp_path: Path
    ) -> None:
        seen = Seen(lambda: sys.modules["watched_k"].late)
        write(watched_k="import sys; sys.midway()\n1 / 0")
        midway(lambda: watching.when_imported({"watched_k"}, seen))
        with pytest.raises(ZeroDivisionError):
            importlib.import_module("watched_k")
        # Of another size: what was compiled of the first one is as young as this.
        (tmp_path / "watched_k.py").write_text("late = 'at the second attempt'\n" * 2)
        importlib.invalidate_caches()
        importlib.import_module("watched_k")
        assert seen == ["at the second attempt"]

    def test_the_waiting_can_be_ended(self, write: Callable[..., None], midway: Any) -> None:
        seen = Seen(lambda: None)
        write(watched_l="import sys; sys.midway()")

        def wait_and_end() -> None:
            stop = watching.when_imported({"watched_l"}, seen)
            stop()

        midway(wait_and_end)
        importlib.import_module("watched_l")
        assert seen == []

    def test_it_may_be_another_threads_import(self, write: Callable[..., None], midway: Any) -> None:
        seen = Seen(lambda: is_imported("watched_m"))
        write(watched_m="import sys; sys.midway()")
        reached, go_on = threading.Event(), threading.Event()
        midway(lambda: (reached.set(), go_on.wait()))
        thread = threading.Thread(target=importlib.import_module, args=("watched_m",))
        thread.start()
        reached.wait()
        watching.when_imported({"watched_m"}, seen)
        go_on.set()
        thread.join()
        assert seen == [True]
