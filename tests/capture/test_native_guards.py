"""Guards as native code: the answers of the Python text that they are made from, exceptions too."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest
import torch

from hatch_precompile.lower.guards.lowering import function_codes
from hatch_precompile.lower.guards.native.library import NativeGuards
from hatch_precompile.runtime import runtime
from tests.differential.harness import native
from tests.support.guard_text import functions_of

Guard = Callable[[dict[str, Any]], bool]


class Raises:
    """Its attributes are Python code, which raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class Lacks:
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class OwnDict:
    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return {"p": 2}


class Hidden:
    def __getattribute__(self, name: str) -> Any:
        return {"p": 3} if name == "__dict__" else object.__getattribute__(self, name)


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Slots:
    __slots__ = ("p",)


class Counts(dict[str, Any]):
    """What `[]` gives is not what it holds."""

    def __getitem__(self, key: str) -> Any:
        return 7


def both(body: str, **names: Any) -> tuple[Guard, Guard]:
    """The guard as Python and as native code; `functions`: text before it."""
    functions = names.pop("functions", "")
    lines = [*body.strip().splitlines(), "entry.hits += 1", "return True"]
    text = functions + "def guard(L):\n" + "".join(f"    {line.strip()}\n" for line in lines)
    namespace = {"__builtins__": __builtins__, "torch": torch, "entry": SimpleNamespace(hits=0), **names}
    *parts, code = function_codes(text, "<guards of a test>")
    namespace.update({part.co_name: FunctionType(part, namespace) for part in parts})
    return FunctionType(code, namespace), native(functions_of(text), namespace)


def answer(guard: Guard, value: Any) -> Any:
    try:
        return guard({"x": value})
    except Exception as error:
        return type(error)


CHECK = "if not ({}): return False"
VALUES = [
    *(None, True, False, 0, 1, 3, -1, 2.0, float("nan"), "word", "", b"3", (), (1, 2, 3), [1, 2, 3], {}),
    *({"p": 3}, {"p": float("nan")}, Counts(p=3), {3}, frozenset({"p"}), int, Plain, dict, len, sys),
    *(
        Plain(),
        Plain(p=3),
        OwnDict(),
        Hidden(),
        Slots(),
        Lacks(),
        Raises(),
        torch.ones(3),
        torch.nn.Linear(2, 3),
    ),
    torch.nn.Parameter(torch.ones(2, 3)),
]
CONDITIONS = [
    *("v0 is None", "v0 is True", "v0 is not None", "v0 is c0", "not v0", "v0"),
    *("type(v0) is dict", "type(v0) is c1", "type(v0) is torch.Tensor", "type(v0) is torch.nn.Parameter"),
    *("type(v0) is int and v0 == 3", "v0 == 3", "v0 != 3", "v0 == v0", "1 <= v0 <= 3", "v0 < 2", "v0 > 2.5"),
    *("3 < v0 or v0 is None", "len(v0) == 3", "dict.__len__(v0) == 1", "len(v0) == len(v0)", "v0['p'] == 3"),
    *(
        "v0[1] == 2",
        "v0[-1] == 3",
        "v0[2 - 1] == 2",
        "'p' in v0",
        "'p' not in v0",
        "v0.p == 3",
        "v0.__dict__",
    ),
    *(
        "not v0.__dict__",
        "'p' in v0.__dict__",
        "v0.__dict__['p'] == 3",
        "hasattr(v0, 'p')",
        "repr(v0) == '3'",
    ),
    *("list(dict.keys(v0)) == c2", "v0.dtype is torch.float32"),
    *("v0.size(0) == 3", "v0.dim() == 1", "v0 + 1 == 4", "v0 * 2 - 1 == 5", "v0 % 2 == 1", "v0 // 0 == 1"),
    *("-v0 == -3", "len({id(v0), id(c0)}) == 2", "(v0, True) == (3, True)", "v0.__class__ is c1", "v0()"),
    *("not v0.__dict__ or 'p' in v0.__dict__", "(v0 == 3 or v0 == 1) and v0 is not True", "v0 == -0.0"),
    *(
        "dict.__getitem__(v0, 'p') == 3",
        "dict.__getitem__(v0, 'p').real == 3",
        "dict.__contains__(v0, 'p')",
        "dict.get(v0, 'p') == 3",
        "dict.keys(v0).isdisjoint(('p', 'q'))",
        "dict.keys(v0).isdisjoint((c0,))",
        "class_lacks(type(v0), 1, ('p', '__iter__'))",
        "class_lacks(type(v0), 9, ('p', 'keys'))",
        "v0 == (1, 2, 3)",
        "type(v0) is type(c0)",
        "math.isnan(v0)",
    ),
]


@pytest.fixture(scope="module")
def guards() -> dict[str, tuple[Guard, Guard]]:
    import math

    class_lacks = runtime("dependencies.call_checks").class_lacks
    constants = {"c0": 3, "c1": Plain, "c2": ["p"], "math": math, "class_lacks": class_lacks}
    return {
        condition: both(f"v0 = L['x']\n{CHECK.format(condition)}", **constants) for condition in CONDITIONS
    }


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_has_the_answer_of_its_text(
    guards: dict[str, tuple[Guard, Guard]], condition: str
) -> None:
    python, made = guards[condition]
    for value in VALUES:
        expected, found = answer(python, value), answer(made, value)
        if isinstance(expected, type) and issubclass(
            expected, (LookupError, AttributeError, TypeError, ValueError, ArithmeticError)
        ):
            # What is not there is a refusal at once, unless Python code says so.
            assert found in (False, expected), (condition, value)
        else:
            assert found is expected, (condition, value)


def test_an_exception_of_python_code_comes_through() -> None:
    _, made = both("v0 = L['x']\nif not (v0.p == 3): return False")
    with pytest.raises(RuntimeError, match="p"):
        made({"x": Raises()})
    assert made({"x": Plain()}) is False


def test_what_a_dict_lacks_is_asked_again_when_it_has_changed() -> None:
    _, made = both("v0 = L['x']\nif not (dict.keys(v0).isdisjoint(('p', 'q'))): return False")
    _, other = both("v0 = L['x']\nif not (dict.keys(v0).isdisjoint(('r',))): return False")
    for value in ({}, {"a": 1}, Counts(a=1), vars(Plain(a=1)), {str(number): 0 for number in range(99)}):
        assert [made({"x": value}), made({"x": value}), other({"x": value})] == [True, True, True]
        value["r"] = 1
        assert [made({"x": value}), other({"x": value})] == [True, False]
        value["q"] = 1
        assert [made({"x": value}), made({"x": value})] == [False, False]
        del value["q"], value["r"]
        assert [made({"x": value}), other({"x": value})] == [True, True]


def test_an_instance_is_asked_again_whichever_way_it_has_changed() -> None:
    _, made = both("v0 = L['x'].__dict__\nif not (dict.keys(v0).isdisjoint(('p',))): return False")
    ways: list[Callable[[Any], Any]] = [
        lambda value: setattr(value, "p", 1),
        lambda value: vars(value).update(p=1),
        lambda value: vars(value).setdefault("p", 1),
        lambda value: object.__setattr__(value, "p", 1),
        lambda value: setattr(value, "__dict__", {"p": 1}),
    ]
    for number, way in enumerate(ways * 20):
        value = Plain(a=1, b=number)
        assert [made({"x": value}) for _ in range(3)] == [True] * 3
        value.b = 2
        assert made({"x": value}) is True
        way(value)
        assert made({"x": value}) is False, number


def test_what_a_class_lacks_is_asked_again_when_it_or_a_base_has_changed() -> None:
    class Base:
        pass

    class Derived(Base):
        pass

    class_lacks = runtime("dependencies.call_checks").class_lacks
    body = "if not (class_lacks(c0, {}, ('p', 'q'))): return False"
    guards = [both(body.format(count), c0=Derived, class_lacks=class_lacks) for count in (1, 3)]

    def answers() -> list[list[Any]]:
        return [[guard({}) for guard in pair] for pair in guards]

    assert answers() == answers() == [[True] * 2] * 2
    Base.q = 1  # type: ignore[attr-defined]
    assert answers() == [[True] * 2, [False] * 2]
    Derived.p = 1  # type: ignore[attr-defined]
    assert answers() == [[False] * 2] * 2
    del Base.q, Derived.p  # type: ignore[attr-defined]
    assert answers() == [[True] * 2] * 2


def test_a_class_has_the_names_that_are_expected_and_no_others() -> None:
    class Counted:
        def __len__(self) -> int:
            return 1

    special = frozenset({"__len__", "__bool__", "__getattr__"})
    class_has = runtime("dependencies.call_checks").class_has
    guards = both(
        "if not (class_has(c0, c1, ('__len__',))): return False", c0=Counted, c1=special, class_has=class_has
    )

    def answers() -> list[Any]:
        return [guard({}) for guard in guards]

    assert answers() == answers() == [True] * 2
    length = Counted.__len__
    Counted.__bool__ = lambda self: True  # type: ignore[attr-defined]
    assert answers() == [False] * 2
    del Counted.__len__  # as many as before
    assert answers() == [False] * 2
    Counted.__len__ = length  # type: ignore[method-assign]
    del Counted.__bool__  # type: ignore[attr-defined]
    assert answers() == [True] * 2


def test_hits_are_counted() -> None:
    entry = SimpleNamespace(hits=0)
    _, made = both("v0 = L['x']\nif not (v0 is None): return False", entry=entry)
    assert [made({"x": value}) for value in (None, 1, None)] == [True, False, True]
    assert entry.hits == 2


PARTS = """
def p0(v1):
    if not (type(v1) is dict): return False
    v2 = v1['p']
    if not (v2 is not None): return False
    v3 = v1['q']
    return (v2, v3,)


def p1(v1):
    if not (v1 == 3): return False
    return True


"""


def test_parts_hand_on_what_they_found() -> None:
    body = "v0 = L['x']\nif (r := p0(v0)) is False: return False\n(v4, v5,) = r\n"
    body += "if not p1(v4): return False\nif not (v5 is v4): return False"
    python, made = both(body, functions=PARTS)
    for value in (
        {"p": 3, "q": 3},
        {"p": 3, "q": 4},
        {"p": 4, "q": 4},
        {"p": None, "q": 1},
        {},
        None,
        {"p": 3},
    ):
        assert bool(_refused(python, value)) == bool(_refused(made, value)), value


def _refused(guard: Guard, value: Any) -> bool:
    found = answer(guard, value)
    return found is not True


def test_a_wrapped_function_is_looked_behind() -> None:
    def function() -> None: ...

    def wrapper() -> None: ...

    wrapper.inner = function  # type: ignore[attr-defined]
    body = "v0 = L['x']\nif v0.__dict__: v0 = plain_function(v0)\nif not (v0 is c0): return False"
    python, made = both(body, c0=function, plain_function=lambda value: value.inner)
    assert [python({"x": f}) for f in (function, wrapper)] == [True, True]
    assert [made({"x": f}) for f in (function, wrapper)] == [True, True]


class Marked(torch.Tensor):
    """A subclass without methods of its own."""


class Wraps(torch.Tensor):
    """Wraps another tensor; says what its sizes and strides are, or raises."""

    raises: type[BaseException] | None = None

    @staticmethod
    def __new__(cls, inner: torch.Tensor, policy: str) -> Wraps:
        made: Wraps = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, dispatch_sizes_strides_policy=policy
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if cls.raises is not None:
            raise cls.raises(str(function))
        return function(*[each.inner if isinstance(each, Wraps) else each for each in args])


def _nested() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(3), torch.ones(3)])


def _swapped() -> torch.Tensor:
    tensor = torch.ones(2, 3)
    torch.utils.swap_tensors(tensor, _nested())
    return tensor


def _left_over(transform: Any) -> torch.Tensor:
    """A tensor of a transform's that has ended."""
    seen: list[torch.Tensor] = []
    transform(lambda x: [seen.append(x), x.sum()][1])(torch.ones(2, 2, 3))
    return seen[0]


STRANGE: dict[str, Callable[[], torch.Tensor]] = {
    "nested": _nested,
    "nested, of a subclass": lambda: _nested().as_subclass(Marked),
    "nested, jagged": lambda: torch.nested.nested_tensor([torch.ones(3)] * 2, layout=torch.jagged),
    "swapped for a nested one": _swapped,
    "sparse": lambda: torch.ones(2, 3).to_sparse(),
    "sparse parameter": lambda: torch.nn.Parameter(torch.ones(2, 3).to_sparse()),
    "compressed": lambda: torch.ones(2, 3).to_sparse_csr(),
    "of oneDNN": lambda: torch.ones(2, 3).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.quint8),
    "functional": lambda: torch._to_functional_tensor(torch.ones(2, 3)),
    "without data": lambda: torch.ones(2, 3, device="meta"),
    "zeros": lambda: torch._efficientzerotensor((2, 3)),
    "not yet there": torch.nn.parameter.UninitializedParameter,
    "left over of vmap": lambda: _left_over(torch.vmap),
    "left over of grad": lambda: _left_over(torch.func.grad),
    "sizes raise": lambda: Wraps(torch.ones(2, 3), "sizes"),
    "strides raise": lambda: Wraps(torch.ones(2, 3), "strides"),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_no_tensor_ends_the_process(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's check lets exceptions of C++ out where sizes or strides cannot be read."""
    strange, plain = STRANGE[kind](), torch.ones(2, 3)
    alike = Wraps(plain, "sizes") if isinstance(strange, Wraps) else plain
    if type(strange) in (torch.nn.Parameter, Marked):
        alike = plain.as_subclass(type(strange))
    group = runtime("torch_internals.torch_private").TensorCheck(
        [plain, alike], [[None, None]] * 2, [[None, None]] * 2
    )
    python, made = both("if not (T0.check(L['y'], L['x'])): return False", T0=group)
    other = torch.zeros(2, 3)
    for guard in (python, made):
        assert guard({"y": other, "x": alike}) is True
    monkeypatch.setattr(Wraps, "raises", ValueError)
    for guard in (python, made):
        for _ in range(3):
            assert not _accepts(guard, {"y": other, "x": strange})
        monkeypatch.setattr(Wraps, "raises", None)
        assert guard({"y": other, "x": alike}) is True
        monkeypatch.setattr(Wraps, "raises", ValueError)
    assert group.check_verbose(other, strange, tensor_check_names=["y", "x"])


def _accepts(guard: Guard, values: dict[str, Any]) -> bool:
    try:
        return guard(values)
    except ValueError:  # of the subclass: the caller judges it
        return False


def test_nothing_is_kept_alive_and_nothing_let_go_too_often() -> None:
    class Value:
        pass

    _, made = both(
        "v0 = L['x']\nv1 = v0['p']\nif not (v1.__dict__['q'] == 3 or len(v0) == 2): return False\n"
        "if not (v0[0] == 2): return False"
    )
    value = Value()
    value.q = 3  # type: ignore[attr-defined]
    container = {"p": value}
    counts = sys.getrefcount(value), sys.getrefcount(container), sys.getrefcount(3)
    for _ in range(1000):
        assert made({"x": container}) is False
    assert (sys.getrefcount(value), sys.getrefcount(container)) == counts[:2]
    dead = weakref.ref(value)
    del value, container
    gc.collect()
    assert dead() is None


@pytest.mark.parametrize("expression", ["f(a=L)", "[L]", "L << 2", "L if L else G", "~L", "f(L)[g(b=1)]"])
def test_what_is_not_known_stays_python_and_is_told(expression: str) -> None:
    guards = NativeGuards()
    assert guards.add(functions_of(f"def guard(L):\n    v0 = {expression}\n    return True\n")) is None
    (told,) = guards.left_in_python
    assert told in expression


def test_the_same_guards_are_the_same_bytes(tmp_path: Any) -> None:
    text = "def guard(L):\n    v0 = L['x']\n    if not (v0 == 3): return False\n    return True\n"
    for name in ("one", "two"):
        guards = NativeGuards()
        guards.add(functions_of(text))
        assert not guards.compile(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_another_number_of_constants_is_refused(tmp_path: Any) -> None:
    guards = NativeGuards()
    guards.add(functions_of("def guard(L):\n    if not (L is c0): return False\n    return True\n"))
    assert not guards.compile(tmp_path / "guards.so")
    make = runtime("graphs.callers").load_library(str(tmp_path / "guards.so"), "counted", "guards")
    for arguments in ((0, ()), (1, (1,)), (-1, (1,))):
        with pytest.raises(ValueError, match="no such guard"):
            make(*arguments)
