"""What an entry rests on, changed between the build and the call: it must not be served then.

hatch_precompile/lower/dependencies/table.py has the table of all inputs, which names the tests here.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import importlib
import importlib.metadata
import inspect
import marshal
import operator
import pickle
import platform
import re
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from packaging.version import Version
from torch import nn
from torch.nn.attention import SDPBackend

from hatch_precompile.errors import Unsupported
from hatch_precompile.inductor import capture_settings
from hatch_precompile.lower.dependencies import kinds
from hatch_precompile.lower.dependencies.writer import dependencies_of
from hatch_precompile.lower.entries import modules_named
from hatch_precompile.lower.names import Namer
from hatch_precompile.runtime import runtime
from hatch_precompile.tracing import Assumed, tracing_frames
from hatch_precompile.tracing.guardtree import GuardNode
from tests.inputs import things
from tests.inputs.capturing import captured

X = torch.tensor([[1.0, 2.0, 3.0, 5.0]])


class Patch(pytest.MonkeyPatch):
    """With more to undo than attributes and variables."""

    def __init__(self) -> None:
        super().__init__()
        self.later = contextlib.ExitStack()

    def undo(self) -> None:
        super().undo()
        self.later.close()


@pytest.fixture
def monkeypatch() -> Iterator[Patch]:
    patch = Patch()
    yield patch
    patch.undo()


@pytest.fixture(autouse=True)
def variables(monkeypatch: Patch) -> None:
    monkeypatch.delenv("THINGS_SCALE", raising=False)
    monkeypatch.setenv("THINGS_SET", "3")
    platform.uname()  # as if somebody had asked before: then the answer is a constant to dynamo


def put(owner: Any, name: str, value: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(owner, name, value, raising=False)


def code_of(function: Any, text: str) -> Callable[[Patch], None]:
    """The function as it would be after an edit of its source."""

    def change(patch: Patch) -> None:
        space: dict[str, Any] = {}
        exec(f"def edited{text}", function.__globals__, space)
        patch.setattr(function, "__code__", space["edited"].__code__)

    return change


def made_again(name: str, cls: Any) -> Callable[[Patch], None]:
    """A class of the same name, as another version of the module would define it."""

    def change(patch: Patch) -> None:
        cls.__module__, cls.__qualname__, cls.__name__ = things.__name__, name, name
        for value in vars(cls).values():
            if isinstance(value, types.FunctionType):
                value.__qualname__ = value.__qualname__.replace(cls.__name__, name)
        patch.setattr(things, name, cls)

    return change


@dataclasses.dataclass
class OptionsOfThree:
    scale: float = 3.0


@dataclasses.dataclass
class OptionsThatAreChecked:
    scale: float = 2.0

    def __post_init__(self) -> None:
        self.scale = 9.0


@dataclasses.dataclass
class RenamedOptions:
    factor: float = 2.0
    scale: float = 2.0


@dataclasses.dataclass(frozen=True)
class FrozenOfThree:
    scale: float = 3.0


class PairOfThree(NamedTuple):
    scale: float = 3.0


class OtherColor(enum.IntEnum):
    RED = 5
    BLUE = 6


class OtherMode(enum.Enum):
    SOFT = "soft"
    HARD = 4.0


class MoreModes(enum.Enum):
    SOFT = "soft"
    HARD = 3.0
    NEW = "new"


class OtherFlags(enum.Flag):
    B = 1
    A = 4


def zero(self: Any, x: torch.Tensor) -> torch.Tensor:
    return x * 0


def always(_self: Any, name: str) -> Any:
    return 7.0 if name == "scale" else object.__getattribute__(_self, name)


def allow_tf32(patch: Patch) -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    patch.later.callback(setattr, torch.backends.cuda.matmul, "allow_tf32", False)


def autocast_to_half(patch: Patch) -> None:
    patch.later.callback(torch.set_autocast_dtype, "cpu", torch.get_autocast_dtype("cpu"))
    torch.set_autocast_dtype("cpu", torch.float16)


def bases(*classes: type) -> Callable[[Patch], None]:
    def change(patch: Patch) -> None:
        patch.later.callback(setattr, things.Derived, "__bases__", things.Derived.__bases__)
        things.Derived.__bases__ = classes

    return change


def set_variable(name: str, value: str) -> Callable[[Patch], None]:
    return lambda patch: patch.setenv(name, value)


AT_LOAD: dict[str, tuple[Any, Callable[[Patch], None], str]] = {
    "a variable read by get": (things.gets, set_variable("THINGS_SCALE", "5"), "variable THINGS_SCALE"),
    "a variable read by getenv": (things.getenvs, set_variable("THINGS_SCALE", "5"), "THINGS_SCALE"),
    "a variable in brackets": (things.subscripts, set_variable("THINGS_SET", "5"), "THINGS_SET"),
    "a variable asked for by in": (things.contains, set_variable("THINGS_SCALE", "5"), "THINGS_SCALE"),
    "distributed": (
        things.asks_distributed,
        put(type(torch.distributed.GroupMember), "WORLD", property(lambda _: object())),
        "is_initialized() gave False at the build and gives True here",
    ),
    "the answer of a function of the process": (
        things.asks_tf32,
        allow_tf32,
        "_get_cublas_allow_tf32() gave False",
    ),
    "the type of autocast": (
        things.autocasts,
        autocast_to_half,
        "get_autocast_dtype() gave torch.bfloat16",
    ),
    "a global of the standard library": (
        things.asks_system,
        put(platform, "_uname_cache", platform.uname_result("Minix", "", "", "", "")),
        "platform._uname_cache has changed",
    ),
    "a path of the standard library": (
        things.asks_for_the_place,
        put(tempfile, "tempdir", "/elsewhere"),
        "tempfile.tempdir is '/elsewhere'",
    ),
    "what a protocol asks of an instance": (
        things.asks_a_protocol,
        lambda patch: patch.delattr(things.SCALED, "scale"),
        "refused by a guard",
    ),
    "a library's version": (
        things.asks_version,
        # A backport of importlib.metadata, where one is imported, has a class of its own.
        lambda patch: patch.setattr(
            next(
                cls
                for cls in type(importlib.metadata.distribution("torch")).__mro__
                if "version" in vars(cls)
            ),
            "version",
            "0.0.1",
        ),
        "version() gave",
    ),
    "a module that is not installed": (
        things.asks_for_a_module,
        lambda patch: patch.setitem(sys.modules, "numpy", None),  # type: ignore[arg-type]
        "numpy is not installed",
    ),
    "an assumed constant": (
        things.assumes,
        lambda patch: patch.setitem(things.STATE, "count", 30),
        "counted() gave 7 at the build and gives 34 here",
    ),
    "a dataclass default": (
        things.makes_options,
        made_again("Options", OptionsOfThree),
        "Options.__init__ has changed",
    ),
    "a frozen dataclass default": (
        things.makes_frozen,
        made_again("Frozen", FrozenOfThree),
        "Frozen.__init__ has changed",
    ),
    "an added __post_init__": (
        things.makes_options,
        made_again("Options", OptionsThatAreChecked),
        "Options",
    ),
    "a dataclass field": (things.counts_fields, made_again("Options", RenamedOptions), "Options"),
    "a named tuple's default": (things.makes_a_pair, made_again("Pair", PairOfThree), "Pair"),
    "a default dtype": (
        things.casts_by_default,
        put(things.casts, "__defaults__", (torch.float16,)),
        "things.casts has changed",
    ),
    "a keyword default dtype": (
        things.casts_by_default,
        put(things.Caster.cast, "__kwdefaults__", {"dtype": torch.float16}),
        "Caster.cast has changed",
    ),
    "the helper of an allowed function": (
        things.calls_allowed,
        code_of(things.doubles, "(x): return x * 3"),
        "things.doubles has changed",
    ),
    "the helper of a function traced otherwise": (
        things.calls_traced_otherwise,
        code_of(things.doubles, "(x): return x * 3"),
        "things.doubles has changed",
    ),
    "a default factory": (
        things.makes_listed,
        code_of(things.Listed.__dataclass_fields__["scales"].default_factory, "(): return [3.0]"),
        "has changed",
    ),
    "a function for shapes": (
        things.calls_operator,
        code_of(things._, "(x): return x.new_empty(x.shape)"),
        "has changed",
    ),
    "a decorated function": (
        things.calls_decorated,
        code_of(things.decorated.__wrapped__, "(x): return x * 3"),  # type: ignore[attr-defined]
        "has changed",
    ),
    "a property": (
        things.makes_and_calls,
        code_of(things.Base.factor.fget, "(self): return 4.0"),
        "factor",
    ),
    "a property that is a value": (things.makes_and_calls, put(things.Base, "factor", 4.0), "factor"),
    "a class attribute": (things.makes_and_calls, put(things.Base, "scale", 4.0), "Base.scale has changed"),
    "an override": (things.calls_method, put(things.Derived, "scaled", zero), "Derived.scaled is new"),
    "a mixin": (
        things.calls_method,
        bases(things.Mixin, things.Base),
        "Derived has other bases than at the build",
    ),
    "an abstract class that was registered": (
        things.asks_for_the_class,
        lambda _: things.Abstract.register(things.Derived),
        "things.Derived is, or was, registered as a tests.inputs.things.Abstract",
    ),
    "an added __getattribute__": (
        things.makes_and_calls,
        put(things.Derived, "__getattribute__", always),
        "Derived.__getattribute__ is new",
    ),
    "an added __getattr__": (
        things.calls_method,
        put(things.Base, "__getattr__", always),
        "__getattr__ is new",
    ),
    "an attribute over an instance's": (things.calls_method, put(things.Derived, "scale", 5.0), "scale"),
    "a module's forward": (things.normalizes, put(things.MyNorm, "forward", zero), "MyNorm.forward is new"),
    "a forward of torch's": (things.normalizes, put(nn.LayerNorm, "forward", zero), "LayerNorm.forward"),
    "the call of all modules": (
        things.normalizes,
        put(nn.Module, "__call__", lambda self, *args: nn.Module._call_impl(self, *args) * 0),
        "Module.__call__ has changed",
    ),
    "what the call of all modules goes through": (
        things.normalizes,
        put(nn.Module, "_call_impl", lambda self, x: self.forward(x) * 0),
        "Module._call_impl has changed",
    ),
    "how all modules find their parts": (
        things.normalizes,
        put(nn.Module, "__getattr__", lambda self, name: self.__dict__["_parameters"][name] * 0),
        "Module.__getattr__ has changed",
    ),
    "a function of torch's": (
        things.activates,
        put(torch.nn.functional, "gelu", lambda x: x * 0),
        "gelu",
    ),
    "another function of torch's": (things.activates, put(torch, "relu", lambda x: x * 0), "relu"),
    "a method of tensors": (things.activates, put(torch.Tensor, "tanh", lambda x: x * 0), "tanh"),
    "a member of an IntEnum": (things.multiplies_by_color, made_again("Color", OtherColor), "Color"),
    "a member looked up by value": (things.looks_color_up, made_again("Color", OtherColor), "Color"),
    "a member's value": (things.takes_mode, made_again("Mode", OtherMode), "Mode"),
    "flags": (things.joins_flags, made_again("Flags", OtherFlags), "Flags"),
    "the members of an enumeration": (things.counts_modes, made_again("Mode", MoreModes), ""),
    "a dtype with a name": (things.converts, put(things, "DTYPE", torch.float16), "refused"),
    "a memory format with a name": (things.lays_out, put(things, "FORMAT", torch.preserve_format), "refused"),
    "limits with a name": (things.reads_limits, put(things, "LIMITS", torch.finfo(torch.float16)), "LIMITS"),
    "an operator with a name": (
        things.calls_operators,
        put(things, "OPERATOR", torch.ops.aten.cos),
        "refused",
    ),
    "an overload with a name": (
        things.calls_operators,
        put(things, "OVERLOAD", torch.ops.aten.cos.default),
        "refused",
    ),
    "a function with a name": (things.calls_operators, put(things, "FUNCTION", torch.abs), "refused"),
    "a getter of items": (things.chooses, put(things, "CHOOSES", operator.itemgetter(1)), "refused"),
    "a caller of methods": (things.calls, put(things, "CALLS", operator.methodcaller("cos")), "refused"),
    "a partial": (
        things.applies,
        put(things, "APPLIES", functools.partial(torch.sub, alpha=2)),
        "refused",
    ),
    "a value that is nothing": (things.asks_for_nothing, put(things, "NOTHING", None), "NOTHING"),
    "a dtype of numpy's": (things.makes_an_array, put(things, "KIND", numpy.dtype("float32")), "KIND"),
    "a method of a built-in class": (
        things.calls_a_method,
        put(things, "METHOD", torch.Tensor.cos),
        "METHOD",
    ),
    "one in a table": (
        things.calls_a_method_of_a_table,
        lambda patch: patch.setitem(things.METHODS, "a", torch.Tensor.cos),
        "METHODS",
    ),
    "what a pattern matched": (
        things.reads_what_matched,
        put(things, "MATCHED", re.match(r"(\d+)", "7x")),
        "MATCHED",
    ),
    "autocast": (
        things.multiplies_in_mixed_precision,
        put(things, "MIXED", torch.autocast("cpu", dtype=torch.bfloat16, enabled=False)),
        "MIXED",
    ),
    "a member of an enumeration in C++": (
        things.chooses_a_backend,
        put(things, "BACKEND", SDPBackend.FLASH_ATTENTION),
        "BACKEND",
    ),
    "an item that a defaultdict would make": (
        things.reads_a_counted,
        put(things, "COUNTED", collections.defaultdict(lambda: 2.0)),
        "refused",
    ),
    "the order of a dict with keys of all kinds": (
        things.returns_a_table,
        put(things, "ORDERED", {2.5: 2.0, None: 1.0}),
        "refused",
    ),
    "a table that a comparison closes over": (
        things.compares_with_what_a_factory_made,
        lambda patch: patch.setitem(things.LIMIT, "n", 5),
        "__eq__",
    ),
    "a pattern": (things.matches, put(things, "PATTERN", re.compile("b+")), "PATTERN"),
}


@pytest.mark.parametrize("change", AT_LOAD)
def test_what_has_changed_before_the_first_call_is_not_served(change: str, monkeypatch: Patch) -> None:
    call, apply, words = AT_LOAD[change]
    one = captured(call, X)
    assert one.verdict() == ""
    apply(monkeypatch)
    said = one.verdict()
    assert said != ""
    assert words in said or said.startswith("refused by a guard")


def test_a_guard_puts_nothing_into_a_defaultdict(monkeypatch: Patch) -> None:
    one = captured(things.reads_a_counted, X)
    other = collections.defaultdict(float, other=2.0)
    monkeypatch.setattr(things, "COUNTED", other)
    assert one.verdict().startswith("refused by a guard")
    assert dict(other) == {"other": 2.0}


@pytest.mark.parametrize(
    "change",
    [
        *("a variable read by get", "a variable read by getenv", "a variable in brackets"),
        *("a variable asked for by in", "distributed", "the answer of a function of the process"),
        "the type of autocast",
        *("the call of all modules", "what the call of all modules goes through"),
        "how all modules find their parts",
    ],
)
def test_what_may_change_between_calls_is_asked_at_each(change: str, monkeypatch: Patch) -> None:
    call, apply, _ = AT_LOAD[change]
    # Said once, False is not the same as never said: torch 2.15 guards that, too.
    torch.backends.cuda.matmul.allow_tf32 = False
    verdict = captured(call, X).loaded()
    assert verdict() == ""
    apply(monkeypatch)
    assert verdict().startswith("refused by a guard")
    monkeypatch.undo()
    monkeypatch.setenv("THINGS_SET", "3")
    assert verdict() == ""


class TestHooks:
    @pytest.fixture
    def verdict(self) -> Iterator[Callable[[], str]]:
        verdict = captured(things.normalizes, X).loaded()
        assert verdict() == ""
        yield verdict
        assert verdict() == ""

    @pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
    @pytest.mark.parametrize("module", ["BLOCK", "BLOCK.norm", "all"])
    def test_a_hook_is_called(self, verdict: Callable[[], str], module: str, kind: str) -> None:
        if module == "all":
            register = getattr(torch.nn.modules.module, f"register_module_{kind}_hook")
        else:
            owner = things.BLOCK if module == "BLOCK" else things.BLOCK.norm
            register = getattr(owner, f"register_{kind}_hook")
        handle = register(lambda *_: None)
        try:
            assert verdict() == "refused by a guard"
        finally:
            handle.remove()

    def test_a_hook_comes_with_what_is_unpickled(
        self, verdict: Callable[[], str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In a process that registers none torch has numbered none."""
        plain = pickle.dumps(things.BLOCK)
        handle = things.BLOCK.norm.register_forward_hook(doubling)
        hooked = pickle.dumps(things.BLOCK)
        handle.remove()
        monkeypatch.setattr(torch.utils.hooks.RemovableHandle, "next_id", 0)
        for _ in range(2):
            for written, said in ((plain, ""), (hooked, "refused by a guard")):
                monkeypatch.setattr(things, "BLOCK", pickle.loads(written))
                for _ in range(2):
                    assert verdict() == said
        monkeypatch.undo()

    @pytest.mark.parametrize("method", ["forward", "encode"])
    def test_hooks_of_the_frames_own_module_count_if_it_calls_itself(self, method: str) -> None:
        """Those of a module whose forward it is have been called before the frame."""
        block = things.BLOCK
        verdict = captured(getattr(block, method), X, frame_self=block).loaded()
        assert verdict() == ""
        handle = block.register_forward_hook(doubling)
        try:
            assert verdict() == ("" if method == "forward" else "refused by a guard")
        finally:
            handle.remove()

    def test_hooks_of_the_build_are_the_same_hooks(self) -> None:
        handle = things.BLOCK.norm.register_forward_hook(doubling)
        try:
            verdict = captured(things.normalizes, X).loaded()
            assert verdict() == ""
            handle.remove()
            assert verdict().startswith("refused by a guard")
            handle = things.BLOCK.norm.register_forward_hook(tripling)
            assert verdict().startswith("refused by a guard")
        finally:
            handle.remove()


def doubling(_module: Any, _args: Any, result: torch.Tensor) -> torch.Tensor:
    return result * 2


def tripling(_module: Any, _args: Any, result: torch.Tensor) -> torch.Tensor:
    return result * 3


UNRELATED: dict[str, tuple[Any, Callable[[Patch], None]]] = {
    "an unrelated variable": (things.gets, set_variable("THINGS_OTHER", "5")),
    "an added method": (things.calls_method, put(things.Derived, "added", zero)),
    "a changed method that is not called": (
        things.calls_method,
        code_of(things.Base.unused, "(self): return 2"),
    ),
    "a replaced method that is not called": (things.calls_method, put(things.Base, "unused", zero)),
    "a mixin with other names": (
        things.makes_and_calls,
        bases(things.Bystander, things.Base),
    ),
    "another member of an enumeration": (things.takes_mode, put(things.Mode, "other", 1)),
    "a docstring": (things.makes_options, put(things.Options, "__doc__", "Other words.")),
    "an operator's implementation": (things.calls_operator, put(things, "doubled_again", zero)),
}


@pytest.mark.parametrize("change", UNRELATED)
def test_what_the_trace_did_not_use_may_change(change: str, monkeypatch: Patch) -> None:
    call, apply = UNRELATED[change]
    one = captured(call, X)
    apply(monkeypatch)
    assert one.verdict() == ""


REFUSED = {
    things.counts_variables: "os.environ is looked at as a whole (its __len__)",
    things.reads_all_variables: "os.environ is looked at as a whole (its __iter__)",
    things.asks_a_choosy_class: "isinstance() of Chosen, whose class has an __instancecheck__ of its own",
    things.copies_variables: "os.environ is looked at as a whole (its copy)",
    things.assumes_an_object: "tests.inputs.things.opaque() was called while tracing and its answer",
    things.asks_the_main_thread: "threading._main_thread, a _MainThread of the standard library, is in",
    things.hashes_text: "hash() of a value that every process hashes otherwise",
    things.hashes_by_method: "hash() of a value that every process hashes otherwise",
    things.takes_the_id: "id() of an object, which is its address in one process",
    things.words_an_object: "str() or repr() of something that says its address",
    things.shows_an_object: "str() or repr() of something that says its address",
    things.words_a_function: "str() or repr() of something that says its address",
    things.loops_over_names: "the order of a set of other elements than numbers",
    things.loops_over_a_global: "the order of a set of other elements than numbers",
    things.lists_names: "the order of a set of other elements than numbers",
    things.joins_names: "the order of a set of other elements than numbers",
    things.prints_names: "the order of a set of other elements than numbers",
    things.fills_names_in: "the order of a set of other elements than numbers",
    things.picks_by_a_key: "the order of a set of other elements than numbers",
    things.sorts_by_a_key: "the order of a set of other elements than numbers",
    things.keeps_names_as_keys: "the order of a set of other elements than numbers",
    things.unpacks_names: "the order of a set of other elements than numbers",
    things.pops_a_name: "pop() of a set of other elements than numbers",
    things.gathers_a_sets_names: "the order of a set of other elements than numbers",
    things.gathers_a_lists_and_a_sets_names: "the order of a set of other elements than numbers",
    things.gathers_the_names_of_a_copy: "the order of a set of other elements than numbers",
    things.joins_a_set: "the order of a set of other elements than numbers",
    things.prints_gathered_names: "the order of a set of other elements than numbers",
    things.pops_a_gathered_name: "pop() of a set of other elements than numbers",
}


@pytest.mark.parametrize("call", REFUSED, ids=lambda call: call.__name__)
def test_what_cannot_be_compared_stops_the_build(call: Any) -> None:
    with pytest.raises(Unsupported) as stopped:
        captured(call, X)
    said = str(stopped.value)
    assert said.startswith(REFUSED[call])
    assert "things.py:" in said
    assert f" in {call.__name__}" in said


_SETS_ARE_WORDS = pytest.mark.skipif(
    Version(torch.__version__) >= Version("2.14"),
    reason="this torch takes the words of a set for constant, so that the build stops",
)


@pytest.mark.parametrize(
    "call",
    [
        things.hashes_a_number,
        things.sorts_names,
        things.makes_a_set_of_names,
        things.looks_a_name_up,
        things.loops_over_numbers,
        things.gathers_names,
        things.gathers_a_lists_names,
        pytest.param(things.has_names_in_an_errors_text, marks=_SETS_ARE_WORDS),
        things.annotates,
    ],
    ids=lambda call: call.__name__,
)
def test_what_every_process_has_alike_does_not(call: Any) -> None:
    assert captured(call, X).verdict() == ""


@pytest.mark.parametrize(
    "call",
    [pytest.param(things.looks_into_a_text, marks=_SETS_ARE_WORDS), things.looks_into_a_formatted_text],
    ids=lambda call: call.__name__,
)
def test_what_the_words_of_a_set_are_is_asked_at_run_time(call: Any) -> None:
    with capture_settings({}, 1), tracing_frames(lambda _: None, lambda *_: None):
        compiled = torch.compile(call, backend="eager", fullgraph=True)
        with pytest.raises(torch._dynamo.exc.Unsupported, match="StringFormatVariable"):
            compiled(X)


def test_code_that_nothing_names_stops_the_build() -> None:
    made = functools.partial(eval("type('Local', (), {'scaled': lambda self, x: x * 2})"))

    def calls(x: torch.Tensor) -> torch.Tensor:
        return made().scaled(x)  # type: ignore[no-any-return]

    with pytest.raises(Unsupported) as stopped:
        captured(calls, X)
    assert "no name that another process could find it by" in str(stopped.value)


def test_generated_code_with_addresses_in_its_names_stops_the_build() -> None:
    """As beartype's."""
    namespace: dict[str, Any] = {}
    source = f"def checked(x, *, object_{id(namespace)}=float):\n    return x * object_{id(namespace)}(2)"
    exec(compile(source, f"<checked at {id(namespace):#x}>", "exec"), namespace)

    with pytest.raises(Unsupported) as stopped:
        captured(namespace["checked"], X)
    said = str(stopped.value)
    assert said.startswith("the code of checked was generated by a decorator, with names that are others in")
    assert "at <checked at 0x" in said


def test_a_lambda_that_a_registry_holds_counts_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
import torch
LIBRARY = torch.library.Library("held_by_a_registry", "DEF")
LIBRARY.define("half(Tensor x) -> Tensor")
LIBRARY.impl("half", lambda x: x / 2, "CPU")
LIBRARY.impl("half", lambda x: torch.empty_like(x), "Meta")
def calls(x):
    return torch.ops.held_by_a_registry.half(x)
"""
    file = tmp_path / "held_by_a_registry.py"
    file.write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("held_by_a_registry")
    entry = captured(module.calls, X)
    assert entry.verdict() == ""
    file.write_text(source.replace("empty_like(x)", "empty_like(x[:1])"))
    assert entry.verdict() == "the file of held_by_a_registry has changed since the build"


def test_modules_of_inputs_are_imported_and_words_are_none() -> None:
    """Those of torch are not: what is not imported there nobody has changed."""
    inputs = (
        kinds.Function("package.module", (), "", (), False),
        kinds.Function("torch.nn.modules.linear", (), "", (), False),
        kinds.Classes((), (), (("of.classes", (), ()), ("torch.nn", (), ())), ()),
        kinds.EnvironmentVariable("function", "classes"),
        kinds.AnsweredCall(["ref", "other", (), ""], ["tuple"], ["dict"], 1, "other.asked"),
    )
    named = modules_named((("function", "word", "or", "two"),), dependencies=inputs)
    assert named == ("of.classes", "other", "package.module")


def test_the_runtime_has_a_check_for_each_kind_which_takes_its_fields() -> None:
    checks = runtime("dependencies.comparison")._CHECKS
    own = {kind.__struct_config__.tag: kind for kind in kinds.Dependency.__subclasses__()}
    assert own.keys() == checks.keys()
    for name, kind in own.items():
        fields = kind.__struct_fields__
        taken = list(inspect.signature(checks[name]).parameters)
        # What is compared is, in a check, what it expects.
        own_names = {"fingerprint": "expected", "free_variables": "names", "deep": "held", "path": "expected"}
        own_names |= {"registered": "expected_registered", "found": "expected"}
        assert [each if each in taken else own_names[each] for each in fields] == taken, name


def test_a_dependency_comes_back_from_its_file() -> None:
    row = ("m", (("a", "C"),), (0,))
    given = [
        kinds.Classes(("f",), (("m.C", (("f", "1"),)),), (row,), ()),
        kinds.Function("m", (("a", "f"),), "0", ("x",), True),
        kinds.EnvironmentVariable("A", None),
    ]
    encoded = marshal.loads(marshal.dumps([each.encoded() for each in given], 2))
    assert [kinds.dependency(each) for each in encoded] == given


def test_an_object_that_no_guard_knows_stops_the_build() -> None:
    """No program is known that leads to one."""
    value = things.Bystander()
    root = GuardNode("root", None, "", None, None)
    with pytest.raises(Unsupported) as stopped:
        dependencies_of(zero.__code__, [], Assumed(objects={id(value): value}), root, Namer(globals()))
    assert str(stopped.value).startswith("an object of the class Bystander is in the trace, without a guard")
