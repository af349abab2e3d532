"""Which calls run compiled code: plain ones, those under torch.compile, and what a miss does."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

if TYPE_CHECKING:
    from tests.conftest import Site

# A backend that counts what it is asked to compile, and leaves it as it is.
START = """
import torch, zoo, probe
import zoo.functions, zoo.models, zoo.tools
torch.set_grad_enabled(False)
compiled = []
def backend(graph, inputs):
    compiled.append(graph)
    return graph.forward
x = torch.randn(6)
"""


class TestUnderTorchCompile:
    def test_a_plain_call_of_an_entrypoint_activated_by_compile_is_eager(self, zoo: Site) -> None:
        code = START + "zoo.models.OnAsking()(x); probe.result(**probe.status('onasking'))"
        seen = zoo.run(code).result
        assert (seen["active"], seen["hits"], seen["loaded"]) == (True, 0, 0)

    HITS: ClassVar = {
        "onasking": ("zoo.models.OnAsking()", "x"),
        "mlp": ("zoo.models.Mlp().eval()", "torch.randn(4, 8)"),
        "whiten": ("zoo.functions.whiten", "torch.randn(2, 3, 4, 5)"),
        "apply": ("zoo.tools.Tool().apply", "x"),
        "shifted": ("zoo.tools.Tool.shifted", "x"),
        "chatty": ("zoo.models.Chatty()", "x"),
    }

    @pytest.fixture(scope="class")
    @classmethod
    def hits(cls, zoo: Site) -> dict[str, int]:
        """How many of two calls under torch.compile were served, with a backend that refuses to compile."""
        code = f"""
{START}
def refuse(graph, inputs): raise AssertionError("compiled")
hits = {{}}
for name, (model, inputs) in probe.argument().items():
    model, given = eval(model), eval(inputs)
    call = torch.compile(model, backend=refuse)
    call(given)
    torch.testing.assert_close(call(given), probe.eager(model)(given))
    hits[name] = probe.hits(name)
probe.result(**hits)
"""
        result: dict[str, int] = zoo.run(code, stdin=cls.HITS).result
        return result

    @pytest.mark.parametrize("name", HITS)
    def test_a_hit_compiles_nothing(self, hits: dict[str, int], name: str) -> None:
        assert hits[name] >= 2

    @pytest.mark.parametrize(
        "model", ["zoo.models.OnAsking()", "zoo.models.Mlp(6).eval()", "zoo.models.Jitted()"]
    )
    def test_a_miss_compiles_as_usual(self, zoo: Site, model: str) -> None:
        """The call, once compiled, is served by dynamo's own entry; ours still serve theirs."""
        seen = zoo.run(f"""
{START}
model, x = {model}, torch.randn(5, 6)
call = torch.compile(model, backend=backend)
answers = [call(x), call(x)]
probe.result(compiled=len(compiled), same=all(torch.equal(a, probe.eager(model)(x)) for a in answers))
""").result
        assert seen == {"compiled": 1, "same": True}

    def test_a_miss_has_the_whole_recompile_budget(self, zoo: Site) -> None:
        seen = zoo.run(f"""
{START}
import torch._dynamo
torch._dynamo.config.recompile_limit = 3
torch._dynamo.config.automatic_dynamic_shapes = False
model = zoo.models.OnAsking()
call = torch.compile(model, backend=backend, fullgraph=True)
call(x)
for size in (2, 3, 4):
    call(torch.randn(size))
probe.result(hits=probe.hits("onasking"), compiled=len(compiled))
""").result
        assert seen == {"hits": 1, "compiled": 3}

    def test_a_compile_around_an_entrypoint_takes_it_whole(self, zoo: Site) -> None:
        """Inside somebody's larger compiled function, dynamo traces the target as if we were not there."""
        seen = zoo.run(f"""
{START}
model, tool = zoo.models.Mlp().eval(), zoo.tools.Tool()
def larger(x):
    return tool.apply(zoo.tools.Tool.shifted(model(x).sum(0)))
call = torch.compile(larger, backend=backend, fullgraph=True)
x = torch.randn(4, 8)
expected = torch.sin(torch.exp(probe.eager(model)(x).sum(0)) + 4) * 3
torch.testing.assert_close(call(x), expected)
probe.result(compiled=len(compiled))
""").result
        assert seen == {"compiled": 1}


class TestMiss:
    def test_eager(self, zoo: Site) -> None:
        seen = zoo.run(f"""
{START}
model, x = zoo.models.Mlp(6).eval(), torch.randn(4, 6)
same = torch.equal(model(x), probe.eager(model)(x))
status = probe.status("mlp")
probe.result(same=same, misses=status["misses"], hits=status["hits"], imported=probe.compilers())
""").result
        assert seen == {"same": True, "misses": 1, "hits": 0, "imported": []}

    def test_compile(self, zoo: Site) -> None:
        seen = zoo.run(f"""
{START}
import functools
torch.compile = functools.partial(torch.compile, backend=backend)
model = zoo.models.Jitted()
before = probe.compilers()
model(x)
hit = probe.hits("jitted"), len(compiled), probe.compilers()
y = torch.randn(4, 3)
same = all(torch.equal(model(y), torch.sin(y) - 1) for _ in range(3))
other = zoo.models.Jitted()
other(y)
probe.result(hit=hit, compiled=len(compiled), same=same, again=probe.served("jitted", lambda: model(x)))
""").result
        assert seen == {"hit": [1, 0, []], "compiled": 1, "same": True, "again": True}

    def test_error(self, zoo: Site) -> None:
        finished = zoo.run(
            f"""
{START}
tool = zoo.tools.Tool()
tool.apply(x)
print("served")
tool.apply(torch.randn(7))
""",
            ok=False,
        )
        assert "served" in finished.stdout
        assert "PrecompileError: zoo: no entry of apply fits this call: " in finished.stderr
        assert "has size 7 in dimension 0, the entry needs 6" in finished.stderr

    def test_strict_makes_every_miss_an_error(self, zoo: Site) -> None:
        calls = {
            "mlp": "zoo.models.Mlp().eval()(torch.randn(17, 8))",
            "whiten": "zoo.functions.whiten(x[None, None, None])",
            "shifted": "zoo.tools.Tool.shifted(x[None])",
            "chatty": "zoo.models.Chatty()(x[None])",
        }
        code = f"""
{START}
probe.result(**{{name: str(probe.attempt(lambda: eval(call))) for name, call in probe.argument().items()}})
"""
        said = zoo.run(code, stdin=calls, HATCH_PRECOMPILE="strict").result
        assert set(said) == set(calls)
        for name, text in said.items():
            assert text.startswith(f"zoo: no entry of {name} fits this call: ")

    def test_strict_makes_a_miss_under_torch_compile_an_error(self, zoo: Site) -> None:
        code = START + "torch.compile(zoo.models.Jitted(), backend=backend)(x[None])"
        finished = zoo.run(code, ok=False, HATCH_PRECOMPILE="strict")
        assert "PrecompileError: zoo: no entry of jitted fits this call" in finished.stderr

    def test_strict_lets_hits_be(self, zoo: Site) -> None:
        code = (
            START
            + "zoo.tools.Tool().apply(x); zoo.models.Chatty()(x); probe.result(hits=probe.hits('apply'))"
        )
        assert zoo.run(code, HATCH_PRECOMPILE="strict").result == {"hits": 1}

    def test_an_error_of_the_model_is_the_models(self, zoo: Site) -> None:
        finished = zoo.run(START + "zoo.models.Mlp()(torch.randn(4, 9))", ok=False)
        last = finished.stderr.rstrip().splitlines()[-1]
        assert last.startswith("RuntimeError: ")
        assert "mat1 and mat2 shapes" in last


class TestTargets:
    CALLS: ClassVar = {
        "a function": ("whiten", "zoo.functions.whiten(i)", "(i - i.mean((2, 3), keepdim=True)) * 0.5"),
        "with keywords": (
            "whiten",
            "zoo.functions.whiten(image=i)",
            "(i - i.mean((2, 3), keepdim=True)) * 0.5",
        ),
        "a method": ("apply", "zoo.tools.Tool().apply(x)", "torch.sin(x) * 3"),
        "a method of the class": ("apply", "zoo.tools.Tool.apply(zoo.tools.Tool(), x)", "torch.sin(x) * 3"),
        "a class method": ("shifted", "zoo.tools.Tool.shifted(x)", "torch.exp(x) + 4"),
        "a class method of an instance": ("shifted", "zoo.tools.Tool().shifted(x)", "torch.exp(x) + 4"),
    }

    @pytest.fixture(scope="class")
    @classmethod
    def served(cls, zoo: Site) -> dict[str, bool]:
        code = f"""
{START}
i = torch.randn(2, 3, 4, 5)
served = {{}}
for label, (name, call, expected) in probe.argument().items():
    before = probe.hits(name)
    torch.testing.assert_close(eval(call), eval(expected))
    served[label] = probe.hits(name) == before + 1
probe.result(served=served, imported=probe.compilers())
"""
        result = zoo.run(code, stdin=cls.CALLS).result
        assert result["imported"] == []
        served: dict[str, bool] = result["served"]
        return served

    @pytest.mark.parametrize("kind", CALLS)
    def test_each_kind_is_served(self, served: dict[str, bool], kind: str) -> None:
        assert served[kind]

    def test_a_static_method_is_served(self, zoo: Site) -> None:
        seen = zoo.run(f"""
{START}
with torch.inference_mode():
    torch.testing.assert_close(zoo.tools.Tool.halve(x), torch.cos(x) / 2)
    torch.testing.assert_close(zoo.tools.Tool().halve(x), torch.cos(x) / 2)
probe.result(hits=probe.hits("halve"), kind=type(vars(zoo.tools.Tool)["halve"]).__name__)
""").result
        assert seen == {"hits": 2, "kind": "staticmethod"}

    def test_a_class_method_of_a_derived_class_is_its_own(self, zoo: Site) -> None:
        seen = zoo.run(f"""
{START}
class Other(zoo.tools.Tool): bias = 7.0
same = torch.equal(Other.shifted(x), torch.exp(x) + 7)
probe.result(same=same, hits=probe.hits("shifted"))
""").result
        assert seen == {"same": True, "hits": 0}

    def test_a_function_is_the_same_wherever_its_package_imported_it(self, zoo_copy: Site) -> None:
        init = zoo_copy.directory / "zoo" / "__init__.py"
        init.write_text("import torch\nfrom zoo.functions import whiten\n" + init.read_text())
        seen = zoo_copy.run(f"""
{START}
same = zoo.whiten is zoo.functions.whiten
zoo.whiten(torch.randn(2, 3, 4, 5))
probe.result(same=same, hits=probe.hits("whiten"))
""").result
        assert seen == {"same": True, "hits": 1}


class TestUninstall:
    def test_everything_is_as_if_there_were_no_bundle(self, zoo: Site) -> None:
        seen = zoo.run(f"""
import sys, torch
import zoo.helpers
finders = [type(f).__module__ for f in sys.meta_path]
{START}
wrapped = zoo.functions.whiten
model, tool = zoo.models.Mlp().eval(), zoo.tools.Tool()
model(torch.randn(4, 8)), tool.apply(x)
zoo._precompiled.uninstall()
i, y = torch.randn(2, 3, 4, 5), torch.randn(4, 8)
same = torch.equal(model(y), probe.eager(model)(y)), torch.equal(tool.apply(x), torch.sin(x) * 3)
targets = zoo.functions.whiten, zoo.tools.Tool.apply, zoo.tools.Tool.shifted, zoo.tools.Tool.halve
left = [name for target in targets for name in vars(target)]
old = torch.equal(wrapped(i), zoo.functions.whiten(i))
call = torch.compile(zoo.models.OnAsking(), backend=backend)
call(x)
probe.result(
    same=same, left=left, old=old, compiled=len(compiled), status=zoo._precompiled.status(),
    impl=probe.activated(zoo.models.Mlp.forward),
)
""").result
        status = {
            "installed": False,
            "reason": "not installed",
            "variant": None,
            "entrypoints": {},
            "prepared_bytes": 0,
        }
        expected = {
            "same": [True, True],
            "left": [],
            "old": True,
            "compiled": 1,
            "status": status,
            "impl": False,
        }
        assert seen == expected

    def test_a_target_not_yet_imported_is_never_installed(self, zoo: Site) -> None:
        seen = zoo.run("""
import torch, zoo, sys
zoo._precompiled.uninstall()
import zoo.models, probe
ours = [f for f in sys.meta_path if type(f).__module__.startswith("zoo")]
probe.result(impl=probe.activated(zoo.models.Mlp.forward), watching=len(ours))
""").result
        assert seen == {"impl": False, "watching": 0}

    def test_it_can_be_installed_again(self, zoo: Site) -> None:
        seen = zoo.run(f"""
{START}
model, y = zoo.models.Mlp().eval(), torch.randn(4, 8)
model(y)
zoo._precompiled.uninstall()
zoo._precompiled.uninstall()
zoo._precompiled.install()
model(y)
probe.result(hits=probe.hits("mlp"))
""").result
        assert seen == {"hits": 1}


def test_status_says_what_there_is(zoo: Site) -> None:
    seen = zoo.run(f"""
{START}
zoo.models.Mlp().eval()(torch.randn(4, 8))
zoo.models.Mlp().eval()(torch.randn(20, 8))
logs = probe.loaded(*["zoo._precompiled." + name for name in ("reporting", "explanation", "advice")])
probe.result(**zoo._precompiled.status(), logs=logs)
""").result
    assert seen["installed"] is True
    assert seen["logs"] == []
    assert (seen["reason"], seen["variant"]) == ("", "native")
    assert list(seen["entrypoints"]) == [
        "mlp", "chatty", "jitted", "onasking", "whiten", "apply", "halve", "shifted", "bert", "ripple",
    ]  # fmt: skip
    assert seen["entrypoints"]["mlp"] == {
        "target": "zoo.models:Mlp",
        "active": True,
        "entries": 1,
        "loaded": 1,
        "hits": 1,
        "misses": 1,
        "by_entry": [{"function": "Mlp.forward", "loaded": True, "hits": 1}],
        "left_out": [],
        "skipped": [],
    }
    assert seen["entrypoints"]["chatty"]["by_entry"] == []
    assert seen["entrypoints"]["bert"]["active"] is False
    assert (seen["entrypoints"]["chatty"]["entries"], seen["entrypoints"]["chatty"]["loaded"]) == (2, 0)


class TestExplain:
    CASES: ClassVar = {
        "a hit": ("model, x", None, "it would be served"),
        "another dtype": (
            "model, x.double()",
            ".dtype is",
            "x has dtype float64, the entry needs float32",
        ),
        "another rank": ("model, x[0]", ".dim() ==", "x is 1-dimensional, the entry needs 2 dimensions"),
        "another stride order": ("model, x.t().contiguous().t()", "T0.check", "stride mismatch"),
        "a size outside the range": (
            "model, torch.randn(17, 8)",
            "<= 16",
            "x is a tensor of shape (17, 8)",
        ),
        "grad mode": ("model, x", "state.check()", "grad_mode"),
        "a class": ("torch.nn.Linear(8, 8), x", "type(", "self is Linear(in_features=8"),
        "an attribute": ("change(scale=3.0), x", "== 2.0", "self.scale is 3.0"),
        "a missing attribute": ("change(scale=None), x", "scale", "scale"),
        "an argument more": ("model, x, x", "is None", "shift is a tensor of shape (4, 8)"),
        "a dispatch mode": ("model, x", "may_serve()", "a dispatch mode"),
    }

    @pytest.fixture(scope="class")
    @classmethod
    def reports(cls, zoo: Site) -> dict[str, list[dict[str, object]]]:
        code = f"""
{START}
import contextlib
from torch.utils.flop_counter import FlopCounterMode
model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
def change(**attributes):
    changed = zoo.models.Mlp().eval()
    for name, value in attributes.items():
        setattr(changed, name, value) if value is not None else delattr(changed, name)
    return changed
contexts = {{"grad mode": torch.enable_grad(), "a dispatch mode": FlopCounterMode(display=False)}}
reports = {{}}
for name, arguments in probe.argument().items():
    with contexts.get(name, contextlib.nullcontext()):
        reports[name] = eval(f"zoo._precompiled.explain('mlp', {{arguments}})")
probe.result(reports=reports, hits=probe.hits("mlp"), misses=probe.status("mlp")["misses"])
"""
        result = zoo.run(code, stdin={name: case[0] for name, case in cls.CASES.items()}).result
        assert (result["hits"], result["misses"]) == (0, 0), "explaining is not calling"
        reports: dict[str, list[dict[str, object]]] = result["reports"]
        return reports

    @pytest.mark.parametrize("case", CASES)
    def test_the_failing_check_is_named(self, reports: dict[str, list[dict[str, object]]], case: str) -> None:
        _, check, reason = self.CASES[case]
        (report,) = reports[case]
        assert report["hit"] is (check is None)
        assert reason in str(report["reason"])
        assert report["check"] is None if check is None else check in str(report["check"])

    def test_an_unknown_name_is_an_error_that_lists_the_known(self, zoo: Site) -> None:
        finished = zoo.run(START + "zoo._precompiled.explain('mpl', 1)", ok=False)
        assert "no active entrypoint 'mpl'; there are: " in finished.stderr

    def test_a_call_that_lacks_an_argument_is_the_usual_error(self, zoo: Site) -> None:
        finished = zoo.run(START + "zoo._precompiled.explain('mlp', zoo.models.Mlp())", ok=False)
        assert "TypeError: missing a required argument: 'x'" in finished.stderr

    def test_a_check_made_on_every_layer_says_on_which_it_failed(self, zoo: Site) -> None:
        seen = zoo.run("""
import torch, zoo.bert, probe
model = zoo.bert.small().eval()
model.encoder.layer[1].attention.output.LayerNorm.eps = 0.5
args, kwargs = next(iter(zoo.bert.sentences()))
with torch.no_grad():
    (report, *_) = zoo._precompiled.explain("bert", model, *args, **kwargs)
probe.result(report=report)
""").result
        expected = "self.encoder.layer[1].attention.output.LayerNorm.eps is 0.5; needed: "
        assert seen["report"]["reason"].startswith(expected)

    def test_functions_and_methods_are_explained(self, zoo: Site) -> None:
        seen = zoo.run(f"""
{START}
explain = zoo._precompiled.explain
i = torch.randn(2, 3, 4, 5)
probe.result(reports=[
    explain("whiten", i), explain("whiten", image=i[0]), explain("apply", zoo.tools.Tool(), x),
    explain("apply", zoo.tools.Tool(5.0), x), explain("shifted", zoo.tools.Tool, x),
])
""").result
        assert [report["hit"] for (report,) in seen["reports"]] == [True, False, True, False, True]
        assert "is 3-dimensional, the entry needs 4" in seen["reports"][1][0]["reason"]
        assert "factor" in seen["reports"][3][0]["reason"]
