"""What dynamo takes from outside of the trace and asks less of than what the traced code has asked."""

from __future__ import annotations

import collections
import contextlib
import datetime
import enum
import functools
import inspect
import random
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from packaging.version import Version

from hatch_precompile.errors import Unsupported
from tests.inputs.asked import rows
from tests.inputs.capturing import captured

Call = Callable[[torch.Tensor, Any], Any]


def served_only_what_it_was_built_with(call: Call, built: Any, other: Any) -> None:
    """The entry serves a call with the first, and not with the second, of which the answer is another one."""
    again = captured(call, rows(), built).loaded()
    assert again() == ""
    one = captured(call, rows(), built)
    one.frame_locals["there"] = other
    assert not torch.equal(call(torch.ones(1), built), call(torch.ones(1), other))
    assert one.loaded()() != ""


def plain(y: Any) -> Any:
    return y


def decorated(function: Callable[..., Any], **marks: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    vars(wrapper).update(marks)
    return wrapper


def annotated(kind: Any) -> Any:
    def function(y: Any) -> Any:
        return y

    function.__annotations__ = {"y": kind}
    return function


def asks_for(kind: Any) -> Any:
    def function() -> float:
        return 2.0 if isinstance(1.0, kind) else 3.0

    return function


class Marked:
    def __init__(self, kind: Any) -> None:
        self.kind = kind


def has_the_class_of(marked: Marked) -> Any:
    def function() -> float:
        return 2.0 if issubclass(marked.kind, float) else 3.0

    return function


class Slotted:
    __slots__ = ("left", "right")


SLOTTED = Slotted()
SLOTTED.left, SLOTTED.right = 2.0, 3.0


class Mask(torch.Tensor):
    pass


class Image(torch.Tensor):
    pass


def enters(x: torch.Tensor, there: Any) -> torch.Tensor:
    with there as found:
        return x * 2.0 if found is None else x * 3.0


def one_argument(y: Any) -> None: ...
def two_arguments(y: Any, mask: float = 2.0) -> None: ...


def calls(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * there()


def calls_with(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * there(3.0)


def gets(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * there.__get__(SLOTTED)


Parameter = inspect.Parameter
VALUES: dict[str, tuple[Call, Any, Any]] = {
    "class in a closure": (calls, asks_for(float), asks_for(int)),
    "class below a closure": (calls, has_the_class_of(Marked(float)), has_the_class_of(Marked(int))),
    "signature": (
        lambda x, there: x * 2.0 if "mask" in there.kind.parameters else x * 3.0,
        Marked(inspect.signature(one_argument)),
        Marked(inspect.signature(two_arguments)),
    ),
    "parameter": (
        lambda x, there: x * there.default,
        Parameter("y", Parameter.KEYWORD_ONLY, default=2.0),
        Parameter("y", Parameter.KEYWORD_ONLY, default=3.0),
    ),
    "annotations": (
        lambda x, there: x * 2.0 if there.__annotations__["y"] is int else x * 3.0,
        annotated(int),
        annotated(float),
    ),
    "tensor class": (lambda x, there: x * 2.0 if there is Mask else x * 3.0, Mask, Image),
    "tensor class of an object": (
        lambda x, there: x * 2.0 if issubclass(there.kind, Mask) else x * 3.0,
        Marked(Mask),
        Marked(Image),
    ),
    "function marked": (
        lambda x, there: x * 2.0 if hasattr(there, "gated") else x * 3.0,
        decorated(plain),
        decorated(plain, gated=True),
    ),
    "function not marked": (
        lambda x, there: x * 2.0 if getattr(there, "gated", False) else x * 3.0,
        decorated(plain, gated=True),
        decorated(plain),
    ),
    "null context": (enters, contextlib.nullcontext(), contextlib.nullcontext(1.0)),
    "slot": (gets, vars(Slotted)["left"], vars(Slotted)["right"]),
    "method of a number": (calls_with, (2.0).__add__, (2.0).__mul__),
}


@pytest.mark.parametrize("case", VALUES.values(), ids=VALUES)
def test_another_value_is_not_served(case: Any) -> None:
    served_only_what_it_was_built_with(*case)


def test_dir_of_a_function_stops_the_build() -> None:
    with pytest.raises(Unsupported, match=r"dir\(\) of a function"):
        captured(lambda x, there: x * 2.0 if "gated" in dir(there) else x * 3.0, rows(), decorated(plain))


@pytest.mark.parametrize("name", ["random", "getstate"])
def test_a_generator_from_elsewhere_stops_the_build(name: str) -> None:
    with pytest.raises(Unsupported, match=r"a random\.Random that was made elsewhere"):
        captured(lambda x, there: x * len(str(getattr(there, name)())), rows(), random.Random(1))


def test_a_generator_without_a_seed_stops_the_build() -> None:
    with pytest.raises(Unsupported, match="without a seed"):
        captured(lambda x, there: x * random.Random(there).random(), rows(), None)


def made() -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return x

    return function


FIRST, SECOND = made(), made()
FUNCTIONS: dict[str, tuple[Call, Any, Any]] = {
    "in a list": (lambda x, there: x * 2.0 if there in [FIRST] else x * 3.0, FIRST, SECOND),
    "in a tuple": (lambda x, there: x * 2.0 if there in (FIRST,) else x * 3.0, FIRST, SECOND),
    "in a set": (lambda x, there: x * 2.0 if there in {FIRST} else x * 3.0, FIRST, SECOND),
    "in what is given": (lambda x, there: x * 2.0 if FIRST in there else x * 3.0, [FIRST], [SECOND]),
    "index": (lambda x, there: x * float([FIRST, SECOND].index(there) + 2), FIRST, SECOND),
    "count": (lambda x, there: x * float([FIRST].count(there) + 2), FIRST, SECOND),
    "disjoint": (lambda x, there: x * 2.0 if {FIRST}.isdisjoint(there) else x * 3.0, [FIRST], [SECOND]),
    "union": (lambda x, there: x * float(len({FIRST} | set(there))), [FIRST], [SECOND]),
    "lists": (
        lambda x, there: x * 2.0 if there[0] == there[1] else x * 3.0,
        ([FIRST], [FIRST]),
        ([FIRST], [SECOND]),
    ),
}


@pytest.mark.parametrize("which", [(1, 2), (2, 1)], ids=["built with the first", "built with the second"])
@pytest.mark.parametrize("case", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_of_one_code_are_told_apart(case: Any, which: tuple[int, int]) -> None:
    served_only_what_it_was_built_with(case[0], case[which[0]], case[which[1]])


@pytest.mark.parametrize("text", ["1.5", "123456789123"])
@pytest.mark.parametrize("swapped", [False, True])
def test_numbers_that_are_one_object_and_two(text: str, swapped: bool) -> None:
    def are_one(x: torch.Tensor, there: Any) -> torch.Tensor:
        return x * 2.0 if there[0] is there[1] else x * 3.0

    kind = float if "." in text else int
    number = kind(text)
    pairs = ((number, number), (number, kind(text)))
    served_only_what_it_was_built_with(are_one, *(reversed(pairs) if swapped else pairs))


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, there: x * 2.0 if there[0] is there[1] else x * 3.0,
        lambda x, there: x * 2.0 if there[0] in [1.0, there[1]] else x * 3.0,
        lambda x, there: x * 2.0 if [there[0]] == [there[1]] else x * 3.0,
        lambda x, there: x * ([1.0, there[1]].count(there[0]) + 2.0),
    ],
    ids=["is", "in", "==", "count"],
)
def test_numbers_that_do_not_equal_themselves(call: Call, swapped: bool) -> None:
    nan = float("nan")
    pairs = ((nan, nan), (nan, float("nan")))
    served_only_what_it_was_built_with(call, *(reversed(pairs) if swapped else pairs))


def test_equal_numbers_are_found_whether_they_are_one_object() -> None:
    def found(x: torch.Tensor, there: Any) -> torch.Tensor:
        return x * (there[0].index(there[1]) + 2.0)

    again = (one := captured(found, rows(), ([object, 1.5], 1.5))).loaded()
    one.frame_locals["there"] = ([object, float("1.5")], float("1.5"))
    assert again() == ""


DAY, OTHER_DAY = datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)


def test_a_date_as_a_key_stops_the_build() -> None:
    with pytest.raises(Unsupported, match="a key"):
        captured(lambda x, there: x * {DAY: 2.0}.get(there, 3.0), rows(), OTHER_DAY)


def starred(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * len([*there])


def handed_on(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * counted(0, *there)


def counted(*values: Any) -> int:
    return len(values)


def extended(x: torch.Tensor, there: Any) -> torch.Tensor:
    names: list[str] = []
    names.extend(there)
    return x * len(names)


def added(x: torch.Tensor, there: Any) -> torch.Tensor:
    names = ["x"]
    names += there
    return x * len(names)


def united(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * len({"x"}.union(there))


def joined(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * len(there | {"z": 1.0})


def test_all_keys_of_a_defaultdict_are_asked_for() -> None:
    one, two = (collections.defaultdict(float, each) for each in ({"a": 1.0}, {"a": 1.0, "b": 2.0}))
    served_only_what_it_was_built_with(joined, one, two)


def test_a_dict_joined_with_an_ordered_one() -> None:
    there = collections.OrderedDict(a=1.0)
    assert captured(lambda x, there: x * len({"z": 1.0} | there), rows(), there).loaded()() == ""


def summed(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * (sum(len(each) for each in there) + len(max(there)))


@pytest.mark.parametrize("call", [starred, handed_on, extended, added, united, joined, summed])
def test_all_keys_are_asked_for(call: Call) -> None:
    served_only_what_it_was_built_with(call, {"a": 1.0}, {"a": 1.0, "b": 2.0})


def test_the_order_of_keywords() -> None:
    def call(x: torch.Tensor, **there: Any) -> torch.Tensor:
        return torch.cat([x * there[name] for name in [*there]])

    again = (one := captured(call, rows(), a=2.0, b=3.0)).loaded()
    one.frame_locals["there"] = {"a": 2.0, "b": 3.0}
    assert again() == ""
    one.frame_locals["there"] = {"b": 3.0, "a": 2.0}
    assert again() != ""


@pytest.mark.parametrize(
    "call",
    [
        lambda x, there: x * len(there.__dict__.copy()),
        pytest.param(
            lambda x, there: x * len(there.__dict__ | {"z": 1}),
            marks=pytest.mark.skipif(
                torch.__version__.startswith("2.15"),
                reason="this torch does not trace it",
            ),
        ),
        lambda x, there: x * len([*there.__dict__]),
    ],
)
def test_all_attributes_are_asked_for(call: Call) -> None:
    served_only_what_it_was_built_with(call, types.SimpleNamespace(a=1), types.SimpleNamespace(a=1, b=2))


class Registry(dict[str, Any]):
    pass


class Names(list[float]):
    pass


class Marks(set[float]):
    pass


def puts(x: torch.Tensor, there: Any) -> torch.Tensor:
    there[0]["more"] = 1.0
    return x * len(there[1])


def appends(x: torch.Tensor, there: Any) -> torch.Tensor:
    there[0].append(2.0)
    return x * len(there[1])


def adds(x: torch.Tensor, there: Any) -> torch.Tensor:
    there[0].add(2.0)
    return x * len(there[1])


@pytest.mark.parametrize(
    ("call", "make"),
    [
        (puts, lambda: collections.OrderedDict(a=1.0)),
        (puts, lambda: collections.defaultdict(list, a=1.0)),
        (puts, lambda: Registry(a=1.0)),
        (appends, lambda: Names([1.0])),
        (adds, lambda: Marks([1.0])),
    ],
)
def test_two_objects_one_of_which_is_written(call: Call, make: Callable[[], Any]) -> None:
    again = (one := captured(call, rows(), [make(), make()])).loaded()
    one.frame_locals["there"] = [make(), make()]
    assert again() == ""
    same = make()
    one.frame_locals["there"] = [same, same]
    assert again() != ""


def test_parameters_given_to_a_module() -> None:
    """`functional_call` goes through a set of a dict's keys: dynamo's is as ordered as those."""
    module = torch.nn.Linear(4, 4)
    parameters = dict(module.named_parameters())

    def call(x: torch.Tensor, there: Any) -> Any:
        return torch.func.functional_call(there[0], there[1], (x,))

    one = captured(call, rows(), (module, parameters))
    assert one.loaded()() == ""
    one.frame_locals["there"] = (module, dict(reversed(parameters.items())))
    assert one.loaded()() != ""


class Color(enum.Enum):
    RED = 1.0


class NewColor(enum.Enum):
    RED = 1.0
    GREEN = 2.0


NewColor.__qualname__ = "Color"


def test_a_member_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * Color["GREEN"].value
        except KeyError:
            return x * 7.0

    one = captured(asked, rows())
    assert one.verdict() == ""
    monkeypatch.setitem(globals(), "Color", NewColor)
    assert "GREEN is new" in one.verdict()


@pytest.mark.skipif(Version(torch.__version__) >= Version("2.14"), reason="this torch does not trace it")
def test_a_member_by_a_number() -> None:
    def asked(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * Color["RED"].value * Color[1].value
        except KeyError:
            return x * 7.0

    assert captured(asked, rows()).verdict() == ""


class Base:
    def __divmod__(self, other: Any) -> float:
        return 2.0

    def __rdivmod__(self, other: Any) -> float:
        return 2.0

    def __rlshift__(self, other: Any) -> float:
        return 2.0


class Unit(Base):
    pass


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("__divmod__", lambda x, there: x * divmod(there, 3)),
        ("__rdivmod__", lambda x, there: x * divmod(3, there)),
        ("__rlshift__", lambda x, there: x * (1 << there)),
    ],
)
def test_special_methods_that_come_later(name: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    again = captured(call, rows(), Unit()).loaded()
    assert again() == ""
    monkeypatch.setattr(Unit, name, lambda self, other: 3.0, raising=False)
    assert again() != ""


def leaf() -> torch.Tensor:
    return torch.ones(4, requires_grad=True)


def marked(mark: str) -> torch.Tensor:
    tensor = leaf()
    setattr(tensor, mark, True)
    return tensor


def is_leaf(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if there.is_leaf else x * 3.0


def has_no_grad_fn(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if there.grad_fn is None else x * 3.0


def is_no_view(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if there._base is None else x * 3.0


def is_buffer(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if isinstance(there, torch.nn.Buffer) else x * 3.0


def is_parameter(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if isinstance(there, (torch.nn.Parameter, int)) else x * 3.0


TENSORS: list[tuple[Call, Any, Any]] = [
    (is_leaf, leaf, lambda: leaf() * 1.0),
    (has_no_grad_fn, leaf, lambda: leaf() * 1.0),
    (is_no_view, lambda: torch.ones(4), lambda: torch.ones(5)[1:]),
    (is_no_view, lambda: torch.ones(5)[1:], lambda: torch.ones(4)),
    (is_buffer, lambda: torch.ones(4), lambda: torch.nn.Buffer(torch.ones(4))),
    (is_buffer, lambda: torch.nn.Buffer(torch.ones(4)), lambda: torch.ones(4)),
    (is_parameter, leaf, lambda: marked("_is_param")),
]


@pytest.mark.parametrize(("call", "built", "other"), TENSORS)
def test_what_a_tensor_is(call: Call, built: Any, other: Any) -> None:
    served_only_what_it_was_built_with(call, built(), other())


def of_a_buffer(x: torch.Tensor, there: Any) -> torch.Tensor:
    return x * 2.0 if type(there) is torch.nn.Buffer else x * 3.0


def test_the_class_of_a_buffer() -> None:
    one = captured(of_a_buffer, rows(), torch.nn.Buffer(torch.ones(4)))
    again = one.loaded()
    assert again() == ""
    one.frame_locals["there"] = torch.ones(4)
    assert again() != ""


def test_the_base_of_a_view_stops_the_build() -> None:
    with pytest.raises(Unsupported, match="the base of a view"):
        captured(lambda x, there: x * there.view(-1)._base.numel(), rows(), torch.ones(4))


def test_the_size_of_a_storage_stops_the_build() -> None:
    with pytest.raises(Unsupported, match="the size of a tensor's storage"):
        captured(lambda x, there: x * there.untyped_storage().size(), rows(), torch.ones(4))
