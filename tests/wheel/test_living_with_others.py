"""Beside what else a program does: torch.compile's own controls, other people's wrappers, reloading,
copying and saving, forks, threads, and other ways to start Python."""

from __future__ import annotations

import shutil
import zipapp
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Site

START = """
import torch, zoo, probe
import zoo.functions, zoo.models, zoo.tools
torch.set_grad_enabled(False)
compiled = []
def backend(graph, inputs):
    compiled.append(graph)
    return graph.forward
model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
image = torch.randn(2, 3, 4, 5)
def served(name="mlp", call=lambda: model(x)):
    return probe.served(name, call)
"""


class TestControlsOfTorchCompile:
    """torch.compiler.set_stance, torch._dynamo.reset and our entries."""

    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, zoo: Site) -> Any:
        return zoo.run(f"""
{START}
call = torch.compile(model, backend=backend)
seen = {{}}
with torch.compiler.set_stance("force_eager"):
    seen["force_eager"] = [served(), served(call=lambda: call(x)), served(call=lambda: model(x[:2]))]
    (report,) = zoo._precompiled.explain("mlp", model, x)
    seen["explained"] = report["reason"]
misses = probe.status("mlp")["misses"]
for stance in ("fail_on_recompile", "eager_on_recompile", "eager_then_compile"):
    with torch.compiler.set_stance(stance):
        seen[stance] = [
            served(), served(call=lambda: call(x)), probe.described(probe.attempt(lambda: call(x[:2])))]
seen["compiled"] = len(compiled)
call(x[:2])
seen["then"] = [len(compiled), served()]
seen["misses"] = misses
for reset in (torch._dynamo.reset, torch.compiler.reset, torch._dynamo.reset_code_caches):
    call(x[:2])
    probe.eager(model)(x)
    before = probe.hits("mlp")
    reset()
    seen[reset.__name__] = [
        served(), served(call=lambda: call(x)), served(call=lambda: zoo.models.Mlp().eval()(x)),
        probe.hits("mlp") - before]
reset()
torch.compile(zoo.functions.whiten, backend=backend)(image[:1])
before = len(compiled)
reset()
seen["function"] = [served("whiten", lambda: zoo.functions.whiten(image)) for _ in range(2)]
seen["as before"] = torch.equal(call(x[:2]), probe.eager(model)(x[:2])) and len(compiled) == before + 1
probe.result(**seen)
""").result

    def test_force_eager_is_obeyed(self, seen: Any) -> None:
        assert seen["force_eager"] == [False, False, False]
        assert 'torch.compiler.set_stance("force_eager")' in seen["explained"]

    def test_a_call_that_steps_aside_is_no_miss(self, seen: Any) -> None:
        assert seen["misses"] == 0

    def test_a_hit_is_no_recompile(self, seen: Any) -> None:
        for stance in ("fail_on_recompile", "eager_on_recompile", "eager_then_compile"):
            assert seen[stance][:2] == [True, True], stance

    def test_a_miss_is_what_it_is_without_us(self, seen: Any) -> None:
        error = seen["fail_on_recompile"][2]
        assert error.startswith("RuntimeError: Detected recompile when torch.compile stance is")
        assert "wheel" not in error
        assert seen["eager_on_recompile"][2][2] == [2, 8]
        assert seen["compiled"] == 0
        assert seen["then"] == [1, True]

    @pytest.mark.parametrize("reset", ["reset", "reset_code_caches"])
    def test_entries_are_back_at_the_next_call_after_a_reset(self, seen: Any, reset: str) -> None:
        assert seen[reset] == [True, True, True, 3]

    def test_those_of_a_function_are(self, seen: Any) -> None:
        assert seen["function"] == [True, True]

    def test_what_the_user_compiled_is_compiled_anew_as_ever(self, seen: Any) -> None:
        assert seen["as before"]


class TestSomebodyElsesWrapper:
    """A function around an activated one, made with functools.wraps, is what runs."""

    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, zoo: Site) -> Any:
        return zoo.run(f"""
{START}
import functools
whiten = zoo.functions.whiten
whiten.note = "mine"
@functools.wraps(whiten)
def brighter(image):
    return whiten(image) + 1
plain = (image - image.mean((2, 3), keepdim=True)) * 0.5
whiten(image)  # loaded now: its source is compared with what stands at its name then
def larger(image):
    return zoo.functions.whiten(image) * 2
zoo.functions.whiten = brighter
same = lambda got, expected: torch.allclose(got, expected, atol=1e-6)
probe.result(
    called=same(brighter(image), plain + 1),
    hits=probe.hits("whiten"),
    compiled=same(torch.compile(brighter, backend=backend)(image), plain + 1),
    inlined=same(torch.compile(larger, backend=backend)(image), (plain + 1) * 2),
    note=brighter.note,
)
""").result

    @pytest.mark.parametrize("call", ["called", "compiled", "inlined"])
    def test_it_is_what_runs(self, seen: Any, call: str) -> None:
        assert seen[call]

    def test_what_it_calls_is_served(self, seen: Any) -> None:
        assert seen["hits"] == 2

    def test_other_attributes_are_copied(self, seen: Any) -> None:
        assert seen["note"] == "mine"


class TestReload:
    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, zoo: Site) -> Any:
        return zoo.run(f"""
{START}
import importlib
def right(m):
    return torch.allclose(m(x), probe.eager(m)(x), atol=1e-6)
first = served()
importlib.reload(zoo)
package = served()
importlib.reload(zoo.models)
new = zoo.models.Mlp().eval()
after = [right(model), right(new), type(new) is not type(model)]
zoo._precompiled.uninstall()
zoo._precompiled.install()
again = [served(call=lambda: new(x)), right(new), right(model)]
zoo._precompiled.uninstall()
left = [probe.activated(kind.forward) for kind in (type(new), type(model))]
probe.result(first=first, package=package, after=after, again=again, left=left)
""").result

    def test_of_the_package_changes_nothing(self, seen: Any) -> None:
        assert (seen["first"], seen["package"]) == (True, True)

    def test_of_the_models_module_is_right(self, seen: Any) -> None:
        assert seen["after"] == [True, True, True]

    def test_its_new_classes_are_served_once_installed_again(self, seen: Any) -> None:
        assert seen["again"] == [True, True, True]

    def test_uninstalling_leaves_nothing(self, seen: Any) -> None:
        assert seen["left"] == [False, False]


class TestCopies:
    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, zoo: Site, tmp_path_factory: pytest.TempPathFactory) -> Any:
        folder = tmp_path_factory.mktemp("saved")
        code = f"""
{START}
import copy, io, pickle
folder = probe.argument()
expected = model(x)
def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=not isinstance(value, torch.nn.Module))
def filled():
    other = zoo.models.Mlp().eval()
    other.load_state_dict(saved(model.state_dict()))
    return other
copies = {{
    "deepcopy": copy.deepcopy(model), "copy": copy.copy(model), "pickle": pickle.loads(pickle.dumps(model)),
    "module": saved(model), "state dict": filled(),
}}
seen = {{}}
for name, other in copies.items():
    before = probe.hits("mlp")
    same, hit = torch.equal(other(x), expected), probe.hits("mlp") > before
    seen[name] = [same, hit, sorted(vars(other)) == sorted(vars(model))]
torch.save(model, folder + "/model.pt")
things = [zoo.functions.whiten, zoo.tools.Tool.halve, zoo.tools.Tool.shifted, zoo.tools.Tool().apply]
seen["functions"] = [pickle.loads(pickle.dumps(f)).__name__ == f.__name__ for f in things]
seen["function"] = pickle.loads(pickle.dumps(things[0])) is things[0] is copy.deepcopy(things[0])
probe.result(**seen)
"""
        seen = zoo.run(code, stdin=str(folder)).result
        read = """
import torch, probe
model = torch.load(probe.argument() + "/model.pt", weights_only=False)
with torch.no_grad():
    probe.result(hit=probe.served("mlp", lambda: model(torch.randn(4, 8))))
"""
        seen["elsewhere"] = zoo.run(read, stdin=str(folder)).result["hit"]
        return seen

    @pytest.mark.parametrize("way", ["deepcopy", "copy", "pickle", "module", "state dict"])
    def test_a_copy_is_as_any_and_served(self, seen: Any, way: str) -> None:
        assert seen[way] == [True, True, True]

    def test_functions_and_methods_are_pickled_by_name(self, seen: Any) -> None:
        assert seen["functions"] == [True] * 4
        assert seen["function"]

    def test_a_whole_module_is_loaded_and_served_in_another_process(self, seen: Any) -> None:
        assert seen["elsewhere"]


class TestProcesses:
    # One thread before the fork: the OpenMP runtime's threads do not survive one (docs/users.md).
    FORK = """
import os
torch.set_num_threads(1)
def forked():
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, b"served" if served() else b"not served")
        os._exit(0)
    said = os.read(read, 99).decode()
    return said, os.waitpid(child, 0)[1]
"""

    def test_a_forked_child_is_served(self, zoo: Site) -> None:
        """Forked before anything is loaded, while another thread holds the lock for that, and afterwards."""
        seen = zoo.run(f"""
{START}{self.FORK}
import threading
lock = zoo._precompiled._installation.lock
held, done = threading.Event(), threading.Event()
def hold():
    with lock:
        held.set()
        done.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
before = forked()
done.set()
thread.join()
probe.result(before=before, parent=served(), after=forked())
""").result
        assert seen == {"before": ["served", 0], "parent": True, "after": ["served", 0]}

    def test_a_spawned_child_is_served(self, zoo: Site, tmp_path: Path) -> None:
        script = tmp_path / "spawning.py"
        script.write_text(f"""
{START.replace("torch.set_grad_enabled(False)", "")}
import multiprocessing
def work(given):
    with torch.no_grad():
        return probe.served("mlp", lambda: given(x)), given(x).shape
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        hit, shape = pool.apply(work, (model,))
    probe.result(hit=hit, shape=list(shape))
""")
        seen = zoo.run(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')").result
        assert seen == {"hit": True, "shape": [4, 8]}


class TestThreads:
    def test_threads_that_import_at_once(self, zoo: Site) -> None:
        """The package, torch and targets, each in a thread of its own, in every order the locks allow."""
        seen = zoo.run("""
import importlib, sys, threading
sys.setswitchinterval(1e-5)
names = ["zoo.models", "zoo", "torch", "zoo.functions", "zoo.tools", "zoo.models", "zoo"]
start, errors = threading.Barrier(len(names)), []
def load(name):
    start.wait()
    try:
        importlib.import_module(name)
    except BaseException as error:
        errors.append(repr(error))
threads = [threading.Thread(target=load, args=(name,)) for name in names]
[thread.start() for thread in threads], [thread.join() for thread in threads]
import torch, zoo, probe
torch.set_grad_enabled(False)
hits = [
    probe.served("mlp", lambda: sys.modules["zoo.models"].Mlp().eval()(torch.randn(4, 8))),
    probe.served("whiten", lambda: sys.modules["zoo.functions"].whiten(torch.randn(2, 3, 4, 5))),
    probe.served("shifted", lambda: sys.modules["zoo.tools"].Tool.shifted(torch.randn(6))),
]
probe.result(errors=errors, hits=hits)
""").result
        assert seen == {"errors": [], "hits": [True, True, True]}

    def test_a_target_whose_import_had_begun_is_installed_at_its_end(self, zoo_copy: Site) -> None:
        """It imports the package that carries its compiled code, or another thread does meanwhile."""
        models = zoo_copy.directory / "zoo" / "models.py"
        package = zoo_copy.directory / "zoo" / "__init__.py"
        *lines, shim = package.read_text().splitlines()
        package.write_text("\n".join(lines))
        models.write_text(f"{models.read_text()}\n\n{shim}\n")
        seen = zoo_copy.run("""
import torch, zoo.models, zoo._precompiled, probe
torch.set_grad_enabled(False)
probe.result(hit=probe.served("mlp", lambda: zoo.models.Mlp().eval()(torch.randn(4, 8))))
""").result
        assert seen == {"hit": True}


class TestOtherWaysToStart:
    PROGRAM = """
import torch, zoo, zoo.models, probe
model, x = zoo.models.Mlp().eval(), torch.randn(4, 8)
with torch.no_grad():
    same = torch.allclose(model(x), probe.eager(model)(x), atol=1e-6)
probe.result(same=same, hits=zoo._precompiled.status()["entrypoints"].get("mlp", {}).get("hits"))
"""

    def test_an_archive_run_as_a_program_that_executes_text_is_served(
        self, zoo: Site, tmp_path: Path
    ) -> None:
        (tmp_path / "program").mkdir()
        (tmp_path / "program/__main__.py").write_text(f"exec({self.PROGRAM!r}, {{'__name__': 'embedded'}})")
        zipapp.create_archive(tmp_path / "program")
        archive = str(tmp_path / "program.pyz")
        seen = zoo.run(f"import runpy; runpy.run_path({archive!r}, run_name='__main__')").result
        assert seen == {"same": True, "hits": 1}

    def test_inside_an_archive_a_package_runs_without_its_bundle(self, zoo: Site, tmp_path: Path) -> None:
        """A library in an archive cannot be loaded."""
        archive = shutil.make_archive(str(tmp_path / "zoo"), "zip", zoo.directory)
        finished = zoo.run(f"import sys; sys.path.insert(0, {archive!r})\n{self.PROGRAM}")
        assert finished.result == {"same": True, "hits": None}
        assert "zoo: compiled code is not used: " in finished.stderr
        assert "manifest.json cannot be read" in finished.stderr

    def test_without_a_file_name_of_its_own_the_runtime_gives_up(self, zoo: Site) -> None:
        """As with a loader that sets no `__file__`."""
        finished = zoo.run("""
import zoo, probe
zoo._precompiled.uninstall()
del zoo._precompiled.__file__
zoo._precompiled.install()
probe.result(installed=zoo._precompiled.status()["installed"])
""")
        assert finished.result == {"installed": False}
        assert "zoo: compiled code is not used: " in finished.stderr
