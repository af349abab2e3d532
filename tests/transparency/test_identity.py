"""A target stays the object that it was: nobody who holds it, names it or looks into it sees a difference."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.conftest import Site

START = """
import functools, inspect, io, pickle, sys, torch
import probe, lab
from lab import core
torch.set_grad_enabled(False)
x = torch.arange(4.)
"""


class TestLooks:
    """Every answer of these expressions is the same with and without the wheel's compiled code."""

    EXPRESSIONS: ClassVar = {
        "signature": "str(inspect.signature(core.keywords))",
        "full argument specification": "str(inspect.getfullargspec(core.keywords))",
        "source": "inspect.getsource(core.scaled)",
        "first line": "core.scaled.__code__.co_firstlineno",
        "file": "core.scaled.__code__.co_filename == core.__file__",
        "names of arguments": "core.keywords.__code__.co_varnames",
        "attributes": "vars(core.scaled)",
        "of a class": "sorted(name for name in vars(core.Base) if '_compiled' in name)",
        "of a class's forward": "str(inspect.signature(core.Base.forward)), core.Base.forward.__qualname__",
        "kinds of methods": "[type(vars(core.Tools)[name]).__name__ for name in ('static', 'of_class')]",
        "pickled by name": "pickle.loads(pickle.dumps(core.scaled)) is core.scaled",
        "pickled in what took it as a default": (
            "pickle.loads(pickle.dumps(core.Holder())).function is core.Holder().function is core.scaled"
        ),
        "pickled methods": "pickle.loads(pickle.dumps(core.Tools.of_class))(x).tolist()",
        "saved with a model": (
            "(torch.save(core.Holder(), b := io.BytesIO()), b.seek(0), "
            "torch.load(b, weights_only=False).function is core.scaled)[-1]"
        ),
        "a key of a dict": "{core.scaled: 1}[core.Holder().function]",
        "the same where it is inherited": "core.Derived.forward is core.Base.forward",
        "the same where it is exported again": "lab.lazily is sys.modules['lab.later'].lazily",
        "scripted": "torch.jit.script(core.scriptable)(x).tolist()",
        "scripted source": "torch.jit.script(core.scriptable).code",
        "scripted model": "torch.jit.script(core.Base())(x).tolist()",
        "traced": "torch.jit.trace(core.scriptable, (x,)).code",
        "symbolically traced": "torch.fx.symbolic_trace(core.Base()).code",
        "exported": "torch.export.export(core.Base(), (x,)).graph_module.code",
        "wrapped by functools": "sorted(vars(functools.wraps(core.scaled)(lambda: 0)))",
    }

    @staticmethod
    def answers(lab: Site, **environment: str) -> dict[str, object]:
        code = START + (
            "call = [core.scaled(x), core.Base()(x), core.keywords(x, 1.0, scale=3.0, more=2.0)]\n"
            "probe.result(**{name: eval(text) for name, text in probe.argument().items()})"
        )
        result: dict[str, object] = lab.run(code, stdin=TestLooks.EXPRESSIONS, **environment).result
        return result

    @pytest.fixture(scope="class")
    @classmethod
    def both(cls, lab: Site) -> tuple[dict[str, object], dict[str, object]]:
        return cls.answers(lab), cls.answers(lab, HATCH_PRECOMPILE="off")

    @pytest.mark.parametrize("name", EXPRESSIONS)
    def test_the_same(self, both: tuple[dict[str, object], dict[str, object]], name: str) -> None:
        ours, without = both
        assert ours[name] == without[name]


class TestServed:
    CALLS: ClassVar = {
        "scaled": "core.scaled(x)",
        "shifted": "core.shifted(x)",
        "decorated": "core.decorated(x)",
        "keywords": "core.keywords(x, 1.0, scale=3.0, more=2.0)",
        "base": "core.Base()(x)",
        "derived": "core.Derived()(x)",
        "static": "core.Tools.static(x)",
        "of_class": "core.Tools.of_class(x)",
        "method": "core.Inheriting().method(x)",
        "down": "core.down(x, 2)",
        "table": "core.Table()(torch.tensor([[1, 2, 3]]))",
        "strict": "core.Strict()(x)",
        "jitted": "core.Jitted()(x)",
        "lazily": "lab.lazily(x)",
        "broken": "core.broken(x)",
        "of a forward": "core.Base().forward(x)",
    }

    @pytest.fixture(scope="class")
    @classmethod
    def served(cls, lab: Site) -> dict[str, list[bool]]:
        code = (
            START
            + """
outcomes = {}
for name, call in probe.argument().items():
    entrypoint = name if "of a" not in name else "base"
    hit = probe.served(entrypoint, lambda: eval(call), "lab")
    outcomes[name] = [hit, probe.compilers()]
probe.result(**outcomes)
"""
        )
        result: dict[str, list[bool]] = lab.run(code, stdin=cls.CALLS).result
        return result

    @pytest.mark.parametrize("name", CALLS)
    def test_its_call_is_served_without_a_compiler(self, served: dict[str, list[bool]], name: str) -> None:
        assert served[name] == [True, []]

    def test_asking_for_a_target_does_not_import_where_it_is_defined(self, lab: Site) -> None:
        seen = lab.run(START + "probe.result(imported=probe.loaded('lab.later'))").result
        assert seen == {"imported": []}

    def test_a_functions_own_attribute_is_seen(self, lab: Site) -> None:
        seen = lab.run(
            START
            + """
before = core.scaled(x).tolist()
core.scaled.scale = 7.0
after = core.scaled(x).tolist()
probe.result(before=before, after=after, hits=probe.hits("scaled", "lab"))
"""
        ).result
        assert seen == {"before": [0, 2, 4, 6], "after": [0, 7, 14, 21], "hits": 1}

    def test_one_set_before_the_first_call_is_seen(self, lab: Site) -> None:
        code = START + "core.scaled.scale = 7.0; probe.result(answer=core.scaled(x).tolist())"
        assert lab.run(code).result == {"answer": [0, 7, 14, 21]}


class TestUninstalled:
    def test_the_code_is_the_functions_own_again(self, lab: Site) -> None:
        seen = lab.run(
            START
            + """
core.scaled(x), core.broken(x)
functions = core.scaled, core.keywords, core.Base.forward, core.Tools.of_class, core.talking
active = [probe.activated(function) for function in functions]
lab._precompiled.uninstall()
left = [probe.activated(function) for function in functions]
probe.result(active=active, left=left, answer=core.scaled(x).tolist())
"""
        ).result
        assert seen == {"active": [True] * 5, "left": [False] * 5, "answer": [0, 2, 4, 6]}
