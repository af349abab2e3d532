"""Two wheels of ours over the same classes and functions: in either order, and each without the other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TESTS, ZOO, Site, build_entrypoints

ENTRYPOINTS: list[dict[str, Any]] = [
    {"target": "zoo.models:Mlp", "name": "mlp", "samples": "annex.samples:mlp"},
    {"target": "zoo.models:Chatty", "name": "chatty", "samples": "annex.samples:vectors"},
    {"target": "zoo.functions:whiten", "name": "whiten", "samples": "annex.samples:images"},
    {
        "target": "transformers.models.bert.modeling_bert:BertModel",
        "name": "bert",
        "instance": "zoo.bert:small",
        "samples": "annex.samples:sentences",
    },
]

# CALLS: for each name that both wheels have for an entrypoint, its call for one size, and what eager code
# gives. SIZES: one that only the zoo's wheel serves, one that only the annex's does, one that none does.
START = """
import sys, torch, probe
import zoo.functions, zoo.models
torch.set_grad_enabled(False)
mlp, chatty = zoo.models.Mlp().eval(), zoo.models.Chatty()
CALLS = {
    "mlp": lambda n: (mlp(x := torch.randn(n, 8)), probe.eager(mlp)(x)),
    "chatty": lambda n: (chatty(x := torch.randn(n)), torch.cos(torch.sin(x)) + 1),
    "whiten": lambda n: (
        zoo.functions.whiten(x := torch.randn(n, 3, 4, 5)), (x - x.mean((2, 3), keepdim=True)) * 0.5),
}
SIZES = {"mlp": (4, 20, 2), "chatty": (6, 9, 7), "whiten": (2, 3, 4)}

def hits(name):
    return [wheel._precompiled.status()["entrypoints"].get(name, {}).get("hits", 0) for wheel in WHEELS]

def served(calls=CALLS, sizes=SIZES):
    '''For each entrypoint and size, which wheels served the call: "zoo", "annex" or "".'''
    seen = {}
    for name, call in calls.items():
        seen[name] = []
        for size in sizes[name]:
            before = hits(name)
            got, expected = call(size)
            torch.testing.assert_close(got, expected)
            who = [w.__name__ for w, b, a in zip(WHEELS, before, hits(name)) if a > b]
            seen[name].append(" ".join(who))
    return seen
"""


def start(*order: str) -> str:
    """Import the packages in this order, then the rest."""
    return f"import {', '.join(order)}\nWHEELS = [{', '.join(order)}]\n{START}"


NAMES = ("mlp", "chatty", "whiten")
EACH = ["zoo", "annex", ""]
ORDERS = [("zoo", "annex"), ("annex", "zoo")]


@pytest.fixture(scope="module")
def sites(zoo: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Where both wheels are installed."""
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(ZOO / "src"))
    work = tmp_path_factory.mktemp("annex") / "work"
    annex = build_entrypoints("annex", ENTRYPOINTS, TESTS / "neighbours", work)
    patch.undo()
    shutil.copytree(zoo.directory / "zoo", annex.directory / "zoo")
    return annex


class TestInEitherOrder:
    @pytest.fixture(scope="class", params=ORDERS, ids=" then ".join)
    @classmethod
    def seen(cls, sites: Site, request: pytest.FixtureRequest) -> Any:
        """Both; then one without the other, whichever goes first, before and after a first call."""
        code = f"""
{start(*request.param)}
import re
found = re.compile("__precompiled_[0-9a-f]{{8}}(?=_)")
prefixes = lambda: len({{match[0] for match in map(found.match, vars(zoo.models)) if match}})
CALLS["mlp"](4)
one = prefixes()
CALLS["mlp"](20)
two = prefixes()
both = served()
left_out = [probe.status(name, wheel.__name__)["left_out"] for wheel in WHEELS for name in CALLS]
zoo.also_here = zoo.functions.whiten
def again():
    for wheel in WHEELS:
        wheel._precompiled.uninstall()
    for wheel in WHEELS:
        wheel._precompiled.install()
def restored():
    "Whether each place an entrypoint is put at has what it had before."
    return [not probe.activated(zoo.models.Mlp.forward), not probe.activated(zoo.functions.whiten),
            not probe.activated(zoo.also_here)]
without, left = {{}}, []
for used_before in (False, True):
    for gone, stays in (WHEELS, WHEELS[::-1]):
        again()
        if used_before:
            served()
        gone._precompiled.uninstall()
        without[f"{{gone.__name__}} {{used_before}}"] = [served(), restored()]
        stays._precompiled.uninstall()
        left.append([served(), restored()])
probe.result(both=both, left_out=left_out, prefixes=[one, two], without=without, left=left)
"""
        return sites.run(code).result

    def test_each_serves_its_own_calls(self, seen: Any) -> None:
        assert seen["both"] == dict.fromkeys(NAMES, EACH)
        assert seen["left_out"] == [[]] * 6

    def test_the_names_they_put_into_a_module_are_each_wheels_own(self, seen: Any) -> None:
        assert seen["prefixes"] == [1, 2]

    @pytest.mark.parametrize("used", [False, True])
    @pytest.mark.parametrize("gone", ["zoo", "annex"])
    def test_uninstalling_one_leaves_the_other(self, seen: Any, gone: str, used: bool) -> None:
        served, restored = seen["without"][f"{gone} {used}"]
        assert served == {name: ["" if who == gone else who for who in EACH] for name in NAMES}
        assert restored == [False] * 3

    def test_uninstalling_both_leaves_nothing(self, seen: Any) -> None:
        assert seen["left"] == [[{name: [""] * 3 for name in NAMES}, [True] * 3]] * 4


def test_a_name_imported_before_the_second_wheel_came_is_served_by_both(sites: Site) -> None:
    seen = sites.run(f"""
{start("zoo")}
kept = zoo.also_here = zoo.functions.whiten
import annex
WHEELS.append(annex)
def tried(function):
    call = lambda n: (function(x := torch.randn(n, 3, 4, 5)), probe.eager(kept)(x))
    return served({{"whiten": call}})["whiten"]
both = [tried(kept), tried(zoo.also_here)]
zoo._precompiled.uninstall()
probe.result(both=both, one=[tried(kept), tried(zoo.also_here)])
""").result
    assert seen == {"both": [EACH, EACH], "one": [["", "annex", ""]] * 2}


def test_two_models_over_one_class_of_a_library(sites: Site) -> None:
    seen = sites.run(f"""
{start("annex", "zoo")}
import zoo.bert
model = zoo.bert.small().eval()
def bert(shape):
    ids = torch.arange(shape[0] * shape[1]).reshape(shape)
    inputs = {{"input_ids": ids, "attention_mask": torch.ones_like(ids)}}
    return model(**inputs)[0], probe.eager(model)(**inputs)[0]
tried = lambda: served({{"bert": bert}}, {{"bert": [(2, 7), (3, 5), (2, 6)]}})["bert"]
both = tried()
zoo._precompiled.uninstall()
probe.result(both=both, one=tried())
""").result
    assert seen == {"both": EACH, "one": ["", "annex", ""]}


def test_a_dependency_that_changed_takes_out_only_what_traced_it(sites: Site, tmp_path: Path) -> None:
    """The zoo is a dependency of the annex, and another version of it is installed now."""
    site = sites.copy(tmp_path / "site")
    shutil.rmtree(site.directory / "zoo" / "_precompiled")
    helpers = site.directory / "zoo" / "helpers.py"
    text = helpers.read_text()
    helpers.write_text(text.replace("torch.tanh(x)", "torch.tanh(x) * 2"))
    assert helpers.read_text() != text
    seen = site.run(f"""
import warnings
said = warnings.catch_warnings(record=True).__enter__()
warnings.simplefilter("always")
{start("annex")}
probe.result(served=served(), said=[str(w.message) for w in said])
""").result
    assert seen["served"] == {"mlp": ["", "", ""], "chatty": ["", "annex", ""], "whiten": ["", "annex", ""]}
    (warning,) = seen["said"]
    assert warning.startswith("annex: compiled code for Mlp.forward is not used: ")
    assert warning.endswith("zoo.helpers.squash has changed since the build; rebuild the wheel")
