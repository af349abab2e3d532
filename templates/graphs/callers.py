"""Graphs as callables: a library or kernels in, what torch needs around them, what their failures become.

The private torch APIs of this are here, seen in torch 2.13.0, 2.14.0 and 2.15.0.
tests/torch_internals fails first when one of them changes.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import CodeType, FunctionType
from typing import Any, NoReturn

import torch
from torch._C._dynamo import guards as _guards

from ..errors import raised_by_signal, warn
from ..torch_internals.torch_private import leave_untraced

__all__ = [
    "GraphFailed",
    "custom_op_wrapper",
    "direct_caller",
    "library_caller",
    "load_library",
    "on_each_gpu",
    "python_caller",
    "taking_apart",
    "undisturbed",
    "with_effects",
    "with_inner_tensors",
    "without_overrides",
]


class GraphFailed(RuntimeError):
    """A graph failed at the data of a call. The library's own error is the cause.

    rerun: whether the call can be made again by eager code, which then raises what it should: the graph did
    not write to its inputs. instead: the exception nearest to eager code's, for a call that cannot be rerun.
    """

    def __init__(self, instead: BaseException, *, rerun: bool) -> None:
        super().__init__(str(instead))
        self.instead = instead
        self.rerun = rerun


# The environment is one for all wheels of a process, so they take turns: a lock where all of them find it.
# The child of a fork has a new one; the thread that held the other may not be there.
_LOADING = "_hatch_precompile_loading"
_WATCHED = f"{_LOADING}_watched"
if vars(torch).setdefault(_WATCHED, __file__) is __file__:  # once, and without the globals of this module
    _forget = FunctionType(
        (lambda: vars(torch).pop(_LOADING, None)).__code__, {"torch": torch, "_LOADING": _LOADING}
    )
    os.register_at_fork(after_in_child=_forget)


def load_library(path: str, name: str, function: str) -> Callable[..., Any]:
    """A function of a shared library: `inductor_entry_cpp` of a whole graph takes and returns tensor handles,
    `kernel` of one of its kernels takes tensors and numbers.

    The library asks the environment for the address of a function of torch's; the variable is there
    only while it loads. Nothing is compiled and no process is started.
    """
    variable = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"
    with vars(torch).setdefault(_LOADING, threading.RLock()):
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


# The frame in which an operator that is implemented in C++ raises.
_OPERATOR_CALL = torch._ops.OpOverload.__call__.__code__.co_filename


def _failure(error: Exception, record: dict[str, Any], *files: str) -> Exception:
    """What to raise for an exception that came out of a graph, which has these source files.

    One that Python code raised, an operator's or a signal handler's, goes on as it is.
    """
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename not in (__file__, _OPERATOR_CALL, *files):
            return error
        trace = trace.tb_next
    _tell_of_driver(error)
    return GraphFailed(_as_eager(error), rerun=not record.get("changes_inputs", False))


def _tell_of_driver(error: Exception) -> None:
    """Warn once of what a GPU's driver refuses. It does so whatever the data, as where a card has less shared
    memory than the one that a kernel was compiled for."""
    text = str(error).partition("\n")[0]
    if text.startswith("CUDA driver error: ") and text not in _told:
        _told.add(text)
        package = (__package__ or "").partition("._precompiled")[0]
        warn(package, f"a graph could not run: {text}", os.environ.get("HATCH_PRECOMPILE", ""))


_told = set[str]()


def _tell(error: Exception, record: dict[str, Any], *files: str) -> NoReturn:
    """Raise what is to be raised for an exception that came out of a graph."""
    failure = _failure(error, record, *files)
    try:
        if failure is error:
            raise error
        raise failure from error
    finally:
        del failure, error  # or they would wait for the garbage collector, with the inputs of the call


# Compiled when the first graph fails. Kernels that stand alone say first where they are.
_PLACE = r"^\w+, graph\.cpp:\d+, "
_BOUNDS = r"(?m)index out of bounds: .*?(?:< (?P<size>\d+)L?)?$"


def _as_eager(error: Exception) -> Exception:
    """The nearest to what eager code would have raised in place of a library's error."""
    text = re.sub(_PLACE, "", str(error).partition("\nException raised from ")[0].strip())
    if type(error) is not RuntimeError or not text:
        return error
    if " API call failed at " in text:
        text = _last_error() or text
    bounds = re.search(_BOUNDS, text)
    if bounds is not None:
        size = f" with size {bounds['size']}" if bounds["size"] else ""
        return IndexError(f"index out of range in self: it is out of bounds for dimension{size}")
    kind = torch.linalg.LinAlgError if text.startswith("linalg.") else RuntimeError
    return kind(text)


def _last_error() -> str:
    """What torch's C++ code said last in this thread, where a library knows only which call failed."""
    import ctypes

    try:
        libtorch = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
        said = libtorch.torch_exception_get_what_without_backtrace
    except (OSError, AttributeError):  # another system's name for it, or another torch's
        return ""
    said.restype = ctypes.c_char_p
    return (said() or b"").decode(errors="replace").strip()


def direct_caller(
    library: Callable[..., Any], record: dict[str, Any], constants: list[Any]
) -> Callable[..., Any] | None:
    """The callable for one library: positional inputs, a list of outputs. It raises GraphFailed.

    It is the library's own function, which takes tensors and numbers as they are. None where torch's tensors
    are not what the library takes them for.
    """
    probe = torch.empty(0)
    (handle,) = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors([probe])

    def to_tensor(value: Any) -> torch.Tensor:
        return torch.tensor(value, device="cpu")

    def failed(error: Exception) -> None:
        try:
            _tell(error, record)
        finally:
            del error  # this frame is in its traceback

    needs = (failed, to_tensor, torch.Tensor, torch.nn.Parameter, *constants)
    call: Callable[..., Any] | None = library((_wrapping_function(), probe, handle, needs))
    scalars = record.get("scalar_outputs", ())

    def call_with_scalars(*inputs: Any) -> Any:
        assert call is not None
        outputs = call(*inputs)
        for index in scalars:
            outputs[index] = outputs[index].item()
        return outputs

    def call_with_many(*inputs: Any) -> Any:
        assert call is not None
        return call(*inputs)

    for function in (to_tensor, failed, call_with_scalars, call_with_many):
        leave_untraced(function, below=True)
    if call is None:
        return None
    if scalars:
        return call_with_scalars
    return call_with_many if record.get("inputs", 0) - len(constants) > _MOST_ARGUMENTS else call


# CPython 3.11 loses its way in bytecode that calls a builtin function with more, once it has specialized the
# call: it does not reckon with the EXTENDED_ARG between PRECALL and CALL.
_MOST_ARGUMENTS = 255 if sys.version_info < (3, 12) else sys.maxsize


def on_each_gpu(
    caller: Callable[[list[Any]], Callable[..., Any]], constants: list[Any], record: dict[str, Any]
) -> Callable[..., Any]:
    """The callable of a library with constants that lie on the GPU of the call, where they are moved once. It
    raises GraphFailed, also where they could not be."""
    made: dict[int, Callable[..., Any]] = {}
    failed: dict[int, Exception] = {}
    moved = [constant.get("device") for constant in record["constants"]]
    Tensor = torch.Tensor  # noqa: N806

    def on_gpu_of(inputs: Sequence[Any]) -> Callable[..., Any]:
        there = (value.get_device() for value in inputs if isinstance(value, Tensor))
        index = next((each for each in there if each >= 0), -1)
        if index < 0:
            index = torch.cuda.current_device()
        if index not in made and index not in failed:
            try:
                with torch.inference_mode(False), undisturbed():
                    placed = [
                        value.to(f"{device}:{index}") if device else value
                        for value, device in zip(constants, moved, strict=True)
                    ]
                made[index] = caller(placed)
            except Exception as error:  # the GPU's memory is full, say; nothing of the call has happened yet
                if raised_by_signal(error):
                    raise
                failed[index] = error.with_traceback(None)  # which has the inputs of the call
                package = (__package__ or "").partition("._precompiled")[0]
                text = f"a graph runs as eager code on cuda:{index}: {type(error).__name__}: {error}"
                warn(package, text, os.environ.get("HATCH_PRECOMPILE", ""))
        if index in failed:
            raise GraphFailed(failed[index], rerun=True) from failed[index]
        return made[index]

    def call(*inputs: Any) -> Any:
        return on_gpu_of(inputs)(*inputs)

    def boxed(inputs: list[Any]) -> Any:
        return on_gpu_of(inputs).boxed(inputs)  # type: ignore[attr-defined]

    for function in (on_gpu_of, call, boxed):
        leave_untraced(function, below=True)
    call.boxed = boxed  # type: ignore[attr-defined]
    return call


def _wrapping_function() -> int:
    """The address of what makes a Python tensor of one of C++ in torch; 0 where it has another name."""
    import ctypes

    try:
        torchs = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_python.so"))
        function = torchs._Z16THPVariable_WrapON2at10TensorBaseE
    except (OSError, AttributeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def library_caller(
    library: Callable[[list[Any]], list[Any]], record: dict[str, Any], constants: list[Any]
) -> Callable[..., Any]:
    """The Python callable for one library: positional inputs, a list of outputs. It raises GraphFailed.

    Numbers become CPU tensors on the way in, which is how the library takes symbolic sizes. `boxed`, an
    attribute, takes a list of inputs and empties it, so that the library can free each after its last use.
    """
    to_handles = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors
    from_handles = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs
    Tensor, as_tensor = torch.Tensor, torch.tensor  # noqa: N806
    scalars = record.get("scalar_outputs", ())

    def call(*inputs: Any) -> Any:
        tensors = [item if isinstance(item, Tensor) else as_tensor(item, device="cpu") for item in inputs]
        tensors.extend(constants)
        handles = to_handles(tensors)
        try:
            outputs = library(handles)
        except Exception as error:
            _tell(error, record)
        return from_handles(outputs)

    def call_with_scalars(*inputs: Any) -> Any:
        outputs = call(*inputs)
        for index in scalars:
            outputs[index] = outputs[index].item()
        return outputs

    def boxed(inputs: list[Any]) -> Any:
        handles = to_handles(
            [
                *(item if isinstance(item, Tensor) else as_tensor(item, device="cpu") for item in inputs),
                *constants,
            ]
        )
        inputs.clear()
        try:
            outputs = from_handles(library(handles))
        except Exception as error:
            _tell(error, record)
        for index in scalars:
            outputs[index] = outputs[index].item()
        return outputs

    for function in (call, call_with_scalars, boxed):
        leave_untraced(function, below=True)
    caller: Callable[..., Any] = call_with_scalars if scalars else call
    caller.boxed = boxed  # type: ignore[attr-defined]
    return caller


def python_caller(code: CodeType, namespace: dict[str, Any], record: dict[str, Any]) -> Callable[..., Any]:
    """The callable for a graph whose kernels are called from Python: positional inputs, a list of outputs.

    code: of a module with a function `call`, which empties the list it is given; namespace: its kernels and
    constants. The callable raises GraphFailed; it has a `boxed`, too.
    """
    exec(code, namespace)
    wrapper = namespace["call"]

    def boxed(inputs: list[Any]) -> Any:
        try:
            return list(wrapper(inputs))
        except Exception as error:
            _tell(error, record, code.co_filename)

    def call(*inputs: Any) -> Any:
        return boxed(list(inputs))

    for function in (call, boxed):
        leave_untraced(function, below=True)
    call.boxed = boxed  # type: ignore[attr-defined]
    return call


def without_overrides(graph: Callable[..., Any]) -> Callable[..., Any]:
    """A graph in which what subclasses of tensors do to operations is contained already."""

    def call(*inputs: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return graph(*inputs)

    leave_untraced(call, below=True)
    return call


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Operators do what they do, whatever modes the caller is in."""
    with torch.no_grad(), torch._C._DisableAutocast(), torch._C.DisableTorchFunction():
        yield


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
    if result is None and operator._schema.returns:
        raise TypeError(f"{name} returned None in the place of a tensor")
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


def taking_apart(ways: dict[str, Any]) -> Callable[[Sequence[Any]], tuple[list[Any], list[Any]]]:
    """A function that unwraps tensor subclasses among inputs. It returns the inputs, with the wrapped tensors
    in the place of each subclass, and the subclasses.

    ways: input -> for each wrapped tensor the attributes that lead to it
    """
    known = {int(number): _with_new_steps(every) for number, every in ways.items()}

    def apart(inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        tensors: list[Any] = []
        wrapping: list[Any] = []
        for number, given in enumerate(inputs):
            if number not in known:
                tensors.append(given)
                continue
            for way in known[number]:
                inner = given
                for name, is_new in way:
                    if is_new:
                        wrapping.append(inner)
                    inner = getattr(inner, name)
                tensors.append(inner)
        return tensors, wrapping

    return apart


def _with_new_steps(ways: Sequence[Sequence[str]]) -> list[list[tuple[str, bool]]]:
    """For each way its attributes, each with whether its object is new: met here for the first time."""
    seen: set[tuple[str, ...]] = set()
    found = []
    for way in ways:
        begins = [tuple(way[:length]) for length in range(len(way))]
        found.append([(name, begin not in seen) for name, begin in zip(way, begins, strict=True)])
        seen.update(begins)
    return found


def with_inner_tensors(call: Callable[..., Any], ways: dict[str, Any]) -> Callable[..., Any]:
    """A graph's caller that is given tensor subclasses, for one that takes the tensors they wrap."""
    apart = taking_apart(ways)

    def unwrapping(*inputs: Any) -> Any:
        return call(*apart(inputs)[0])

    leave_untraced(unwrapping, below=True)
    return unwrapping


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
    detached = {int(index): inside for index, inside in record.get("detached_outputs", {}).items()}
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
            base = inputs[source].detach() if detached.get(index) else inputs[source]
            made = _view_like(base, outputs[index])
            outputs[index] = made if detached.get(index) is not False else made.detach()
        return outputs

    leave_untraced(run, below=True)
    return run


def _view_like(base: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """A view of `base` with the shape, strides, offset and dtype of a view the library made of it."""
    if base.dtype != view.dtype:
        # Strides and offset count elements of the view's dtype, from the beginning of the memory.
        base = base.as_strided((base.untyped_storage().nbytes() // base.element_size(),), (1,), 0)
        smaller = max(1, view.element_size() // base.element_size())
        base = base[: base.numel() // smaller * smaller]
        if base.dtype.to_real() is view.dtype:
            base = torch.view_as_real(base)
        elif base.dtype is view.dtype.to_real():
            base = torch.view_as_complex(base.view(-1, 2))
        else:
            base = base.view(view.dtype)
    return base.as_strided(view.size(), view.stride(), view.storage_offset())


WHOLE = True
