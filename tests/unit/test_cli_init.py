"""`hatch-precompile init`: what it finds in a project's source, and what it proposes for it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hatch_precompile.cli import main
from hatch_precompile.config import load

PACKAGE = Path(__file__).parent / "init" / "textmodel"
HATCH = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "textmodel"
version = "1.0"
dependencies = ["torch==2.13.0", "numpy"]
"""
SETUPTOOLS = HATCH.replace('["hatchling"]', '["setuptools"]').replace(
    "hatchling.build", "setuptools.build_meta"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "textmodel"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "tests").mkdir()
    of_a_test = (package / "layers.py").read_text().replace("Block", "OfATest")
    (package / "tests" / "test_it.py").write_text(of_a_test)
    (tmp_path / "pyproject.toml").write_text(HATCH)
    return tmp_path


def init(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["init", *map(str, arguments)])


def proposed(project: Path) -> dict[str, Any]:
    result = init(project, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


class TestFinding:
    def test_a_class_that_no_other_uses_becomes_an_entrypoint(self, project: Path) -> None:
        targets = [each["target"] for each in proposed(project)["entrypoints"]]
        assert targets == ["textmodel.model:Encoder", "textmodel.model:Decoder"]

    def test_those_that_are_used_are_named(self, project: Path) -> None:
        assert proposed(project)["inner"] == ["textmodel.layers:Block", "textmodel.layers:Stack"]

    def test_what_making_an_instance_and_calling_it_needs(self, project: Path) -> None:
        encoder, decoder = proposed(project)["entrypoints"]
        assert encoder["needs"] == ["width", "depth"]
        assert encoder["forward"] == ["input_ids", "mask=None", "*rest"]
        assert encoder["instance"] == "textmodel.model:make_encoder"
        assert encoder["to_write"] == ["instance", "samples"]
        assert encoder["source"] == "src/textmodel/model.py:9"
        # A function of the project makes one.
        assert (decoder["instance"], decoder["to_write"]) == ("textmodel.model:small", ["samples"])

    def test_samples_that_are_there_need_not_be_written(self, project: Path) -> None:
        (project / "src/textmodel/samples.py").write_text("def decoder(): ...")
        assert proposed(project)["entrypoints"][1]["to_write"] == []

    def test_a_file_that_is_no_python_is_passed_over_and_named(self, project: Path) -> None:
        (project / "src/textmodel/broken.py").write_text("def (")
        assert len(proposed(project)["entrypoints"]) == 2
        assert "src/textmodel/broken.py: " in init(project).stderr

    def test_neither_the_project_nor_torch_is_imported(self, project: Path) -> None:
        (project / "src/textmodel/__init__.py").write_text("raise SystemExit('imported')")
        code = f"import sys\nfrom hatch_precompile.cli import main\ntry:\n main(['init', {str(project)!r}])\n"
        code += "finally:\n sys.exit('torch' in sys.modules)"
        process = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (process.returncode, process.stderr) == (0, "")


class TestTable:
    def test_it_is_one_the_hook_reads(self, project: Path) -> None:
        tables = tomllib.loads(init(project).stdout)
        table = tables["tool"]["hatch"]["build"]["hooks"]["precompile"]
        config = load(table, default_package="textmodel")
        assert [entrypoint.name for entrypoint in config.entrypoints] == ["encoder", "decoder"]

    def test_it_says_what_is_to_be_written_and_what_the_build_needs(self, project: Path) -> None:
        assert (
            init(project).stdout
            == """\
# build-system.requires needs "hatch-precompile", "torch==2.13.0"
[tool.hatch.build.hooks.precompile]

[[tool.hatch.build.hooks.precompile.entrypoints]]
target = "textmodel.model:Encoder"  # src/textmodel/model.py:9
instance = "textmodel.model:make_encoder"  # to write: Encoder() needs width, depth
samples = "textmodel.samples:encoder"  # to write: inputs for forward(input_ids, mask=None, *rest)

[[tool.hatch.build.hooks.precompile.entrypoints]]
target = "textmodel.model:Decoder"  # src/textmodel/model.py:18
instance = "textmodel.model:small"  # Decoder() needs width
samples = "textmodel.samples:decoder"  # to write: inputs for forward(x)

# Used by these, and so compiled with them: textmodel.layers:Block, textmodel.layers:Stack
"""
        )

    def test_for_setuptools_it_is_its_own(self, project: Path) -> None:
        (project / "pyproject.toml").write_text(SETUPTOOLS)
        found = proposed(project)
        assert found["table"] == "tool.hatch-precompile"
        assert found["requires"] == ["hatch-precompile", "torch==2.13.0", "numpy"]
        table = tomllib.loads(found["toml"])["tool"]["hatch-precompile"]
        assert len(load(table, default_package="textmodel").entrypoints) == 2

    def test_of_several_packages_the_one_that_carries_it_is_named(self, project: Path) -> None:
        (project / "src/another").mkdir()
        (project / "src/another/__init__.py").write_text("")
        assert 'package = "another"' in init(project).stdout


class TestWriting:
    def test_nothing_is_written_unasked(self, project: Path) -> None:
        before = {file: file.read_bytes() for file in project.rglob("*") if file.is_file()}
        init(project)
        assert {file: file.read_bytes() for file in project.rglob("*") if file.is_file()} == before

    def test_when_asked_the_table_is_appended(self, project: Path) -> None:
        result = init(project, "--write")
        text = (project / "pyproject.toml").read_text()
        assert text == HATCH + "\n" + result.stdout
        assert len(tomllib.loads(text)["tool"]["hatch"]["build"]["hooks"]["precompile"]["entrypoints"]) == 2

    @pytest.mark.parametrize(
        ("content", "between"),
        [
            (HATCH.replace("\n", "\r\n"), "\r\n"),
            (HATCH.replace("\n", "\r\n") + "# no line end", "\r\n\r\n"),
            (HATCH + "# no line end", "\n\n"),
            (HATCH + "#  \t\n\n\n", "\n"),
            (HATCH + "# Größe\r\n", "\n"),
        ],
    )
    def test_what_was_there_keeps_its_bytes(self, project: Path, content: str, between: str) -> None:
        pyproject = project / "pyproject.toml"
        pyproject.write_bytes(content.encode())
        result = init(project, "--write")
        assert result.exit_code == 0, result.output
        after = pyproject.read_bytes()
        added = between + result.stdout.replace("\n", between[: len(between) // (between.count("\n"))])
        assert after == content.encode() + added.encode()
        assert "precompile" in tomllib.loads(after.decode())["tool"]["hatch"]["build"]["hooks"]

    def test_nothing_is_written_where_no_table_can_be_added(self, project: Path) -> None:
        pyproject = project / "pyproject.toml"
        pyproject.write_text(HATCH + "[tool]\nhatch = { build = { hooks = {} } }\n")
        before = pyproject.read_bytes()
        result = init(project, "--write")
        assert result.exit_code == 2
        assert "cannot be appended to" in result.stderr
        assert pyproject.read_bytes() == before

    def test_a_byte_order_mark_is_named(self, project: Path) -> None:
        (project / "pyproject.toml").write_bytes(b"\xef\xbb\xbf" + HATCH.encode())
        result = init(project, "--write")
        assert result.exit_code == 2
        assert "it begins with a byte order mark, which no build backend reads" in result.stderr

    def test_but_not_twice(self, project: Path) -> None:
        init(project, "--write")
        result = init(project, "--write")
        assert result.exit_code == 2
        assert "configures entrypoints already, in [tool.hatch.build.hooks.precompile]" in result.stderr


class TestErrors:
    def test_a_backend_without_a_hook_of_ours(self, project: Path) -> None:
        text = HATCH.replace("hatchling.build", "flit_core.buildapi")
        (project / "pyproject.toml").write_text(text)
        result = init(project)
        assert result.exit_code == 2
        assert (
            "build-system.build-backend is flit_core.buildapi, and entrypoints are compiled in"
            in result.stderr
        )

    def test_a_project_without_models(self, project: Path) -> None:
        (project / "src/textmodel/model.py").unlink()
        (project / "src/textmodel/layers.py").unlink()
        result = init(project)
        assert result.exit_code == 2
        assert "no nn.Module class with a forward was found in textmodel" in result.stderr

    def test_a_folder_without_a_package(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text(HATCH)
        result = init(tmp_path)
        assert result.exit_code == 2
        assert f"no import package was found in {tmp_path} or its folder src" in result.stderr
