"""Small functions, each of which rests on something that another process may have otherwise."""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import importlib.metadata
import importlib.util
import operator
import os
import platform
import re
import tempfile
import threading
import typing
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn.attention import SDPBackend

Tensor = torch.Tensor


# -- values that a module gives a name to -----------------------------------------------------------

DTYPE = torch.float64
FORMAT = torch.channels_last
LIMITS = torch.finfo(torch.float32)
OPERATOR = torch.ops.aten.sin
OVERLOAD = torch.ops.aten.sin.default
FUNCTION = torch.relu
CHOOSES = operator.itemgetter(0)
CALLS = operator.methodcaller("sin")
APPLIES = functools.partial(torch.add, alpha=2)
NOTHING: Any = typing.List[int]  # noqa: UP006
KIND = numpy.dtype("float64")
METHOD = torch.Tensor.sin
METHODS = {"a": torch.Tensor.sin}
BUILTIN: Any = torch.sqrt
MATCHED: Any = re.match(r"(\d+)", "12x")
MIXED = torch.autocast("cpu", dtype=torch.bfloat16)
BACKEND = SDPBackend.MATH
COUNTED: Any = collections.defaultdict(float, scale=2.0)
ORDERED: Any = {None: 1.0, 2.5: 2.0}


def converts(x: Tensor) -> Tensor:
    return x.to(DTYPE)


def lays_out(x: Tensor) -> Tensor:
    return torch.ones_like(x.expand(2, 2, 1, 4), memory_format=FORMAT) * x


def reads_limits(x: Tensor) -> Tensor:
    return x * LIMITS.bits


def calls_operators(x: Tensor) -> Any:
    return OPERATOR(x) + OVERLOAD(x) + FUNCTION(x)


def chooses(x: Tensor) -> Any:
    return CHOOSES((x, x + 1))


def calls(x: Tensor) -> Any:
    return CALLS(x)


def applies(x: Tensor) -> Tensor:
    return APPLIES(x, x)


def asks_for_nothing(x: Tensor) -> Tensor:
    return x if NOTHING is None else x * 2


def makes_an_array(x: Tensor) -> Tensor:
    return x * torch.from_numpy(numpy.ones(4, dtype=KIND))


def calls_a_method(x: Tensor) -> Tensor:
    return METHOD(x)


def calls_a_method_of_a_table(x: Tensor) -> Any:
    return METHODS["a"](x)


def reads_what_matched(x: Tensor) -> Tensor:
    return x * int(MATCHED.group(1))


def multiplies_in_mixed_precision(x: Tensor) -> Tensor:
    with MIXED:
        return torch.mm(x.T, x)


def chooses_a_backend(x: Tensor) -> Tensor:
    return x * 2 if BACKEND == SDPBackend.MATH else x + 1


def reads_a_counted(x: Tensor) -> Any:
    return x * COUNTED.get("scale", 1.0)


def returns_a_table(x: Tensor) -> Any:
    table = ORDERED.copy()
    table["x"] = x * 2
    return table


def compares_with_what_a_factory_made(x: Tensor) -> Tensor:
    return x * 2 if COMPARED == 3 else x + 1


def _compares(table: Any) -> Any:
    return lambda self, other: table["n"] > 2


LIMIT = {"n": 2}


@typing.runtime_checkable
class HasScale(typing.Protocol):
    scale: float


class Choosy(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return hasattr(instance, "scale")


class Chosen(metaclass=Choosy):
    pass


class Scaled:
    def __init__(self) -> None:
        self.scale = 2.0


SCALED = Scaled()


def asks_a_protocol(x: Tensor) -> Tensor:
    return x * 2 if isinstance(SCALED, HasScale) else x + 1


def asks_a_choosy_class(x: Tensor) -> Tensor:
    return x * 2 if isinstance(SCALED, Chosen) else x + 1


def asks_for_the_place(x: Tensor) -> Tensor:
    return x * 2 if tempfile.gettempdir() == tempfile.tempdir else x + 1


class Compared:
    __hash__ = None  # type: ignore[assignment]
    __eq__ = _compares(LIMIT)


COMPARED = Compared()


# -- the environment and the process ---------------------------------------------------------------


def gets(x: Tensor) -> Tensor:
    return x * float(os.environ.get("THINGS_SCALE", "2"))


def getenvs(x: Tensor) -> Tensor:
    return x * float(os.getenv("THINGS_SCALE", "2"))


def subscripts(x: Tensor) -> Tensor:
    return x * float(os.environ["THINGS_SET"])


def contains(x: Tensor) -> Tensor:
    return x * 2 if "THINGS_SCALE" in os.environ else x + 1


def counts_variables(x: Tensor) -> Tensor:
    return x * len(os.environ)


def reads_all_variables(x: Tensor) -> Tensor:
    return x * len([name for name in os.environ if name.startswith("T")])


def copies_variables(x: Tensor) -> Tensor:
    return x * float(os.environ.copy().get("THINGS_SCALE", "2"))


def asks_distributed(x: Tensor) -> Tensor:
    return x * 2 if torch.distributed.is_initialized() else x + 1


def autocasts(x: Tensor) -> Tensor:
    with torch.autocast("cpu"):
        return x @ x.t()


def asks_tf32(x: Tensor) -> Tensor:
    return x * 2 if torch.backends.cuda.matmul.allow_tf32 else x + 1


def asks_system(x: Tensor) -> Tensor:
    return x * 2 if platform.system() == "Linux" else x + 1


def asks_version(x: Tensor) -> Tensor:
    return x * len(importlib.metadata.version("torch"))


def asks_for_a_module(x: Tensor) -> Tensor:
    return x * 2 if importlib.util.find_spec("numpy") else x + 1


STATE = {"count": 3}


@torch.compiler.assume_constant_result
def counted(more: int) -> int:
    return STATE["count"] + more


def assumes(x: Tensor) -> Tensor:
    return x * counted(4)


class Opaque:
    pass


@torch.compiler.assume_constant_result
def opaque() -> Any:
    return Opaque()


def asks_the_main_thread(x: Tensor) -> Tensor:
    return x * len(threading.main_thread().name)


def assumes_an_object(x: Tensor) -> Tensor:
    return x * 2 if opaque() else x


# -- values that each process has for itself -------------------------------------------------------


def hashes_text(x: Tensor) -> Tensor:
    return x * (hash("abc") % 1000)


def hashes_by_method(x: Tensor) -> Tensor:
    return x * ("abc".__hash__() % 1000)


def hashes_a_number(x: Tensor) -> Tensor:
    return x * (hash((7, 2.0)) % 1000)


class Anything:
    """Its text is object's own."""


ANYTHING = Anything()


def takes_the_id(x: Tensor) -> Tensor:
    return x * (id(STATE) % 1000)


def words_an_object(x: Tensor) -> Tensor:
    return x * len(str(ANYTHING))


def shows_an_object(x: Tensor) -> Tensor:
    return x * len(repr(ANYTHING))


def words_a_function(x: Tensor) -> Tensor:
    return x * len(str(takes_the_id))


def loops_over_names(x: Tensor) -> Tensor:
    for name in {"sin", "exp", "tanh"}:  # noqa: PLC0208
        x = getattr(torch, name)(x)
    return x


NAMES = frozenset({"sin", "exp", "tanh"})


def loops_over_a_global(x: Tensor) -> Tensor:
    for name in NAMES:
        x = getattr(torch, name)(x)
    return x


def lists_names(x: Tensor) -> Tensor:
    return x * len(list({"a", "bb", "ccc"})[0])  # noqa: RUF015


def joins_names(x: Tensor) -> Tensor:
    return x * "".join({"a", "bb", "ccc"}).index("c")


def prints_names(x: Tensor) -> Tensor:
    return x * str({"a", "bb", "ccc"}).index("c")


def looks_into_a_text(x: Tensor) -> Tensor:
    return x * f"{NAMES}".index("sin")


def looks_into_a_formatted_text(x: Tensor) -> Tensor:
    return x * "{} of {of}".format(1, of=[NAMES]).index("exp")  # noqa: UP032


def annotates(x: Tensor) -> Tensor:
    parts = torch.jit.annotate(list[Tensor], [])
    for part in x:
        parts.append(part * 2)
    return torch.stack(parts)


def has_names_in_an_errors_text(x: Tensor) -> Tensor:
    _check("sin" in NAMES, f"sin is none of {NAMES}")
    _check("exp" in NAMES, "exp is none of {}".format({"a": NAMES}))
    return x * 2


def _check(holds: bool, text: str) -> None:
    if not holds:
        raise ValueError(text)


def fills_names_in(x: Tensor) -> Tensor:
    return x * ("%s of %s" % (1, [NAMES])).index("sin")  # noqa: UP031


def picks_by_a_key(x: Tensor) -> Tensor:
    return x * ord(max(NAMES, key=len)[0])  # the first of the longest


def sorts_by_a_key(x: Tensor) -> Tensor:
    return x * ord(sorted({"sin", "exp", "cos"}, key=len)[0][0])


def keeps_names_as_keys(x: Tensor) -> Tensor:
    for name in dict.fromkeys(NAMES):
        x = getattr(torch, name)(x)
    return x


def unpacks_names(x: Tensor) -> Tensor:
    return x * len([*NAMES][0])  # noqa: RUF015


def pops_a_name(x: Tensor) -> Tensor:
    return x * len({"a", "bb", "ccc"}.pop())


def makes_a_set_of_names(x: Tensor) -> Tensor:
    kept = {name for name in ("sin", "exp", "tanh") if name != "exp"}
    for name in kept:
        x = getattr(torch, name)(x)
    return x * len([*{"a", "bb"}][1])


def sorts_names(x: Tensor) -> Tensor:
    for name in sorted({"sin", "exp", "tanh"}):
        x = getattr(torch, name)(x)
    return x


def looks_a_name_up(x: Tensor) -> Tensor:
    return x * 2 if "sin" in {"sin", "exp"} | NAMES else x * len(max({"a", "bb"}))


def gathers_names(x: Tensor) -> Tensor:
    """Dynamo goes through its own sets in the order of insertion, whatever Python does."""
    names: set[str] = set()
    names.add("sin")
    names.update(["exp", "tanh", "cos"])
    names.remove("cos")
    for name in names:
        x = getattr(torch, name)(x)
    return x


KINDS = ["sin", "exp", "sin", "tanh"]


def gathers_a_lists_names(x: Tensor) -> Tensor:
    for name in set(KINDS):
        x = getattr(torch, name)(x)
    return x


def gathers_a_lists_and_a_sets_names(x: Tensor) -> Tensor:
    names = set(["cos"])  # noqa: C405
    names.update(NAMES)
    for name in names:
        x = getattr(torch, name)(x)
    return x


def gathers_the_names_of_a_copy(x: Tensor) -> Tensor:
    for name in set(set(NAMES)):  # noqa: C414
        x = getattr(torch, name)(x)
    return x


def gathers_a_sets_names(x: Tensor) -> Tensor:
    names: set[str] = set()
    names.update(NAMES)
    for name in names:
        x = getattr(torch, name)(x)
    return x


def joins_a_set(x: Tensor) -> Tensor:
    names: set[str] = set()
    names.add("cos")
    names |= NAMES
    for name in names:
        x = getattr(torch, name)(x)
    return x


def prints_gathered_names(x: Tensor) -> Tensor:
    names: set[str] = set()
    for name in ("a", "bb", "ccc"):
        names.add(name)
    return x * str(names).index("c")


def pops_a_gathered_name(x: Tensor) -> Tensor:
    names: set[str] = set()
    for name in ("a", "bb", "ccc"):
        names.add(name)
    return x * len(names.pop())


def loops_over_numbers(x: Tensor) -> Tensor:
    for number in {1, 2, 3}:  # noqa: PLC0208
        x = x * number + 1
    return x


# -- code that has no name -------------------------------------------------------------------------


@dataclasses.dataclass
class Options:
    scale: float = 2.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: float = 2.0


class Pair(typing.NamedTuple):
    scale: float = 2.0


def makes_options(x: Tensor) -> Tensor:
    return x * Options().scale


def makes_frozen(x: Tensor) -> Tensor:
    return x * Frozen().scale


def makes_a_pair(x: Tensor) -> Tensor:
    return x * Pair().scale


def counts_fields(x: Tensor) -> Tensor:
    total = 0
    for field in dataclasses.fields(Options()):
        total += len(field.name)
    return x * total


def casts(x: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    return x.to(dtype)


class Caster:
    @staticmethod
    def cast(x: Tensor, *, dtype: torch.dtype = torch.float64) -> Tensor:
        return x.to(dtype)


def casts_by_default(x: Tensor) -> Tensor:
    return Caster().cast(casts(x))


def doubles(x: Tensor) -> Tensor:
    return x * 2


def calls_helper(x: Tensor) -> Tensor:
    return doubles(x) + 1


torch.compiler.allow_in_graph(calls_helper)


def calls_allowed(x: Tensor) -> Tensor:
    return calls_helper(x)


@torch._dynamo.nonstrict_trace
def traced_otherwise(x: Tensor) -> Tensor:
    return doubles(x)


def calls_traced_otherwise(x: Tensor) -> Tensor:
    return traced_otherwise(x)  # type: ignore[no-any-return]


@dataclasses.dataclass
class Listed:
    scales: list[float] = dataclasses.field(default_factory=lambda: [2.0])


def makes_listed(x: Tensor) -> Tensor:
    return x * Listed().scales[0]


@torch.library.custom_op("things::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    return x * 2


@doubled.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def calls_operator(x: Tensor) -> Tensor:
    return doubled(x)


def _guarded(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    @functools.wraps(function)
    def guarded(x: Tensor) -> Tensor:
        return function(x)

    return guarded


@_guarded
def decorated(x: Tensor) -> Tensor:
    return x * 2


def calls_decorated(x: Tensor) -> Tensor:
    return decorated(x)


# -- what classes have -----------------------------------------------------------------------------


class Base:
    scale = 2.0

    def scaled(self, x: Tensor) -> Tensor:
        return x * self.scale

    def unused(self) -> int:
        return 1

    @property
    def factor(self) -> float:
        return 3.0


class Derived(Base):
    pass


class Mixin:
    def scaled(self, x: Tensor) -> Tensor:
        return x * 0


class Bystander:
    def unrelated(self) -> int:
        return 7


DERIVED = Derived()


def calls_method(x: Tensor) -> Tensor:
    return DERIVED.scaled(x)


def makes_and_calls(x: Tensor) -> Tensor:
    return Derived().scaled(x) * Derived().factor


class Abstract(abc.ABC):  # noqa: B024
    pass


def asks_for_the_class(x: Tensor) -> Tensor:
    return x * 2 if isinstance(DERIVED, Abstract) else x + 1


class MyNorm(nn.LayerNorm):
    pass


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = MyNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)  # type: ignore[no-any-return]

    def encode(self, x: Tensor) -> Tensor:
        return self(x) * 2  # type: ignore[no-any-return]


BLOCK = Block().eval()


def normalizes(x: Tensor) -> Tensor:
    return BLOCK(x)  # type: ignore[no-any-return]


def activates(x: Tensor) -> Tensor:
    return torch.nn.functional.gelu(torch.relu(x)).tanh()


# -- constants known by identity -------------------------------------------------------------------


class Color(enum.IntEnum):
    RED = 1
    BLUE = 2


class Mode(enum.Enum):
    SOFT = "soft"
    HARD = 3.0


class Flags(enum.Flag):
    A = 1
    B = 2


def multiplies_by_color(x: Tensor) -> Tensor:
    return x * Color.RED


def looks_color_up(x: Tensor) -> Tensor:
    return x * Color(2)


def takes_mode(x: Tensor) -> Tensor:
    return x * Mode.HARD.value


def joins_flags(x: Tensor) -> Tensor:
    return x * (Flags.A | Flags.B).value


def counts_modes(x: Tensor) -> Tensor:
    return x * len([mode for mode in Mode])  # noqa: C416


PATTERN = re.compile("a+")


def matches(x: Tensor) -> Tensor:
    return x * 2 if PATTERN.match("aaa") else x + 1
