"""Those that look at Python objects, or put others in their place."""

from __future__ import annotations

import ast
import dataclasses
import dis
import doctest
import functools
import gc
import inspect
import io
import pydoc
import types
import typing
import weakref
from typing import Any
from unittest import mock

import torch

from tests.tools.guest import Guest, tool


@tool("inspect: signature, getsource, getmembers; typing.get_type_hints", suite=True)
def inspected(guest: Guest) -> None:
    package = guest.package
    for target in (
        package.Classifier.forward,
        package.Pictures.forward,
        package.normalize,
        package.summarize,
    ):
        guest.note("signature", str(inspect.signature(target)))
        guest.note("source", inspect.getsource(target))
        guest.note("lines", inspect.getsourcelines(target)[1])
        guest.note("arguments", str(inspect.getfullargspec(target)))
        guest.note("hints", str(typing.get_type_hints(target)))
        guest.note("members", [name for name, _ in inspect.getmembers(target)])
        guest.note("names", [target.__name__, target.__qualname__, target.__module__, target.__doc__])
        guest.note("kinds", [inspect.isfunction(target), callable(target), type(target)])
        code = target.__code__
        guest.note(
            "code",
            [
                code.co_varnames,
                code.co_argcount,
                code.co_firstlineno,
                code.co_flags,
                code.co_freevars,
                code.co_name,
            ],
        )
    guest.note("members of the class", [name for name, _ in inspect.getmembers(package.Classifier)])
    guest.note("of the class itself", sorted(vars(package.Classifier)))
    guest.note("of an instance", sorted(vars(guest.classifier())))
    guest.note("signature", str(inspect.signature(guest.classifier())))
    guest.note("syntax", ast.dump(ast.parse(inspect.getsource(package))))


@tool("help(), pydoc, repr", suite=True)
def help_(guest: Guest) -> None:
    for target in (guest.package, guest.package.Classifier, guest.package.normalize):
        guest.note("text", pydoc.render_doc(target, renderer=pydoc.plaintext))
    guest.note("text", repr(guest.classifier()))
    guest.note("text", dataclasses.fields(guest.package.Summary)[1].name)


@tool(
    "vars of the module, inspect.getclosurevars",
    known="names that begin with `__precompiled_`",
)
def names(guest: Guest) -> None:
    guest.plain_calls()
    guest.notes.clear()
    guest.note("module", sorted(vars(guest.package)))
    found = inspect.getclosurevars(guest.package.normalize)
    guest.note("globals of a function", sorted(found.globals))
    guest.note("builtins of a function", sorted(found.builtins))


@tool("dis", known="instructions in front that look for compiled code")
def disassembled(guest: Guest) -> None:
    text = io.StringIO()
    dis.dis(guest.package.normalize, file=text)
    guest.note("instructions", text.getvalue().count("\n"))


@tool("doctest", suite=True)
def doctests(guest: Guest) -> None:
    guest.note("result", list(doctest.testmod(guest.package)))


@tool("unittest.mock: forward, a helper, a submodule, autospec, wraps", suite=True)
def mocked(guest: Guest) -> None:
    package, x = guest.package, guest.rows()
    model = guest.classifier()
    with torch.no_grad():
        with mock.patch.object(package.Classifier, "forward", return_value=torch.ones(1)) as patched:
            guest.note("output of a patched forward", model(x))
            guest.note("calls", patched.call_count)
        guest.note("output", model(x))
        with mock.patch.object(
            package.Classifier, "forward", autospec=True, side_effect=lambda self, x: x
        ) as patched:
            guest.note("output of a patched forward", model(x))
            guest.note("calls", patched.call_count)
        with mock.patch("workshop.model.activation", side_effect=torch.neg) as patched:
            guest.note("output with a patched helper", model(x))
            guest.note("calls", patched.call_count)
        guest.note("output", model(x))
        with mock.patch("workshop.model.activation", wraps=package.activation) as patched:
            guest.note("output with a watched helper", model(x))
            guest.note("calls", patched.call_count)
        with mock.patch.object(model, "drop", torch.nn.Tanh()):
            guest.note("output with another submodule", model(x))
        with mock.patch.object(model.first, "forward", side_effect=lambda x: x.repeat(1, 2)):
            guest.note("output with a patched submodule", model(x))
        with mock.patch("torch.nn.functional.gelu", side_effect=lambda x, approximate: x):
            guest.note("output with a patched function of torch", model(x))
        with mock.patch.object(package, "normalize", autospec=True) as patched:
            package.normalize(x)
            guest.note("calls", patched.call_count)
        guest.attempt("wrong arguments", mock.create_autospec(package.normalize))
        guest.note("output", model(x))


@tool("functions replaced: code, defaults, globals, functools", suite=True)
def replaced(guest: Guest) -> None:
    package, x = guest.package, guest.rows()
    with torch.no_grad():
        guest.note("output", functools.partial(package.normalize, eps=1.0)(x))
        guest.note("output", functools.lru_cache(package.normalize)(x))
        guest.note("output", functools.wraps(package.normalize)(functools.partial(package.normalize))(x))
        defaults = package.normalize.__defaults__
        package.normalize.__defaults__ = (5.0,)
        guest.note("output with other defaults", package.normalize(x))
        package.normalize.__defaults__ = defaults
        code = package.normalize.__code__
        package.normalize.__code__ = (lambda x, eps: x - eps).__code__
        guest.note("output with other code", package.normalize(x))
        package.normalize.__code__ = code
        guest.note("output", package.normalize(x))
        other = types.FunctionType(package.normalize.__code__, {"torch": torch}, "other", (2.0,))
        guest.note("output of a copy", other(x))
        model = guest.classifier()
        model.forward = types.MethodType(lambda self, x: self.last(self.first(x)), model)
        guest.note("output with another forward", model(x))
        del model.forward
        guest.note("output", model(x))
        bound = model.forward
        guest.note("output of a bound method", bound(x, scale=2.0))
        guest.note("output of the class's function", package.Classifier.forward(model, x))


@tool("subclasses, mixins, another __class__, __call__", suite=True)
def subclassed(guest: Guest) -> None:
    package, x = guest.package, guest.rows()

    class Scaled(package.Classifier):  # type: ignore[name-defined, misc]
        def forward(self, x: torch.Tensor, scale: float = 3.0) -> torch.Tensor:
            return super().forward(x, scale) + 1

    class Called(package.Classifier):  # type: ignore[name-defined, misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return super().__call__(*args, **kwargs) * 2

    with torch.no_grad():
        for kind in (Scaled, Called):
            torch.manual_seed(0)
            guest.note("output", kind().eval()(x))
        model = guest.classifier()
        model(x)
        model.__class__ = Scaled
        guest.note("output of another class", model(x))
        holder = torch.nn.Sequential(guest.classifier(), torch.nn.ReLU())
        guest.note("output in another model", holder(x))
    holder(x).sum().backward()
    guest.note_gradients(holder)


@tool("weakref, gc without the cyclic collector", suite=True)
def weak(guest: Guest) -> None:
    gc.collect()
    gc.disable()
    for make, given in ((guest.classifier, guest.rows()), (guest.pictures, guest.images())):
        model, gone = make(), []
        x = given.clone()
        references = [weakref.ref(model), weakref.ref(next(model.parameters())), weakref.ref(x)]
        weakref.finalize(model, gone.append, "model")
        with torch.no_grad():
            for _ in range(3):
                model(x)
            model.load_state_dict(model.state_dict())
            model(x)
        del model, x
        guest.note("alive", [reference() is not None for reference in references])
        guest.note("finalized", gone)
    gc.enable()


@tool("dataclasses: replace, asdict, fields of a result", suite=True)
def dataclass_results(guest: Guest) -> None:
    with torch.no_grad():
        found = guest.package.summarize(guest.rows())
    guest.note("type", type(found))
    guest.note("result", dataclasses.replace(found, rows=7))
    guest.note("result", dataclasses.asdict(found))
    guest.note("text", repr(found))


@tool("exceptions of bad calls, their tracebacks", suite=True)
def exceptions(guest: Guest) -> None:
    import traceback

    model = guest.classifier()
    bad = {
        "of nothing": model,
        "too much": lambda: model(guest.rows(), 1.0, 2.0),
        "an unknown name": lambda: model(guest.rows(), sclae=1.0),
        "a wrong size": lambda: model(torch.randn(4, 9)),
        "a wrong type": lambda: model("rows"),
        "a wrong dtype": lambda: model(torch.ones(4, 8, dtype=torch.int64)),
        "None": lambda: guest.package.normalize(None),
    }
    for name, call in bad.items():
        try:
            with torch.no_grad():
                call()
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            guest.note(f"exception, {name}", error)
            guest.note(
                f"traceback, {name}",
                [(each.name, each.lineno) for each in frames if "workshop" in each.filename],
            )
