"""What inductor compiles and loads: its C++ sources are seen, and changed, on their way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hatch_precompile.inductor.deterministic_names import arrays_known_again
from hatch_precompile.inductor.direct_calls import entered_directly, with_direct_entry
from hatch_precompile.inductor.extern_kernels import results_known
from hatch_precompile.inductor.heap import with_memory_kept
from hatch_precompile.inductor.parallel_checks import NotGuarded, guarded
from hatch_precompile.inductor.unchecked_calls import calls_checked

__all__ = ["Library", "kernel_paths", "libraries_made"]


GiveUp = Callable[[str], None]


@dataclass(frozen=True)
class Library:
    """One of a graph. outputs: how many it has; scalar_outputs: those that are numbers."""

    path: Path
    outputs: int
    scalar_outputs: list[int]


def _with_guarded_checks(give_up: GiveUp, source: str) -> str:
    try:
        return guarded(source)
    except NotGuarded as error:
        give_up(f"a check that fails in it would end the process ({error})")
        return source


def _whole(give_up: GiveUp, source: str) -> str:
    """A library's main source, with checks that do not end the process, and with one_thread.h."""
    one_thread = files(__package__).joinpath("one_thread.h").read_text("utf-8")
    return f"{_with_guarded_checks(give_up, source)}\n{one_thread}"


@contextlib.contextmanager
def kernel_paths(give_up: GiveUp, more: str = "") -> Iterator[list[Path]]:
    """The libraries of the kernels that inductor's Python wrapper loads while the block runs. more: source
    that they get; give_up: told why they cannot be used."""
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    paths: list[Path] = []
    load = CppPythonBindingsCodeCache.__dict__["load_pybinding"]

    def load_and_note(*args: Any, **kwargs: Any) -> Any:
        if "main_code" in kwargs:
            kwargs["main_code"] = _whole(give_up, kwargs["main_code"] + more)
        else:  # the second argument
            args = (args[0], _whole(give_up, args[1] + more), *args[2:])
        kernel = load.__func__(CppPythonBindingsCodeCache, *args, **kwargs)
        paths.append(Path(kernel.__self__.__file__))
        return kernel

    with patch.object(CppPythonBindingsCodeCache, "load_pybinding", load_and_note):
        yield paths


@contextlib.contextmanager
def libraries_made(give_up: GiveUp, operators: str, more: str = "") -> Iterator[list[Library]]:
    """The shared libraries inductor's C++ wrapper loads while the block runs. more: source that they get;
    give_up: told why they cannot be used.

    An operator without a C function is called through Python. The source names a module of inductor's
    for that; the library gets one of the runtime's instead.
    """
    from torch._inductor.codecache import CppWrapperCodeCache
    from torch._inductor.virtualized import V

    made: list[Library] = []
    load = CppWrapperCodeCache.load_pybinding

    def load_and_note(*args: Any, **kwargs: Any) -> Any:
        main = kwargs["main_code"].replace("torch._inductor.codecache", operators)
        outputs = kwargs["num_outputs"]
        main = with_memory_kept(with_direct_entry(main, outputs))
        kwargs["main_code"] = _whole(give_up, main + more)
        if kwargs.get("kernel_code"):
            kwargs["kernel_code"] = _with_guarded_checks(give_up, kwargs["kernel_code"])
        entry = load(*args, **kwargs)
        is_tensor = V.graph.wrapper_code.output_is_tensor
        numbers = [number for number in range(outputs) if not is_tensor.get(number, True)]
        made.append(Library(Path(entry.__self__.__file__), outputs, numbers))
        return entry

    with (
        patch.object(CppWrapperCodeCache, "load_pybinding", load_and_note),
        entered_directly(),
        calls_checked(),
        arrays_known_again(),
        results_known(),
    ):
        yield made
