"""A target stays the object that it was: nobody who holds it, names it or looks into it sees a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

if TYPE_CHECKING:
    from tests.conftest import Site


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
        "symbolically traced, where a miss is an error": "torch.fx.symbolic_trace(core.Strict()).code",
        "symbolically traced, where a miss is compiled": "torch.fx.symbolic_trace(core.Jitted()).code",
        "exported": "torch.export.export(core.Base(), (x,)).graph_module.code",
        "copied with other globals": "copy_of(core.outer, {**vars(core), 'inner': torch.cos})(x).tolist()",
        "copied with few globals": "copy_of(core.outer, {'inner': torch.cos})(x).tolist()",
        "copied with another cell": (
            "copy_of(core.shifted, vars(core), (types.CellType(100.0),))(x).tolist(), "
            "core.shifted(x).tolist()"
        ),
        "copied and compiled": (
            "torch.compile(copy_of(core.outer, {**vars(core), 'inner': torch.cos}), fullgraph=True, "
            "backend='eager')(x).tolist()"
        ),
        "rewritten": (
            "copy_of(core.outer, vars(core), consts=lambda each: 5 if each == 2 else each)(x).tolist()"
        ),
        "pickled by value": "pickle.loads(by_value(core, core.Base))()(x).tolist()",
        "wrapped by functools": "sorted(vars(functools.wraps(core.scaled)(lambda: 0)))",
    }

    @pytest.fixture(scope="class")
    @classmethod
    def both(cls, lab: Site) -> tuple[dict[str, object], dict[str, object]]:
        scenario = "identity.answers_of_expressions"
        ours = lab.play(scenario, expressions=cls.EXPRESSIONS)
        off = {"HATCH_PRECOMPILE": "off"}
        return ours, lab.play(scenario, environment=off, expressions=cls.EXPRESSIONS)

    @pytest.mark.parametrize("name", EXPRESSIONS)
    def test_the_same(self, both: tuple[dict[str, object], dict[str, object]], name: str) -> None:
        ours, without = both
        assert ours[name] == without[name]

    def test_the_users_compiler_sees_nothing_of_it(self, lab: Site) -> None:
        """Of one with a closure, and of one that takes keywords: served, and where nothing fits."""
        seen = lab.play("identity.compiled_by_the_user")
        hit, miss = {"right": True, "hits": 1, "graphs": 0}, {"right": True, "hits": 0, "graphs": 1}
        assert seen == {"a closure": [hit, miss], "keywords": [hit, miss]}


class TestServed:
    @pytest.fixture(scope="class")
    @classmethod
    def calls(cls, lab: Site) -> Any:
        return lab.play("identity.calls_of_each_target")

    @pytest.mark.parametrize(
        "target",
        [
            *("a function", "a function made in another", "a decorated function", "with keywords"),
            *("a module", "a derived module", "forward itself", "a table"),
            *("a static method", "a class method", "an inherited method"),
            *("recursion", "a graph break", "exported lazily"),
            *("a miss is an error", "a miss is compiled"),
        ],
    )
    def test_its_call_is_served_without_a_compiler(self, calls: Any, target: str) -> None:
        assert calls[target] == {"served": True, "imported": []}

    def test_asking_for_a_target_does_not_import_where_it_is_defined(self, lab: Site) -> None:
        assert lab.play("identity.modules_imported_by_asking_for_targets") == []

    def test_a_functions_own_attribute_is_seen(self, lab: Site) -> None:
        seen = lab.play("identity.a_functions_own_attribute")
        assert seen == {"before": [0, 2, 4, 6], "after": [0, 7, 14, 21], "hits": 1}

    def test_one_set_before_the_first_call_is_seen(self, lab: Site) -> None:
        assert lab.play("identity.an_attribute_set_before_the_first_call") == [0, 7, 14, 21]


class TestUninstalled:
    def test_the_code_is_the_functions_own_again(self, lab: Site) -> None:
        seen = lab.play("identity.uninstalled_after_calls")
        assert seen == {"before": [True] * 5, "after": [False] * 5, "answer": [0, 2, 4, 6]}
