"""A merged wheel in the runtime and the commands: the cell for this Python and this torch is used."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hatch_precompile.bundle.reader import ManifestError, importable
from hatch_precompile.cli import main
from hatch_precompile.merge import merge_wheels
from tests.conftest import TESTS, Site
from tests.wheel.cells import BUNDLE, ELSEWHERE, HERE, OLDER, Files, as_cell, changed, name_of
from tests.wheel.conftest import TORCH, Built, Environment, run

MATRIX = list(itertools.product((HERE, ELSEWHERE), (OLDER, TORCH)))
NAMES = [name_of(python, torch) for python, torch in MATRIX]
STRICT = {"HATCH_PRECOMPILE": "strict"}


def unpacked(wheel: Path, folder: Path) -> Site:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return Site(folder)


def merge(built: Built, folder: Path, matrix: list[tuple[str, str]], change: Any = None) -> Path:
    parts = [as_cell(built.wheel, folder / "parts", python, torch, change) for python, torch in matrix]
    return merge_wheels(parts, folder / "merged").wheel


@pytest.fixture(scope="module")
def wheel(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return merge(built, tmp_path_factory.mktemp("cells"), MATRIX)


@pytest.fixture(scope="module")
def site(wheel: Path) -> Site:
    return unpacked(wheel, wheel.parent / "site")


class TestPicking:
    @pytest.mark.parametrize("torch", [None, TORCH, f"{TORCH}+cu130", OLDER, f"{OLDER}+cpu"])
    def test_every_call_is_a_hit_from_the_cell_of_this_torch(self, site: Site, torch: str | None) -> None:
        seen = site.play("cells.a_call", torch=torch, environment=STRICT)
        assert (seen["same"], seen["said"], seen["hits"], seen["installed"]) == (True, [], 3, True)
        assert seen["cell"] == name_of(HERE, (torch or TORCH).partition("+")[0])
        assert seen["cells"] == NAMES

    def test_an_import_reads_the_index_and_one_manifest(self, site: Site) -> None:
        opened = site.play("cells.a_call")["opened"]
        assert opened == ["cells.json", f"cells/{name_of(HERE, TORCH)}.json"]

    def test_an_import_of_a_wheel_of_one_build_reads_its_manifest(self, built: Built, tmp_path: Path) -> None:
        seen = unpacked(built.wheel, tmp_path / "site").play("cells.a_call", environment=STRICT)
        assert seen["opened"] == ["manifest.json"]
        assert (seen["cell"], seen["cells"]) == (name_of(HERE, TORCH), [name_of(HERE, TORCH)])


class TestOutsideOfTheMatrix:
    """Eager code, and one warning."""

    def test_of_torch(self, site: Site) -> None:
        seen = site.play("cells.a_call", torch="2.99.0")
        assert (seen["same"], seen["hits"], seen["cell"], seen["installed"]) == (True, 0, None, False)
        assert seen["said"] == [
            "kiosk: compiled code is not used: it was built for "
            f"Python {HERE}, {ELSEWHERE} with torch {OLDER}, {TORCH}; "
            f"this is Python {HERE} with torch 2.99.0; "
            f"install torch=={OLDER} or torch=={TORCH}, or a wheel built with this torch"
        ]

    def test_of_python(self, built: Built, tmp_path: Path) -> None:
        site = unpacked(merge(built, tmp_path, MATRIX[2:]), tmp_path / "site")
        seen = site.play("cells.a_call")
        assert (seen["same"], seen["hits"], seen["installed"]) == (True, 0, False)
        (said,) = seen["said"]
        assert f"built for Python {ELSEWHERE} with torch {OLDER}, {TORCH}; this is Python {HERE} with" in said
        assert said.endswith(f"; use Python {ELSEWHERE}, or install a wheel built for this Python")

    def test_of_the_pairs(self, built: Built, tmp_path: Path) -> None:
        """Cells that are not each Python with each torch."""
        site = unpacked(merge(built, tmp_path, [(HERE, OLDER), (ELSEWHERE, TORCH)]), tmp_path / "site")
        (said,) = site.play("cells.a_call")["said"]
        listed = f"Python {HERE} with torch {OLDER} and Python {ELSEWHERE} with torch {TORCH}"
        assert f"it was built for {listed}; this is" in said
        assert said.endswith(f"; install torch=={OLDER}, or a wheel built with this torch")

    @pytest.mark.parametrize("torch", ["2.99.0", None])
    def test_strict_raises(self, built: Built, tmp_path: Path, torch: str | None) -> None:
        site = unpacked(merge(built, tmp_path, MATRIX if torch else MATRIX[2:]), tmp_path / "site")
        finished = site.process("cells.a_call", ok=False, torch=torch, environment=STRICT)
        assert finished.returncode == 1
        assert "PrecompileError: kiosk: compiled code is not used: it was built for Python" in finished.stderr


class TestTorchAfterThePackage:
    """A package that imports nothing, so that its cell is chosen when torch comes in."""

    @staticmethod
    def site(built: Built, folder: Path, matrix: list[tuple[str, str]]) -> Site:
        def lazy(files: Files) -> None:
            lines = files["kiosk/__init__.py"].splitlines(keepends=True)
            files["kiosk/__init__.py"] = lines[-1]

        return unpacked(merge(built, folder, matrix, lazy), folder / "site")

    def test_the_cell_is_chosen_then(self, built: Built, tmp_path: Path) -> None:
        site = self.site(built, tmp_path, MATRIX)
        seen = site.play("cells.torch_after_the_package", environment=STRICT)
        reason = "torch has not been imported, so that no cell is chosen yet"
        assert seen == {
            "before": [False, None, reason, {}],
            "after": [name_of(HERE, TORCH), ["tint"]],
            "said": [],
            "hits": 1,
        }

    def test_where_none_fits_one_warning_says_so(self, built: Built, tmp_path: Path) -> None:
        site = self.site(built, tmp_path, MATRIX[:1])
        seen = site.play("cells.torch_after_the_package")
        assert (seen["after"], seen["hits"], len(seen["said"])) == ([None, []], 0, 1)
        assert f"install torch=={OLDER}, or" in seen["said"][0]

    def test_strict_raises(self, built: Built, tmp_path: Path) -> None:
        site = self.site(built, tmp_path, MATRIX[:1])
        finished = site.process("cells.torch_after_the_package", ok=False, environment=STRICT)
        assert finished.returncode == 1
        assert "PrecompileError: kiosk: compiled code is not used: it was built for Python" in finished.stderr


class TestDamage:
    def test_anything_in_the_index_is_no_more_than_a_warning(self, site: Site, tmp_path: Path) -> None:
        seen = site.copy(tmp_path / "site").play("cells.anything_in_the_index", examples=150)
        assert seen["tried"] > 300
        assert (seen["wrong"], seen["outside"]) == ([], [])

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("cells.json", "manifest.json cannot be read (No such file"),
            (
                f"cells/{name_of(HERE, TORCH)}.json",
                f"{name_of(HERE, TORCH)}.json cannot be read (No such file",
            ),
            ("files", "0.heads cannot be read (No such file or directory)"),
        ],
    )
    def test_what_is_missing_is_named(self, site: Site, tmp_path: Path, name: str, said: str) -> None:
        copy = site.copy(tmp_path / "site")
        path = copy.directory / BUNDLE / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        seen = copy.play("cells.a_call")
        assert (seen["same"], seen["hits"], len(seen["said"])) == (True, 0, 1)
        assert said in seen["said"][0]
        assert "reinstall the package" in seen["said"][0]

    def test_a_manifest_in_the_place_of_another_is_not_used(self, site: Site, tmp_path: Path) -> None:
        copy = site.copy(tmp_path / "site")
        manifests = copy.directory / BUNDLE / "cells"
        shutil.copy(manifests / f"{NAMES[0]}.json", manifests / f"{NAMES[1]}.json")
        seen = copy.play("cells.a_call")
        assert (seen["same"], seen["hits"], len(seen["said"])) == (True, 0, 1)
        assert f"{NAMES[1]}.json is of another cell; reinstall the package" in seen["said"][0]

    def test_a_changed_file_is_not_used(self, site: Site, tmp_path: Path) -> None:
        copy = site.copy(tmp_path / "site")
        for library in (copy.directory / BUNDLE / "files").glob("*.so"):
            library.write_bytes(library.read_bytes()[:-1] + b"?")
        seen = copy.play("cells.a_call")
        assert (seen["same"], seen["hits"], len(seen["said"])) == (True, 0, 1)
        assert "0-native.so is damaged (its sha256 is not the manifest's)" in seen["said"][0]


class TestInstalled:
    @pytest.fixture(scope="class")
    @classmethod
    def environment(cls, built: Built, tmp_path_factory: pytest.TempPathFactory) -> Environment:
        """With a wheel of the cells of this Python, whose tag pip takes: the other is none of its."""
        folder = tmp_path_factory.mktemp("installed")
        wheel = merge(built, folder, MATRIX)
        home = folder / "venv"
        run(sys.executable, "-m", "venv", "--without-pip", home)
        (site,) = home.glob("lib/python*/site-packages")
        (site / "parent.pth").write_text(sysconfig.get_path("purelib") + "\n")
        run(home / "bin" / "python", "-m", "pip", "install", "--no-deps", "--no-index", wheel)
        return Environment(home / "bin" / "python", site)

    def test_it_hits(self, environment: Environment) -> None:
        program = TESTS / "scenarios" / "in_isolation.py"
        seen = json.loads(run(environment.python, "-I", program, "a_call"))
        assert (seen["hits"], seen["imported"]) == (1, [])

    def test_pip_check_finds_nothing(self, environment: Environment) -> None:
        command = [environment.python, "-m", "pip", "check"]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        assert [line for line in said.splitlines() if line.startswith("kiosk ")] == []

    def test_pip_uninstalls_every_file(self, environment: Environment, tmp_path: Path) -> None:
        shutil.copytree(environment.python.parent.parent, tmp_path / "venv", symlinks=True)
        site = tmp_path / "venv" / environment.site.relative_to(environment.python.parent.parent)
        python = tmp_path / "venv" / "bin" / "python"
        run(python, "-m", "pip", "uninstall", "--yes", "kiosk")
        assert [path.name for path in site.iterdir()] == ["parent.pth"]


class TestCommands:
    @staticmethod
    def inspect(wheel: Path, *arguments: str) -> str:
        done = CliRunner().invoke(main, ["inspect", str(wheel), *arguments], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        return done.output

    def test_inspect_lists_all_cells_and_shows_the_one_for_here(self, wheel: Path) -> None:
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in self.inspect(wheel).splitlines()]
        assert [row[0] for row in rows if row and row[0].startswith("cp")] == [
            NAMES[0],
            f"{NAMES[1]} (shown here)",
            *NAMES[2:],
        ]
        assert f"built with hatch_precompile 0.1.0, torch {TORCH}+cpu" in self.inspect(wheel)

    def test_inspect_counts_what_is_shared(self, wheel: Path) -> None:
        manifest = json.loads(self.inspect(wheel, "--json"))["kiosk"]
        assert manifest["cell"] == NAMES[1]
        assert [each["name"] for each in manifest["cells"]] == NAMES
        with zipfile.ZipFile(wheel) as archive:
            for each in manifest["cells"]:
                # The other Python's has the same files: all is shared but the manifest, and heads, which have
                # its seal.
                path = f"{BUNDLE}cells/{each['name']}.json"
                files = json.loads(archive.read(path))["files"]
                heads = [f"{BUNDLE}files/{files[name]}.heads" for name in files if name.endswith(".heads")]
                own = sum(archive.getinfo(name).file_size for name in (path, *heads))
                assert each["bytes"] - each["shared_bytes"] == own
                assert each["files"] == len(manifest["files"]) + 1

    def test_inspect_looks_into_the_cell_that_is_asked_for(self, wheel: Path) -> None:
        manifest = json.loads(self.inspect(wheel, "--cell", NAMES[2], "--json"))["kiosk"]
        assert (manifest["built_with"]["python"], manifest["built_with"]["torch"]) == (
            ELSEWHERE,
            f"{OLDER}+cpu",
        )
        assert f"# {OLDER}\n" in self.inspect(wheel, "--cell", NAMES[2], "--graph", "tint")
        assert "def guard(L):" in self.inspect(wheel, "--guards", "tint")
        assert "RETURN_VALUE" in self.inspect(wheel, "--bytecode", "tint")

    def test_inspect_of_a_cell_that_is_not_there_names_those_that_are(self, wheel: Path) -> None:
        done = CliRunner().invoke(main, ["inspect", str(wheel), "--cell", "cp399-torch2.0.0"])
        assert done.exit_code == 2
        assert f"has no cell cp399-torch2.0.0; it has {', '.join(NAMES)}" in done.output

    def test_where_no_cell_is_of_this_torch_one_of_this_python_is_shown(
        self, built: Built, tmp_path: Path
    ) -> None:
        matrix = [("3.1", TORCH), (HERE, OLDER)]
        manifest = json.loads(self.inspect(merge(built, tmp_path, matrix), "--json"))["kiosk"]
        assert manifest["cell"] == name_of(HERE, OLDER)

    def test_a_cell_of_a_wheel_of_one_build_may_be_named(self, built: Built) -> None:
        assert "cells of" not in self.inspect(built.wheel, "--cell", name_of(HERE, TORCH))

    def test_inspect_of_a_damaged_index_is_one_sentence(self, wheel: Path, tmp_path: Path) -> None:
        damaged = changed(
            wheel, tmp_path / wheel.name, lambda files: files.update({f"{BUNDLE}cells.json": b"{}"})
        )
        done = CliRunner().invoke(main, ["inspect", str(damaged)])
        assert done.exit_code == 2
        assert "cells.json has format None, this runtime reads 1" in done.output

    def test_inspect_of_a_damaged_manifest_is_one_sentence(self, wheel: Path, tmp_path: Path) -> None:
        name = f"{BUNDLE}cells/{NAMES[0]}.json"
        damaged = changed(wheel, tmp_path / wheel.name, lambda files: files.update({name: b'{"format": 3}'}))
        done = CliRunner().invoke(main, ["inspect", str(damaged)])
        assert done.exit_code == 2
        assert f"{NAMES[0]}.json has no built_with" in done.output

    def test_verify_runs_the_samples_of_the_cell_for_here(self, wheel: Path) -> None:
        done = CliRunner().invoke(main, ["verify", str(wheel), "--json"])
        assert done.exit_code == 0, done.output
        (report,) = json.loads(done.stdout)
        assert [(each["hit"], each["problem"]) for each in report["samples"]] == [(True, "")]

    def test_explain_asks_the_entries_of_the_cell_for_here(self, site: Site, tmp_path: Path) -> None:
        (tmp_path / "inputs.py").write_text("import torch\ndef wrong():\n    return (torch.ones(6, 2),)\n")
        code = (
            "from hatch_precompile.cli import main; main(['explain', 'kiosk:tint', '--with', 'inputs:wrong'])"
        )
        finished = site.run(code, cwd=tmp_path, ok=False)
        assert finished.returncode == 1, finished.stderr
        assert finished.stdout.startswith("entry 0: x is 2-dimensional, the entry needs 1 dimensions")

    def test_verify_and_bench_need_a_cell_for_here(self, built: Built, tmp_path: Path) -> None:
        elsewhere = merge(built, tmp_path, MATRIX[2:])
        words = rf"has no cell for Python {HERE} with torch {TORCH}.*; it has {', '.join(NAMES[2:])}"
        with pytest.raises(ManifestError, match=words), importable(str(elsewhere)):
            pass
