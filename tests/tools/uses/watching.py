"""Those that look at calls as they go by."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import torch

from tests.tools.guest import Guest, tool


@tool("torch.profiler: a user's ranges, steps, tables")
def profiler(guest: Guest) -> None:
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    model, ready = guest.classifier(), []
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=2),
        on_trace_ready=lambda each: ready.append(
            sorted({event.name for event in each.events() if event.name.startswith("mine")})
        ),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        with_flops=True,
    ) as each:
        for _ in range(8):
            with record_function("mine"), torch.no_grad():
                output = model(guest.rows())
            each.step()
    guest.note("output", output)
    guest.note("ranges", ready)
    with profile(activities=[ProfilerActivity.CPU]) as each, record_function("mine, with gradients"):
        model(guest.rows()).sum().backward()
    guest.note_gradients(model)
    each.export_chrome_trace("trace.json")
    guest.note("the trace has the range", "mine, with gradients" in Path("trace.json").read_text())
    guest.note("the table has the range", "mine, with gradients" in each.key_averages().table())


@tool("torch.profiler: operators", known="no operators, but your own ranges")
def profiled_operators(guest: Guest) -> None:
    from torch.profiler import ProfilerActivity, profile

    model = guest.classifier()
    with profile(activities=[ProfilerActivity.CPU]) as each, torch.no_grad():
        model(guest.rows())
    names = [event.name for event in each.events()]
    guest.note("operators", sorted(set(names)))


@tool("FlopCounterMode")
def flops(guest: Guest) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    for model, given in ((guest.classifier(), guest.rows()), (guest.pictures(), guest.images())):
        counter = FlopCounterMode(display=False)
        with counter:
            model(given).sum().backward()
        guest.note("counts", {key: dict(value) for key, value in counter.get_flop_counts().items()})


@tool("TorchDispatchMode", suite=True)
def dispatch_mode(guest: Guest) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Logging(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    seen: list[str] = []
    with Logging():
        guest.classifier()(guest.rows()).sum().backward()
        with torch.no_grad():
            guest.note("output", guest.classifier()(guest.rows()))
            guest.note("output", guest.package.normalize(guest.rows()))
    guest.note("operators", seen)


@tool("TorchFunctionMode")
def function_mode(guest: Guest) -> None:
    from torch.overrides import TorchFunctionMode, resolve_name

    class Logging(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(resolve_name(function) or str(function))
            return function(*args, **(kwargs or {}))

    seen: list[str] = []
    model, pictures = guest.classifier(), guest.pictures()
    with torch.no_grad(), Logging():
        outputs = [model(guest.rows()), pictures(guest.images()), guest.package.normalize(guest.rows())]
    guest.note("outputs", outputs)
    guest.note("functions", seen)


@tool("FakeTensorMode, a subclass of Tensor")
def fake(guest: Guest) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), torch.no_grad():
        model = guest.package.Classifier().eval()
        found = model(torch.empty(4, 8))
        guest.note("shape", [type(found).__name__, *found.shape])

    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(getattr(function, "__name__", ""))
            return super().__torch_function__(function, types, args, kwargs or {})

    seen: list[str] = []
    with torch.no_grad():
        guest.note("output", guest.classifier()(guest.rows().as_subclass(Logged)))
    guest.note("functions", seen)


@tool("hooks of modules: forward, pre-forward, backward", suite=True)
def hooks(guest: Guest) -> None:
    for where in ("model", "first", "norm"):
        model = guest.classifier()
        module = model if where == "model" else getattr(model, where)
        calls: list[Any] = []
        handles = _hooked(module, calls)
        with torch.no_grad():
            guest.note("output", model(guest.rows()))
        output = model(guest.rows())
        output.sum().backward()
        guest.note("output", output)
        guest.note_gradients(model)
        for handle in handles:
            handle.remove()
        with torch.no_grad():
            guest.note("output without them", model(guest.rows()))
        guest.note("hook calls", calls)


def _hooked(module: torch.nn.Module, calls: list[Any]) -> list[Any]:
    return [
        module.register_forward_pre_hook(lambda _, args: calls.append(("before", args[0].shape))),
        module.register_forward_hook(lambda _, args, output: calls.append(("after", output.shape))),
        module.register_forward_hook(lambda _, args, output: output * 2),
        module.register_full_backward_pre_hook(lambda _, gradients: calls.append("backward")),
        module.register_full_backward_hook(lambda _, into, out: calls.append(("gradient", out[0].shape))),
    ]


@tool("register_module_forward_hook, register_module_full_backward_hook", suite=True)
def global_hooks(guest: Guest) -> None:
    from torch.nn.modules import module

    model, calls = guest.classifier(), []
    handles = [
        module.register_module_forward_pre_hook(lambda each, args: calls.append(("before", type(each)))),
        module.register_module_forward_hook(lambda each, args, output: calls.append(("after", type(each)))),
        module.register_module_full_backward_hook(
            lambda each, into, out: calls.append(("gradient", type(each)))
        ),
    ]
    with torch.no_grad():
        guest.note("output", model(guest.rows()))
        guest.note("output", guest.pictures()(guest.images()))
    model(guest.rows()).sum().backward()
    for handle in handles:
        handle.remove()
    with torch.no_grad():
        model(guest.rows())
    guest.note("hook calls", calls)
    guest.note_gradients(model)


@tool("cProfile", known="no calls of functions that were traced with the target")
def cprofile(guest: Guest) -> None:
    import cProfile
    import pstats

    model = guest.classifier()
    profile = cProfile.Profile()
    with torch.no_grad(), profile:
        guest.note("output", model(guest.rows()))
    functions = pstats.Stats(profile).stats
    guest.note(
        "calls",
        sorted((name, found[0]) for (file, _, name), found in functions.items() if "workshop/model" in file),
    )


@tool("sys.setprofile", known="no calls of functions that were traced with the target")
def setprofile(guest: Guest) -> None:
    model, seen = guest.classifier(), []

    def see(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "return") and frame.f_code.co_filename.endswith("workshop/model.py"):
            seen.append((event, frame.f_code.co_name))

    sys.setprofile(see)
    try:
        with torch.no_grad():
            output = model(guest.rows())
    finally:
        sys.setprofile(None)
    guest.note("output", output)
    guest.note("calls", seen)


@tool("sys.settrace, threading.settrace", suite=True)
def settrace(guest: Guest) -> None:
    model, seen = guest.classifier(), []

    def see(frame: Any, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith("workshop/model.py"):
            return None
        seen.append((event, frame.f_code.co_name, frame.f_lineno, sorted(frame.f_locals)))
        return see

    outputs: list[Any] = []

    def call() -> None:
        with torch.no_grad():
            outputs.append(model(guest.rows()))

    sys.settrace(see)
    threading.settrace(see)
    try:
        call()
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    guest.note("outputs", outputs)
    guest.note("lines", seen)


@tool("coverage", "coverage")
def coverage(guest: Guest) -> None:
    import coverage

    measured = coverage.Coverage(data_file=None, include=["*/workshop/model.py"])
    measured.start()
    with torch.no_grad():
        guest.note("output", guest.classifier()(guest.rows()))
        guest.note("output", guest.package.normalize(guest.rows()))
    measured.stop()
    data = measured.get_data()
    guest.note("lines", {Path(file).name: sorted(data.lines(file) or []) for file in data.measured_files()})


@tool("pdb: a breakpoint in forward", suite=True)
def debugger(guest: Guest) -> None:
    import pdb

    said = io.StringIO()
    lines = Path(guest.package.__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "return self.last(x)" in text)
    commands = io.StringIO(
        f"break {guest.package.__file__}:{line}\ncontinue\np tuple(x.shape)\np scale\nwhere 1\ncontinue\n"
    )
    model = guest.classifier()
    debugger = pdb.Pdb(stdin=commands, stdout=said, nosigint=True, readrc=False)
    with torch.no_grad():
        guest.note("output", debugger.runcall(model, guest.rows(), 2.0))
    found = [
        text
        for text in said.getvalue().splitlines()
        if "(4, 16)" in text or "2.0" in text or "return self.last" in text
    ]
    guest.note("what it shows", found)


@tool("tracemalloc", suite=True)
def traced_memory(guest: Guest) -> None:
    model, x = guest.classifier(), guest.rows()
    with torch.no_grad():
        for _ in range(20):
            model(x)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(200):
                output = model(x)
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    guest.note("output", output)
    guest.note("200 calls keep less than 4 kB", after - before < 4096)


@tool("torchinfo", "torchinfo")
def torchinfo(guest: Guest) -> None:
    from torchinfo import summary

    guest.note("text", str(summary(guest.classifier(), input_data=guest.rows(), verbose=0)))
    guest.note("text", str(summary(guest.pictures(), input_size=(2, 3, 8, 8), verbose=0)))


@tool("ModuleTracker")
def module_tracker(guest: Guest) -> None:
    from torch.utils.module_tracker import ModuleTracker

    model, parents = guest.classifier(), []
    handle = model.norm.register_forward_hook(lambda *given: parents.append(sorted(tracker.parents)))
    with ModuleTracker() as tracker:
        model(guest.rows()).sum().backward()
    handle.remove()
    guest.note("parents", parents)
    guest.note_gradients(model)


@tool("torch.utils.benchmark.Timer, record_function")
def timer(guest: Guest) -> None:
    from torch.utils.benchmark import Timer

    names = {"model": guest.classifier(), "x": guest.rows()}
    with torch.no_grad():
        found = Timer("model(x)", globals=names).timeit(10)
        guest.note("runs", found.number_per_run)
        guest.note("output", names["model"](guest.rows()))


@tool("warnings as errors, and recorded", suite=True)
def warnings_filters(guest: Guest) -> None:
    import warnings

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        guest.plain_calls()
    guest.note("warnings", [str(each.message) for each in said])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guest.plain_calls()
        with torch.no_grad():
            for _ in range(20):
                guest.note("output of a miss", guest.classifier()(guest.rows().bfloat16().float()[:1]))


@tool("logging, redirected stdout and stderr", suite=True)
def logging_(guest: Guest) -> None:
    import logging

    records: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(f"{record.name}: {record.getMessage()}")

    handler = Handler()
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.INFO)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        guest.plain_calls()
        with torch.no_grad():
            guest.note("output of a miss", guest.classifier()(guest.rows(1)))
    logging.getLogger().removeHandler(handler)
    guest.note("records", records)
    guest.note("printed", out.getvalue() + err.getvalue())
