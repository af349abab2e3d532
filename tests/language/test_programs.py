"""Programs of every kind, each as an entry of one target: nothing compiles, and nothing differs from eager.

The numbers of points are those of docs/programs.md.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tests.conftest import Site
from tests.language.conftest import HERE, START

sys.path.insert(0, str(HERE))
from programs import calls, shapes


@pytest.fixture(scope="module")
def called(programs: Site) -> Any:
    """Every program under `strict`, where any miss in any of its frames raises."""
    return programs.run(
        START
        + """
seen = {}
for name in calls.PROGRAMS:
    try:
        before = status("calls")["hits"]
        ours = observed(calls.run, name, calls.inputs())
        seen[name] = {"hit": status("calls")["hits"] == before + 1, "ours": ours}
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
probe.result(seen=seen, imported=after_ours)
""",
        HATCH_PRECOMPILE="strict",
    ).result


@pytest.mark.parametrize("name", calls.PROGRAMS)
def test_a_program_runs_through_its_entries_and_does_what_eager_does(called: Any, name: str) -> None:
    seen = called["seen"][name]
    assert seen.get("error") is None
    assert seen["hit"], seen
    assert seen["equal"], (seen["ours"], seen["eager"])


def test_none_of_them_imports_a_compiler(called: Any) -> None:
    assert called["imported"] == []


def test_random_numbers_are_those_of_torch_compile(programs: Site, called: Any, tmp_path: Path) -> None:
    """Compiled in a process that has a compiler and nothing of ours."""
    jitted = programs.run(
        START
        + """
probe.result(jitted=observed(torch.compile(calls.run), "drops_out", calls.inputs())[0])
""",
        HATCH_PRECOMPILE="off",
        PATH=os.environ["PATH"],
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path),
    ).result["jitted"]
    ours = called["seen"]["drops_out"]["ours"][0]
    assert ours[:3] == jitted[:3]
    torch.testing.assert_close(torch.tensor(ours[3]), torch.tensor(jitted[3]))


class TestDynamicShapes:
    CASES = {  # noqa: RUF012
        "of_equal_size": [(2, 2, True), (64, 64, True), (5, 6, False), (1, 1, False), (0, 0, False)],
        "of_twice_the_size": [(3, 6, True), (40, 80, True), (3, 7, False)],
        "of_any_two_sizes": [(2, 2, True), (64, 3, True), (3, 128, True), (1, 3, False)],
        "of_a_size_that_is_branched_on": [(4, 4, True), (64, 64, True), (3, 3, False)],
    }

    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, programs: Site) -> Any:
        return programs.run(
            START
            + """
results = {}
for name, cases in probe.argument().items():
    results[name] = []
    for first, second, _ in cases:
        x, y = torch.randn(first, 4), torch.randn(second, 4)
        before = status("shapes")["hits"]
        try:
            ours = observed(shapes.run, name, x, y)[0]
        except RuntimeError as error:
            ours = type(error).__name__
        served = status("shapes")["hits"] > before
        try:
            eager = observed(shapes.PROGRAMS[name], x, y)[0]
        except RuntimeError as error:
            eager = type(error).__name__
        results[name].append([served, close(ours, eager)])
probe.result(results=results, imported=imported())
""",
            stdin=cls.CASES,
        ).result

    @pytest.mark.parametrize("name", CASES)
    def test_sizes_that_the_trace_is_right_for_are_served_and_no_others(self, seen: Any, name: str) -> None:
        assert seen["results"][name] == [[served, True] for _, _, served in self.CASES[name]]

    def test_no_compiler_is_imported(self, seen: Any) -> None:
        assert seen["imported"] == []

    def test_one_tensor_in_two_places_is_named(self, programs: Site) -> None:
        seen = programs.run(
            START
            + """
x = torch.randn(4, 4)
with torch.no_grad():
    reports = programs._precompiled.explain("shapes", "of_equal_size", x, x)
probe.result(said=[[report["reason"], report["remedy"]] for report in reports])
"""
        ).result
        assert [
            "y is the same tensor as x, the entry needs two",
            "pass a copy, or rebuild the wheel with a sample that has it",
        ] in seen["said"]

    def test_every_program_is_tried(self) -> None:
        assert set(self.CASES) == set(shapes.PROGRAMS)


def test_sizes_and_numbers_that_only_the_data_tells(programs: Site) -> None:
    seen = programs.run(
        START
        + """
results = []
for values in ([1.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]):
    ours = observed(shapes.counted, torch.tensor(values), 2.5, 3)[0]
    with torch.no_grad():
        x = torch.tensor(values)
        eager = plain((x.nonzero() * 2, x * (x.sum().item() * 2.5) + 3))
    # Strides along a dimension of one are nobody's business, and differ under torch.compile too.
    ours[1][2] = eager[1][2] = None
    results.append(close(ours, eager))
entry = status("counted")
probe.result(results=results, hits=entry["hits"], misses=entry["misses"], imported=imported())
"""
    ).result
    assert seen == {"results": [True] * 3, "hits": 3, "misses": 0, "imported": []}


def test_numbers_that_were_declared_may_have_any_value_of_their_type(programs: Site) -> None:
    cases: list[tuple[Any, Any, bool]] = [
        *((factor, 3, True) for factor in (2.5, 0.0, 1.0, -7.25, 1e30)),
        *((2.5, places, True) for places in (0, 1, -1, 2**40)),
        (3, 3, False),
        (2.5, 3.0, False),
        (2.5, True, False),
    ]
    seen = programs.run(
        START
        + """
results = []
x = torch.tensor([1.0, 0.0, 4.0, 0.0])
def values(call, *numbers):  # inductor lays out what nonzero gives in its own way: no strides
    kind, *tensors = observed(call, x, *numbers)[0]
    return [(dtype, size, content) for dtype, size, _, content in tensors]
for factor, places, _ in probe.argument():
    before = status("counted")["hits"]
    ours = values(shapes.counted, factor, places)
    results.append([status("counted")["hits"] > before,
                    close(ours, values(probe.eager(shapes.counted), factor, places))])
not_a_number = shapes.counted(x, float("nan"), 3)[1]
probe.result(results=results, nan=bool(not_a_number.isnan().all()), imported=imported())
""",
        stdin=cases,
    ).result
    assert seen == {"results": [[served, True] for _, _, served in cases], "nan": True, "imported": []}


def test_sixty_four_entries_of_one_frame_are_told_apart(programs: Site) -> None:
    seen = programs.run(
        START
        + """
x = torch.ones(4)
with torch.no_grad():
    one = shapes.bucket(63, x)
    loaded = status("bucket")["loaded"]
    right = [bool((shapes.bucket(kind, x) == 2).all()) for kind in range(64)]
    after = status("bucket")
    shapes.bucket(64, x)
probe.result(loaded=loaded, right=all(right), hits=after["hits"], misses=after["misses"],
             entries=after["entries"], then=status("bucket")["misses"])
"""
    ).result
    assert seen == {"loaded": 1, "right": True, "hits": 65, "misses": 0, "entries": 64, "then": 1}


def test_entries_use_up_none_of_torchs_recompile_limit(programs: Site) -> None:
    """All 64 entries are on the code object, and torch.compile still has its whole budget for misses."""
    seen = programs.run(
        START
        + """
import torch._dynamo
x, compiles = torch.ones(4), []
def backend(graph, inputs):
    compiles.append(1)
    return graph.forward
torch._dynamo.config.recompile_limit = 8
compiled = torch.compile(shapes.bucket, backend=backend, dynamic=False)
with torch.no_grad():
    hits = [compiled(kind, x) for kind in range(64)]
    before = len(compiles)
    for kind in range(100, 108):
        compiled(kind, x)
probe.result(before=before, after=len(compiles), hits=status("bucket")["hits"])
"""
    ).result
    assert seen == {"before": 0, "after": 8, "hits": 64}


def test_modules_in_lists_and_dicts_tied_and_hooked(programs: Site) -> None:
    seen = programs.run(
        START
        + """
model, x = modules.mixed().eval(), modules.inputs()
with torch.no_grad():
    same = torch.allclose(model(x), probe.eager(model)(x), atol=1e-6)
    first = status("mixed")["hits"]
    model.tied.weight = torch.nn.Parameter(torch.randn(4, 4))
    untied = torch.allclose(model(x), probe.eager(model)(x), atol=1e-6)
    second = status("mixed")["hits"]
probe.result(same=same, first=first, untied=untied, second=second, imported=imported())
"""
    ).result
    # The weight that is no longer tied makes another program of it.
    assert seen == {"same": True, "first": 1, "untied": True, "second": 1, "imported": []}


def test_a_parametrized_module_is_known_by_what_its_class_is_made_of(programs: Site) -> None:
    """Every instance has a class of its own, made by torch.nn.utils.parametrize."""
    seen = programs.run(
        START
        + """
from torch import nn
from torch.nn.utils import parametrizations, parametrize

def as_it_is(model): pass
def copied(model): model.normed = __import__("copy").deepcopy(model.normed)
def made_again(model): model.normed = parametrizations.weight_norm(nn.Linear(4, 4))
def plain(model): parametrize.remove_parametrizations(model.normed, "weight")
def spectral(model): model.normed = parametrizations.spectral_norm(nn.Linear(4, 4)).eval()
def twice(model): parametrizations.weight_norm(model.normed, "bias", dim=None)
def derived(model): model.normed = parametrizations.weight_norm(type("Linear", (nn.Linear,), {})(4, 4))
def other_property(model): type(model.normed).weight = property(lambda self: torch.eye(4))

results, x = {}, modules.inputs()
for change in (as_it_is, copied, made_again, plain, spectral, twice, derived, other_property, as_it_is):
    model = modules.mixed().eval()
    change(model)
    with torch.no_grad():
        before = status("mixed")["hits"]
        right = torch.allclose(model(x), probe.eager(model)(x), atol=1e-6)
    results.setdefault(change.__name__, []).append([status("mixed")["hits"] - before, right])
probe.result(results=results, imported=imported())
"""
    ).result
    served = {"as_it_is": 2, "copied": 1, "made_again": 1}
    refused = ("plain", "spectral", "twice", "derived", "other_property")
    assert seen["results"] == {
        **{name: [[1, True]] * times for name, times in served.items()},
        **{name: [[0, True]] for name in refused},
    }
    assert seen["imported"] == []


def test_recurrent_layers(programs: Site) -> None:
    seen = programs.run(
        START
        + """
model, (x,) = modules.recurrent().eval(), modules.sequences()[0]
other = modules.Recurrent().eval()
with torch.no_grad():
    same = [all(torch.allclose(ours, eager, atol=1e-6) for ours, eager in zip(each(x), probe.eager(each)(x)))
            for each in (model, other)]
probe.result(same=same, hits=status("recurrent")["hits"], imported=imported())
"""
    ).result
    assert seen == {"same": [True, True], "hits": 2, "imported": []}


class TestTensorSubclasses:
    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, programs: Site) -> Any:
        return programs.run(
            START
            + """
from programs import subclasses as of
results = {}

def tried(what, name, call, eager, x):
    before = status(name)["hits"]
    with torch.no_grad():
        ours, expected = call(x), eager(x)
    same = type(ours) is type(expected) and bool((ours.as_subclass(torch.Tensor) == expected).all())
    results[what] = [status(name)["hits"] - before, same]

class Other(of.Named):
    pass

x, eager = of.inputs(), probe.eager(of.doubled)
tried("named", "doubled", of.doubled, eager, x.as_subclass(of.Named))
tried("overriding", "doubled", of.doubled, eager, x.as_subclass(of.Tripling))
tried("plain", "doubled", of.doubled, eager, x)
tried("another", "doubled", of.doubled, eager, x.as_subclass(Other))
tried("float64", "doubled", of.doubled, eager, x.double().as_subclass(of.Named))
before = imported()

def layer(what, model, x=x):
    tried(what, "layer", model, probe.eager(model), x)

model = of.Layer()
layer("wrapping", model)
model.weight.scale.fill_(0.25)
layer("another value", model)
layer("another instance", of.Layer())
layer("another metadata", of.Layer(bits=4))
plain = of.Layer()
plain.weight = torch.nn.Parameter(torch.ones(4, 4), requires_grad=False)
layer("no longer quantized", plain)
wide = of.Layer()
wide.weight.whole = wide.weight.whole.to(torch.int16)
layer("wrapping another dtype", wide)
probe.result(results=results, before=before, compile_fx="torch._inductor.compile_fx" in sys.modules)
"""
        ).result

    @pytest.mark.parametrize("what", ["named", "overriding", "wrapping", "another value", "another instance"])
    def test_one_that_was_compiled_for_is_served(self, seen: Any, what: str) -> None:
        assert seen["results"][what] == [1, True]

    @pytest.mark.parametrize(
        "what",
        [
            *("plain", "another", "float64"),
            *("another metadata", "no longer quantized", "wrapping another dtype"),
        ],
    )
    def test_another_is_not(self, seen: Any, what: str) -> None:
        assert seen["results"][what] == [0, True]

    def test_no_compiler_is_imported_for_those_that_wrap_nothing(self, seen: Any) -> None:
        """Those that do go through AOTAutograd's wrappers; nothing is compiled for them either."""
        assert seen["before"] == []
        assert not seen["compile_fx"]


class TestPackagesThatCompile:
    """Sources with torch.compile in them are served through it; eager code is theirs with force_eager."""

    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, programs: Site) -> Any:
        return programs.run(
            START
            + """
from programs import compiled
import torch._dynamo.utils

x = compiled.inputs()
calls_of = {
    "sine": compiled.doubled_sine,
    "decorated": compiled.decorated().eval(),
    "compiling": compiled.compiling().eval(),
    "calls_it_in_a_loop": compiled.calls_it_in_a_loop,
}
def tried(name, call):
    ours = observed(call, x)
    hits = [entry["hits"] for entry in status(name)["by_entry"]]
    torch.compiler.set_stance("force_eager")
    eager = observed(call, x)
    torch.compiler.set_stance("default")
    return {"same": close(ours, eager), "hits": hits, "left out": status(name)["left_out"]}

results = {name: tried(name, call) for name, call in calls_of.items()}
results["compiled"] = dict(torch._dynamo.utils.counters["frames"])

# What does not fit is the package's own to compile; here that is made cheap.
torch._TorchCompileInductorWrapper.__call__ = lambda self, graph, inputs, **_: graph.forward
with torch.no_grad():
    results["double"] = torch.allclose(compiled.doubled_sine(x.double()), x.double().sin() * 2)
results["then compiled"] = torch._dynamo.utils.counters["frames"]["ok"]
results["then hits"] = status("sine")["hits"]
probe.result(**results)
"""
        ).result

    @pytest.mark.parametrize(
        ("name", "hits"), {"sine": [1], "decorated": [1], "compiling": [1], "calls_it_in_a_loop": [2]}.items()
    )
    def test_a_call_is_served_where_the_package_would_compile(
        self, seen: Any, name: str, hits: list[int]
    ) -> None:
        assert seen[name] == {"same": True, "hits": hits, "left out": []}

    def test_nothing_is_compiled(self, seen: Any) -> None:
        assert seen["compiled"] == {}

    def test_a_call_that_does_not_fit_is_compiled_as_the_package_would(self, seen: Any) -> None:
        assert (seen["double"], seen["then compiled"], seen["then hits"]) == (True, 1, 1)


class TestSkippedFrames:
    """With on-skip = "eager", a function with a graph break in a loop runs as Python; what it calls hits."""

    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, programs: Site) -> Any:
        return programs.run(
            START
            + """
from programs import skipped

def hits(name):
    found = {}
    for entry in status(name)["by_entry"]:
        function = entry["function"].partition("_at_")[0]
        found[function] = found.get(function, 0) + entry["hits"]
    return found

def tried(name, call, eager, x, *owner):
    result = {"same": close(observed(call, x), observed(eager, x)), "hits": hits(name)}
    result["skipped"] = status(name)["skipped"]
    try:
        with torch.no_grad():
            result["explained"] = programs._precompiled.explain(name, *owner, x)[0]["hit"]
    except KeyError as error:
        result["explained"] = error.args[0]
    try:
        result["double"] = observed(call, x.double())
    except RuntimeError as error:
        result["double"] = str(error)
    return result

x, model = skipped.inputs(), skipped.Repeating().eval()
results = {name: tried(name, function, probe.eager(function), x)
           for name in ("calls_what_loops", "imports_in_its_loop")
           for function in [getattr(skipped, name)]}
results["Repeating"] = tried("Repeating", model, probe.eager(model), x, model)
probe.result(**results, imported=imported())
""",
            HATCH_PRECOMPILE="strict",
        ).result

    CALLED: ClassVar = {
        "calls_what_loops": {"calls_what_loops": 1, "step": 3, "torch_dynamo_resume_in_calls_what_loops": 1},
        "imports_in_its_loop": {"half": 2},
        "Repeating": {"Block.forward": 2},
    }

    @pytest.mark.parametrize("name", CALLED)
    def test_what_it_calls_is_served_each_time(self, seen: Any, name: str) -> None:
        assert seen[name]["same"]
        assert seen[name]["hits"] == self.CALLED[name]

    @pytest.mark.parametrize("name", CALLED)
    def test_a_miss_in_what_it_calls_is_a_miss(self, seen: Any, name: str) -> None:
        """As strict shows. Of what torch.compile never looks at there are no misses."""
        assert "has dtype float64, the entry needs float32" in seen[name]["double"]

    def test_status_says_what_runs_as_python(self, seen: Any) -> None:
        own = {name: seen[name]["skipped"] for name in self.CALLED}
        assert own == {
            "calls_what_loops": ["loops"],
            "imports_in_its_loop": ["imports_in_its_loop"],
            "Repeating": ["Repeating.forward"],
        }

    def test_a_call_of_a_target_that_is_skipped_itself_cannot_be_explained(self, seen: Any) -> None:
        assert seen["calls_what_loops"]["explained"] is True
        for name in ("imports_in_its_loop", "Repeating"):
            said = f"the target of '{name}' is not compiled itself, only what it calls"
            assert seen[name]["explained"] == said

    def test_no_compiler_is_imported(self, seen: Any) -> None:
        assert seen["imported"] == []


class TestTraining:
    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, programs: Site) -> Any:
        return programs.run(
            START
            + """
import copy, os
done = probe.forbid_side_effects()

def train(call, model, steps=4, accumulate=2):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(accumulate):
            x = modules.inputs() + step + 0.5 * part
            loss = call(model, x).square().mean()
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
    return losses

ours, eager = modules.trained(), modules.trained()
a = train(lambda model, x: model(x), ours)
b = train(lambda model, x: probe.eager(model)(x), eager)
state = {name: [close(value.tolist(), eager.state_dict()[name].tolist())]
         for name, value in ours.state_dict().items()}
entry = status("trained")
model = modules.trained()
loss = model(modules.inputs()).sum()
loss.backward()
try:
    loss.backward()
    twice = "no error"
except RuntimeError as error:
    twice = str(error).split(",")[0]
probe.result(losses=close(a, b), state=all(all(v) for v in state.values()), hits=entry["hits"],
             misses=entry["misses"], frozen=ours.frozen.grad is None, twice=twice, done=done,
             compile_fx="torch._inductor.compile_fx" in sys.modules)
"""
        ).result

    def test_several_steps_with_accumulation_give_what_eager_gives(self, seen: Any) -> None:
        assert seen["losses"]
        assert seen["state"]
        assert (seen["hits"], seen["misses"]) == (8, 0)

    def test_a_frozen_parameter_gets_no_gradient(self, seen: Any) -> None:
        assert seen["frozen"]

    def test_a_second_backward_is_refused_as_torch_does(self, seen: Any) -> None:
        assert seen["twice"].startswith("Trying to backward through the graph a second time")

    def test_nothing_is_compiled_or_written(self, seen: Any) -> None:
        assert seen["done"] == []
        assert not seen["compile_fx"]
