"""Beside what else a program does: torch.compile's own controls, other people's wrappers, reloading,
copying and saving, forks, threads, and other ways to start Python."""

from __future__ import annotations

import shutil
import zipapp
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import TESTS

if TYPE_CHECKING:
    from tests.conftest import Site

PROGRAM = TESTS / "scenarios" / "program.py"


class TestControlsOfTorchCompile:
    """torch.compiler.set_stance, torch._dynamo.reset and our entries."""

    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, zoo: Site) -> Any:
        return zoo.play_all(
            "living_with_others",
            "under_force_eager",
            "under_other_stances",
            "after_each_reset",
            "a_function_after_a_reset",
            "what_the_user_compiled_after_a_reset",
        )

    def test_force_eager_is_obeyed(self, seen: Any) -> None:
        force_eager = seen["under_force_eager"]
        assert force_eager["served"] == [False, False, False]
        assert 'torch.compiler.set_stance("force_eager")' in force_eager["reason"]

    def test_a_call_that_steps_aside_is_no_miss(self, seen: Any) -> None:
        assert seen["under_force_eager"]["misses"] == 0

    def test_a_hit_is_no_recompile(self, seen: Any) -> None:
        stances = seen["under_other_stances"]["stances"]
        for stance in ("fail_on_recompile", "eager_on_recompile", "eager_then_compile"):
            assert stances[stance]["served"] == [True, True], stance

    def test_a_miss_is_what_it_is_without_us(self, seen: Any) -> None:
        others = seen["under_other_stances"]
        error = others["stances"]["fail_on_recompile"]["miss"]
        assert error.startswith("RuntimeError: Detected recompile when torch.compile stance is")
        assert "wheel" not in error
        assert others["stances"]["eager_on_recompile"]["miss"][2] == [2, 8]
        assert others["compiled"] == 0
        assert others["then"] == [1, True]

    @pytest.mark.parametrize(
        "reset", ["torch._dynamo.reset", "torch.compiler.reset", "torch._dynamo.reset_code_caches"]
    )
    def test_entries_are_back_at_the_next_call_after_a_reset(self, seen: Any, reset: str) -> None:
        assert seen["after_each_reset"][reset] == [True, True, True, 3]

    def test_those_of_a_function_are(self, seen: Any) -> None:
        assert seen["a_function_after_a_reset"] == [True, True]

    def test_what_the_user_compiled_is_compiled_anew_as_ever(self, seen: Any) -> None:
        assert seen["what_the_user_compiled_after_a_reset"] == {"compiled": [1, 2], "right": True}


class TestSomebodyElsesWrapper:
    """A function around an activated one, made with functools.wraps, is what runs."""

    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, zoo: Site) -> Any:
        return zoo.play("living_with_others.a_wrapper_around_a_target")

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
        return zoo.play("living_with_others.reloading")

    def test_of_the_package_changes_nothing(self, seen: Any) -> None:
        assert seen["package"] == [True, True]

    def test_of_the_models_module_is_right(self, seen: Any) -> None:
        assert seen["module"] == [True, True, True]

    def test_its_new_classes_are_served_once_installed_again(self, seen: Any) -> None:
        assert seen["again"] == [True, True, True]

    def test_uninstalling_leaves_nothing(self, seen: Any) -> None:
        assert seen["left"] == [False, False]


class TestCopies:
    @pytest.fixture(scope="class")
    @classmethod
    def seen(cls, zoo: Site) -> Any:
        return zoo.play_all("living_with_others", "copies_of_a_model", "copies_of_functions")

    @pytest.mark.parametrize("way", ["deepcopy", "copy", "pickle", "module", "state dict"])
    def test_a_copy_is_as_any_and_served(self, seen: Any, way: str) -> None:
        as_any = {"same answer": True, "served": True, "same attributes": True}
        assert seen["copies_of_a_model"][way] == as_any

    def test_functions_and_methods_are_pickled_by_name(self, seen: Any) -> None:
        assert seen["copies_of_functions"] == {"by name": [True] * 4, "the function": True}

    def test_a_whole_module_is_loaded_and_served_in_another_process(self, zoo: Site, tmp_path: Path) -> None:
        path = str(tmp_path / "model.pt")
        zoo.play("living_with_others.save_a_model", path=path)
        assert zoo.play("importing.by_loading_a_model", path=path)


class TestProcesses:
    def test_a_forked_child_is_served(self, zoo: Site) -> None:
        """Forked before anything is loaded, while another thread holds the lock for that, and afterwards."""
        seen = zoo.play("living_with_others.forks")
        assert seen == {"before": ["served", 0], "parent": True, "after": ["served", 0]}

    def test_a_spawned_child_is_served(self, zoo: Site) -> None:
        served, shape = zoo.play("living_with_others.a_spawned_child")
        assert served
        assert shape == [4, 8]


class TestThreads:
    def test_threads_that_import_at_once(self, zoo: Site) -> None:
        """The package, torch and targets, each in a thread of its own, in every order the locks allow."""
        seen = zoo.play("importing.in_threads_at_once")
        assert seen == {"errors": [], "served": [True, True, True]}

    def test_a_target_whose_import_had_begun_is_installed_at_its_end(self, zoo_copy: Site) -> None:
        """It imports the package that carries its compiled code, or another thread does meanwhile."""
        models = zoo_copy.directory / "zoo" / "models.py"
        package = zoo_copy.directory / "zoo" / "__init__.py"
        *lines, shim = package.read_text().splitlines()
        package.write_text("\n".join(lines))
        models.write_text(f"{models.read_text()}\n\n{shim}\n")
        assert zoo_copy.play("importing.of_a_target_before_its_package")


class TestOtherWaysToStart:
    def test_an_archive_run_as_a_program_that_executes_text_is_served(
        self, zoo: Site, tmp_path: Path
    ) -> None:
        (tmp_path / "program").mkdir()
        text = PROGRAM.read_text()
        (tmp_path / "program/__main__.py").write_text(f"exec({text!r}, {{'__name__': 'embedded'}})")
        zipapp.create_archive(tmp_path / "program")
        archive = str(tmp_path / "program.pyz")
        seen = zoo.run(f"import runpy; runpy.run_path({archive!r}, run_name='__main__')").result
        assert seen == {"same": True, "hits": 1}

    def test_inside_an_archive_a_package_runs_without_its_bundle(self, zoo: Site, tmp_path: Path) -> None:
        """A library in an archive cannot be loaded."""
        archive = shutil.make_archive(str(tmp_path / "zoo"), "zip", zoo.directory)
        finished = zoo.run(f"import sys; sys.path.insert(0, {archive!r})\n{PROGRAM.read_text()}")
        assert finished.result == {"same": True, "hits": None}
        assert "zoo: compiled code is not used: " in finished.stderr
        assert "manifest.json cannot be read" in finished.stderr
        assert f"compiled code is not loaded out of {archive}" in finished.stderr

    def test_without_a_file_name_of_its_own_the_runtime_gives_up(self, zoo: Site) -> None:
        """As with a loader that sets no `__file__`."""
        finished = zoo.process("importing.without_a_file_name_of_its_own")
        assert finished.result is False
        assert "zoo: compiled code is not used: " in finished.stderr
