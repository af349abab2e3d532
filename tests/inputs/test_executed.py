"""What dynamo runs while it traces, and what it does not find: inputs of an entry that no guard covers."""

from __future__ import annotations

import builtins
import collections
import copyreg
import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import einops
import pytest
import sympy
import torch
from packaging.version import Version
from torch._dynamo import decorators

from hatch_precompile.errors import Unsupported
from hatch_precompile.runtime import runtime
from hatch_precompile.tracing.assumptions import executed as watching
from hatch_precompile.wheel.shim import with_shim
from tests.conftest import REPOSITORY
from tests.inputs import absent, executed, settings, things
from tests.inputs.capturing import captured

X = torch.tensor([[1.0, 2.0, 3.0, 5.0]])
Change = Callable[[pytest.MonkeyPatch], None]


def put(owner: Any, name: str, value: Any) -> Change:
    return lambda patch: patch.setattr(owner, name, value, raising=False)


def code(function: Any, new: Callable[..., Any]) -> Change:
    return lambda patch: patch.setattr(getattr(function, "__func__", function), "__code__", new.__code__)


class Bare:
    """A class without the other one's own class."""


Bare.__module__, Bare.__qualname__ = executed.Weights.__module__, executed.Weights.__qualname__


def earth(cls: Any, value: object) -> Any:
    return cls.EARTH


CHANGES: dict[str, tuple[Any, Change]] = {
    "_missing_": (executed.looks_a_planet_up, code(executed.Planet._missing_, earth)),
    "__lt__": (executed.compares_planets, code(executed.Planet.__lt__, lambda self, other: True)),
    "__format__": (executed.formats_a_planet, code(executed.Planet.__format__, lambda self, how: "x")),
    "__bool__": (executed.asks_for_the_truth, code(executed.Planet.__bool__, lambda self: False)),
    "a metaclass's __getitem__": (
        executed.subscripts_a_class,
        code(executed.Table.__getitem__, lambda cls, key: 5.0),
    ),
    "a global that it reads": (executed.subscripts_a_class, put(executed, "FACTOR", 3.0)),
    "an attribute that it reads": (executed.subscripts_a_class, put(executed.Table, "offset", 0.75)),
    "a metaclass": (executed.measures_a_class, put(executed, "Weights", Bare)),
    "an operator of a number's class": (
        executed.multiplies_meters,
        code(executed.Meters.__mul__, lambda self, other: other * 4.0),
    ),
    "a global of an allowed function": (executed.calls_what_reads_globals, put(executed, "SCALE", 3.0)),
    "the environment": (
        executed.calls_what_reads_the_environment,
        lambda patch: patch.setenv("EXECUTED_SCALE", "3"),
    ),
    "a global of another module": (executed.calls_what_reads_a_module, put(settings, "SCALE", 3.0)),
    "an attribute of an object": (
        executed.calls_what_reads_an_object,
        put(executed.SPACE.inner, "scale", 3.0),
    ),
    "a closure": (executed.calls_what_was_made, put(executed, "BY_TWO", executed.scaling(5.0))),
    "another closure of the same code": (
        executed.calls_what_was_made,
        put(executed, "BY_THREE", executed.scaling(5.0)),
    ),
    "a global that hides a builtin": (executed.rounds, put(executed, "round", lambda value: 100.0)),
    "an attribute asked for by hasattr": (executed.asks_whether_there_is, put(absent, "SHIFT", True)),
    "an attribute with a default": (executed.takes_what_there_is, put(absent, "FACTOR", 4.0)),
    "an attribute that was tried": (executed.tries_what_there_is, put(absent, "GAIN", 7.0)),
    "a builtin that was not there": (executed.looks_for_a_builtin, put(builtins, "scaled", 7.0)),
    "annotations": (executed.reads_annotations, put(executed.annotated, "__annotations__", {"x": int})),
    "a docstring": (executed.reads_words, put(executed.annotated, "__doc__", "More words.")),
    "an attribute of a function": (executed.asks_a_function, put(executed.annotated, "flag", 4.0)),
    "one with a default": (executed.takes_from_a_function, put(executed.annotated, "flag", 4.0)),
    "one that was tried": (executed.tries_a_function, put(executed.annotated, "flag", 4.0)),
    "one of its dict": (executed.takes_from_the_dict_of_a_function, put(executed.annotated, "flag", 4.0)),
    "a way of copying": (
        executed.copies_its_options,
        lambda patch: patch.setitem(copyreg.dispatch_table, executed.Options, executed.reduced),
    ),
    "the names of a class": (executed.lists_names, put(executed.Listed, "second", 2.0)),
    "the docstring of a class": (executed.reads_words_of_a_class, put(executed.Listed, "__doc__", "Words.")),
    "annotations of a class": (
        executed.reads_annotations_of_a_class,
        put(executed.Listed, "__annotations__", {"one": "int", "two": "int"}),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_changed_before_the_first_call_is_not_served(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, apply = CHANGES[change]
    one = captured(call, X)
    assert one.verdict() == ""
    apply(monkeypatch)
    assert one.verdict() != ""


@pytest.mark.parametrize(
    "change",
    [
        code(executed.gradient_of_doubled, lambda ctx, gradient: gradient * 7),
        code(executed.twice, lambda gradient: gradient * 7),
        put(settings, "TWICE", 7.0),
        code(executed.Gradients.once, lambda gradient: gradient * 7),
        lambda patch: patch.setenv("EXECUTED_GRADIENT", "7"),
    ],
    ids=["the function", "what it calls", "what that reads", "a method", "the environment"],
)
def test_the_gradient_of_an_operator_is_in_the_graph(change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    one = captured(executed.calls_with_a_gradient, X.clone().requires_grad_(), backend="aot_eager")
    assert one.verdict() == ""
    change(monkeypatch)
    assert one.verdict() != ""


@pytest.mark.parametrize(
    "change",
    [
        put(executed.OF_METHOD, "factor", 7.0),
        put(executed.Scaling.held, "shift", 7.0),
        put(executed.OF_SLOTS, "scale", 7.0),
        put(executed.IN_CLOSURE, "scale", 7.0),
        put(executed.BY_DEFAULT, "scale", 7.0),
        put(settings, "BY_WORD", 7.0),
        code(executed.kept.__wrapped__, lambda: 7.0),
        lambda patch: patch.setenv("EXECUTED_KEPT", "7"),
    ],
    ids=[
        *("by a method", "of a class", "in a slot", "in a closure", "by default", "by getattr"),
        *("what keeps its answers", "what that read"),
    ],
)
def test_a_value_counts_however_it_is_reached(change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executed, "COUNTED", False)
    one = captured(executed.calls_what_reads_in_every_way, X)
    # What it counts is another number each time.
    assert executed.COUNTED
    assert one.verdict() == ""
    monkeypatch.setattr(executed, "COUNTED", False)
    monkeypatch.setattr(executed.OF_METHOD, "calls", 0)
    monkeypatch.setattr(executed.Scaling, "made", 0)
    assert one.verdict() == ""
    change(monkeypatch)
    assert one.verdict() != ""


def test_the_environment_as_a_whole_stops_the_build() -> None:
    with pytest.raises(Unsupported, match=r"os\.environ is looked at as a whole"):
        captured(executed.calls_what_goes_through_the_environment, X)


def test_a_closure_that_nobody_can_find_stops_the_build() -> None:
    with pytest.raises(Unsupported, match=r"scales is in the trace with scale = 4.0 in its closure"):
        captured(executed.calls_what_has_no_name, X)


def test_what_such_code_keeps_is_no_change() -> None:
    one = captured(executed.calls_what_was_made, X)
    known = executed.BY_TWO.__closure__[0].cell_contents  # type: ignore[attr-defined]
    assert known == {2.0: 2.0}
    known.clear()
    assert one.verdict() == ""


def test_the_wrappers_of_dynamo_around_a_module_are_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are there in a process that has imported it, as the one that builds."""
    fingerprints, references = runtime("dependencies.fingerprints"), runtime("values.references")
    names = frozenset(("__init__", "__setstate__", "__getattr__"))
    wrapped = fingerprints.of_class(torch.nn.Module, names)
    for name in names:
        monkeypatch.setattr(torch.nn.Module, name, references.unwrap(getattr(torch.nn.Module, name)))
    assert dict(wrapped) == dict(fingerprints.of_class(torch.nn.Module, names))
    monkeypatch.setattr(torch.nn.Module, "__setstate__", lambda self, state: None)
    assert dict(wrapped) != dict(fingerprints.of_class(torch.nn.Module, names))


def test_a_program_in_a_folder_with_a_librarys_name_is_watched() -> None:
    watched = watching._is_programs
    assert watched(str(Path.home() / "numpy" / "program.py"))
    assert not watched(sympy.__file__)
    assert not watched(str(Path(watching.__file__)))


def test_a_table_that_such_code_reads_counts_with_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may fill up while a process runs, which is no change; an edit is one."""
    one = captured(executed.subscripts_a_class, X)
    monkeypatch.setitem(executed.Table.values, "three", 3.0)
    assert one.verdict() == ""
    records = [record for record in one.records if record[0] == "file"]
    assert [module for _, module, _ in records] == [executed.__name__]


def test_the_line_that_a_build_adds_is_no_change_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "__init__.py"
    marks = []
    for content in (b"X = 1", with_shim(b"X = 1", "package"), b"X = 2"):
        file.write_bytes(content)
        marks.append(runtime("dependencies.fingerprints").of_file(file))
    assert marks[0] == marks[1] != marks[2]


def test_a_zero_has_a_sign() -> None:
    asked = captured(executed.divides, X, 0.0)
    assert asked.verdict() == ""
    asked.frame_locals["by"] = -0.0
    assert asked.verdict() == "refused by a guard"


@pytest.mark.parametrize(
    ("call", "served"), [(executed.lists_keys, False), (executed.adds_by_key, True)], ids=["seen", "not seen"]
)
def test_the_order_of_a_dict(call: Any, served: bool) -> None:
    """It counts where it can be seen in what is returned."""
    one = captured(call, X, {"a": X, "b": X + 1})
    assert one.verdict() == ""
    one.frame_locals["table"] = {"b": X + 1, "a": X}
    assert (one.verdict() == "") is served


def test_an_ordered_dict_has_an_order_of_its_own() -> None:
    table = collections.OrderedDict(a=X, b=X + 1)
    one = captured(executed.lists_keys, X, table)
    assert one.verdict() == ""
    table.move_to_end("a")
    assert one.verdict() == "refused by a guard"


def test_the_order_of_keywords_does_not_count() -> None:
    """Where a model hands its keywords on, callers write them in any order."""
    one = captured(executed.takes_keywords, X, a=X, b=X + 1)
    assert one.verdict() == ""
    one.frame_locals["tables"] = {"b": X + 1, "a": X}
    assert one.verdict() == ""


@pytest.mark.parametrize(
    "call",
    [
        executed.asks_the_dict_of_an_object,
        executed.takes_from_the_dict_of_an_object,
        executed.counts_the_dict_of_an_object,
    ],
)
def test_what_an_object_does_not_have_may_come(call: Any) -> None:
    marked = executed.Marked()
    one = captured(call, X, marked)
    assert one.verdict() == ""
    marked.flag = 2.0  # type: ignore[attr-defined]
    assert one.verdict() == "refused by a guard"


def test_what_the_trace_sets_itself_is_no_matter() -> None:
    one = captured(executed.sets_and_asks, X, executed.Marked())
    one.frame_locals["marked"] = executed.Marked()
    assert one.verdict() == ""


def test_of_objects_that_are_copied_it_counts_which_are_the_same() -> None:
    one = captured(executed.copies_options, X, executed.Options())
    assert one.verdict() == ""
    another = one.frame_locals["options"] = executed.Options()
    assert one.verdict() == ""
    another.lists[1] = another.lists[0] = [2.0]
    assert one.verdict() == "refused by a guard"


OLD_EINOPS = """
import einops, torch
from torch._dynamo import decorators
from hatch_precompile.errors import Unsupported
from tests.inputs import executed
from tests.inputs.capturing import captured

einops.__version__ = "0.6.1"
decorators._einops_supports_dynamo_tracing = lambda module: False
try:
    captured(executed.rearranges, torch.ones(1, 4))
except Unsupported as error:
    print(error)
"""


def test_an_einops_that_torch_compile_changes_stops_the_build() -> None:
    """In a process of its own: torch does it when a trace first meets einops."""
    done = subprocess.run(
        [sys.executable, "-c", OLD_EINOPS], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    if not hasattr(decorators, "_patch_einops_symint_compat"):
        assert done.stdout == "", "this torch changes none"
    else:
        assert done.stdout.startswith("einops before 0.7, into which torch.compile puts functions of its own")
        assert done.stdout.endswith("  Require einops>=0.7.\n")


def test_another_class_has_a_way_of_copying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs and libraries register their own."""
    monkeypatch.setitem(copyreg.dispatch_table, executed.Marked, executed.reduced)
    one = captured(executed.copies_options, X, executed.Options())
    monkeypatch.delitem(copyreg.dispatch_table, executed.Marked)
    monkeypatch.setitem(copyreg.dispatch_table, executed.Meters, executed.reduced)
    assert one.verdict() == ""


def test_what_the_garbage_collector_calls_is_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.callbacks.append(executed.collects)
    try:
        one = captured(executed.collects_while_traced, X)
    finally:
        gc.callbacks.remove(executed.collects)
    assert executed.COLLECTED
    assert "collects" not in {steps[-1][1] for kind, _, steps, *_ in one.records if kind == "function"}
    monkeypatch.setattr(executed, "COLLECTED", -1)
    assert one.verdict() == ""


def test_what_torch_calls_for_its_own_ends_is_no_input() -> None:
    """torch.fx has a progress bar, of the package tqdm."""
    pytest.importorskip("tqdm")
    one = captured(executed.doubles, X.clone().requires_grad_())
    assert not [record for record in one.records if "tqdm" in repr(record)]
    assert one.verdict() == ""


def test_the_schema_of_an_operator() -> None:
    """It has the default values, which are in the graph."""
    one = captured(executed.calls_scaled, X)
    assert one.verdict() == ""
    name, schema = "executed.scaled.default", "executed::scaled(Tensor x, float by=2.) -> Tensor"
    assert [record for record in one.records if record[0] == "operator"] == [("operator", name, schema)]
    comparison, stale = runtime("dependencies.comparison"), runtime("values.references").Stale
    with pytest.raises(stale, match=r"is executed::scaled\(Tensor x, float by=2.\) -> Tensor, and was"):
        comparison.check_dependencies([("operator", name, schema.replace("2.", "3."))])
    with pytest.raises(stale, match=r"the operator executed\.gone\.default is not there"):
        comparison.check_dependencies([("operator", "executed.gone.default", schema)])


def test_the_cache_of_einops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo's guard asks for its length; a fresh process has none, and dynamo would fill it there."""
    one = captured(executed.rearranges, X)
    if Version(torch.__version__) < Version("2.13"):
        pytest.skip("this torch does not trace it")
    assert ("prepared", "einops") in one.records
    monkeypatch.setattr(einops._backends, "_type2backend", {})
    assert one.verdict() == ""
    assert list(einops._backends._type2backend) == [torch.Tensor]
    monkeypatch.setattr(einops, "rearrange", lambda x, pattern: x)  # nothing else is to fill it
    monkeypatch.setattr(einops._backends, "_type2backend", {})
    assert one.verdict() == "refused by a guard"


def test_what_finds_installed_packages_is_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backport of importlib.metadata is one, and need not be there where the wheel runs."""
    monkeypatch.setattr(sys, "meta_path", [executed.Finder(), *sys.meta_path])
    one = captured(things.asks_version, X)
    assert executed.FOUND, "it was not asked"
    assert "Finder" not in repr(one.records)
    monkeypatch.undo()
    assert one.verdict() == ""
