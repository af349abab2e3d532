"""`run(name, x)` runs one of the programs: one target whose frame has an entry for each of them.

Where it does not matter what is computed it is `x * 2`: a graph that was compiled before costs nothing.
"""

import collections
import dataclasses
import enum
import functools
import random
import sys
import time

import numpy
import torch
from torch.nn import functional
from torch.nn.attention.flex_attention import flex_attention

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def run(name, x):
    return PROGRAMS[name](x)


def samples():
    return [(name, inputs()) for name in PROGRAMS]


def inputs():
    return torch.linspace(-1, 2, 12).reshape(3, 4)


# -- graph breaks --------------------------------------------------------------------------------


def say(*words):
    print(*words)


@program
def looks_at_the_clock(x):
    """The time is another one in every call, and passes from frame to frame."""
    before = time.perf_counter()
    y = x * before
    torch._dynamo.graph_break()
    return y / before, time.perf_counter() >= before


if not (2, 14) <= torch.__version__ < (2, 15):  # 2.14 computes with other numbers than those drawn

    @program
    def draws_a_number_between_graphs(x):
        drawn = random.random()
        y = x * drawn
        torch._dynamo.graph_break()
        return y / drawn + x


if torch.__version__ < (2, 15):  # which breaks the graph there

    @program
    def takes_gradients_within(x):
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad((y * y).sum(), y)
        return gradient * 2


@program
def breaks_in_the_middle(x):
    y = x.sin()
    say("middle")
    return y.cos() + x


def inner_break(x):
    y = x * 2
    say("inner")
    return y * 2


@program
def breaks_in_a_function_it_calls(x):
    return inner_break(x * 2) * 2


def outer_break(x):
    return inner_break(inner_break(x) * 2) * 2


@program
def breaks_in_nested_functions(x):
    return outer_break(x) * 2


@program
def breaks_inside_with(x):
    with torch.set_grad_enabled(False):
        y = x * 2
        say("with")
        y = y * 2
    return y * 2


@program
def breaks_with_free_variables(x):
    factor = 2

    def closure(y):
        z = y * factor
        say("closure")
        return z * factor

    return closure(x)


@program
def breaks_recursively(x):
    return countdown(3, x)


def countdown(n, x):
    if n == 0:
        return x
    x = x * 2
    say("count", n)
    return countdown(n - 1, x) * 2


@torch.compiler.disable
def left_alone(x):
    return x.detach().clone() + 5


@program
def calls_what_is_disabled(x):
    return left_alone(x * 2) * 2


@program
def breaks_before_any_operation(x):
    say("first")
    return x * 2


@program
def breaks_with_nothing_after(x):
    y = x * 2
    say("last")
    return y


@program
def breaks_twice_inside_with(x):
    with torch.no_grad():
        y = x * 2
        say("one")
        z = y * 2
        say("two")
        return z * 2


@program
def breaks_before_a_loop(x):
    say("before")
    for _ in range(2):
        x = x * 2
    return x


@program
def breaks_inside_a_function_with_a_closure(x):
    scale = x.sum()

    def scaled(y):
        y = y * 2
        say("inside")
        return y * scale

    return scaled(x) + scaled(x * 2)


def said_and_doubled(x):
    say("row")
    return x * 2


if sys.version_info >= (3, 12):  # before, it is a function with a loop, and a build refuses it

    @program
    def breaks_in_a_comprehension(x):
        y = x * 2
        rows = [said_and_doubled(y) for _ in range(1)]
        return rows[0] + y


def doubled_rows(x):
    for row in x:
        yield row * 2


if torch.__version__ >= (2, 13):  # before, the list is a tuple

    @program
    def breaks_after_a_generator(x):
        first, *rest = doubled_rows(x)
        say("generated")
        return first * 2, rest


# -- transforms inside of what is compiled -------------------------------------------------------


def sum_of_squares(x):
    return (x * x).sum()


@program
def takes_a_gradient_inside(x):
    return torch.func.grad(sum_of_squares)(x)


@program
def maps_over_a_dimension(x):
    return torch.vmap(sum_of_squares)(x)


@program
def loops_until_it_is_enough(x):
    def goes_on(x):
        return x.sum() < 100

    def step(x):
        return (x.abs() * 2 + 1,)

    return torch.while_loop(goes_on, step, (x,))


def nearer_is_better(score, batch, head, query, key):
    return score - (query - key).abs()


@program
def attends_in_its_own_way(x):
    q = x.sum() + torch.arange(2 * 32 * 16.0).reshape(1, 2, 32, 16) / 1000
    return flex_attention(q, q.flip(2), q * 2, score_mod=nearer_is_better)


# -- effects -------------------------------------------------------------------------------------


@program
def changes_its_input(x):
    y = x.clone()
    y.mul_(2)
    x.add_(y)
    return y


@program
def returns_its_input(x):
    return x, x.sin()


@program
def returns_a_view_of_its_input(x):
    return x[1:], x.t()


@program
def changes_a_view_of_its_input(x):
    x[0].mul_(3)
    return x.sum()


@program
def returns_two_views_of_one_result(x):
    y = x.sin()
    return y[0], y[1:]


@program
def returns_one_result_twice(x):
    y = x * 2
    return y, [y]


@program
def drops_out(x):
    return functional.dropout(x, 0.5, training=True) + torch.rand(3, 4)


@program
def casts(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x @ x.t()


LOG = []


@program
def appends_to_a_list(x):
    LOG.append(2)
    collected = [x.sin()]
    collected.append(x.cos())
    return collected


class Counter:
    def __init__(self):
        self.count = 0


COUNTER = Counter()


@program
def counts_on_an_object(x):
    COUNTER.count += 1
    return x * 2


CALLS = 0


@program
def counts_in_a_global(x):
    global CALLS
    CALLS += 1
    return x * 2


def counting():
    count = 0

    def counted(x):
        nonlocal count
        count += 1
        return x * 2

    return counted


COUNTING = counting()


@program
def counts_in_a_cell(x):
    return COUNTING(x)


TABLE = {}


@program
def writes_to_a_dict(x):
    TABLE["last"] = "seen"
    return x * 2


RUNNING = {"sum": torch.zeros(3, 4)}


@program
def adds_to_a_global_tensor(x):
    return RUNNING["sum"].add_(x) * 2


def reset():
    """Take back what programs leave behind."""
    global CALLS
    LOG.clear()
    COUNTER.count = CALLS = COUNTING.__closure__[0].cell_contents = 0
    TABLE.clear()
    RUNNING["sum"].zero_()


def left_behind():
    """What they have left behind since then."""
    counts = [len(LOG), COUNTER.count, CALLS, COUNTING.__closure__[0].cell_contents]
    return [*counts, dict(TABLE), RUNNING["sum"]]


@program
def returns_a_dict(x):
    found = {"a": x.sin()}
    found["b"] = found["a"] + 1
    return found


@dataclasses.dataclass
class Answer:
    value: torch.Tensor
    words: str = "none"


@program
def returns_a_dataclass(x):
    return Answer(x * 2, "fine")


Pair = collections.namedtuple("Pair", "left right")


@program
def returns_a_named_tuple(x):
    return Pair(x.sin(), x.cos())


# -- values from outside -------------------------------------------------------------------------

SCALE = torch.tensor(2.0)
NUMBER = 7


@program
def reads_a_global_tensor(x):
    return x * SCALE


@program
def reads_a_global_number(x):
    return x + NUMBER


def with_default(x, factor=2.0):
    return x * factor


@program
def uses_a_default_argument(x):
    return with_default(x)


def with_keyword_default(x, *, factor=2.0):
    return x * factor


@program
def uses_a_keyword_only_default(x):
    return with_keyword_default(x)


def multiplier(factor):
    def multiplied(x):
        return x * factor

    return multiplied


DOUBLED = multiplier(2.0)


@program
def calls_a_closure(x):
    return DOUBLED(x)


def twice(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(function(*args, **kwargs))

    return wrapper


@twice
def decorated(x):
    return x * 2


@program
def calls_a_decorated_function(x):
    return decorated(x)


PARTIAL = functools.partial(with_keyword_default, factor=2)


@program
def calls_a_partial(x):
    return PARTIAL(x)


class Gadget:
    kind = 3.0

    def __init__(self, size):
        self.size = size

    @property
    def area(self):
        return self.size * 2.0

    @staticmethod
    def halve(x):
        return x / 2

    @classmethod
    def lift(cls, x):
        return x + cls.kind

    def apply(self, x):
        return self.lift(self.halve(x)) * self.area


GADGET = Gadget(5.0)


@program
def calls_methods_of_all_kinds(x):
    return GADGET.apply(x)


ARRAY = numpy.arange(4, dtype=numpy.float32)
HALF = numpy.float32(0.5)


@program
def adds_an_array_of_numpy(x):
    return (x + torch.from_numpy(ARRAY)) * HALF


class Feature(enum.Flag):
    FIRST = enum.auto()
    SECOND = enum.auto()
    THIRD = enum.auto()


FEATURES = Feature.FIRST | Feature.THIRD


@program
def looks_at_flags(x):
    return x * 2 if FEATURES & Feature.THIRD and not FEATURES & Feature.SECOND else x


@program
def asks_for_the_version_of_torch(x):
    return x * 2 if torch.__version__ >= (2, 0) else x


NUMBERS = {3, 5}


@program
def goes_through_a_set(x):
    for number in NUMBERS:
        x = x + number
    return x


# -- custom operators ----------------------------------------------------------------------------


@torch.library.custom_op("programs::scaled_sine", mutates_args=())
def scaled_sine(x: torch.Tensor, factor: float, *, shift: float = 0.0) -> torch.Tensor:
    return torch.sin(x) * factor + shift


@scaled_sine.register_fake
def _(x, factor, *, shift=0.0):
    return torch.empty_like(x)


@program
def calls_a_custom_operator(x):
    return scaled_sine(x + 1, 3.0, shift=2.0).cos()


@torch.compiler.nested_compile_region
def region(x):
    return x.sin() * 2


@program
def runs_a_region_twice(x):
    return region(region(x))


LIBRARY = torch.library.Library("programs_low", "DEF")
LIBRARY.define("halves(Tensor x) -> (Tensor, Tensor)")
LIBRARY.impl("halves", lambda x: (x[:1].clone(), x[1:].clone()), "CPU")
LIBRARY.impl("halves", lambda x: (x.new_empty(1, x.size(1)), x.new_empty(x.size(0) - 1, x.size(1))), "Meta")


@program
def calls_an_operator_of_a_library(x):
    a, b = torch.ops.programs_low.halves(x.sin())
    return a.cos() + b.sum()


LIBRARY.define("maybe(Tensor x, bool both) -> (Tensor, Tensor?)")
LIBRARY.impl("maybe", lambda x, both: (x + 1, x * 2 if both else None), "CPU")
LIBRARY.impl("maybe", lambda x, both: (torch.empty_like(x), torch.empty_like(x) if both else None), "Meta")


@program
def calls_an_operator_that_returns_none(x):
    a, b = torch.ops.programs_low.maybe(x.sin(), False)
    return a * 2 if b is None else a + b
