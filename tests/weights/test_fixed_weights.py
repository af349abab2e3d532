"""`weights = "fixed"`: what was computed of weights is computed again when one of them has changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Site, build_entrypoints, made_once

HERE = Path(__file__).parent
TABLES = [
    {
        "target": "steady.model:Net",
        "instance": "steady.model:trained",
        "samples": "steady.model:samples",
        "weights": "fixed",
    },
    {
        "target": "steady.model:Unversioned",
        "instance": "steady.model:unversioned",
        "samples": "steady.model:samples",
        "mode": "inference",
        "weights": "fixed",
    },
]
# Enough to find a change that is not noticed; SEQUENCES=1000 for all.
SEQUENCES = int(os.environ.get("SEQUENCES", "150"))
START = """
import gc, sys, threading
import probe, torch, steady
from steady import _precompiled
from steady.model import inputs, samples, trained
torch.set_num_threads(1)
def same(net, seed=0):
    given = inputs(seed)
    with torch.no_grad():
        found, expected = net(*given), probe.eager(net)(*given)
    return all(torch.allclose(a, b, atol=2e-5, rtol=2e-5) for a, b in zip(found, expected, strict=True))
def kept():
    return _precompiled.status()["prepared_bytes"]
def hits():
    return probe.hits("net", "steady")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    def make(place: Path) -> None:
        build_entrypoints("steady", TABLES, HERE / "src", place / "work")

    return Site(made_once(tmp_path_factory, "steady", make) / "work" / "installed")


def run(site: Site, code: str, **environment: str) -> Any:
    path = os.pathsep.join([str(site.directory), str(HERE), str(HERE.parent / "support")])
    return site.run(START + code, **{"PYTHONPATH": path, **environment}).result["seen"]


def test_random_sequences_of_changes_give_what_eager_gives(site: Site) -> None:
    seen = run(site, f"import sequences\nprobe.result(seen=[sequences.run({SEQUENCES}, seed=0), hits()])")
    calls, served = seen
    assert calls > 3 * SEQUENCES
    assert served > calls / 2, "some are float64"


def test_it_is_computed_once_for_each_instance_and_counted(site: Site) -> None:
    seen = run(
        site,
        """
from steady._precompiled import weights
times = []
real = weights.computed
weights.computed = lambda *arguments: times.append(1) or real(*arguments)
net, other = trained(), trained(1)
before = kept()
for _ in range(5):
    assert same(net) and same(other)
size = kept()
del other
gc.collect()
half = kept()
del net
gc.collect()
probe.result(seen=[len(times), before, size, half, kept(), hits(), "torch._dynamo" in sys.modules])
""",
    )
    times, before, both, one, none, hits, compiler = seen
    assert times == 2
    assert before == none == 0
    assert both == 2 * one > 2 * 4 * 128 * 512 * 2
    assert hits == 10
    assert not compiler


def test_what_torch_does_not_notice_waits_for_refresh(site: Site) -> None:
    seen = run(
        site,
        """
net = trained()
found = [same(net)]
net.first.weight.data.mul_(2)
found.append(same(net))
_precompiled.refresh()
found.append(same(net))
probe.result(seen=found)
""",
    )
    assert seen == [True, False, True]


def test_weights_without_versions_are_computed_at_each_call(site: Site) -> None:
    seen = run(
        site,
        """
from steady.model import unversioned
net, given, found = unversioned(), inputs(), []
for _ in range(2):
    with torch.inference_mode():
        pairs = zip(net(*given), probe.eager(net)(*given))
        found.append(all(torch.allclose(one, other, atol=2e-5, rtol=2e-5) for one, other in pairs))
        net.first.weight.mul_(2)
probe.result(seen=[*found, kept(), probe.hits("unversioned", "steady")])
""",
    )
    assert seen == [True, True, 0, 2]


def test_threads_and_forks_have_what_they_need(site: Site) -> None:
    seen = run(
        site,
        """
import os
nets = [trained(number) for number in range(3)]
given = [inputs(seed) for seed in range(20)]
with torch.no_grad():
    expected = [[probe.eager(net)(*each) for each in given] for net in nets]
found = []
def work(number):
    with torch.no_grad():
        for each, right in zip(given, expected[number % 3]):
            answer = nets[number % 3](*each)
            found.append(all(torch.allclose(a, b, atol=2e-5, rtol=2e-5) for a, b in zip(answer, right)))
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
children = []
for _ in range(3):
    child = os.fork()
    if child == 0:
        right = same(nets[0]) and same(trained(7))
        with torch.no_grad():
            nets[0].second.bias.add_(1)
        os._exit(0 if right and same(nets[0]) else 1)
    children.append(os.waitpid(child, 0)[1])
probe.result(seen=[all(found), len(found), children, hits()])
""",
    )
    assert seen == [True, 80, [0, 0, 0], 80]


def test_modes_of_the_caller_do_not_reach_the_computation(site: Site) -> None:
    seen = run(
        site,
        """
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        assert "reorder" not in str(function)
        return function(*args, **(kwargs or {}))
first, second = trained(), trained(1)
with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
    right = same(first)
net = trained(2)
with Mode():
    right = right and same(net)
with torch.inference_mode():
    right = right and same(second)
probe.result(seen=[right and same(second)])
""",
    )
    assert seen == [True]


def test_a_signal_while_it_is_computed_goes_to_its_handler(site: Site) -> None:
    seen = run(
        site,
        """
from steady._precompiled import weights
real = weights._Prepared.__init__
class Alarm(Exception): ...
def interrupted(self, *arguments):
    real(self, *arguments)
    raise KeyboardInterrupt
net = trained()
weights._Prepared.__init__ = interrupted
try:
    with torch.no_grad():
        net(*inputs())
except KeyboardInterrupt:
    said = "interrupted"
weights._Prepared.__init__ = real
probe.result(seen=[said, same(net), hits()])
""",
    )
    assert seen == ["interrupted", True, 2]


def test_where_it_cannot_be_computed_the_body_runs(site: Site) -> None:
    seen = run(
        site,
        """
from steady._precompiled import weights
def fails(*arguments):
    raise RuntimeError("no memory")
real, weights.computed = weights.computed, fails
net = trained()
found = [same(net), kept()]
weights.computed = real
probe.result(seen=[*found, same(net), kept() > 0])
""",
    )
    assert seen == [True, 0, True, True]
