"""The private torch APIs that guards and calls need, behind names that say what each is for.

Those of graphs are in graphs/callers.py, those that an import needs in torch_frames.py.

Seen in torch 2.13.0 and 2.14.1, after a plain `import torch`: nothing here imports torch._dynamo or
torch._inductor. tests/torch_internals fails first when one of them changes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch._C._dynamo import eval_frame as _eval_frame
from torch._C._dynamo import guards as _guards

from ..errors import raised_by_signal
from ..values.constants import decode
from ..values.static_lookup import attribute, is_a
from .torch_frames import (
    at_work,
    busy,
    eval_frame_callback,
    is_compiling,
    leave_untraced,
    leave_untraced_code,
    set_eval_frame,
    tracing_state,
)

Tensor = torch.Tensor

__all__ = [
    "Tensor",
    "Refused",
    "StateGuard",
    "after_optimizer_steps",
    "at_work",
    "busy",
    "count_as_compiled",
    "dispatching_as",
    "eval_frame_callback",
    "filters_for_onednn",
    "gpu_settings",
    "index_of",
    "is_compiling",
    "is_traced_symbolically",
    "leave_untraced",
    "leave_untraced_code",
    "function_modes",
    "may_serve",
    "packed_for_onednn",
    "pytree_children",
    "recompiles_log",
    "saved_tensors_hooks",
    "set_eval_frame",
    "settle_gpu_settings",
    "tensor_guards",
    "tracing_state",
    "without_compiling",
    "without_subclass_functions",
    "without_torch_function",
]


class Refused(Exception):
    """Something of an entry cannot be set up in this process."""


def count_as_compiled() -> None:
    """Tell a torch.compile with fullgraph=True, which wants a frame of compiled code, that this was one."""
    exchange = getattr(_eval_frame, "set_fullgraph_compiled_frame_count", None)  # from torch 2.13 on
    if exchange is not None:
        count = exchange(-1)  # -1: nobody counts
        exchange(count if count < 0 else count + 1)


@contextlib.contextmanager
def without_compiling() -> Iterator[None]:
    """Run what is inside as it is, under a torch.compile of the user's as well."""
    before = set_eval_frame(None)
    try:
        yield
    finally:
        set_eval_frame(before)


def recompiles_log(package: str) -> Any:
    """A logger for what TORCH_LOGS=recompiles shows: below torch's own, which has the handler."""
    return torch._logging.getArtifactLogger(f"torch._dynamo.{package}._precompiled", "recompiles")


function_modes = torch._C._len_torch_function_stack
saved_tensors_hooks = torch._C._autograd._top_saved_tensors_default_hooks
without_subclass_functions = torch._C.DisableTorchFunctionSubclass
without_torch_function = torch._C.DisableTorchFunction


def pytree_children(value: Any) -> list[tuple[str, Any]] | None:
    """What a container holds that a library has registered with torch's pytrees; None for anything else."""
    pytree: Any = sys.modules.get("torch.utils._pytree")
    node = pytree.SUPPORTED_NODES.get(type(value)) if pytree is not None else None
    if node is None:
        return None
    children, _ = node.flatten_fn(value)
    return [(f"_{index}", child) for index, child in enumerate(children)]


def packed_for_onednn(weight: torch.Tensor) -> torch.Tensor:
    """A layer's weight, (n, k), in the layout that oneDNN multiplies fastest on this processor."""
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
    return packed


def filters_for_onednn(weight: torch.Tensor, padding: list[int], sizes: list[int]) -> torch.Tensor:
    """Filters that move by one pixel, (filters, channels, height, width), in the layout that oneDNN
    multiplies fastest on this processor with inputs of these sizes."""
    ones = [1, 1]
    packed: torch.Tensor = torch.ops.mkldnn._reorder_convolution_weight(weight, padding, ones, ones, 1, sizes)
    return packed


def after_optimizer_steps(name: str, action: Callable[[Any], None] | None) -> None:
    """Call `action` with the optimizer after each step of any; None: no longer.

    Not with torch's own function: it counts up the number that modules' hooks share, and once that is not 0,
    each call looks for hooks (`hooks_of`).
    """
    hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
    if action is None:
        hooks.pop(name, None)
    else:
        hooks[name] = lambda optimizer, args, kwargs: action(optimizer)


class StateGuard:
    """Dynamo's guard on torch's global state, right for any number of threads.

    Dynamo's compares the thread count with the build machine's. Kernels here take whatever count
    there is, so that one field is re-based on this process; all others must be as captured.
    """

    def __init__(self, state: str) -> None:
        self._state = json.loads(state)
        self._by_threads: dict[int, Any] = {}
        # Asked first. Threads may each have a count of their own, so it is never changed.
        self.check: Callable[[], bool] = self._guard().check

    def _guard(self) -> Any:
        threads = torch.get_num_threads()
        guard = self._by_threads.get(threads)
        if guard is None:
            guard = _guards.GlobalStateGuard()
            guard.__setstate__(json.dumps({**self._state, "num_threads": threads}))
            self._by_threads[threads] = guard
        return guard

    def rebase(self) -> bool:
        """Called when the check failed: the same for this thread's count."""
        guard = self._guard()
        return guard.check != self.check and bool(guard.check())

    def reason(self) -> str:
        """What differs, in dynamo's words."""
        return str(self._guard().reason())


def may_serve(
    tracing: Callable[[], Any] = tracing_state,
    modes: Callable[[], int] = torch._C._len_torch_dispatch_stack,
    transforms: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack,
    modules: dict[str, Any] = sys.modules,
) -> bool:
    """Whether no tracer, dispatch mode or functorch transform is active, no forward-mode level is open, and
    dynamo is not told to keep out: these need the eager call."""
    if "torch._dynamo.eval_frame" in modules and _is_told_to_keep_out(modules):
        return False
    return tracing() is None and modes() == 0 and transforms() is None and forward_ad._current_level < 0


def is_traced_symbolically() -> bool:
    """Whether torch.fx.symbolic_trace calls, whose stand-ins for tensors no entry takes."""
    module = sys.modules.get("torch.fx._symbolic_trace")
    of_thread = getattr(module, "_get_is_fx_tracing", None)  # since 2.14
    return bool(of_thread() if of_thread is not None else getattr(module, "_is_fx_tracing_flag", False))


def no_compiler() -> str:
    """Why torch.compile finds no compiler here; nothing where it finds one, or where another backend than
    inductor is its default. For who is about to call it: this imports inductor, and asks the compiler for its
    version."""
    from torch._dynamo.backends import registry

    default = getattr(registry, "get_default_backend", None)  # not in every version
    if default is not None and default() != "inductor":
        return ""
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception as error:
        if raised_by_signal(error):
            raise
        return type(error).__name__
    return ""


def _is_told_to_keep_out(modules: dict[str, Any]) -> bool:
    """By torch.compiler.set_stance("force_eager"), torch._dynamo.config.disable, or torch.compiler.disable
    around this call. While the modules are being imported by another thread they may not have these yet."""
    eval_frame = modules["torch._dynamo.eval_frame"]
    if getattr(getattr(eval_frame, "_stance", None), "stance", "") == "force_eager":
        return True
    if _is_switched_off(modules.get("torch._dynamo.config")):
        return True
    return eval_frame_callback() is None and _is_disabled(eval_frame)


def _is_switched_off(config: Any) -> bool:
    """torch._dynamo.config.disable. Whatever it is asked for, that module answers in as much time as the rest
    of a guard takes; so this looks at what it keeps."""
    try:
        kept = config.__dict__["_config"]["disable"]
        given = kept.user_override
        if type(given) is ContextVar:  # in torch 2.13, not yet in 2.11
            given = given.get()
        unset = kept.env_value_force
        if type(unset) is object and unset is kept.env_value_default and kept.justknob is kept.alias is None:
            value = kept.default if given is unset else given
            if type(value) is bool:
                return value
    except (AttributeError, KeyError):
        pass  # it is being imported
    return bool(getattr(config, "disable", False))


def _is_disabled(eval_frame: Any) -> bool:
    """Whether there is a torch.compiler.disable of a user's on the stack. Torch's own code uses it, too, to
    keep itself from being traced, which says nothing about what it calls back."""
    global _disabling
    context = getattr(eval_frame, "DisableContext", None)
    if context is None:
        return False
    method = context.__call__.__code__
    known, disabling = _disabling
    if known is not method:
        disabling = next((code for code in method.co_consts if getattr(code, "co_name", "") == "_fn"), None)
        _disabling = method, disabling
    frame: Any = sys._getframe(1)
    while frame is not None:
        caller = frame.f_back
        if frame.f_code is disabling and not (
            caller is not None and caller.f_code.co_filename.endswith(_TORCH_KEEPS_ITSELF_OUT)
        ):
            return True
        frame = caller
    return False


# DisableContext's method, and the code in it that runs what is disabled.
_disabling: tuple[Any, Any] = (None, None)

_TORCH_KEEPS_ITSELF_OUT = os.path.join("torch", "_compile.py")


def marks_agree(
    attributes: dict[str, Any], allowed: dict[str, frozenset[int]], refused: tuple[str, ...]
) -> bool:
    """`mark_dynamic` and its kin: marks the entry was built with are allowed, others are refused."""
    for name in refused:
        if name in attributes:
            return False
    return all(set(attributes[name]).issubset(marks) for name, marks in allowed.items() if name in attributes)


def from_numpy(value: Any) -> Any:
    """The tensor that dynamo checks in the place of an array or number of numpy's; all else is itself."""
    numpy = sys.modules.get("numpy")
    if type(numpy) is ModuleType and issubclass(type(value), (numpy.generic, numpy.ndarray)):
        return torch.as_tensor(value)
    return value


def apart_in_memory(written: tuple[torch.Tensor, ...], others: tuple[torch.Tensor, ...]) -> bool:
    """Whether no tensor of `written` overlaps another of all these in memory, each taken from its first to
    its last element. Tensor subclasses are passed over: they may have no memory of their own."""
    spans = sorted(
        (start, start + _extent(tensor), tensor_is_written)
        for tensors, tensor_is_written in ((written, True), (others, False))
        for tensor in tensors
        if type(tensor) in (torch.Tensor, torch.nn.Parameter) and (start := tensor.data_ptr())
    )
    end = end_of_written = 0
    for start, stop, is_written in spans:
        if start < (end if is_written else end_of_written):
            return False
        end = max(end, stop)
        if is_written:
            end_of_written = max(end_of_written, stop)
    return True


def _extent(tensor: torch.Tensor) -> int:
    """How many bytes there are from a tensor's first element to the end of its last."""
    if tensor.is_contiguous():
        return tensor.nbytes
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.element_size() * (1 + sum((size - 1) * stride for size, stride in steps))


def default_device() -> torch.device | None:
    """What torch.set_default_device or `with device` has set; its module comes in with the first of these."""
    module = sys.modules.get("torch.utils._device")
    device: torch.device | None = getattr(module, "CURRENT_DEVICE", None)  # half imported: not set yet
    return device


# How Python calls the forward of an autograd function, and how the engine calls its backward. Known by name:
# another library may have put something of its own, which calls these, in the place of either.
_OF_AUTOGRAD_FUNCTIONS = {"Function.apply", "BackwardCFunction.apply", "BackwardCFunction.apply_boxed"}
_THEIR_FILE = os.path.join("torch", "autograd", "function.py")
# Since 2.14 the first of them is C, and has no frame.
_HAS_FRAME = isinstance(vars(torch.autograd.Function).get("apply"), classmethod)


def in_checkpoint() -> bool:
    """Whether an autograd function calls, such as that of torch.utils.checkpoint with use_reentrant=True, or
    another library's: once without gradients, and once more in the backward. Both must draw the same numbers,
    so that either both are compiled or none is."""
    if torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1:
        return False
    forwards = set() if _HAS_FRAME else set(_forwards(torch.autograd.Function))
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code in forwards:
            return True
        if code.co_qualname in _OF_AUTOGRAD_FUNCTIONS and code.co_filename.endswith(_THEIR_FILE):
            return True
        frame = frame.f_back
    return False


def _forwards(cls: type) -> Iterator[CodeType]:
    """The code of each forward of the autograd functions that there are."""
    forward = attribute(cls, "forward")
    forward = attribute(forward, "__func__", forward)  # of a static method
    while is_a(forward, functools.partial):
        forward = attribute(forward, "func")
    if is_a(forward, FunctionType):
        yield forward.__code__
    derived: list[type] = type.__subclasses__(cls)
    for each in derived:
        yield from _forwards(each)


@contextlib.contextmanager
def dispatching_as(included: int, excluded: int) -> Iterator[None]:
    """Give this thread the dispatch keys of the captured call while the block runs.

    A TensorCheck keeps the keys of the thread that makes it. Which call makes it must not matter: the first
    may come from the implementation of an operator.
    """
    keys = torch._C.DispatchKeySet.from_raw_repr
    with torch._C._ForceDispatchKeyGuard(keys(included), keys(excluded)):
        yield


def gpu_settings() -> tuple[Any, ...]:
    """The settings by which torch chooses GPU functions while tracing, and which dynamo does not guard: the
    enabled backends of attention, their order, whether the math one may reduce in half precision, cuDNN."""
    private = torch._C
    return (
        private._get_flash_sdp_enabled(),
        private._get_mem_efficient_sdp_enabled(),
        private._get_math_sdp_enabled(),
        private._get_cudnn_sdp_enabled(),
        private._get_fa3_sdp_enabled(),
        private._get_math_sdp_allow_fp16_bf16_reduction(),
        private._get_cudnn_enabled(),
        *private._get_sdp_priority_order(),
    )


def settle_gpu_settings() -> None:
    """Have torch set the order of kinds of attention, which it does when it first chooses one. It looks at
    sizes and the GPU alone."""
    query = _on_a_gpu((1, 1, 16, 64), (1024, 1024, 64, 1), torch.float16, torch.cuda.current_device())
    with without_torch_function():
        torch._fused_sdp_choice(query, query, query)


def index_of(value: Any) -> int:
    """The number of the GPU that a tensor is on; -1 for any other value."""
    return Tensor.get_device(value) if isinstance(value, Tensor) else -1


def tensor_guards(group: tuple[Any, Any], gpu: int = 0) -> TensorCheck:
    """One C++ check for a group of tensors, from what each must look like (`TensorGroup`).

    gpu: the number of the one that those of a GPU must be on

    The check compares metadata only; the tensors it is made from are never written to and die here.
    A model has many tensors of few kinds: one example per kind does for all of them.
    """
    kinds, numbers = group
    examples = [_example(kind, gpu) for kind in kinds]
    sizes = [list(kind[8]) for kind in kinds]
    strides = [list(kind[9]) for kind in kinds]
    return TensorCheck(
        [examples[number] for number in numbers],
        [sizes[number] for number in numbers],
        [strides[number] for number in numbers],
    )


class TensorCheck:
    """Torch's TensorGuards, made safe for any tensors.

    TensorGuards does not catch exceptions from reading sizes and strides, as of a nested tensor or of some
    subclasses: they end the process. So these are read here first. `unsafe` is the check of TensorGuards, for
    native guards, which catch them.
    """

    def __init__(self, examples: list[torch.Tensor], sizes: list[Any], strides: list[Any]) -> None:
        guards: Any = _guards.TensorGuards(*examples, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
        self.unsafe: Callable[..., bool] = guards.check
        self._verbose: Callable[..., str] = guards.check_verbose
        self._types = tuple(map(type, examples))
        # They are looked at as torch does it, without their own functions.
        self._ours = all(cls in _PLAIN for cls in self._types)

    def check(self, *tensors: Any) -> bool:
        return (
            tuple(map(type, tensors)) == self._types
            and not self._unreadable(tensors)
            and self.unsafe(*tensors)
        )

    def check_verbose(self, *tensors: Any, tensor_check_names: list[str]) -> str:
        """The first that differs, in torch's words."""
        if tuple(map(type, tensors)) == self._types and (why := self._unreadable(tensors)):
            names = ", ".join(tensor_check_names)
            return f"of {names} there is one whose sizes or strides cannot be read: {why}"
        return self._verbose(*tensors, tensor_check_names=tensor_check_names)

    def _unreadable(self, tensors: tuple[Any, ...]) -> str:
        """What torch says where sizes or strides of one cannot be read; "" where all can."""
        try:
            if self._ours:
                for _ in map(torch.Tensor.stride, tensors):
                    pass
            else:
                with without_torch_function():
                    for tensor in tensors:
                        torch.Tensor.size(tensor), torch.Tensor.stride(tensor)
        except Exception as error:
            if raised_by_signal(error):
                raise
            return str(error) or type(error).__name__
        return ""


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _on_a_gpu(size: Any, stride: Any, dtype: torch.dtype, gpu: int) -> torch.Tensor:
    """A tensor that says that it is there, and has no memory: nothing opens the driver for it. Raises Refused
    where this torch has no function for that, which is not built for GPUs."""
    construct = getattr(torch._C, "_construct_CUDA_Tensor_From_Storage_And_Metadata", None)
    storage = getattr(torch._C, "_construct_storage_from_data_pointer", None)
    if construct is None or storage is None or torch.version.cuda is None:
        raise Refused("this torch knows of no GPU")
    device = torch.device("cuda", gpu)
    extent = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if all(size) else 0
    memory = extent * dtype.itemsize
    metadata = {"size": list(size), "stride": list(stride), "storage_offset": 0, "dtype": dtype}
    metadata |= {"device": device, "nbytes": memory}
    tensor: torch.Tensor = construct(metadata, storage(0, device, memory))
    return tensor


def _example(kind: Any, gpu: int) -> torch.Tensor:
    is_parameter, reference, size, stride, dtype, device, requires_grad, keys, _, _ = kind
    cls = decode(reference)
    if device.startswith("cuda"):
        device = f"cuda:{gpu}"
    # Dispatch keys tell inference tensors from ordinary ones; one of the two has the right ones.
    for inference in (False, True):
        with torch.inference_mode(inference):
            options = {"dtype": getattr(torch, dtype), "device": device, "requires_grad": requires_grad}
            if cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
                tensor = torch.Tensor._make_wrapper_subclass(cls, size, strides=stride, **options)
            else:
                if device.startswith("cuda"):
                    tensor = _on_a_gpu(size, stride, options["dtype"], gpu).requires_grad_(requires_grad)
                else:
                    tensor = torch.empty_strided(size, stride, **options)
                if is_parameter:
                    tensor = torch.nn.Parameter(tensor, requires_grad=requires_grad)
                elif cls is not torch.Tensor:
                    tensor = tensor.as_subclass(cls)
            if torch._C._dispatch_keys(tensor).raw_repr() == keys:
                return tensor
    raise Refused(f"a tensor of the kind {torch._C.DispatchKeySet.from_raw_repr(keys)} cannot be made here")


WHOLE = True
