"""References and constants: how an entry names an object, and how it is found again."""

from __future__ import annotations

import builtins
import collections
import enum
import functools
import marshal
import opcode
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.names import Namer
from hatch_precompile.runtime import runtime

decode, references = runtime("values.constants").decode, runtime("values.references")
with_prologue = runtime("calling.prologue").with_prologue
Stale = references.Stale
INNER = 0 if sys.version_info >= (3, 14) else 1  # which constant a nested function's code is


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = spec_from_file_location("made_for_a_test", Path(__file__).with_name("made_for_a_test.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    spec.loader.exec_module(module)
    return module


class TestResolve:
    @pytest.mark.parametrize(
        ("steps", "expression"),
        [
            ((), "m"),
            ((("a", "plain"),), "m.plain"),
            ((("a", "Thing"), ("a", "Inner"), ("a", "method")), "m.Thing.Inner.method"),
            ((("a", "Thing"), ("a", "table"), ("i", "a"), ("i", 1)), "m.Thing.table['a'][1]"),
            ((("a", "Thing"), ("d", "static")), "vars(m.Thing)['static']"),
            ((("a", "plain"), ("t", None)), "type(m.plain)"),
            ((("a", "outer"), ("a", "__code__"), ("k", INNER)), f"m.outer.__code__.co_consts[{INNER}]"),
        ],
    )
    def test_steps_lead_to_the_object(self, module: ModuleType, steps: Any, expression: str) -> None:
        assert references.resolve("made_for_a_test", steps) is eval(expression, {"m": module})

    @pytest.mark.parametrize(
        "steps",
        [
            (("a", "missing"),),
            (("a", "Thing"), ("d", "missing")),
            (("a", "Thing"), ("a", "table"), ("i", "b")),
            (("a", "Thing"), ("a", "table"), ("i", "a"), ("i", 2)),
            (("a", "plain"), ("i", 0)),
            (("a", "outer"), ("a", "__code__"), ("k", 99)),
        ],
    )
    def test_a_broken_way_is_stale_and_spelled(self, module: ModuleType, steps: Any) -> None:
        with pytest.raises(Stale, match=r"^made_for_a_test.* is gone"):
            references.resolve("made_for_a_test", steps)

    def test_a_module_is_not_imported_for_it(self) -> None:
        assert "this" not in sys.modules
        with pytest.raises(Stale, match="module this is not imported"):
            references.resolve("this", ())
        assert "this" not in sys.modules

    def test_a_way_is_spelled_as_python_would(self) -> None:
        steps = (("a", "b"), ("i", "k"), ("d", "m"), ("k", 3))
        assert references.spell("a", steps) == "a.b['k'].__dict__['m'].co_consts[3]"
        assert references.spell("a", (("t", None),)) == "type(a)"


def activated(function: FunctionType) -> FunctionType:
    """A function with the code that an activated entrypoint has."""
    function.__code__ = with_prologue(function.__code__, "__precompiled_test")
    return function


class TestActivatedFunctions:
    """An activated function has other code; references mean the code that it was compiled from."""

    def test_a_reference_leads_to_the_original_code(self, module: ModuleType) -> None:
        plain, code = module.plain, module.plain.__code__
        fingerprint = references.fingerprint(plain)
        assert activated(plain).__code__ is not code
        assert references.resolve("made_for_a_test", (("a", "plain"),)) is plain
        assert references.resolve("made_for_a_test", (("a", "plain"), ("a", "__code__"))) is code
        assert references.fingerprint(plain) == fingerprint

    def test_several_wheels_may_have_activated_it(self, module: ModuleType) -> None:
        code = module.plain.__code__
        activated(activated(module.plain))
        assert references.original(module.plain.__code__) is code

    def test_a_class_method_is_read_bound(self, module: ModuleType) -> None:
        function = vars(module.Thing)["cls"].__func__
        code = function.__code__
        activated(function)
        steps = (("a", "Thing"), ("a", "cls"), ("a", "__code__"))
        assert references.resolve("made_for_a_test", steps) is code


class TestUnwrap:
    def test_what_dynamo_puts_around_the_init_of_modules_is_seen_through(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from torch._dynamo import mutation_guard

        # How dynamo remembers that it has done so: up to torch 2.14, and from 2.15 on.
        monkeypatch.setattr(torch.nn.Module, "___needs_generation_tag_patch", True, raising=False)
        monkeypatch.delattr(torch.nn.Module, "___has_generation_tag_patch", raising=False)
        plain = {
            name: references.unwrap(getattr(torch.nn.Module, name)) for name in ("__init__", "__setstate__")
        }
        for name, function in plain.items():
            monkeypatch.setattr(torch.nn.Module, name, function)
        mutation_guard.install_generation_tagging_init()
        for name, function in plain.items():
            assert getattr(torch.nn.Module, name) is not function
            assert references.unwrap(getattr(torch.nn.Module, name)) is function
            assert function.__module__ == "torch.nn.modules.module"

    @pytest.mark.parametrize("value", [len, 3, None, "text", torch.nn.Linear, functools.partial(len)])
    def test_everything_else_is_itself(self, value: Any) -> None:
        assert references.unwrap(value) is value

    def test_a_bound_method_is_itself(self, module: ModuleType) -> None:
        method = module.Thing().method
        assert references.unwrap(method) is method


def function(source: str, *, filename: str = "a.py", line: int = 1) -> FunctionType:
    namespace: dict[str, Any] = {}
    exec(compile("\n" * line + source, filename, "exec"), namespace)
    made: FunctionType = namespace["f"]
    return made


class TestFingerprint:
    BASE = "def f(x, y=1):\n    return [g(z) for z in x if z in {'a', 'b'}]"

    def test_it_does_not_depend_on_where_the_source_stands(self) -> None:
        moved = function(self.BASE, filename="/elsewhere/b.py", line=40)
        assert references.fingerprint(function(self.BASE)) == references.fingerprint(moved)

    def test_comments_and_spacing_do_not_count(self) -> None:
        spaced = self.BASE.replace(":\n", ":  # a comment\n\n")
        assert references.fingerprint(function(self.BASE)) == references.fingerprint(function(spaced))

    def test_a_docstring_does_not_count(self) -> None:
        one, other = (function(f"def f(x):\n    '{text}'\n    return x + 1") for text in ("one", "other"))
        assert references.fingerprint(one) == references.fingerprint(other)

    @pytest.mark.skipif(
        sys.version_info >= (3, 13), reason="from Python 3.13 on a docstring moves the other constants"
    )
    def test_an_added_docstring_does_not_count(self) -> None:
        with_one = function("def f(x):\n    'says'\n    return x + 1")
        assert references.fingerprint(function("def f(x): return x + 1")) == references.fingerprint(with_one)

    def test_an_argument_that_looks_like_an_instruction_is_none(self) -> None:
        """The number of LOAD_CONST as an argument, followed by an instruction whose number is 0: a cache."""
        load = opcode.opmap["LOAD_CONST"]
        names = ", ".join(f"a{number}" for number in range(load + 1))
        source = f"def f({names}):\n    '{{}}'\n    return a{load} + a{load}"
        one, other = function(source.format("one")), function(source.format("other"))
        assert references.fingerprint(one) == references.fingerprint(other)

    def test_a_text_that_is_used_counts_where_the_docstring_is_the_same(self) -> None:
        one, other = (function(f"def f(x):\n    '{text}'\n    return '{text}'") for text in ("a", "b"))
        assert references.fingerprint(one) != references.fingerprint(other)

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("'b'", "'c'"),
            ("g(z)", "h(z)"),
            ("if z in", "if z not in"),
            ("y=1", "*, y=1"),
            ("(x", "(x, w"),
            ("z", "q"),
        ],
    )
    def test_what_is_executed_counts(self, old: str, new: str) -> None:
        changed = function(self.BASE.replace(old, new))
        assert references.fingerprint(function(self.BASE)) != references.fingerprint(changed)

    def test_numbers_that_are_equal_but_differ_in_type_count(self) -> None:
        one, other = function("def f(): return 1"), function("def f(): return 1.0")
        assert references.fingerprint(one) != references.fingerprint(other)

    @pytest.mark.parametrize("new", ["1:4, ::2", "1:3, ::3", "1:3.0, ::2", "('slice', 1, 3, None), ::2"])
    def test_slices_count(self, new: str) -> None:
        """From Python 3.14 on they are constants, which marshal does not hold in the form that is used."""
        one, other = (function(f"def f(x): return x[{text}]") for text in ("1:3, ::2", new))
        assert references.fingerprint(one) != references.fingerprint(other)

    @pytest.mark.parametrize(
        ("old", "new"), [("y=1", "y=2"), ("y=1", "y=1.0"), ("y=1", "y=None"), ("y=1", "y"), ("y=1", "*, y=2")]
    )
    def test_a_default_argument_counts(self, old: str, new: str) -> None:
        changed = function(self.BASE.replace(old, new))
        assert references.fingerprint(function(self.BASE)) != references.fingerprint(changed)

    @pytest.mark.parametrize("value", ["'/home/a'", "[1]", "object()", "('a', '/b')"])
    def test_a_default_that_may_differ_between_machines_does_not(self, value: str) -> None:
        one, other = function(f"def f(x={value}): pass"), function("def f(x='/home/b'): pass")
        assert references.fingerprint(one) == references.fingerprint(other)

    def test_the_code_of_a_function_counts_without_its_defaults(self) -> None:
        one, other = function("def f(x=1): pass"), function("def f(x=2): pass")
        assert references.fingerprint(one.__code__) == references.fingerprint(other.__code__)

    def test_it_is_the_same_in_every_process(self) -> None:
        code = (
            "from hatch_precompile.runtime import runtime\n"
            "def f(x=('y', 1), *, z=2, w=0.5): return x in {'a', 'b', 'c', 'd', ('e', 1), None}\n"
            "print(runtime('values.references').fingerprint(f))"
        )
        seen = {
            subprocess.run(
                [sys.executable, "-c", code],
                env={"PYTHONHASHSEED": seed},
                cwd=Path(__file__).parents[2],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in "123"
        }
        assert len(seen) == 1

    def test_a_class_and_a_builtin_count_by_name_and_others_by_identity_alone(self) -> None:
        assert references.fingerprint(torch.nn.Linear) == "type torch.nn.modules.linear.Linear"
        assert references.fingerprint(len) == "builtin len"
        assert references.fingerprint(object()) == ""

    def test_a_changed_function_is_stale_by_name(self, module: ModuleType) -> None:
        expected = references.fingerprint(module.plain)
        assert references.check("made_for_a_test", (("a", "plain"),), expected) is module.plain
        module.plain.__code__ = module.outer.__code__
        with pytest.raises(Stale, match=r"^made_for_a_test\.plain has changed since the build$"):
            references.check("made_for_a_test", (("a", "plain"),), expected)


class Mode(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


class Color(enum.Enum):
    RED = 1


def planet(mass: str, more: str = "") -> Any:
    """A member whose `__init__` computes what it has."""
    text = f"""
class Planet(enum.Enum):
    MARS = 3.0
    def __init__(self, weight):
        {mass}
        {more or "pass"}
    @functools.cached_property
    def volume(self):
        return 2.0
"""
    scope: dict[str, Any] = {"enum": enum, "functools": functools, "__name__": "planets"}
    exec(text, scope)
    return scope["Planet"].MARS


class TestMembersOfEnumerations:
    def test_what_its_constructor_gives_a_member_counts(self) -> None:
        ways = [
            planet("self.mass = weight"),
            planet("self.mass = weight * 2"),
            planet("self._mass = weight"),
            planet("pass"),
            planet("self.mass = weight", "self.moons = ['Phobos']"),
            planet("self.mass = weight", "self.moons = ['Deimos']"),
            planet("self.mass = weight", "self.moons = {'Phobos': 1}"),
            planet("self.mass = weight", "self.moons = {'Phobos': 2}"),
            planet("self.mass = weight", "self.turn = lambda: 1"),
            planet("self.mass = weight", "self.turn = lambda: 2"),
        ]
        assert len({references.fingerprint(way) for way in ways}) == len(ways)
        assert references.fingerprint(planet("self.mass = weight")) == references.fingerprint(ways[0])

    def test_what_comes_in_when_it_is_asked_does_not(self) -> None:
        member = planet("self.mass = weight")
        before = references.fingerprint(member)
        assert member.volume == 2.0 and "volume" in vars(member)
        assert references.fingerprint(member) == before

    def test_members_may_have_one_another(self) -> None:
        first, second = planet("self.next = None"), planet("self.next = None")
        first.next, second.next = second, (first, lambda of=second: of)
        assert references.fingerprint(first).endswith(".next = planets.Planet.MARS")
        assert "tuple(planets.Planet.MARS, " in references.fingerprint(second)

    def test_one_without_more_is_its_value(self) -> None:
        assert references.fingerprint(Color.RED) == "Color.RED = 1"


plain = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.just(...)
)
hashable = st.recursive(
    plain, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=6
)
constants = st.recursive(
    hashable | st.slices(9) | st.just(torch.float16) | st.just(Color.RED) | st.just(torch.Size([2, 3])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(hashable, max_size=3)
        | st.dictionaries(hashable, inner, max_size=3)
    ),
    max_leaves=10,
)


class TestConstants:
    @given(constants)
    def test_what_the_plugin_encodes_the_runtime_decodes(self, value: Any) -> None:
        encoded = marshal.loads(marshal.dumps(Namer({}).constant(value)))
        decoded = decode(encoded)
        assert decoded == value
        assert type(decoded) is type(value)

    @pytest.mark.parametrize(
        "value",
        [
            torch.float32,
            torch.nn.Linear,
            torch.relu,
            len,
            collections.OrderedDict,
            torch.device("cpu"),
            torch.contiguous_format,
            range(1, 9, 2),
            torch,
            torch.nn.Linear.forward,
            torch.nn.Linear.forward.__code__,
            torch.nn.Embedding.from_pretrained.__code__,  # of a class method
            torch.strided,
            vars(builtins),
        ],
    )
    def test_things_known_by_identity_are_found_again(self, value: Any) -> None:
        encoded = marshal.loads(marshal.dumps(Namer({}).constant(value)))
        decoded = decode(encoded)
        assert decoded is value or (decoded == value and isinstance(value, (torch.device, range)))

    def test_a_decorators_cell_and_a_nested_functions_code_are_found(self, module: ModuleType) -> None:
        inside = module.decorated.__wrapped__
        nested = module.outer().__code__
        for value in (inside, inside.__code__, nested):
            assert decode(Namer(vars(module)).reference(value)) is value

    @pytest.mark.parametrize("value", [Mode.READ, Mode.READ | Mode.RUN, Mode(0)])
    def test_flags_are_found_by_their_names(self, value: Mode) -> None:
        assert decode(Namer({}).constant(value)) is value

    def test_flags_are_spelled_by_their_names(self) -> None:
        encoded = Namer({}).constant(Mode.READ | Mode.RUN)
        assert references.spell(*encoded[1:3]).endswith(".Mode(READ|RUN)")

    @pytest.mark.parametrize("value", [object(), lambda x: x, type("Local", (), {})])
    def test_what_has_no_name_is_refused_with_advice(self, value: Any) -> None:
        with pytest.raises(Unsupported, match=r"has no name that another process could find it by") as caught:
            Namer({}).constant(value, None, "model.py:3 in forward")
        assert "at model.py:3 in forward" in str(caught.value)
        assert "module-level function, class or object" in str(caught.value)

    def test_a_type_that_python_has_no_name_for_is_refused_with_other_advice(self) -> None:
        with pytest.raises(Unsupported, match="Python itself has no name for it"):
            Namer({}).constant(type(collections.OrderedDict().keys()))

    @pytest.mark.parametrize("encoded", [["future"], ["ref", "os", (("z", 1),), ""]])
    def test_what_a_later_format_may_hold_is_stale(self, encoded: list[Any]) -> None:
        with pytest.raises(Stale, match="unknown"):
            decode(encoded)
