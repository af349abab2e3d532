"""Models that nobody here wrote, small: built, and then called in a process that has never seen a compiler.

`make conformance` does the same with large ones, and measures.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import Site, build_entrypoints

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from gallery.cases import CASES  # noqa: E402

# A process for each model: transformers keeps a list of the models that a process has made, and its code,
# and so dynamo's guards, look at the list as a whole.
CALLS = """
import importlib, sys, torch, transformers, probe
from gallery import small
from gallery.cases import CASES
import gallery
name, = probe.argument()
importlib.import_module(CASES[name].target.partition(":")[0])

def tensors(output):
    return [value for value in output.to_tuple() if isinstance(value, torch.Tensor)]

def thrice(sample):
    return {
        name: value.repeat(3, *[1] * (value.dim() - 1)) if isinstance(value, torch.Tensor) else value
        for name, value in sample.items()
    }

def served():
    entrypoint = gallery._precompiled.status()["entrypoints"].get(name, {})
    return entrypoint.get("hits", 0), entrypoint.get("misses", 0)

torch.manual_seed(0)
model = getattr(small, name)().eval()
samples = getattr(small, f"{name}_samples")
given = list(samples())  # making them may call the model
with torch.no_grad():
    before = served()
    compiled = [tensors(model(**sample)) for sample in given]
    after = served()
    eager = [tensors(probe.eager(model)(**sample)) for sample in samples()]
    strange = thrice(next(iter(samples())))
    between = served()
    missed = tensors(model(**strange))
    end = served()
    expected = tensors(probe.eager(model)(**thrice(next(iter(samples())))))
for ours, theirs in [*zip(compiled, eager), (missed, expected)]:
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b)
compilers = ("torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codecache")
probe.result(samples=len(compiled), hits=after[0] - before[0], misses=after[1] - before[1],
             hit_by_the_strange=end[0] - between[0],
             imported=probe.loaded(*compilers))
"""


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Site:
    entrypoints = [
        {
            "target": case.target,
            "name": name,
            "instance": f"gallery.small:{name}",
            "samples": f"gallery.small:{name}_samples",
        }
        for name, case in CASES.items()
    ]
    return build_entrypoints("gallery", entrypoints, HERE, tmp_path_factory.mktemp("gallery") / "work")


@pytest.mark.parametrize("name", CASES)
def test_every_sample_hits_and_agrees_and_another_size_misses(gallery: Site, name: str) -> None:
    seen = gallery.run(CALLS, stdin=[name]).result
    without = gallery.run(CALLS, stdin=[name], HATCH_PRECOMPILE="off").result
    imported = without["imported"]  # by transformers
    assert without == {**seen, "hits": 0, "misses": 0, "imported": imported}
    assert seen == {
        "samples": seen["samples"],
        "hits": seen["samples"],
        "misses": 0,
        "hit_by_the_strange": 0,
        "imported": imported,
    }
