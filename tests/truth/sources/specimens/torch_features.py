"""What torch has for programs that are compiled, and what of torch a program may ask for."""

import os

import numpy
import torch
from torch.nn import functional

SCALES = numpy.array([0.5, 1.0, 1.5, 2.0], dtype=numpy.float32)
STEP = numpy.float32(0.25)
CONSTANT = torch.tensor([1.0, 2.0, 3.0, 4.0])
NAMES = {"sin", "tanh"}


def rows():
    return [(torch.linspace(-1, 2, 12).reshape(3, 4),)]


def indexed():
    return [(torch.linspace(-1, 2, 12).reshape(3, 4), torch.tensor([2, 0, 1, 2]))]


def classified():
    return [(torch.linspace(-1, 2, 12).reshape(3, 4), torch.tensor([1, 0, 3]))]


@torch.library.custom_op("specimens::halve", mutates_args=())
def halve(x: torch.Tensor, by: float = 2.0) -> torch.Tensor:
    if by == 0.0:
        raise ValueError("cannot divide by zero")
    return x / by


@halve.register_fake
def _(x, by=2.0):
    return torch.empty_like(x)


def calls_a_custom_operator(x):
    return halve(x * 3.0) + 1.0


def helper_of_allowed(x):
    return x * 1.25


@torch.compiler.allow_in_graph
def allowed(x):
    return helper_of_allowed(x.sin()) + 0.5


def calls_what_is_allowed(x):
    return allowed(x) * 2.0


SETTINGS = {"factor": 3.0}


@torch.compiler.assume_constant_result
def assumed():
    return SETTINGS["factor"] + 0.5


def calls_what_is_assumed(x):
    return x * assumed()


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * scale

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x * 3.0 * ctx.scale, None


def calls_a_function_of_autograd(x):
    return Squared.apply(x, 0.5) + x


def loss_of(x):
    return (x.sin() * 2.0).sum()


def takes_gradients(x):
    return torch.func.grad(loss_of)(x) + 1.0


def maps_over_rows(x):
    return torch.func.vmap(lambda row: row * row.sum() + 0.5)(x)


def reads_numpy_constants(x):
    return x * torch.from_numpy(SCALES) + float(STEP)


def reads_a_constant_tensor(x):
    return x * CONSTANT + CONSTANT.shape[0]


def reads_the_environment(x):
    return x * float(os.environ.get("SPECIMENS_FACTOR", "2.0"))


def asks_for_variables(x):
    if os.getenv("SPECIMENS_MODE", "plain") == "plain" and "SPECIMENS_SHIFT" not in os.environ:
        return x + 1.0
    return x - 1.0


def asks_for_the_default_dtype(x):
    y = torch.ones(4) * torch.finfo(torch.get_default_dtype()).bits
    return x + y


def asks_for_the_mode(x):
    if torch.is_grad_enabled():
        return x * 2.0
    return x * 3.0 + float(torch.is_inference_mode_enabled())


def asks_for_distribution(x):
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return x * 2.0
    return x + 0.5


def iterates_a_set(x):
    for name in NAMES:
        x = getattr(torch, name)(x)
    return x


def indexes(x, ids):
    return x[ids] * 2.0 + functional.embedding(ids, x)


def gathers(x, ids):
    return x.gather(1, ids[:3, None]) + x.index_select(0, ids)[:3]


def computes_a_loss(x, labels):
    return functional.nll_loss(functional.log_softmax(x, dim=-1), labels) * 2.0


def calls_functional(x):
    y = functional.gelu(x) + functional.leaky_relu(x)
    y = functional.layer_norm(y, (4,)) * functional.softplus(x)
    return functional.pad(y, (1, 0), value=0.5)


def returns_views(x):
    flat = x.reshape(-1)
    return flat[2:6], x.t(), x


def changes_its_input(x):
    x.mul_(2.0)
    x[0] += 1.0
    return x.sum()


def drops_out(x):
    return functional.dropout(x + 5.0, p=0.5, training=True) + torch.rand(4)


def prints(x):
    y = x.sin() * 2.0
    print("half way", len(y))
    return y.cos() + 0.5


def breaks_for_an_item(x):
    total = float(x.sum().item())
    if total > 0.5:
        return x * 2.0
    return x - 1.0


def uses_context_managers(x):
    with torch.no_grad():
        y = x * 2.0
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=True):
        z = y @ y.t()
    return z.float() + 0.5


def changes_dtypes(x):
    y = x.to(torch.float64) * 3.0
    return y.to(torch.float16), y.sum(dtype=torch.float32), x.to(torch.int32)


PROGRAMS = [
    {"target": "calls_a_custom_operator", "samples": "rows"},
    {"target": "calls_what_is_allowed", "samples": "rows", "warm": True},
    {"target": "calls_what_is_assumed", "samples": "rows", "warm": True},
    {"target": "calls_a_function_of_autograd", "samples": "rows"},
    {"target": "takes_gradients", "samples": "rows"},
    {"target": "maps_over_rows", "samples": "rows"},
    {"target": "reads_numpy_constants", "samples": "rows"},
    {"target": "reads_a_constant_tensor", "samples": "rows"},
    {"target": "reads_the_environment", "samples": "rows"},
    {"target": "asks_for_variables", "samples": "rows"},
    {"target": "asks_for_the_default_dtype", "samples": "rows"},
    {"target": "asks_for_the_mode", "samples": "rows"},
    {"target": "asks_for_distribution", "samples": "rows"},
    {"target": "iterates_a_set", "samples": "rows"},
    {"target": "indexes", "samples": "indexed"},
    {"target": "gathers", "samples": "indexed"},
    {"target": "computes_a_loss", "samples": "classified"},
    {"target": "calls_functional", "samples": "rows"},
    {"target": "returns_views", "samples": "rows"},
    {"target": "changes_its_input", "samples": "rows"},
    # Inductor's random numbers are others than eager's.
    {"target": "drops_out", "samples": "rows", "options": {"fallback_random": True}},
    {"target": "prints", "samples": "rows"},
    {"target": "breaks_for_an_item", "samples": "rows"},
    # A signal between two lines of torch's own context managers leaves what they set.
    {"target": "uses_context_managers", "samples": "rows", "signals": False},
    {"target": "changes_dtypes", "samples": "rows"},
]
