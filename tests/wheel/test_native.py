"""What an installed package does in a fresh process: it hits, and imports, starts and writes nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from tests.conftest import Site


def test_a_call_hits_and_no_compiler_is_imported(zoo: Site) -> None:
    seen = zoo.play("native.a_call")
    assert (seen["hits"], seen["misses"], seen["imported"]) == (1, 0, [])


def test_a_graph_break_is_followed_without_a_compiler(zoo: Site) -> None:
    finished = zoo.process("native.a_call_with_a_graph_break")
    assert finished.result == {"hits": 1, "resumed": 1, "imported": []}
    assert finished.stdout.count("half way") == 1


class TestImport:
    def test_a_lazy_package_stays_lazy(self, zoo: Site) -> None:
        assert zoo.play("importing.of_nothing_but_the_package") == []

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
        assert zoo.play("importing.by_a_statement", statement=imports)["hits"] == 1

    def test_a_target_imported_after_others_were_used_is_installed(self, zoo: Site) -> None:
        seen = zoo.play("importing.of_a_target_after_another_was_used")
        assert seen == {"before": False, "after": True, "hits": 1}

    def test_a_target_imported_before_the_package_that_carries_its_code_is_installed(self, zoo: Site) -> None:
        assert zoo.play("importing.of_the_package_after_its_target") == 1

    def test_a_target_that_fails_to_import_fails_as_it_would_without_us(self, zoo_copy: Site) -> None:
        models = zoo_copy.directory / "zoo" / "models.py"
        models.write_text(models.read_text() + "\nraise ZeroDivisionError('in the module')\n")
        finished = zoo_copy.process("importing.of_a_target_that_fails", ok=False)
        assert "ZeroDivisionError: in the module" in finished.stderr
        assert "_precompiled" not in finished.stderr.split("ZeroDivisionError")[1]

    def test_the_modules_look_untouched(self, zoo: Site) -> None:
        assert zoo.play("importing.looks_of_modules_and_functions") == {
            "loader": "SourceFileLoader",
            "spec": "SourceFileLoader",
            "source of a class": "class Mlp(nn.Module):",
            "source of a function": "def whiten(image):",
            "name": "whiten",
            "signature": "(self, x)",
        }

    def test_nothing_is_left_in_the_import_system_once_every_target_is_there(self, zoo: Site) -> None:
        finders = zoo.play("importing.of_every_target")
        assert finders == {"before": ["zoo._precompiled.import_hooks"], "after": []}


class TestSideEffects:
    def test_no_process_is_started_and_no_file_is_written(self, zoo: Site) -> None:
        seen = zoo.play("side_effects.of_importing_and_calling")
        assert seen["done"] == []
        assert seen["hits"] == {"mlp": 1, "whiten": 1, "apply": 1, "chatty": 1}
        assert seen["imported"] == []

    def test_the_probe_itself_notices(self, zoo: Site) -> None:
        """The test above could not fail if this did not hold."""
        events = zoo.play("side_effects.that_the_probe_notices")
        assert events == ["open", "open", "subprocess.Popen", "os.mkdir"]

    def test_a_read_only_machine_without_home_and_compiler_will_do(
        self, zoo_copy: Site, tmp_path: Path
    ) -> None:
        cwd = tmp_path / "cwd"
        cwd.mkdir()
        places = [cwd, zoo_copy.directory, *zoo_copy.directory.rglob("*")]
        before = {place: place.stat().st_mtime_ns for place in places}
        for place in places:
            place.chmod(0o555 if place.is_dir() else 0o444)
        environment = {
            "PATH": "",
            "CXX": str(tmp_path / "no-compiler"),
            "TMPDIR": str(tmp_path / "missing"),
            "PYTHONDONTWRITEBYTECODE": "",
        }
        try:
            seen = zoo_copy.process("native.a_call", cwd=cwd, environment=environment).result
        finally:
            for place in places:
                place.chmod(0o755)
        assert (seen["hits"], seen["home"]) == (1, None)
        if os.geteuid() != 0:  # root may write anywhere, and Python then writes its .pyc files
            after = [cwd, zoo_copy.directory, *zoo_copy.directory.rglob("*")]
            assert {place: place.stat().st_mtime_ns for place in after} == before

    def test_warnings_as_errors_do_not_stop_an_import(self, zoo_copy: Site) -> None:
        (zoo_copy.directory / "zoo/_precompiled/bundle/manifest.json").write_text("{")
        finished = zoo_copy.process("importing.with_warnings_as_errors")
        assert finished.result is True
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
    "a keyword argument": "kwargs = {'x': x}; x = None",
    "an argument that says the default": "args = (None,)",
    "an attribute the trace did not read": "model.note = 'mine'",
    "an equal attribute": "model.scale = float('2')",
    "a part in training mode that does not look": "model.first.train()",
    "a view of contiguous memory": "x = torch.randn(10, 8)[3:7]",
    "gradients elsewhere": "torch.ones(3, requires_grad=True)",
}


@pytest.fixture(scope="module")
def tried(zoo: Site) -> Any:
    return zoo.play("changes.tried", changes=SERVED)


@pytest.mark.parametrize("change", SERVED)
def test_a_call_the_trace_is_right_for_is_served(tried: Any, change: str) -> None:
    seen = tried["changes"][change]
    assert (seen["plain"], seen["changed"], seen["again"]) == (True, True, True)
    # The compiled answer may differ from that of eager code in the last bits.
    *facts, got = seen["got"]
    *expected_facts, expected = seen["expected"]
    assert facts == expected_facts
    assert torch.allclose(torch.tensor(got), torch.tensor(expected), atol=1e-6)


def test_none_of_these_calls_imports_a_compiler(tried: Any) -> None:
    assert tried["imported"] == []


@pytest.mark.parametrize("threads", [1, 5])
def test_a_number_of_threads_set_before_import_is_served(zoo: Site, threads: int) -> None:
    seen = zoo.play("importing.after_setting_a_number_of_threads", threads=threads)
    assert (seen["hits"], seen["threads"]) == (1, threads)


def test_threads_that_make_the_first_call_together_are_all_served(zoo: Site) -> None:
    seen = zoo.play("native.first_calls_in_threads")
    assert seen == {"answers": 8, "equal": True, "hits": 8, "misses": 0}


@pytest.mark.parametrize("threads", ["1", "4"])
def test_a_number_of_threads_in_the_environment_is_served(zoo: Site, threads: str) -> None:
    seen = zoo.play("native.a_call", environment={"OMP_NUM_THREADS": threads})
    assert seen["hits"] == 1


def test_an_instance_can_be_collected_and_its_entries_serve_the_next(zoo: Site) -> None:
    seen = zoo.play("native.an_instance_that_is_collected_and_another")
    assert seen == {"gone": [True, True, True], "hits": 2}


def test_threads_call_at_once(zoo: Site) -> None:
    seen = zoo.play("native.many_calls_in_threads")
    assert seen == {"answers": 160, "right": True, "hits": 160}
