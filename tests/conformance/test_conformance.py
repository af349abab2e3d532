"""Models that nobody here wrote, small: built, and then called in a process that has never seen a compiler.

`make conformance` does the same with large ones, and measures.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Site, build_entrypoints

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from gallery.cases import CASES  # noqa: E402

CALLS = """
import sys, torch, transformers
from gallery import small
from gallery.cases import CASES
import importlib, probe
for case in CASES.values():
    importlib.import_module(case.target.partition(":")[0])

def tensors(output):
    return [value for value in output.to_tuple() if isinstance(value, torch.Tensor)]

def thrice(sample):
    return {
        name: value.repeat(3, *[1] * (value.dim() - 1)) if isinstance(value, torch.Tensor) else value
        for name, value in sample.items()
    }

def served(name):
    entrypoint = gallery._precompiled.status()["entrypoints"][name]
    return entrypoint["hits"], entrypoint["misses"]

import gallery
results = {}
for name in CASES:
    torch.manual_seed(0)
    model = getattr(small, name)().eval()
    samples = getattr(small, f"{name}_samples")
    given = list(samples())  # making them may call the model
    with torch.no_grad():
        before = served(name)
        compiled = [tensors(model(**sample)) for sample in given]
        after = served(name)
        eager = [tensors(model._call_impl(**sample)) for sample in samples()]
        strange = thrice(next(iter(samples())))
        between = served(name)
        missed = tensors(model(**strange))
        end = served(name)
        expected = tensors(model._call_impl(**thrice(next(iter(samples())))))
    for ours, theirs in [*zip(compiled, eager), (missed, expected)]:
        assert len(ours) == len(theirs) > 0
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a, b)
    results[name] = {
        "samples": len(compiled),
        "hits": after[0] - before[0],
        "misses": after[1] - before[1],
        "hit_by_the_strange": end[0] - between[0],
    }
compilers = ("torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codecache")
probe.result(models=results, imported=[name for name in compilers if name in sys.modules])
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


@pytest.fixture(scope="module")
def called(gallery: Site) -> Any:
    return gallery.run(CALLS).result


@pytest.mark.parametrize("name", CASES)
def test_every_sample_hits_and_agrees_and_another_size_misses(called: Any, name: str) -> None:
    seen = called["models"][name]
    assert seen == {"samples": seen["samples"], "hits": seen["samples"], "misses": 0, "hit_by_the_strange": 0}


def test_no_compiler_is_imported_that_transformers_does_not_import(gallery: Site, called: Any) -> None:
    without = gallery.run(
        CALLS.split("import gallery", maxsplit=1)[0]
        + """
for name in CASES:
    with torch.no_grad():
        [getattr(small, name)().eval()(**sample) for sample in getattr(small, f"{name}_samples")()]
compilers = ("torch._dynamo", "torch._inductor.compile_fx", "torch._inductor.codecache")
probe.result(imported=[name for name in compilers if name in sys.modules])
""",
        HATCH_PRECOMPILE="off",
    ).result
    assert called["imported"] == without["imported"]
