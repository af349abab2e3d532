"""What an installed package does in a fresh process: it hits, and imports, starts and writes nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Site

CALL = """
import torch, zoo, probe
import zoo.models
torch.manual_seed(0)
model = zoo.models.Mlp().eval()
x = torch.randn(4, 8)
with torch.no_grad():
    answer = model(x)
    torch.testing.assert_close(answer, probe.eager(model)(x))
"""


def test_a_call_hits_and_no_compiler_is_imported(zoo: Site) -> None:
    seen = zoo.run(f"""
{CALL}
status = probe.status("mlp")
probe.result(hits=status["hits"], misses=status["misses"], imported=probe.compilers())
""").result
    assert seen == {"hits": 1, "misses": 0, "imported": []}


def test_a_graph_break_is_followed_without_a_compiler(zoo: Site) -> None:
    finished = zoo.run("""
import torch, probe, zoo.models
model, x = zoo.models.Chatty(), torch.randn(6)
with torch.no_grad():
    torch.testing.assert_close(model(x), torch.cos(torch.sin(x)) + 1)
runtime = zoo._precompiled
frames = [frame for frame in runtime._installation.frames if frame.record["resume"] is not None]
resumed = sum(entry.hits for frame in frames for entry in frame.entries)
probe.result(hits=probe.hits("chatty"), resumed=resumed, imported=probe.compilers())
""")
    assert finished.result == {"hits": 1, "resumed": 1, "imported": []}
    assert finished.stdout.count("half way") == 1


class TestImport:
    def test_a_lazy_package_stays_lazy(self, zoo: Site) -> None:
        code = "import zoo, probe; probe.result(imported=probe.loaded('torch', 'zoo.models', 'hashlib'))"
        assert zoo.run(code).result == {"imported": []}

    @pytest.mark.parametrize(
        "imports",
        [
            "import zoo, torch, zoo.models",
            "import torch, zoo, zoo.models",
            "import zoo.models",
            "import zoo; zoo.models",
            "from zoo.models import Mlp",
            "import importlib; importlib.import_module('zoo.models')",
            "import zoo, zoo.helpers, zoo.models",
            "import zoo.samples, zoo.functions, zoo.models",
        ],
    )
    def test_a_target_is_installed_when_it_is_imported(self, zoo: Site, imports: str) -> None:
        assert zoo.run(f"{imports}\n{CALL}\nprobe.result(hits=probe.hits('mlp'))").result == {"hits": 1}

    def test_a_target_imported_after_others_were_used_is_installed(self, zoo: Site) -> None:
        seen = zoo.run(f"""
{CALL}
early = probe.status("whiten")
import zoo.functions
with torch.no_grad():
    zoo.functions.whiten(torch.randn(2, 3, 4, 5))
probe.result(early=early["active"], late=probe.status("whiten")["active"], hits=probe.hits("whiten"))
""").result
        assert seen == {"early": False, "late": True, "hits": 1}

    def test_a_target_imported_before_the_package_that_carries_its_code_is_installed(self, zoo: Site) -> None:
        seen = zoo.run("""
import sys, torch, probe
# The target's module is there before the shim runs, as for a target in a dependency.
init = sys.modules["zoo"] = type(sys)("zoo")
init.__path__ = [p + "/zoo" for p in sys.path if p.endswith("installed")]
import zoo.functions
del sys.modules["zoo"]
import zoo
with torch.no_grad():
    sys.modules["zoo.functions"].whiten(torch.randn(2, 3, 4, 5))
probe.result(hits=probe.hits("whiten"))
""").result
        assert seen == {"hits": 1}

    def test_a_target_that_fails_to_import_fails_as_it_would_without_us(self, zoo_copy: Site) -> None:
        models = zoo_copy.directory / "zoo" / "models.py"
        models.write_text(models.read_text() + "\nraise ZeroDivisionError('in the module')\n")
        finished = zoo_copy.run("import torch, zoo, zoo.models", ok=False)
        assert "ZeroDivisionError: in the module" in finished.stderr
        assert "_precompiled" not in finished.stderr.split("ZeroDivisionError")[1]

    def test_the_modules_look_untouched(self, zoo: Site) -> None:
        seen = zoo.run("""
import torch, zoo, probe, inspect, sys
import zoo.models, zoo.functions, zoo.tools
probe.result(
    loader=type(zoo.models.__loader__).__name__, spec=type(zoo.models.__spec__.loader).__name__,
    source=inspect.getsource(zoo.models.Mlp).startswith("class Mlp"),
    function=inspect.getsource(zoo.functions.whiten).startswith("def whiten"),
    name=zoo.functions.whiten.__qualname__, signature=str(inspect.signature(zoo.tools.Tool.apply)),
)
""").result
        assert seen == {
            "loader": "SourceFileLoader",
            "spec": "SourceFileLoader",
            "source": True,
            "function": True,
            "name": "whiten",
            "signature": "(self, x)",
        }

    def test_nothing_is_left_in_the_import_system_once_every_target_is_there(self, zoo: Site) -> None:
        seen = zoo.run("""
import torch, zoo, probe, sys
ours = lambda: [type(f).__module__ for f in sys.meta_path if type(f).__module__.startswith("zoo")]
before = ours()
import zoo.models, zoo.functions, zoo.tools, zoo.bert, zoo.used
probe.result(before=before, after=ours())
""").result
        assert seen == {"before": ["zoo._precompiled.import_hooks"], "after": []}


class TestSideEffects:
    def test_no_process_is_started_and_no_file_is_written(self, zoo: Site) -> None:
        seen = zoo.run(f"""
import torch  # which in some builds looks for libraries of its own
import probe
done = probe.forbid_side_effects()
{CALL}
import zoo.functions, zoo.tools, warnings
warnings.simplefilter("error")
with torch.no_grad():
    zoo.functions.whiten(torch.randn(2, 3, 4, 5))
    zoo.tools.Tool().apply(torch.randn(6)), zoo.models.Chatty()(torch.randn(6))
zoo._precompiled.status(), zoo._precompiled.explain("mlp", model, x)
hits = {{name: probe.hits(name) for name in ("mlp", "whiten", "apply", "chatty")}}
probe.result(done=done, hits=hits, imported=probe.compilers())
""").result
        assert seen == {"done": [], "hits": {"mlp": 1, "whiten": 1, "apply": 1, "chatty": 1}, "imported": []}

    def test_the_probe_itself_notices(self, zoo: Site) -> None:
        """The test above could not fail if this did not hold."""
        seen = zoo.run("""
import probe
done = probe.forbid_side_effects()
def attempt(do):
    try:
        do()
    except PermissionError:
        pass
import os, subprocess
attempt(lambda: open("written", "w"))
attempt(lambda: os.open("written", os.O_CREAT))
attempt(lambda: subprocess.run(["true"]))
attempt(lambda: os.mkdir("made"))
probe.result(events=[event.split()[0] for event in done])
""").result
        assert seen == {"events": ["open", "open", "subprocess.Popen", "os.mkdir"]}

    def test_a_read_only_machine_without_home_and_compiler_will_do(
        self, zoo_copy: Site, tmp_path: Path
    ) -> None:
        cwd = tmp_path / "cwd"
        cwd.mkdir()
        places = [cwd, zoo_copy.directory, *zoo_copy.directory.rglob("*")]
        before = {place: place.stat().st_mtime_ns for place in places}
        for place in places:
            place.chmod(0o555 if place.is_dir() else 0o444)
        try:
            seen = zoo_copy.run(
                CALL + "import os; probe.result(hits=probe.hits('mlp'), home=os.environ.get('HOME'))",
                cwd=cwd,
                PATH="",
                CXX=str(tmp_path / "no-compiler"),
                TMPDIR=str(tmp_path / "missing"),
                PYTHONDONTWRITEBYTECODE="",
            ).result
        finally:
            for place in places:
                place.chmod(0o755)
        assert seen == {"hits": 1, "home": None}
        if os.geteuid() != 0:  # root may write anywhere, and Python then writes its .pyc files
            after = [cwd, zoo_copy.directory, *zoo_copy.directory.rglob("*")]
            assert {place: place.stat().st_mtime_ns for place in after} == before

    def test_warnings_as_errors_do_not_stop_an_import(self, zoo_copy: Site) -> None:
        (zoo_copy.directory / "zoo/_precompiled/bundle/manifest.json").write_text("{")
        finished = zoo_copy.run(
            "import warnings; warnings.simplefilter('error')\nimport zoo; print('imported')"
        )
        assert "imported" in finished.stdout
        assert "zoo: compiled code is not used" in finished.stderr


# Served without a new compilation, and right.
SERVED = {
    "other values": "x = torch.randn(4, 8)",
    "another instance with other weights": "torch.manual_seed(5); model = zoo.models.Mlp().eval()",
    "the smallest size in the range": "x = torch.randn(3, 8)",
    "another size in the range": "x = torch.randn(11, 8)",
    "the largest size in the range": "x = torch.randn(16, 8)",
    "one thread, set later": (
        "undo(torch.set_num_threads, torch.get_num_threads()); torch.set_num_threads(1)"
    ),
    "more threads, set later": (
        "undo(torch.set_num_threads, torch.get_num_threads()); torch.set_num_threads(5)"
    ),
    "a deep copy": "import copy; model = copy.deepcopy(model)",
    "a pickled model": "import pickle; model = pickle.loads(pickle.dumps(model))",
    "a loaded state dict": "other = zoo.models.Mlp(); model.load_state_dict(other.state_dict())",
    "an assigned state dict": "model.load_state_dict(zoo.models.Mlp().state_dict(), assign=True)",
    "a saved and loaded model": (
        "import io; f = io.BytesIO(); torch.save(model, f); f.seek(0);"
        "model = torch.load(f, weights_only=False)"
    ),
    "a weight changed in place": "model.first.weight.mul_(2)",
    "a new weight of the same kind": "model.first.weight = torch.nn.Parameter(torch.ones(8, 8))",
    "a keyword argument": "args, x = (), {'x': x}",
    "an argument that says the default": "args = (None,)",
    "an attribute the trace did not read": "model.note = 'mine'",
    "an equal attribute": "model.scale = float('2')",
    "a part in training mode that does not look": "model.first.train()",
    "a view of contiguous memory": "x = torch.randn(10, 8)[3:7]",
    "gradients elsewhere": "torch.ones(3, requires_grad=True)",
}


@pytest.fixture(scope="module")
def served(zoo: Site) -> Any:
    setup = """
torch.manual_seed(0)
torch.set_grad_enabled(False)
model = zoo.models.Mlp().eval()
x = torch.randn(4, 8)
args = ()
def call(f):
    return f(**x) if isinstance(x, dict) else f(x, *args)
"""
    # The compiled answer may differ from eager in the last bits.
    code = f"""
import torch, probe, zoo.models
space = {{"torch": torch, "zoo": zoo}}
eager = "call(probe.eager(model))"
report = probe.try_changes("mlp", probe.argument(), space, {setup!r}, "call(model)", eager)
for seen in report.values():
    *facts, got = seen.pop("got")
    *expected_facts, expected = seen.pop("expected")
    close = torch.allclose(torch.tensor(got), torch.tensor(expected), atol=1e-6)
    seen["right"] = facts == expected_facts and close
probe.result(report=report, imported=probe.compilers())
"""
    return zoo.run(code, stdin=SERVED).result


@pytest.mark.parametrize("change", SERVED)
def test_a_call_the_trace_is_right_for_is_served(served: Any, change: str) -> None:
    assert served["report"][change] == {"plain": True, "changed": True, "again": True, "right": True}


def test_none_of_these_calls_imports_a_compiler(served: Any) -> None:
    assert served["imported"] == []


@pytest.mark.parametrize("threads", [1, 5])
def test_a_number_of_threads_set_before_import_is_served(zoo: Site, threads: int) -> None:
    code = f"import torch; torch.set_num_threads({threads})\n{CALL}"
    code += "probe.result(hits=probe.hits('mlp'), threads=torch.get_num_threads())"
    assert zoo.run(code).result == {"hits": 1, "threads": threads}


def test_threads_that_make_the_first_call_together_are_all_served(zoo: Site) -> None:
    seen = zoo.run("""
import threading, torch, probe, zoo.models
model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
start, outputs = threading.Barrier(8), []
def call():
    start.wait()
    with torch.no_grad():
        outputs.append(model(x))
threads = [threading.Thread(target=call) for _ in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
equal = all(torch.equal(output, outputs[0]) for output in outputs)
probe.result(hits=probe.hits("mlp"), misses=probe.status("mlp")["misses"], equal=equal, outputs=len(outputs))
""").result
    assert seen == {"hits": 8, "misses": 0, "equal": True, "outputs": 8}


@pytest.mark.parametrize("threads", ["1", "4"])
def test_a_number_of_threads_in_the_environment_is_served(zoo: Site, threads: str) -> None:
    assert zoo.run(f"{CALL}\nprobe.result(hits=probe.hits('mlp'))", OMP_NUM_THREADS=threads).result == {
        "hits": 1
    }


def test_an_instance_can_be_collected_and_its_entries_serve_the_next(zoo: Site) -> None:
    seen = zoo.run("""
import gc, weakref, torch, probe, zoo.models
def use():
    model = zoo.models.Mlp().eval()
    with torch.no_grad():
        torch.testing.assert_close(model(torch.ones(4, 8)), probe.eager(model)(torch.ones(4, 8)))
    return weakref.ref(model), weakref.ref(model.first.weight), weakref.ref(model.block.linear)
first = use()
gc.collect()
dead = [reference() is None for reference in first]
use()
probe.result(dead=dead, hits=probe.hits("mlp"))
""").result
    assert seen == {"dead": [True, True, True], "hits": 2}


def test_threads_call_at_once(zoo: Site) -> None:
    seen = zoo.run("""
import threading, torch, probe, zoo.models
model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
answers, start = [], threading.Barrier(8)
def use():
    start.wait()
    with torch.no_grad():
        for _ in range(20):
            answers.append(model(x))
threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
expected = probe.eager(model)(x)
right = all(torch.allclose(answer, expected, atol=1e-6) for answer in answers)
probe.result(right=right, calls=len(answers), hits=probe.hits("mlp"))
""").result
    assert seen == {"right": True, "calls": 160, "hits": 160}
