"""Finds what an entrypoint's configuration names, and calls it the way the wheel's users will."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import torch

from hatch_precompile.config import Entrypoint
from hatch_precompile.entrypoints.advice import about_gpus, own_line
from hatch_precompile.entrypoints.call import Sample
from hatch_precompile.entrypoints.observing import calls_observed
from hatch_precompile.entrypoints.references import find_reference
from hatch_precompile.errors import CaptureError
from hatch_precompile.static_lookup import dict_of
from hatch_precompile.tracing import (
    below_decorators,
    enters_a_context,
    inside_compile,
    is_passed_over,
    is_torchs_own,
)

__all__ = [
    "Declared",
    "Target",
    "find_declared",
    "find_target",
    "find_targets",
    "require_own_frame",
]


@dataclass(frozen=True)
class Target:
    """A resolved entrypoint.

    kind: "module class", "method" or "function"; call: what a user calls, on the instance where there
    is one; compiled: the same under torch.compile, given a backend, a function or its name.
    """

    kind: str
    call: Callable[..., Any]
    signature: inspect.Signature
    compiled: Callable[[Any], Callable[..., Any]]


@dataclass(frozen=True)
class Declared:
    """What a target names. `owner`: the class a method is looked up on; `attribute`: its name there."""

    kind: str
    value: Any
    owner: Any = None
    attribute: str = ""
    bare: bool = False
    """Of a method: a static or class method, which needs no object."""

    def function(self) -> Any:
        """The function whose frame is the target's own, or the outermost of its decorators' wrappers."""
        value = self.value.forward if self.kind == "module class" else self.value
        return getattr(value, "__func__", value)


def find_declared(entrypoint: Entrypoint) -> Declared:
    """Import the target. Raises CaptureError naming the key if it is nothing that can be compiled."""
    declared = _declared(entrypoint)
    _require_function(declared, entrypoint)
    function = inspect.unwrap(declared.function())
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        kind = "is asynchronous"
    elif inspect.isgeneratorfunction(function):
        kind = "is a generator"
    else:
        return declared
    raise CaptureError(
        f'target = "{entrypoint.target}" {kind}, which torch.compile does not take; '
        "name a function that it calls"
    )


def require_own_frame(declared: Declared, entrypoint: Entrypoint) -> None:
    """Raise CaptureError where torch.compile would compile a frame that no call of the target has."""
    if declared.kind == "module class" and declared.value.forward is torch.nn.Module.forward:
        raise CaptureError(
            f'target = "{entrypoint.target}" has no forward; name the method that its users call, '
            f'as in "{entrypoint.target}.method"'
        )
    if is_torchs_own(declared.function()):
        raise CaptureError(
            f'target = "{entrypoint.target}" is code of torch itself; name a module or a function '
            "of yours that calls it"
        )
    decorated = function = declared.function()
    while enters_a_context(function):
        function = function.__wrapped__
    if function is not decorated and entrypoint.activate == "compile":
        raise CaptureError(
            f'activate = "compile", but {entrypoint.target} is decorated with a context manager, such as '
            "torch.no_grad(), around which a torch.compile puts a function of its own that no entry can be "
            'for; set activate = "call", or decorate a function that calls the target'
        )
    around = getattr(function, "__wrapped__", None)
    if around is not None and inside_compile(function) is None and is_passed_over(function):
        raise CaptureError(
            f'target = "{entrypoint.target}" is what {function.__module__} ({function.__code__.co_qualname}) '
            f"has made of {around.__qualname__}, which torch.compile takes for its own; "
            "name a function of yours that calls it"
        )


_OF_FUNCTIONS = (FunctionType, staticmethod, classmethod)


def _require_function(declared: Declared, entrypoint: Entrypoint) -> None:
    """Raise CaptureError where a method is no function but makes or calls one, as a property, a partialmethod
    or a wrapper written in C does. Torch.compile may look through it: it then has a frame of that function,
    and none of the method."""
    if declared.kind == "function":
        return
    owner, name = declared.value, "forward"
    if declared.kind == "method":
        owner, name = declared.owner, declared.attribute
    method = inspect.getattr_static(owner, name)
    if type(method) in _OF_FUNCTIONS and type(declared.function()) is FunctionType:
        return
    while type(method) in (staticmethod, classmethod):
        method = method.__func__
    raise CaptureError(
        f'target = "{entrypoint.target}": {name} of {owner.__qualname__} is an object of '
        f"{type(method).__qualname__}, not a Python function; name the method or function that it calls"
    )


def _declared(entrypoint: Entrypoint) -> Declared:
    module_name, _, qualname = entrypoint.target.partition(":")
    value = find_reference(entrypoint.target, "target")
    if isinstance(value, type):
        if not issubclass(value, torch.nn.Module):
            raise CaptureError(
                f'target = "{entrypoint.target}" is a class but no torch.nn.Module; '
                f'name one of its methods, as in "{entrypoint.target}.method"'
            )
        if "__call__" in vars(value) and inside_compile(vars(value)["__call__"]) is not None:
            raise CaptureError(
                f'target = "{entrypoint.target}" is a class under torch.compile, which cannot be done twice; '
                "take the decorator away, or put it on the method forward"
            )
        return Declared("module class", value)
    owner_name, _, method = qualname.rpartition(".")
    owner = find_reference(f"{module_name}:{owner_name}", "target") if owner_name else None
    if isinstance(owner, type):
        of_torch = method == "forward" or value is torch.nn.Module.__call__
        if of_torch and issubclass(owner, torch.nn.Module):
            raise CaptureError(
                f'target = "{entrypoint.target}": name the class, "{module_name}:{owner_name}", '
                "so that calling the module runs the compiled code"
            )
        bare = isinstance(inspect.getattr_static(owner, method), (staticmethod, classmethod))
        return Declared("method", value, owner, method, bare)
    if type(value) is not FunctionType:  # wrapt's wrappers say that they are one
        advice = "a target is an nn.Module class, a method or a Python function"
        if isinstance(value, torch.nn.Module):
            advice = f'name {_class_of(value)}, and with the key "instance" a function that makes one'
        raise CaptureError(f'target = "{entrypoint.target}" is an object of {type(value).__name__}; {advice}')
    if entrypoint.instance is not None:
        raise CaptureError(f'instance is set, but the target "{entrypoint.target}" is a function')
    return Declared("function", value)


def _class_of(module: torch.nn.Module) -> str:
    """The class of a model as a target names it; that of the original, where torch has compiled one."""
    if isinstance(module, torch.jit.ScriptModule):
        return "the class that it was before TorchScript compiled it"
    cls = type(dict_of(module).get("_modules", {}).get("_orig_mod", module))
    return f'its class, "{cls.__module__}:{cls.__qualname__}"'


def find_target(entrypoint: Entrypoint, owner: Any = None) -> Target:
    """The target as it is called: on `owner`, else on an instance made here where it needs one.

    Raises CaptureError naming the key.
    """
    declared = find_declared(entrypoint)
    compiled = partial(torch.compile, fullgraph=entrypoint.fullgraph)
    if declared.kind == "module class":
        instance = owner if owner is not None else _instance(entrypoint, declared.value)
        return Target(
            "module class",
            instance,
            inspect.signature(instance.forward),
            lambda backend: _compiled_module(instance, partial(compiled, backend=backend)),
        )
    call = declared.value
    if declared.kind == "method" and not declared.bare:
        on = owner if owner is not None else _instance(entrypoint, declared.owner)
        call = _method(on, declared.attribute)
    return Target(
        declared.kind,
        call,
        inspect.signature(call),
        lambda backend: compiled(_below_decorators(call), backend=backend),
    )


def _method(on: Any, name: str) -> Any:
    """A method of an object's class, which the constructor may have wrapped for the object: what the wrapper
    calls is the target."""
    if name not in dict_of(on):
        return getattr(on, name)
    return inspect.getattr_static(type(on), name).__get__(on, type(on))


def _compiled_module(module: torch.nn.Module, compiled: Callable[[Any], Callable[..., Any]]) -> Any:
    """The module under torch.compile. Where its constructor has put a wrapper around its `forward`, the
    module as it is, but that what the wrapper calls is compiled: that is the target."""
    function = inspect.getattr_static(type(module), "forward")
    wrapped = "forward" in dict_of(module) and inside_compile(module.forward) is None
    if not wrapped or type(function) is not FunctionType:
        return compiled(_uncompiled(module))
    forward = compiled(MethodType(function, module))

    def call(*args: Any, **kwargs: Any) -> Any:
        with contextlib.ExitStack() as observing:

            def made(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
                observing.close()  # its code is what is compiled
                try:
                    return forward(*args[1:], **kwargs)
                finally:
                    observe()

            def observe() -> None:
                own = calls_observed(function, lambda args: bool(args) and args[0] is module, made)
                observing.enter_context(own)

            observe()
            return module(*args, **kwargs)

    return call


def _uncompiled(module: torch.nn.Module) -> Any:
    """The module, or its `forward` without the torch.compile that its class has put around it."""
    function = inside_compile(module.forward)
    if function is None:
        return below_decorators(module) if _is_decorated(module.forward) else module
    return _below_decorators(MethodType(function, module) if isinstance(function, FunctionType) else function)


def _below_decorators(call: Callable[..., Any]) -> Callable[..., Any]:
    """What to compile for a call: the modes that its decorators enter are entered as they are without us."""
    inner = inside_compile(call)
    if not _is_decorated(inner or call):
        return call
    if isinstance(call, MethodType) and isinstance(inner, FunctionType):
        inner = MethodType(inner, call.__self__)
    return below_decorators(inner or call)


def _is_decorated(call: Callable[..., Any]) -> bool:
    return enters_a_context(getattr(call, "__func__", call))


def find_targets(entrypoint: Entrypoint, samples: Sequence[Sample]) -> list[Target]:
    """What each sample calls: the object that the workload called, or one instance for them all."""
    if entrypoint.workload is None:
        return [find_target(entrypoint)] * len(samples)
    made: dict[int, Target] = {}
    for sample in samples:
        if id(sample.owner) not in made:
            made[id(sample.owner)] = find_target(entrypoint, sample.owner)
    return [made[id(sample.owner)] for sample in samples]


def _advice_on_instance(entrypoint: Entrypoint, error: Exception) -> str:
    name = getattr(error, "filename", None)
    if isinstance(error, FileNotFoundError) and isinstance(name, str) and not Path(name).is_absolute():
        return f"; a build runs in a folder of its own: find the file by Path(__file__).with_name({name!r})"
    if isinstance(error, TypeError) and not entrypoint.instance:
        return '; name a callable that makes one with the key "instance"'
    place = own_line(error)
    return about_gpus(error, "models are") or (f", at {place}" if place else "")


def _instance(entrypoint: Entrypoint, cls: type) -> Any:
    factory = cls if entrypoint.instance is None else find_reference(entrypoint.instance, "instance")
    what = f'instance = "{entrypoint.instance}"' if entrypoint.instance else f"{cls.__qualname__}()"
    if isinstance(factory, torch.nn.Module):
        raise CaptureError(
            f"{what} is an object of {type(factory).__qualname__}; name a function that returns one"
        )
    try:
        instance = factory()
    except Exception as error:
        raise CaptureError(
            f"{what} raised {type(error).__name__}: {error}{_advice_on_instance(entrypoint, error)}"
        ) from error
    if not isinstance(instance, cls):
        raise CaptureError(f"{what} returned a {type(instance).__qualname__}, not a {cls.__qualname__}")
    if isinstance(instance, torch.nn.Module) and "train" not in entrypoint.modes:
        instance.eval()
    return instance
