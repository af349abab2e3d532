"""Looking at objects of others runs none of their code: what the helpers say, and that they are used."""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hatch_precompile import static_lookup
from hatch_precompile.runtime import runtime
from tests.conftest import REPOSITORY

RAN: list[str] = []


def run(self: Any, *args: Any) -> Any:
    RAN.append(str(args))
    raise RuntimeError("nobody should have asked")


class Hostile:
    there = 1
    __slots__ = ("slot",)
    __getattr__ = __eq__ = __hash__ = __len__ = __bool__ = __repr__ = __getattribute__ = run  # type: ignore
    __class__ = property(run)  # type: ignore
    __dict__ = property(run)  # type: ignore
    asked = property(run)


class Module(types.ModuleType):
    __getattr__ = __getattribute__ = run


class Meta(type):
    __module__ = property(lambda cls: "its classes'")  # type: ignore
    __getattribute__ = __eq__ = __hash__ = run  # type: ignore


class Made(metaclass=Meta):
    pass


class Own:
    def __init__(self) -> None:
        self.here = 2

    def method(self) -> None:
        pass


@pytest.fixture(autouse=True)
def nothing_ran() -> Iterator[None]:
    RAN.clear()
    yield
    assert RAN == []


class TestAttributes:
    def test_those_that_are_simply_there(self) -> None:
        assert static_lookup.attribute(Own(), "here") == 2
        assert static_lookup.attribute(Own, "__module__") == __name__
        assert static_lookup.attribute(static_lookup.attribute, "__qualname__") == "attribute"
        assert static_lookup.attribute(types, "__name__") == "types"
        assert static_lookup.attribute(functools.partial(int, 1), "args") == (1,)
        assert static_lookup.attribute(functools.cache(run), "__wrapped__") is run
        assert static_lookup.attribute(dataclasses.field(), "init") is True

    def test_of_what_does_not_want_to_be_asked(self) -> None:
        hostile = Hostile()
        assert static_lookup.attribute(hostile, "there") == 1
        for name in ("slot", "asked", "anything", "__wrapped__", "__code__"):
            assert static_lookup.attribute(hostile, name) is None
        object.__setattr__(hostile, "slot", 3)
        assert static_lookup.attribute(hostile, "slot") == 3
        assert static_lookup.dict_of(hostile) == {}

    def test_a_method_is_none(self) -> None:
        assert static_lookup.attribute(Own(), "method") is None
        assert not static_lookup.has(Own(), "method")

    def test_what_a_class_says_is_not_its_own_classs(self) -> None:
        assert static_lookup.module_of(Meta) == ""
        assert static_lookup.module_of(Made) == __name__
        assert static_lookup.class_name(Made) == f"{__name__}.Made"
        assert (static_lookup.class_name(Meta), static_lookup.class_name(int)) == ("Meta", "int")

    def test_a_class_is_what_it_is_made_of(self) -> None:
        assert static_lookup.is_a(Hostile(), Hostile) and not static_lookup.is_a(Hostile(), int, str)
        assert static_lookup.is_a(Made, type) and not static_lookup.is_a(Made(), type)


class TestModules:
    def test_one_that_is_imported_when_it_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        later = Module("later")
        monkeypatch.setitem(sys.modules, "later", later)
        monkeypatch.setitem(sys.modules, "no_module", Hostile())
        names = dict(static_lookup.modules())
        assert names["later"] is types.ModuleType.__dict__["__dict__"].__get__(later)
        assert "no_module" not in names
        assert static_lookup.file_of(later) == ""
        assert runtime("imports").is_imported("later")
        assert runtime("imports").is_imported("no_module")

    def test_pythons_own_lazy_ones(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "lazily.py").write_text("raise RuntimeError")
        spec = importlib.util.spec_from_file_location("lazily", tmp_path / "lazily.py")
        assert spec is not None and spec.loader is not None
        spec.loader = importlib.util.LazyLoader(spec.loader)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "lazily", module)
        spec.loader.exec_module(module)
        assert static_lookup.file_of(module) == str(tmp_path / "lazily.py")
        assert runtime("imports").is_imported("lazily")

    @pytest.mark.parametrize("error", [AttributeError, ImportError, RuntimeError])
    def test_a_global_that_a_module_would_make(self, error: type[Exception]) -> None:
        module = types.ModuleType("made")
        assert not static_lookup.has_global(module, "x")

        def answer(name: str) -> int:
            if name == "x":
                return 1
            raise error(name)

        vars(module)["__getattr__"] = answer
        assert static_lookup.has_global(module, "x") and not static_lookup.has_global(module, "y")


class TestFingerprints:
    """What of values is compared with another process."""

    def test_of_what_does_not_want_to_be_asked(self) -> None:
        fingerprints, references = runtime("dependencies.fingerprints"), runtime("values.references")
        name = f"{__name__}.Hostile"
        assert fingerprints.of_value(Hostile(), True) == name
        assert fingerprints.of_value([Hostile()], True) == ("builtins.list", name)
        assert references.full_fingerprint(Hostile()) == f"a {name}"
        assert references.full_fingerprint(Made()) == f"a {__name__}.Made"
        assert references.fingerprint(Hostile()) == ""

    def test_of_what_says_otherwise_of_what_it_holds(self) -> None:
        class Pairs(tuple):
            __iter__ = __len__ = __repr__ = run  # type: ignore

        class Table(dict):  # type: ignore
            items = __iter__ = __len__ = keys = run  # type: ignore

        fingerprint = runtime("dependencies.fingerprints").of_value
        assert fingerprint(Pairs((1, 2)))[1:] == ("1", "2")
        assert fingerprint(Table(a=1), True)[1:] == (("'a'", "1"),)

    def test_of_members_and_dataclasses(self) -> None:
        class Colour(enum.Enum):
            RED = 1

        @dataclasses.dataclass
        class Point:
            x: int = 1

        class Squared(Point):
            x = property(lambda self: vars(self)["hidden"])  # type: ignore

            def __init__(self, hidden: int) -> None:
                vars(self)["hidden"] = hidden

        fingerprint = runtime("dependencies.fingerprints").of_value
        assert fingerprint(Squared(1)) != fingerprint(Squared(2))
        assert fingerprint(Colour.RED).endswith("Colour.RED = 1")
        assert fingerprint(Point(2))[1:] == (("x", "2"),)


SOURCES = sorted(
    [*(REPOSITORY / "templates").rglob("*.py"), *(REPOSITORY / "hatch_precompile").rglob("*.py")]
)

# What looks at things of torch's, of Python's or of ours alone, or at what an author has named.
OF_KNOWN_THINGS = {
    "templates": {
        *("calling/activation.py", "graphs/autograd.py", "loading/cells.py", "values/constants.py"),
        *(
            "recording/described.py",
            "loading/entries.py",
            "loading/helpers.py",
            "graphs/callers.py",
            "dependencies/comparison.py",
            "dependencies/fingerprints.py",
        ),
        *(
            "import_hooks.py",
            "imports.py",
            "installation.py",
            "values/references.py",
            "values/torch_settings.py",
            "torch_internals/torch_frames.py",
            "torch_internals/torch_private.py",
        ),
    },
    "hatch_precompile": {
        *("capture/frame_names.py", "cli/explain_call.py", "lower/bytecode.py", "lower/parametrized.py"),
        *(
            "lower/guards/subclasses.py",
            "lower/guards/builder.py",
            "lower/dependencies/executed.py",
            "lower/names.py",
        ),
        *("reuse/cache_key.py", "entrypoints/finding.py", "entrypoints/workload.py", "verify/answers.py"),
        "verify/samples.py",
    },
}
ASKING = {"vars", "dir", "dataclasses.is_dataclass", "inspect.getmembers"}

# Those that look at whatever they are given: not even whether it is an instance of something.
AT_ANYTHING = (
    *(
        "templates/values/references.py",
        "templates/values/constants.py",
        "templates/dependencies/call_checks.py",
        "templates/dependencies/comparison.py",
        "templates/dependencies/fingerprints.py",
        "templates/values/static_lookup.py",
    ),
    *(
        "templates/explaining/explanation.py",
        "templates/explaining/refusal.py",
        "templates/values/parametrized.py",
    ),
    *("hatch_precompile/lower/names.py", "hatch_precompile/entrypoints/description.py"),
)


def _calls(file: Path) -> Iterator[tuple[int, str, list[ast.expr]]]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func), node.args


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(REPOSITORY)))
def test_who_looks_at_others_uses_the_helpers(file: Path) -> None:
    place, _, name = file.relative_to(REPOSITORY).as_posix().partition("/")
    known = name in OF_KNOWN_THINGS[place] or name.startswith(("tracing/", "inductor/", "backends/"))
    found = []
    for line, function, args in _calls(file):
        special = (
            function in ("getattr", "hasattr")
            and isinstance(args[1], ast.Constant)
            and str(args[1].value).startswith("__")
        )
        over_modules = function in ("sys.modules.items", "sys.modules.values") or (
            function in ("list", "sorted", "dict", "enumerate")
            and any(ast.unparse(argument) == "sys.modules" for argument in args)
        )
        if (over_modules and name != "values/static_lookup.py") or (
            not known and (special or function in ASKING)
        ):
            found.append(f"{line}: {function}({', '.join(map(ast.unparse, args))})")
    assert found == []


# `repr` of values of exactly Python's own classes, and of torch's.
REPR = {
    "templates/values/references.py": 1,
    "templates/dependencies/call_checks.py": 1,
    "templates/dependencies/fingerprints.py": 2,
    "templates/values/parametrized.py": 2,
    "templates/explaining/explanation.py": 1,
    "hatch_precompile/entrypoints/description.py": 2,
}


@pytest.mark.parametrize("name", AT_ANYTHING)
def test_no_instance_is_asked_what_it_is(name: str) -> None:
    called = [function for _, function, _ in _calls(REPOSITORY / name)]
    assert "isinstance" not in called
    assert called.count("repr") == REPR.get(name, 0)
