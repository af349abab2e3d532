"""Others in the same process: torch.compile of the user's, its switches, what asks about a target."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import pickle
import sys
from collections.abc import Callable
from typing import Any

import torch

from tests.truth.changes.registry import change


def _lying(graph: Any, inputs: Any) -> Callable[..., Any]:
    """A backend of somebody's: what it compiles is not for anybody else."""

    def run(*args: Any) -> Any:
        return tuple(
            value * 0 - 5 if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for value in graph(*args)
        )

    return run


def _without_counting(run: Any, call: Callable[[], Any]) -> None:
    """A call that is no part of what is compared, such as one through a backend that lies."""
    with contextlib.suppress(Exception), contextlib.redirect_stdout(None), run.mode():
        call()


@change("the target was compiled with another backend, for the same size", "others", warm=True)
def compiled_before(run: Any) -> None:
    run.load()
    for args, kwargs in run.samples():
        _without_counting(run, lambda a=args, k=kwargs: torch.compile(run.target, backend=_lying)(*a, **k))
    run.call()
    run.call(label="again")


def _longer(values: list[Any]) -> list[Any]:
    return [torch.cat([v, v]) if isinstance(v, torch.Tensor) else v for v in values]


@change("the target was compiled with another backend, for another size", "others", warm=True)
def compiled_for_another_size(run: Any) -> None:
    run.load()
    for args, kwargs in run.samples():
        other = _longer(list(args))
        _without_counting(run, lambda a=other, k=kwargs: torch.compile(run.target, backend=_lying)(*a, **k))
    run.call(_longer, label="of that size")
    run.call()


@change("parts of the target were compiled with another backend", "others", warm=True)
def parts_compiled(run: Any) -> None:
    """Every function and submodule that can be called with a sample's first tensor."""
    run.load()
    tensor = next(v for a, k in run.samples() for v in [*a, *k.values()] if isinstance(v, torch.Tensor))
    parts = [value for value in vars(run.module).values() if inspect.isfunction(value)]
    for name in ("parts.arithmetic", "parts.layers"):
        if name in sys.modules:
            parts += [value for value in vars(sys.modules[name]).values() if inspect.isfunction(value)]
    if isinstance(run.object, torch.nn.Module):
        parts += [part for part in run.object.modules() if part is not run.object]
    for part in parts:
        for x in (tensor, _longer([tensor])[0]):
            _without_counting(run, lambda p=part, y=x: torch.compile(p, backend=_lying)(y.clone()))
    run.call(_longer, label="that misses")
    run.call()


@change("the target is compiled with another backend between two calls", "others", warm=True)
def compiled_between(run: Any) -> None:
    run.load()
    run.call()
    for args, kwargs in run.samples():
        other = _longer(list(args))
        _without_counting(run, lambda a=other, k=kwargs: torch.compile(run.target, backend=_lying)(*a, **k))
    run.call(_longer, label="of that size")
    run.call(label="then")


@change("torch._dynamo is imported", "others", warm=True, harmless=True)
def dynamo_imported(run: Any) -> None:
    importlib.import_module("torch._dynamo")
    run.load()
    run.call()


@change("torch._dynamo.reset() before the first call", "others", warm=True, harmless=True)
def reset_first(run: Any) -> None:
    run.load()
    importlib.import_module("torch._dynamo").reset()
    run.call()


@change("torch._dynamo.reset() between two calls", "others", warm=True, harmless=True)
def reset_between(run: Any) -> None:
    run.load()
    run.call()
    importlib.import_module("torch._dynamo").reset()
    run.call(label="then")


@change("torch.compiler.reset() after a compilation", "others", warm=True)
def reset_after_compilation(run: Any) -> None:
    run.load()
    run.call()
    for args, kwargs in run.samples():
        other = _longer(list(args))
        _without_counting(run, lambda a=other, k=kwargs: torch.compile(run.target, backend="eager")(*a, **k))
    torch.compiler.reset()
    run.call(label="then")


@change("torch.compiler.disable(target)", "switched off", warm=True, aside=True)
def disabled(run: Any) -> None:
    run.load()
    run.call(through=lambda called, *args, **kwargs: torch.compiler.disable(called)(*args, **kwargs))


@change("torch._dynamo.config.disable", "switched off", warm=True, aside=True)
def config_disabled(run: Any) -> None:
    importlib.import_module("torch._dynamo").config.disable = True
    run.load()
    run.call()


@change("set_stance(force_eager)", "switched off", warm=True, aside=True)
def forced_eager(run: Any) -> None:
    run.load()
    with torch.compiler.set_stance("force_eager"):
        run.call()


@change("set_stance(eager_on_recompile)", "others", warm=True)
def eager_on_recompile(run: Any) -> None:
    run.load()
    with torch.compiler.set_stance("eager_on_recompile"):
        run.call()
        run.call(_longer, label="of another size")


@change("set_stance(fail_on_recompile)", "others", warm=True, compiler=True)
def fail_on_recompile(run: Any) -> None:
    run.load()
    with torch.compiler.set_stance("fail_on_recompile"):
        run.call()
        run.call(_longer, label="of another size")


@change("a call within a compiled function of the user's", "others", warm=True)
def within_compiled(run: Any) -> None:
    run.load()

    def through(called: Any, *args: Any, **kwargs: Any) -> Any:
        def outer(*inner: Any, **named: Any) -> Any:
            return called(*inner, **named)

        return torch.compile(outer, backend="eager")(*args, **kwargs)

    run.call(through=through)
    run.call(label="then, plainly")


@change("torch.compile with the eager backend", "others", warm=True)
def compiled_by_eager(run: Any) -> None:
    run.load()
    run.call(through=lambda called, *a, **k: torch.compile(called, backend="eager")(*a, **k))
    run.call(label="then, plainly")


def _runtime(run: Any) -> Any:
    return (
        sys.modules[f"{run.module.__name__.partition('.')[0]}._precompiled"] if run.role == "wheel" else None
    )


@change("uninstalled before the first call", "others")
def uninstalled_first(run: Any) -> None:
    run.load()
    runtime = _runtime(run)
    if runtime:
        runtime.uninstall()
    run.call()


@change("uninstalled between two calls", "others")
def uninstalled_between(run: Any) -> None:
    run.load()
    run.call()
    runtime = _runtime(run)
    if runtime:
        runtime.uninstall()
    run.call(label="uninstalled")
    if runtime:
        runtime.install()
    run.call(label="installed again")


@change("find_spec asks for the module before it is imported", "others", harmless=True)
def found_before(run: Any) -> None:
    run.prepare()
    importlib.import_module("specimens")
    found = importlib.util.find_spec(f"specimens.{run.program['module']}")
    run.note("found", found is not None)
    run.load()
    run.call()


@change("the dependency is imported first", "others", harmless=True)
def dependency_first(run: Any) -> None:
    run.prepare()
    for name in ("parts.arithmetic", "parts.layers", "parts.settings"):
        importlib.import_module(name)
    run.load()
    run.call()


@change("the module is reloaded between two calls", "others")
def reloaded(run: Any) -> None:
    run.load()
    run.call()
    importlib.reload(run.module)
    run.call(label="the old object")
    run.make()
    run.call(label="a new object")


@change("the module is imported anew", "others")
def imported_anew(run: Any) -> None:
    run.load()
    run.call()
    del sys.modules[run.module.__name__]
    run.module = importlib.import_module(run.module.__name__)
    run.make()
    run.call(label="anew")


@change("another module has taken the target's name", "others", only=("function",))
def shadowed(run: Any) -> None:
    run.load()
    setattr(run.module, run.program["target"], lambda *args, **kwargs: args and args[0] * 11.0)
    run.call()


def _attempt(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error).__name__


@change("what a target is, to those who ask", "identity")
def identity(run: Any) -> None:
    """Pickling, the signature, the name, being itself: as without us."""
    run.load()
    target = run.target
    owner = run.object
    if isinstance(target, torch.nn.Module):
        target = target.forward
    run.note("signature", _attempt(lambda: str(inspect.signature(target))))
    run.note("full signature", _attempt(lambda: str(inspect.getfullargspec(target))))
    run.note("source", _attempt(lambda: inspect.getsource(target)))
    run.note("names", [target.__name__, target.__qualname__, target.__module__, target.__doc__])
    run.note("attributes", sorted(vars(target)))
    run.note("type", type(target).__name__)
    run.note("annotations", str(_attempt(lambda: inspect.get_annotations(target))))
    run.note("wrapped", hasattr(target, "__wrapped__"))
    run.note("pickled", _attempt(lambda: pickle.loads(pickle.dumps(target)) is target))
    run.note("copied", _attempt(lambda: copy.deepcopy(target) == target))
    run.note("object pickled", _attempt(lambda: type(pickle.loads(pickle.dumps(owner))).__name__))
    run.call()
    run.note("signature after a call", _attempt(lambda: str(inspect.signature(target))))


@change("an object that took the target at import is pickled", "identity", only=("function",))
def taken_at_import(run: Any) -> None:
    run.load()
    module = sys.modules[run.module.__name__]
    taken = [
        value.__defaults__
        for value in vars(module).values()
        if inspect.isfunction(value) and value.__defaults__
    ]
    run.note("taken", len(taken))
    held = {run.target: 1}
    run.note("found in a dictionary", held.get(getattr(module, run.program["target"])))
    run.call()
    run.note("found after a call", held.get(getattr(module, run.program["target"])))


@change("torch.jit.script of the target", "identity", only=("module",))
def scripted(run: Any) -> None:
    run.load()
    run.note("scripted", _attempt(lambda: type(torch.jit.script(run.object)).__name__))
    run.call()


@change("forward is called by its name", "others", only=("module",))
def forward_called(run: Any) -> None:
    run.load()
    run.call(
        through=lambda called, *args, **kwargs: (
            run.object.forward(*args, **kwargs) if run.role != "compile" else called(*args, **kwargs)
        )
    )


@change("torch.func.functional_call", "others", only=("module",))
def functional_call(run: Any) -> None:
    run.load()
    run.call()

    def through(called: Any, *args: Any, **kwargs: Any) -> Any:
        other = {name: p.detach() * 2 for name, p in run.object.named_parameters()}
        return torch.func.functional_call(called, other, args, kwargs)

    run.call(through=through, label="with other parameters")
    run.call(label="then")
