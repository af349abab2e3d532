"""Calls of the zoo (tests/zoo): plain ones, those under torch.compile, misses, and what is said of them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import probe
import torch
import zoo
import zoo.functions
import zoo.models
import zoo.tools

torch.set_grad_enabled(False)

X = torch.randn(6)
ROWS = torch.randn(4, 8)
IMAGE = torch.randn(2, 3, 4, 5)


def mlp(width: int = 8) -> Any:
    return zoo.models.Mlp(width).eval()


# Under torch.compile.


def a_plain_call_of_what_is_activated_by_compile() -> Any:
    """The entrypoint's status after it."""
    zoo.models.OnAsking()(X)
    return probe.status("onasking")


def hits_of_two_calls_under_compile() -> dict[str, int]:
    """For each entrypoint, with a backend that refuses to compile."""

    def refuse(graph: object, inputs: object) -> None:
        raise AssertionError("compiled")

    called = {
        "onasking": (zoo.models.OnAsking(), X),
        "mlp": (mlp(), ROWS),
        "whiten": (zoo.functions.whiten, IMAGE),
        "apply": (zoo.tools.Tool().apply, X),
        "shifted": (zoo.tools.Tool.shifted, X),
        "chatty": (zoo.models.Chatty(), X),
    }
    hits = {}
    for name, (model, given) in called.items():
        call = torch.compile(model, backend=refuse)
        call(given)
        torch.testing.assert_close(call(given), probe.eager(model)(given))
        hits[name] = probe.hits(name)
    return hits


MISSED: dict[str, Callable[[], Any]] = {
    "onasking": zoo.models.OnAsking,
    "mlp": lambda: mlp(6),
    "jitted": zoo.models.Jitted,
}


def two_misses_under_compile(name: str) -> dict[str, Any]:
    """How often the backend was called, and whether both answers are right."""
    model, x, backend = MISSED[name](), torch.randn(5, 6), probe.Backend()
    call = torch.compile(model, backend=backend)
    answers = [call(x), call(x)]
    same = all(torch.equal(answer, probe.eager(model)(x)) for answer in answers)
    return {"compiled": backend.compiled, "same": same}


def a_hit_and_as_many_misses_as_may_be_compiled() -> dict[str, int]:
    import torch._dynamo

    torch._dynamo.config.recompile_limit = 3
    torch._dynamo.config.automatic_dynamic_shapes = False
    backend = probe.Backend()
    call = torch.compile(zoo.models.OnAsking(), backend=backend, fullgraph=True)
    call(X)
    for size in (2, 3, 4):
        call(torch.randn(size))
    return {"hits": probe.hits("onasking"), "compiled": backend.compiled}


def graphs_of_a_function_around_entrypoints() -> int:
    """How many graphs dynamo makes of it."""
    model, tool, backend = mlp(), zoo.tools.Tool(), probe.Backend()

    def larger(x: torch.Tensor) -> torch.Tensor:
        return tool.apply(zoo.tools.Tool.shifted(model(x).sum(0)))

    expected = torch.sin(torch.exp(probe.eager(model)(ROWS).sum(0)) + 4) * 3
    torch.testing.assert_close(torch.compile(larger, backend=backend, fullgraph=True)(ROWS), expected)
    return backend.compiled


# Misses.


def a_miss_that_runs_eagerly() -> dict[str, Any]:
    model, x = mlp(6), torch.randn(4, 6)
    same = torch.equal(model(x), probe.eager(model)(x))
    return {
        "same": same,
        "misses": probe.misses("mlp"),
        "hits": probe.hits("mlp"),
        "imported": probe.compilers(),
    }


def misses_that_are_compiled() -> dict[str, Any]:
    """After a hit: of two instances, four of one size, and then a hit again."""
    backend = probe.Backend()
    torch.compile = functools.partial(torch.compile, backend=backend)
    model = zoo.models.Jitted()
    model(X)
    at_the_hit = {"hits": probe.hits("jitted"), "compiled": backend.compiled, "imported": probe.compilers()}
    y = torch.randn(4, 3)
    same = all(torch.equal(model(y), torch.sin(y) - 1) for _ in range(3))
    zoo.models.Jitted()(y)
    return {
        "at the hit": at_the_hit,
        "compiled": backend.compiled,
        "same": same,
        "served again": probe.served("jitted", lambda: model(X)),
    }


def a_miss_that_is_an_error() -> None:
    tool = zoo.tools.Tool()
    tool.apply(X)
    print("served")
    tool.apply(torch.randn(7))


def errors_of_misses() -> dict[str, str]:
    calls: dict[str, Callable[[], Any]] = {
        "mlp": lambda: mlp()(torch.randn(17, 8)),
        "whiten": lambda: zoo.functions.whiten(X[None, None, None]),
        "shifted": lambda: zoo.tools.Tool.shifted(X[None]),
        "chatty": lambda: zoo.models.Chatty()(X[None]),
    }
    return {name: str(probe.attempt(call)) for name, call in calls.items()}


def a_miss_under_compile() -> None:
    torch.compile(zoo.models.Jitted(), backend=probe.Backend())(X[None])


def hits_of_plain_calls() -> int:
    zoo.tools.Tool().apply(X)
    zoo.models.Chatty()(X)
    return probe.hits("apply")


def an_error_of_the_model() -> None:
    zoo.models.Mlp()(torch.randn(4, 9))


# Targets of each kind.


def calls_of_each_kind_of_target() -> dict[str, Any]:
    """Whether each is served once, and which compilers that imported."""
    tool = zoo.tools.Tool
    whitened = (IMAGE - IMAGE.mean((2, 3), keepdim=True)) * 0.5
    applied, shifted = torch.sin(X) * 3, torch.exp(X) + 4
    calls: dict[str, tuple[str, Callable[[], Any], torch.Tensor]] = {
        "a function": ("whiten", lambda: zoo.functions.whiten(IMAGE), whitened),
        "with keywords": ("whiten", lambda: zoo.functions.whiten(image=IMAGE), whitened),
        "a method": ("apply", lambda: tool().apply(X), applied),
        "a method of the class": ("apply", lambda: tool.apply(tool(), X), applied),
        "a class method": ("shifted", lambda: tool.shifted(X), shifted),
        "a class method of an instance": ("shifted", lambda: tool().shifted(X), shifted),
    }
    served = {}
    for kind, (name, call, expected) in calls.items():
        before = probe.hits(name)
        torch.testing.assert_close(call(), expected)
        served[kind] = probe.hits(name) == before + 1
    return {"served": served, "imported": probe.compilers()}


def calls_of_a_static_method() -> dict[str, Any]:
    """The hits of one of the class and one of an instance, and what stands in the class."""
    tool = zoo.tools.Tool
    with torch.inference_mode():
        torch.testing.assert_close(tool.halve(X), torch.cos(X) / 2)
        torch.testing.assert_close(tool().halve(X), torch.cos(X) / 2)
    return {"hits": probe.hits("halve"), "kind": type(vars(tool)["halve"]).__name__}


def a_call_of_a_class_method_of_a_derived_class() -> dict[str, Any]:
    class Other(zoo.tools.Tool):
        bias = 7.0

    same = torch.equal(Other.shifted(X), torch.exp(X) + 7)
    return {"same": same, "hits": probe.hits("shifted")}


def a_call_by_the_name_in_the_package() -> dict[str, Any]:
    """Whether a function that the package has imported is that of its module, and the hits of a call."""
    same = zoo.whiten is zoo.functions.whiten
    zoo.whiten(IMAGE)
    return {"same": same, "hits": probe.hits("whiten")}


# Uninstalling.


def uninstalled_after_calls() -> dict[str, Any]:
    """What is right, what is left, and what torch.compile does then."""
    wrapped = zoo.functions.whiten
    model, tool, backend = mlp(), zoo.tools.Tool(), probe.Backend()
    model(ROWS)
    tool.apply(X)
    zoo._precompiled.uninstall()
    y = torch.randn(4, 8)
    targets = zoo.functions.whiten, zoo.tools.Tool.apply, zoo.tools.Tool.shifted, zoo.tools.Tool.halve
    seen = {
        "a model is right": torch.equal(model(y), probe.eager(model)(y)),
        "a method is right": torch.equal(tool.apply(X), torch.sin(X) * 3),
        "a function got before is the same": torch.equal(wrapped(IMAGE), zoo.functions.whiten(IMAGE)),
        "attributes of targets": [name for target in targets for name in vars(target)],
        "activated": probe.activated(zoo.models.Mlp.forward),
    }
    torch.compile(zoo.models.OnAsking(), backend=backend)(X)
    return {**seen, "compiled": backend.compiled, "status": zoo._precompiled.status()}


def hits_once_installed_again() -> int:
    """Of a call after another one, two uninstalls and an install."""
    model = mlp()
    model(ROWS)
    zoo._precompiled.uninstall()
    zoo._precompiled.uninstall()
    zoo._precompiled.install()
    model(ROWS)
    return probe.hits("mlp")


# What there is to see.


def status_after_a_hit_and_a_miss() -> dict[str, Any]:
    """And which modules that only say something were loaded for that."""
    mlp()(ROWS)
    mlp()(torch.randn(20, 8))
    words = [f"zoo._precompiled.explaining.{name}" for name in ("reporting", "explanation", "advice")]
    loaded = probe.loaded(*words)
    return {"status": zoo._precompiled.status(), "loaded": loaded}


def _changed(**attributes: Any) -> Any:
    """A model with other attributes, or without those that are None."""
    model = mlp()
    for name, value in attributes.items():
        if value is None:
            delattr(model, name)
        else:
            setattr(model, name, value)
    return model


def explanations_of_calls() -> dict[str, Any]:
    """Reports of calls of every kind, and the hits and misses there were in the end."""
    from torch.utils.flop_counter import FlopCounterMode

    model = mlp()
    calls: dict[str, tuple[Any, ...]] = {
        "a hit": (model, ROWS),
        "another dtype": (model, ROWS.double()),
        "another rank": (model, ROWS[0]),
        "another stride order": (model, ROWS.t().contiguous().t()),
        "a size outside the range": (model, torch.randn(17, 8)),
        "grad mode": (model, ROWS),
        "a class": (torch.nn.Linear(8, 8), ROWS),
        "an attribute": (_changed(scale=3.0), ROWS),
        "a missing attribute": (_changed(scale=None), ROWS),
        "an argument more": (model, ROWS, ROWS),
        "a dispatch mode": (model, ROWS),
    }
    contexts = {"grad mode": torch.enable_grad(), "a dispatch mode": FlopCounterMode(display=False)}
    reports = {}
    for name, arguments in calls.items():
        with contexts.get(name, contextlib.nullcontext()):
            reports[name] = zoo._precompiled.explain("mlp", *arguments)
    return {"reports": reports, "hits": probe.hits("mlp"), "misses": probe.misses("mlp")}


def explaining_an_unknown_name() -> None:
    zoo._precompiled.explain("mpl", 1)


def explaining_a_call_that_lacks_an_argument() -> None:
    zoo._precompiled.explain("mlp", zoo.models.Mlp())


def explanation_of_a_change_in_one_layer() -> Any:
    import zoo.bert

    model = zoo.bert.small().eval()
    model.encoder.layer[1].attention.output.LayerNorm.eps = 0.5
    args, kwargs = next(iter(zoo.bert.sentences()))
    (report, *_) = zoo._precompiled.explain("bert", model, *args, **kwargs)
    return report


def explanations_of_functions_and_methods() -> list[Any]:
    """The only report of each call."""
    explain, tool = zoo._precompiled.explain, zoo.tools.Tool
    reports = [
        explain("whiten", IMAGE),
        explain("whiten", image=IMAGE[0]),
        explain("apply", tool(), X),
        explain("apply", tool(5.0), X),
        explain("shifted", tool, X),
    ]
    return [report for (report,) in reports]
