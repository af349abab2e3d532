"""Every private torch API the runtime uses, behind names that say what it is for.

Seen in torch 2.13.0, 2.14.0 and 2.15.0, after a plain `import torch`: nothing here imports torch._dynamo or
torch._inductor. tests/unit/test_torch_internals.py fails first when one of them changes.
"""

from __future__ import annotations

import builtins
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from functools import update_wrapper
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import CodeType
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch._C._dynamo import eval_frame as _eval_frame
from torch._C._dynamo import guards as _guards

from .inputs import CALL_CHECKS
from .references import decode, unwrap

__all__ = [
    "Refused",
    "StateGuard",
    "TensorGroup",
    "add_entry",
    "custom_op_wrapper",
    "guard_namespace",
    "leave_untraced",
    "load_library",
    "recompiles_log",
    "set_eval_frame",
    "standing_in",
]

# set_eval_frame(False) is run-only mode: entries are used, nothing is compiled. It is per thread.
set_eval_frame = _eval_frame.set_eval_frame
eval_frame_callback = _eval_frame.get_eval_frame_callback


class Refused(Exception):
    """Something of an entry cannot be set up in this process."""


class _Holder:
    """What `_load_precompile_entry` takes for a guard manager: anything with a `root`.

    With torch.compiler.set_stance("fail_on_recompile") dynamo's error lists the entries that did not
    fit: as text, followed by what `check_verbose` gives.
    """

    def __init__(self, root: Any, code: CodeType) -> None:
        self.root = root
        self._code = code

    def __str__(self) -> str:
        return f"compiled code of a wheel for {self._code.co_qualname}"

    def check_verbose(self, _locals: dict[str, Any]) -> str:
        return ""


def add_entry(code: CodeType, guard: Callable[[dict[str, Any]], bool], new_code: CodeType) -> None:
    """Let `new_code` run in place of `code` wherever `guard` accepts the frame's locals.

    Entries are consulted in the order they were added, before dynamo's own, whether torch.compile or
    run-only mode is active. One added while a lookup is under way is still seen by that lookup.
    """
    root = _guards.RootGuardManager()
    root.add_lambda_guard(guard, ["precompiled entry"], None)
    _eval_frame._load_precompile_entry(code, _Holder(root, code), new_code)


def leave_untraced(function: Any, *, below: bool) -> None:
    """Tell dynamo not to trace a function of ours, nor (with `below`) what it calls."""
    action = _eval_frame._FrameAction
    strategy = _eval_frame._FrameExecStrategy(action.SKIP, action.SKIP if below else action.DEFAULT)
    _eval_frame.set_code_exec_strategy(function.__code__, strategy)


def recompiles_log(package: str) -> Any:
    """A logger for what TORCH_LOGS=recompiles shows: below torch's own, which has the handler."""
    return torch._logging.getArtifactLogger(f"torch._dynamo.{package}._precompiled", "recompiles")


class _Attributes(dict[str, Any]):
    """The attributes of a wrapper; functools.wraps, which copies what is listed, does not see ours.

    They say what this very function stands for. On somebody else's function around it, which does
    something else, dynamo would believe them all the same.
    """

    def keys(self) -> Any:
        ours = ("_torchdynamo_", "_precompiled_")
        return [name for name in super().__iter__() if not name.startswith(ours)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())


# From 2.15 on dynamo fails at a class method whose function another one stands in for.
_INLINES_CLASS_METHODS = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15)


def standing_in(run: Callable[..., Any], function: Any, *, class_method: bool) -> Any:
    """A wrapper that is `run` when it is called, and `function` where dynamo compiles or inlines it."""
    if class_method and not _INLINES_CLASS_METHODS:

        def traceable(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs) if torch.compiler.is_compiling() else run(*args, **kwargs)

        # As a frame of its own: what it calls is looked up.
        leave_untraced(traceable, below=False)
        wrapper: Any = update_wrapper(traceable, function)
        wrapper.__dict__ = _Attributes(wrapper.__dict__)
    else:
        wrapper = update_wrapper(run, function)
        wrapper.__dict__ = _Attributes(wrapper.__dict__)
        wrapper._torchdynamo_inline = function
    wrapper._torchdynamo_orig_callable = function
    return wrapper


class StateGuard:
    """Dynamo's guard on torch's global state, right for any number of threads.

    Dynamo's compares the thread count with the build machine's. Kernels here take whatever count
    there is, so that one field is re-based on this process; all others must be as captured.
    """

    def __init__(self, state: str) -> None:
        self._state = json.loads(state)
        self._guard = _guards.GlobalStateGuard()
        self._set_threads(torch.get_num_threads())

    def _set_threads(self, threads: int) -> None:
        self._threads = threads
        self._state["num_threads"] = threads
        self._guard.__setstate__(json.dumps(self._state))
        self.check = self._guard.check
        self.reason = self._guard.reason

    def rebase(self) -> bool:
        """Called when the check failed: again, if the thread count has changed since."""
        threads = torch.get_num_threads()
        if threads == self._threads:
            return False
        self._set_threads(threads)
        return bool(self.check())


def standing_by(
    tracing: Callable[[], Any] = torch._C._get_tracing_state,
    modes: Callable[[], int] = torch._C._len_torch_dispatch_stack,
    transforms: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack,
    modules: dict[str, Any] = sys.modules,
) -> bool:
    """Whether no tracer, dispatch mode or transform is watching: they want the eager call.

    So does torch.compiler.set_stance("force_eager"), which there cannot be without dynamo.
    """
    if "torch._dynamo.eval_frame" in modules and _is_forced_eager(modules["torch._dynamo.eval_frame"]):
        return False
    return tracing() is None and modes() == 0 and transforms() is None and forward_ad._current_level < 0


def _is_forced_eager(eval_frame: Any) -> bool:
    # While the module is being imported by another thread it may not have its stance yet.
    return getattr(getattr(eval_frame, "_stance", None), "stance", "") == "force_eager"


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
    if numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray)):
        return torch.as_tensor(value)
    return value


def guard_namespace() -> dict[str, Any]:
    """What generated guard functions may call."""
    import torch.utils._device as device_state

    return {
        # What looks at the frames of a stack, as torch.jit.trace does, expects every one to have them.
        "__builtins__": builtins,
        "torch": torch,
        "standing_by": standing_by,
        "marks_agree": marks_agree,
        "from_numpy": from_numpy,
        "plain_function": unwrap,
        "function_mode_depth": torch._C._len_torch_function_stack,
        "saved_tensors_hooks": torch._C._autograd._top_saved_tensors_default_hooks,
        "inference_mode": torch.is_inference_mode_enabled,
        "device_state": device_state,
        "forward_ad": forward_ad,
        "math": math,
        **CALL_CHECKS,
    }


class TensorGroup:
    """The first check of a group of tensors; it puts the C++ check for all later ones in its place.

    TensorGuards fixes the dispatch keys it expects in the thread's state at its making, so it is made
    where the guard function calls it: after the checks that this state is the captured one.
    """

    def __init__(self, group: Any, namespace: dict[str, Any], name: str) -> None:
        self._group = group
        self._namespace = namespace
        self._name = name

    def _ready(self) -> Any:
        try:
            guards = self._namespace[self._name] = _tensor_guards(self._group)
        except Refused as error:
            self._namespace["entry"].give_up(error)
            raise
        return guards

    def check(self, *tensors: Any) -> bool:
        return bool(self._ready().check(*tensors))

    def check_verbose(self, *tensors: Any, **names: Any) -> Any:
        return self._ready().check_verbose(*tensors, **names)


def _tensor_guards(group: tuple[Any, Any]) -> Any:
    """One C++ check for a group of tensors, from what each must look like (docs/bundle-format.md).

    The check compares metadata only; the tensors it is made from are never written to and die here.
    A model has many tensors of few kinds: one example per kind does for all of them.
    """
    kinds, numbers = group
    examples = [_example(kind) for kind in kinds]
    sizes = [list(kind[8]) for kind in kinds]
    strides = [list(kind[9]) for kind in kinds]
    return _guards.TensorGuards(
        *[examples[number] for number in numbers],
        dynamic_dims_sizes=[sizes[number] for number in numbers],
        dynamic_dims_strides=[strides[number] for number in numbers],
    )


def _example(kind: Any) -> torch.Tensor:
    is_parameter, reference, size, stride, dtype, device, requires_grad, keys, _, _ = kind
    cls = decode(reference)
    # Dispatch keys tell inference tensors from ordinary ones; one of the two has the right ones.
    for inference in (False, True):
        with torch.inference_mode(inference):
            options = {"dtype": getattr(torch, dtype), "device": device, "requires_grad": requires_grad}
            if cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
                tensor = torch.Tensor._make_wrapper_subclass(cls, size, strides=stride, **options)
            else:
                tensor = torch.empty_strided(size, stride, **options)
                if is_parameter:
                    tensor = torch.nn.Parameter(tensor, requires_grad=requires_grad)
                elif cls is not torch.Tensor:
                    tensor = tensor.as_subclass(cls)
            if torch._C._dispatch_keys(tensor).raw_repr() == keys:
                return tensor
    raise Refused(f"a tensor of the kind {torch._C.DispatchKeySet.from_raw_repr(keys)} cannot be made here")


def load_library(path: str, name: str, function: str) -> Callable[..., Any]:
    """A function of a shared library: `inductor_entry_cpp` of a whole graph takes and returns tensor handles,
    `kernel` of one of its kernels takes tensors and numbers.

    The library asks the environment for the address of a function of torch's; the variable is there
    only while it loads. Nothing is compiled and no process is started.
    """
    variable = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"
    before = os.environ.get(variable)
    os.environ[variable] = str(_guards._torchinductor_pyobject_tensor_data_ptr)
    try:
        # The last part must be the name the library was compiled with (its PyInit_ function).
        loader = ExtensionFileLoader(f"{name}.{function}", path)
        module = loader.create_module(ModuleSpec(loader.name, loader, origin=path))
        loader.exec_module(module)
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before
    entry: Callable[..., Any] = getattr(module, function)
    return entry


def library_caller(
    library: Callable[[list[Any]], list[Any]], record: dict[str, Any], constants: list[Any]
) -> Callable[..., Any]:
    """The Python callable for one library: positional inputs, a list of outputs.

    Numbers become CPU tensors on the way in, which is how the library takes symbolic sizes.
    """
    to_handles = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors
    from_handles = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs
    Tensor, as_tensor = torch.Tensor, torch.tensor  # noqa: N806
    scalars = record.get("scalar_outputs", ())

    def call(*inputs: Any) -> Any:
        tensors = [item if isinstance(item, Tensor) else as_tensor(item, device="cpu") for item in inputs]
        tensors.extend(constants)
        return from_handles(library(to_handles(tensors)))

    def call_with_scalars(*inputs: Any) -> Any:
        outputs = call(*inputs)
        for index in scalars:
            outputs[index] = outputs[index].item()
        return outputs

    for function in (call, call_with_scalars):
        leave_untraced(function, below=True)
    return call_with_scalars if scalars else call


def python_caller(code: CodeType, namespace: dict[str, Any]) -> Callable[..., Any]:
    """The callable for a graph whose kernels are called from Python: positional inputs, a list of outputs.

    code: of a module with a function `call`, which empties the list it is given; namespace: its kernels and
    constants.
    """
    exec(code, namespace)
    wrapper = namespace["call"]

    def call(*inputs: Any) -> Any:
        return list(wrapper(list(inputs)))

    leave_untraced(call, below=True)
    return call


def without_overrides(graph: Callable[..., Any]) -> Callable[..., Any]:
    """A graph in which what subclasses of tensors do to operations is contained already."""

    def call(*inputs: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return graph(*inputs)

    leave_untraced(call, below=True)
    return call


def custom_op_wrapper(name: str, *arguments: Any) -> Any:
    """Call an operator for a library that has no C function for it: tensor handles in, handles out.

    The library looks this function up by its name. `name` is such as "torch.ops.package.op.default".
    """
    operator: Any = torch.ops
    for part in name.split(".")[2:]:
        operator = getattr(operator, part)
    values = [_from_handle(argument) for argument in arguments]
    only = [argument.name for argument in operator._schema.arguments if argument.kwarg_only]
    plain = len(operator._schema.arguments) - len(only)
    result = operator(*values[:plain], **dict(zip(only, values[plain:], strict=False)))
    if isinstance(result, (list, tuple)):
        tensors = [torch.empty(0) if tensor is None else tensor for tensor in result]
        return torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors(tensors)
    return None if result is None else torch._C._aoti.unsafe_alloc_void_ptr_from_tensor(result)


def _from_handle(argument: Any) -> Any:
    if type(argument).__name__ == "PyCapsule":  # the type itself has no name in Python
        return torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr(argument)
    if isinstance(argument, (list, tuple)):
        return type(argument)(_from_handle(item) for item in argument)
    return argument


# What some graphs need around the call, as AOTAutograd's runtime wrapper does it for inference graphs.
_EFFECTS = (
    "disable_grad",
    "disable_autocast",
    "written_inputs",
    "copied_inputs",
    "input_outputs",
    "view_outputs",
)


def with_effects(call: Callable[..., Any], record: dict[str, Any]) -> Callable[..., Any]:
    """A graph's caller with its effects: inputs written, outputs that are inputs or views of them."""
    if not any(record.get(effect) for effect in _EFFECTS):
        return call
    written = record.get("written_inputs", ())
    copied = record.get("copied_inputs", ())
    same = {int(index): source for index, source in record.get("input_outputs", {}).items()}
    views = {int(index): source for index, source in record.get("view_outputs", {}).items()}
    no_autocast = record.get("disable_autocast", False)

    def run(*inputs: Any) -> Any:
        if written:
            torch.autograd.graph.increment_version([inputs[index] for index in written])
        had_grad = torch.is_grad_enabled()
        try:
            if had_grad:
                torch._C._set_grad_enabled(False)
            if no_autocast:
                with torch._C._DisableAutocast():
                    outputs = call(*inputs)
            else:
                outputs = call(*inputs)
            for index, value in zip(copied, outputs, strict=False):
                inputs[index].copy_(value)
        finally:
            if had_grad:
                torch._C._set_grad_enabled(True)
        outputs = outputs[len(copied) :]
        for index, source in same.items():
            outputs[index] = inputs[source]
        for index, source in views.items():
            outputs[index] = _view_like(inputs[source], outputs[index])
        return outputs

    leave_untraced(run, below=True)
    return run


def _view_like(base: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """A view of `base` with the shape, strides, offset and dtype of a view the library made of it."""
    if base.is_complex() != view.is_complex():
        base = torch.view_as_real(base) if base.is_complex() else torch.view_as_complex(base)
    out = base.as_strided(view.size(), view.stride(), view.storage_offset())
    return out if out.dtype == view.dtype else out.view(view.dtype)
