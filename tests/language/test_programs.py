"""Programs of every kind, each as an entry of one target: nothing compiles, and nothing differs from eager.

The numbers of points are those of docs/programs.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Site, build_entrypoints

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from programs import calls, shapes  # noqa: E402

ENTRYPOINTS: list[dict[str, Any]] = [
    {"target": "programs.calls:run", "name": "calls", "samples": "programs.calls:samples"},
    {
        "target": "programs.shapes:run",
        "name": "shapes",
        "samples": "programs.shapes:samples",
        "dynamic-shapes": {"x": {"0": "one"}, "y": {"0": "other"}},
    },
    {"target": "programs.shapes:bucket", "name": "bucket", "samples": "programs.shapes:buckets"},
    {"target": "programs.shapes:counted", "name": "counted", "samples": "programs.shapes:counted_samples"},
    {
        "target": "programs.modules:Mixed",
        "name": "mixed",
        "instance": "programs.modules:mixed",
        "samples": "programs.modules:samples",
    },
    {
        "target": "programs.modules:Trained",
        "name": "trained",
        "instance": "programs.modules:trained",
        "samples": "programs.modules:samples",
        "mode": "train",
    },
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return build_entrypoints("programs", ENTRYPOINTS, HERE, tmp_path_factory.mktemp("programs") / "work")


START = """
import contextlib, io, sys, torch, probe, programs
from programs import calls, modules, shapes

# torch.compiler.disable, in one of the modules, imports dynamo; compiling would import AOTAutograd too.
already = probe.compilers()

def imported():
    return [name for name in probe.compilers() if name not in already]

def status(name):
    return programs._precompiled.status()["entrypoints"][name]

def plain(value):
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), list(value.shape), list(value.stride()), value.tolist()]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(plain, value)]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [type(value).__name__, {key: plain(item) for key, item in vars(value).items()}] if hasattr(
        value, "__dict__") else value

def observed(call, *arguments):
    torch.manual_seed(7)
    said = io.StringIO()
    before = len(calls.LOG), calls.COUNTER.count
    with contextlib.redirect_stdout(said), torch.no_grad():
        result = call(*arguments)
    effects = len(calls.LOG) - before[0], calls.COUNTER.count - before[1]
    return [plain(result), plain(list(arguments)), said.getvalue(), effects]

def close(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-5 + 1e-4 * abs(b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[key], b[key]) for key in a)
    return a == b
"""


@pytest.fixture(scope="module")
def called(programs: Site) -> Any:
    """Every program under `strict`, where any miss in any of its frames raises."""
    return programs.run(
        START
        + """
seen = {}
for name, program in calls.PROGRAMS.items():
    try:
        before = status("calls")["hits"]
        ours = observed(calls.run, name, calls.inputs())
        hit = status("calls")["hits"] == before + 1
        eager = observed(program, calls.inputs())
        eager[1].insert(1, name)
        if name == "drops_out":  # compiled code draws other numbers, but the same ones for the same seed
            eager = observed(calls.run, name, calls.inputs())
        seen[name] = {"hit": hit, "equal": close(ours, eager), "ours": ours, "eager": eager}
    except Exception as error:
        seen[name] = {"error": repr(error)}
probe.result(seen=seen, imported=imported())
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
shapes.counted(torch.ones(4), 3.5, 3)
probe.result(results=results, hits=entry["hits"], misses=entry["misses"], then=status("counted")["hits"],
             imported=imported())
"""
    ).result
    assert seen == {"results": [True] * 3, "hits": 3, "misses": 0, "then": 3, "imported": []}


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
    same = torch.allclose(model(x), model._call_impl(x), atol=1e-6)
    first = status("mixed")["hits"]
    model.tied.weight = torch.nn.Parameter(torch.randn(4, 4))
    untied = torch.allclose(model(x), model._call_impl(x), atol=1e-6)
    second = status("mixed")["hits"]
probe.result(same=same, first=first, untied=untied, second=second, imported=imported())
"""
    ).result
    # The weight that is no longer tied makes another program of it.
    assert seen == {"same": True, "first": 1, "untied": True, "second": 1, "imported": []}


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
b = train(lambda model, x: model._call_impl(x), eager)
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
