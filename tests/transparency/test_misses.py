"""A call that no entry fits runs exactly as without the wheel."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.conftest import Site
from tests.transparency.test_identity import START

BACKEND = """
ran = []
def backend(graph, inputs):
    def run(*args):
        ran.append("theirs")
        return graph.forward(*args)
    return run
"""


class TestOthersCode:
    @pytest.mark.parametrize("compiled", ["inner", "outer"])
    def test_a_miss_runs_nothing_that_somebody_else_compiled(self, lab: Site, compiled: str) -> None:
        seen = lab.run(f"""
{START}{BACKEND}
theirs = torch.compile(core.{compiled}, backend=backend)
theirs(torch.ones(9))
ran.clear()
answer = core.outer(torch.ones(9))
probe.result(ran=ran, right=torch.equal(answer, torch.sin(torch.ones(9)) * 2))
""").result
        assert seen == {"ran": [], "right": True}

    def test_what_they_compiled_still_runs_for_them(self, lab: Site) -> None:
        seen = lab.run(f"""
{START}{BACKEND}
theirs = torch.compile(core.outer, backend=backend)
theirs(torch.ones(9)), theirs(torch.ones(9)), theirs(x)
probe.result(ran=ran, hits=probe.hits("outer", "lab"))
""").result
        assert seen == {"ran": ["theirs", "theirs"], "hits": 1}


class TestTheStack:
    def test_recursion_is_as_deep_as_without(self, lab: Site) -> None:
        seen = lab.run(
            START
            + """
sys.setrecursionlimit(200_000)
depth = 50_000
answer = core.down(torch.zeros(1), depth)
probe.result(answer=answer.item(), misses=probe.status("down", "lab")["misses"] > depth)
"""
        ).result
        assert seen == {"answer": 50_000, "misses": True}

    def test_an_ordinary_limit_is_met_where_it_is_without(self, lab: Site) -> None:
        code = (
            START
            + """
def deepest():
    low, high = 1, 1000
    while high - low > 1:
        middle = (low + high) // 2
        try:
            core.down(torch.zeros(1), middle)
            low = middle
        except RecursionError:
            high = middle
    return low
probe.result(depth=deepest())
"""
        )
        ours, without = lab.run(code).result, lab.run(code, HATCH_PRECOMPILE="off").result
        assert without["depth"] - ours["depth"] <= 12

    def test_an_error_has_the_same_lines_in_its_traceback(self, lab: Site) -> None:
        code = (
            START
            + """
import traceback
try:
    core.keywords(x, "not a number")
except Exception as error:
    frames = traceback.extract_tb(error.__traceback__)[1:]
    lines = [(frame.name, frame.lineno, frame.line) for frame in frames]
    probe.result(lines=lines, error=repr(error), context=repr(error.__context__))
"""
        )
        assert lab.run(code).result == lab.run(code, HATCH_PRECOMPILE="off").result


class TestPolicies:
    def test_on_miss_error_with_cells(self, lab: Site) -> None:
        finished = lab.run(START + "core.Strict()(x); core.Strict()(torch.ones(5))", ok=False)
        assert "PrecompileError: lab: no entry of strict fits this call: x has size 5" in finished.stderr

    def test_on_miss_compile_with_super(self, lab: Site) -> None:
        seen = lab.run(f"""
{START}{BACKEND}
import functools
torch.compile = functools.partial(torch.compile, backend=backend)
model = core.Jitted()
model(x), model(torch.ones(5)), model(torch.ones(5))
probe.result(ran=ran, hits=probe.hits("jitted", "lab"))
""").result
        assert seen == {"ran": ["theirs", "theirs"], "hits": 1}


class TestToldToKeepOut:
    CASES: ClassVar = {
        "disable": "torch.compiler.disable(core.scaled)(x)",
        "disable of a module": "torch.compiler.disable(core.Base())(x)",
        "disable around it": "torch.compiler.disable(lambda: core.scaled(x))()",
        "stance": "torch.compiler.set_stance('force_eager')(core.scaled)(x)",
        "config": "import torch._dynamo.config as config; config.disable = True; core.scaled(x)",
    }

    @pytest.mark.parametrize("case", CASES)
    def test_nothing_is_served(self, lab: Site, case: str) -> None:
        seen = lab.run(f"""
{START}
{self.CASES[case]}
probe.result(hits=[probe.hits(name, "lab") for name in ("scaled", "base")])
""").result
        assert seen == {"hits": [0, 0]}

    @pytest.mark.parametrize("variable", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
    def test_the_environment_says_so(self, lab: Site, variable: str) -> None:
        code = START + "core.scaled(x); probe.result(**lab._precompiled.status())"
        seen = lab.run(code, **{variable: "1"}).result
        assert (seen["installed"], seen["reason"]) == (False, f"{variable}=1")

    def test_torchs_own_functions_that_keep_themselves_out_call_back_into_compiled_code(
        self, lab: Site
    ) -> None:
        seen = lab.run(
            START
            + """
with torch.no_grad():
    torch._disable_dynamo(core.scaled)(x)
probe.result(hits=probe.hits("scaled", "lab"))
"""
        ).result
        assert seen == {"hits": 1}
