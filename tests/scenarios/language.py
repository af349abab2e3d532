"""Programs of every kind (tests/language/programs), beside what eager code does."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import probe
import programs
import torch
from observing import close, hits, imported, misses, observed, plain, status
from programs import calls, modules, numbers, pieces, shapes, warned


def each_program() -> dict[str, Any]:
    """Each as compiled code and as eager code: whether it hit, and whether there is a difference."""
    seen: dict[str, dict[str, Any]] = {}
    for name in calls.PROGRAMS:
        try:
            before = hits("calls")
            ours = observed(calls.run, name, calls.inputs())
            seen[name] = {"hit": hits("calls") == before + 1, "ours": ours}
        except Exception as error:
            seen[name] = {"error": repr(error)}
    after_ours = imported()  # flex attention compiles something where it runs eagerly
    for name, found in seen.items():
        if "error" in found:
            continue
        eager, ours = observed(calls.PROGRAMS[name], calls.inputs()), found["ours"]
        eager[1].insert(1, name)
        if name == "drops_out":  # compiled code draws other numbers, but the same ones for the same seed
            drawn, eager = eager[0], observed(calls.run, name, calls.inputs())
            assert not close(ours[0], drawn)
        found |= {"equal": close(ours, eager), "eager": eager}
    return {"programs": seen, "imported": after_ours}


def numbers_that_torch_compile_draws() -> Any:
    return observed(torch.compile(calls.run), "drops_out", calls.inputs())[0]


def calls_with_any_numbers(calls: list[tuple[Any, Any, Any]]) -> dict[str, Any]:
    """Each program with each of them: what did not do as eager code does, and what was served."""
    wrong: list[Any] = []
    served: list[Any] = []
    for name, program in numbers.PROGRAMS.items():
        for given in calls:
            if name == "shifted" and given[1] > 100:
                continue  # Python would not come to an end
            before = hits("numbers")
            ours = _whatever(numbers.run, name, numbers.x(), *given)
            if hits("numbers") > before:
                served.append([name, *given])
            eager = _whatever(program, numbers.x(), *given)
            if not _alike(ours, eager):
                wrong.append([name, *given, repr(ours), repr(eager)])
    total = len(calls) * len(numbers.PROGRAMS)
    return {"wrong": wrong, "served": served, "calls": total, "imported": imported()}


def _whatever(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        with torch.no_grad():
            return call(*arguments)
    except Exception as error:
        return type(error)


def _alike(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, dict):
        return _alike(list(one.items()), list(other.items()))
    if isinstance(one, torch.Tensor):
        return one.dtype is other.dtype and torch.allclose(one.double(), other.double(), equal_nan=True)
    if isinstance(one, float):
        return one == other or abs(one - other) <= 1e-12 * abs(other)
    return bool(one == other)


def warnings_of_a_program(way: str) -> dict[str, Any]:
    """Where the warnings of two calls are, which modules keep a list of theirs, and the hits."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default" if way == "default" else "always")
        if way == "by module":
            warnings.filterwarnings("ignore", module=r"programs\.warned")
        for _ in range(2):
            with torch.no_grad():
                warned.run(torch.ones(3))
    places = [
        (Path(each.filename).name, each.lineno, str(each.message), each.category.__name__) for each in said
    ]
    modules = [name for name, module in sys.modules.items() if "__warningregistry__" in vars(module)]
    registries = sorted(name for name in modules if name.startswith(("programs", "language", __name__)))
    installed = programs._precompiled.status()["entrypoints"]
    return {"said": places, "registries": registries, "hits": installed.get("warned", {}).get("hits", 0)}


def _result(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return observed(call, *arguments)[0]
    except RuntimeError as error:
        return type(error).__name__


def calls_with_sizes(cases: dict[str, list[tuple[int, int]]]) -> dict[str, Any]:
    """For each program and each two sizes: is the call served, and does it do as eager code does."""
    seen: dict[str, list[list[bool]]] = {}
    for name, sizes in cases.items():
        seen[name] = []
        for first, second in sizes:
            x, y = torch.randn(first, 4), torch.randn(second, 4)
            before = hits("shapes")
            ours = _result(shapes.run, name, x, y)
            served = hits("shapes") > before
            seen[name].append([served, close(ours, _result(shapes.PROGRAMS[name], x, y))])
    return {"seen": seen, "imported": imported()}


def calls_in_pieces(sizes: list[int]) -> dict[str, Any]:
    """What differs from eager code in calls with sizes that no declaration tells, and what is said where code
    is fixed to the sample's."""
    wrong: list[Any] = []
    skipped = pieces.skipped()
    for size in sizes:
        x = torch.randn(size, 4)
        for name, program in pieces.PROGRAMS.items():
            if not close(observed(pieces.run, name, x)[0], observed(program, x)[0]):
                wrong.append([name, size])
        before = hits("skipped_pieces")
        with torch.no_grad():
            ours = skipped(x)
            served = hits("skipped_pieces") - before
            eager = pieces.left_alone(skipped.layer(pieces.left_alone(x)).relu())
            if served != 2 or not close(plain(ours), plain(skipped.layer(eager).relu())):
                wrong.append(["skipped", size, served])
    try:
        with torch.no_grad():
            said = str(pieces.run("fixed", torch.randn(7, 4)))
    except RuntimeError as error:
        said = str(error)
    return {"wrong": wrong, "said": said, "imported": imported()}


def explanations_of_one_tensor_in_two_places() -> list[list[str]]:
    """Reason and remedy of each entry."""
    x = torch.randn(4, 4)
    with torch.no_grad():
        reports = programs._precompiled.explain("shapes", "of_equal_size", x, x)
    return [[report["reason"], report["remedy"]] for report in reports]


def sizes_and_numbers_in_data(name: str) -> dict[str, Any]:
    call, numbers, factor, offset = {
        "counted": (shapes.counted, (2.5, 3), 2.5, 3),
        "in_one_graph": (shapes.counted_in_one_graph, (), 1.0, 0),
    }[name]
    same = []
    for values in ([1.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]):
        ours = observed(call, torch.tensor(values), *numbers)[0]
        with torch.no_grad():
            x = torch.tensor(values)
            eager = plain((x.nonzero() * 2, x * (x.sum().item() * factor) + offset))
        # Strides along a dimension of one are nobody's business, and differ under torch.compile too.
        ours[1][2] = eager[1][2] = None
        same.append(close(ours, eager))
    return {"same": same, "hits": hits(name), "misses": misses(name), "imported": imported()}


def calls_with_numbers(cases: list[tuple[Any, Any]]) -> dict[str, Any]:
    """For each two numbers: is the call served, and does it do as eager code does."""
    x = torch.tensor([1.0, 0.0, 4.0, 0.0])

    def values(call: Callable[..., Any], *numbers: Any) -> list[Any]:
        # Inductor lays out what nonzero gives in its own way: no strides.
        _, *tensors = observed(call, x, *numbers)[0]
        return [(dtype, size, content) for dtype, size, _, content in tensors]

    seen = []
    for given in cases:
        before = hits("counted")
        ours = values(shapes.counted, *given)
        served = hits("counted") > before
        seen.append([served, close(ours, values(probe.eager(shapes.counted), *given))])
    not_a_number = shapes.counted(x, float("nan"), 3)[1]
    return {"seen": seen, "nan": bool(not_a_number.isnan().all()), "imported": imported()}


def calls_of_64_entries() -> dict[str, Any]:
    """Of the last one alone, then of all, then of one that there is no entry for."""
    x = torch.ones(4)
    with torch.no_grad():
        shapes.bucket(63, x)
        loaded = status("bucket")["loaded"]
        right = [bool((shapes.bucket(kind, x) == 2).all()) for kind in range(64)]
        after = status("bucket")
        shapes.bucket(64, x)
    seen = {key: after[key] for key in ("hits", "misses", "entries")}
    return {**seen, "loaded by one": loaded, "right": all(right), "misses in the end": misses("bucket")}


def hits_of_64_entries_and_misses_under_compile() -> dict[str, int]:
    import torch._dynamo

    x, backend = torch.ones(4), probe.Backend()
    torch._dynamo.config.recompile_limit = 8
    call = torch.compile(shapes.bucket, backend=backend, dynamic=False)
    with torch.no_grad():
        for kind in range(64):
            call(kind, x)
        before = backend.compiled
        for kind in range(100, 108):
            call(kind, x)
    return {"by hits": before, "by misses too": backend.compiled, "hits": hits("bucket")}


def _right(model: Any, x: torch.Tensor) -> bool:
    return torch.allclose(model(x), probe.eager(model)(x), atol=1e-6)


def a_model_before_and_after_a_weight_is_untied() -> dict[str, Any]:
    """Whether it is right, and the hits so far."""
    model, x = modules.mixed().eval(), modules.inputs()
    with torch.no_grad():
        tied = [_right(model, x), hits("mixed")]
        model.tied.weight = torch.nn.Parameter(torch.randn(4, 4))
        untied = [_right(model, x), hits("mixed")]
    return {"tied": tied, "untied": untied, "imported": imported()}


def changes_of_a_parametrized_module() -> dict[str, Any]:
    """Of each, how many hits there were, and whether the answer was right."""
    from torch import nn
    from torch.nn.utils import parametrizations, parametrize

    def as_it_is(model: Any) -> None:
        pass

    def copied(model: Any) -> None:
        model.normed = copy.deepcopy(model.normed)

    def made_again(model: Any) -> None:
        model.normed = parametrizations.weight_norm(nn.Linear(4, 4))

    def plain(model: Any) -> None:
        parametrize.remove_parametrizations(model.normed, "weight")

    def spectral(model: Any) -> None:
        model.normed = parametrizations.spectral_norm(nn.Linear(4, 4)).eval()

    def twice(model: Any) -> None:
        parametrizations.weight_norm(model.normed, "bias", dim=None)

    def derived(model: Any) -> None:
        model.normed = parametrizations.weight_norm(type("Linear", (nn.Linear,), {})(4, 4))

    def other_property(model: Any) -> None:
        type(model.normed).weight = property(lambda self: torch.eye(4))

    x = modules.inputs()
    seen: dict[str, list[list[Any]]] = {}
    changes = (as_it_is, copied, made_again, plain, spectral, twice, derived, other_property, as_it_is)
    for change in changes:
        model = modules.mixed().eval()
        change(model)
        with torch.no_grad():
            before = hits("mixed")
            right = _right(model, x)
        seen.setdefault(change.__name__, []).append([hits("mixed") - before, right])
    return {"seen": seen, "imported": imported()}


def recurrent_layers() -> dict[str, Any]:
    """Two instances: whether every output is right, and the hits."""
    (x,) = modules.sequences()[0]
    with torch.no_grad():
        same = [
            all(
                torch.allclose(ours, eager, atol=1e-6)
                for ours, eager in zip(model(x), probe.eager(model)(x), strict=True)
            )
            for model in (modules.recurrent().eval(), modules.Recurrent().eval())
        ]
    return {"same": same, "hits": hits("recurrent"), "imported": imported()}
