"""`hatch-precompile init`: what it finds in a project's source, and what it proposes for it."""

from __future__ import annotations

import errno
import json
import os
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


def with_requirements(text: str) -> str:
    return text.replace('["hatchling"]', '["hatchling", "hatch-precompile", "torch==2.13.0"]')


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
        assert text == with_requirements(HATCH) + "\n" + result.stdout
        assert result.stdout.startswith("[tool.hatch.build.hooks.precompile]\n")
        assert result.stderr == (
            f"appended to {project / 'pyproject.toml'}\n"
            'added to its build-system.requires: "hatch-precompile", "torch==2.13.0"\n'
        )
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
        assert after == with_requirements(content).encode() + added.encode()
        assert "precompile" in tomllib.loads(after.decode())["tool"]["hatch"]["build"]["hooks"]

    def test_nothing_is_written_where_no_table_can_be_added(self, project: Path) -> None:
        pyproject = project / "pyproject.toml"
        pyproject.write_text(HATCH + "[tool]\nhatch = { build = { hooks = {} } }\n")
        before = pyproject.read_bytes()
        result = init(project, "--write")
        assert result.exit_code == 2
        assert "cannot be appended to" in result.stderr
        assert '# build-system.requires needs "hatch-precompile"' in result.stdout
        assert pyproject.read_bytes() == before
        assert list(project.glob("pyproject*")) == [pyproject]

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


REQUIRES = [
    # As it is written before, and after.
    ('["hatchling",]', '["hatchling", "hatch-precompile", "torch==2.13.0",]'),
    (
        "[ 'hatchling' ]  # the backend",
        '[ \'hatchling\', "hatch-precompile", "torch==2.13.0" ]  # the backend',
    ),
    ('["torch==2.13.0", "hatchling"]', '["torch==2.13.0", "hatchling", "hatch-precompile"]'),
    (
        '["Torch", "Hatch_Precompile[cli]>=0", "hatchling"]',
        '["Torch", "Hatch_Precompile[cli]>=0", "hatchling"]',
    ),
    ("[]", '["hatchling", "hatch-precompile", "torch==2.13.0"]'),
    ('[\n  "hatchling"\n]', '[\n  "hatchling",\n  "hatch-precompile",\n  "torch==2.13.0"\n]'),
    (
        '[\n\t"numpy",  # for setup\n\t"hatchling",\n]',
        '[\n\t"numpy",  # for setup\n\t"hatchling",\n\t"hatch-precompile",\n\t"torch==2.13.0",\n]',
    ),
    (
        '[\n    "hatchling"  # built with\n    # "cython",\n]',
        '[\n    "hatchling",  # built with\n    # "cython",\n    "hatch-precompile",\n    "torch==2.13.0"\n]',
    ),
    ("[ # none\n]", '[ # none\n    "hatchling",\n    "hatch-precompile",\n    "torch==2.13.0"\n]'),
]


class TestRequirements:
    """What --write does to build-system.requires."""

    @pytest.mark.parametrize("ends", ["\n", "\r\n"])
    @pytest.mark.parametrize(("written", "expected"), REQUIRES)
    def test_they_are_added_as_the_array_is_written(
        self, project: Path, written: str, expected: str, ends: str
    ) -> None:
        pyproject = project / "pyproject.toml"
        text = HATCH.replace('["hatchling"]', written) + "# the  end\n\n"
        pyproject.write_bytes(text.replace("\n", ends).encode())
        result = init(project, "--write")
        assert result.exit_code == 0, result.output
        after = HATCH.replace('["hatchling"]', expected) + "# the  end\n\n\n" + result.stdout
        assert pyproject.read_bytes() == after.replace("\n", ends).encode()
        pyproject.write_text(pyproject.read_text().split("[tool.")[0])
        assert proposed(project)["requires"] == []

    @pytest.mark.parametrize(
        "system",
        [
            'build-system = {requires = ["hatchling"], build-backend = "hatchling.build"}\n',
            'build-system.requires = ["hatchling"]\nbuild-system.build-backend = "hatchling.build"\n',
        ],
    )
    def test_wherever_it_stands(self, project: Path, system: str) -> None:
        text = system + "[project]" + HATCH.partition("[project]")[2]
        (project / "pyproject.toml").write_text(text)
        result = init(project, "--write")
        assert (project / "pyproject.toml").read_text() == with_requirements(text) + "\n" + result.stdout

    def test_where_there_is_none_it_is_made(self, project: Path) -> None:
        text = HATCH.replace('requires = ["hatchling"]\n', "")
        (project / "pyproject.toml").write_text(text)
        init(project, "--write")
        system = tomllib.loads((project / "pyproject.toml").read_text())["build-system"]
        assert system == {
            "requires": ["hatchling", "hatch-precompile", "torch==2.13.0"],
            "build-backend": "hatchling.build",
        }

    def test_a_project_without_a_build_system_gets_one(self, project: Path) -> None:
        """And no backend, which is to build it as it did before: by running its setup.py."""
        text = "[project]" + HATCH.partition("[project]")[2]
        (project / "pyproject.toml").write_text(text)
        result = init(project, "--write")
        assert (project / "pyproject.toml").read_text() == (
            text
            + '\n[build-system]\nrequires = ["setuptools", "hatch-precompile", "torch==2.13.0", "numpy"]\n\n'
            + result.stdout
        )

    def test_a_way_of_writing_it_that_cannot_be_kept_is_an_error(self, project: Path) -> None:
        pyproject = project / "pyproject.toml"
        pyproject.write_text(HATCH.replace('["hatchling"]', '[\n  "hatchling" # c\n  ,\n]'))
        before = pyproject.read_bytes()
        result = init(project, "--write")
        assert result.exit_code == 2
        assert f"build-system.requires of {pyproject} cannot be added to as it is written" in result.stderr
        assert pyproject.read_bytes() == before

    @pytest.mark.parametrize("written", ['"hatchling"', "[1]"])
    def test_what_is_no_list_of_strings_is_an_error(self, project: Path, written: str) -> None:
        (project / "pyproject.toml").write_text(HATCH.replace('["hatchling"]', written))
        assert "build-system.requires is no list of strings" in init(project).stderr

    def test_a_torch_that_is_not_pinned_is_said(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (project / "pyproject.toml").write_text(HATCH.replace('"torch==2.13.0"', '"torch"'))
        monkeypatch.setattr("hatch_precompile.init.proposal._torch", lambda dependencies: "torch")
        assert "pin this torch to the version" in init(project, "--write").stderr

    def test_in_json_the_table_is_what_was_written(self, project: Path) -> None:
        before = proposed(project)
        after = json.loads(init(project, "--write", "--json").stdout)
        assert after.keys() == before.keys()
        assert after["requires"] == ["hatch-precompile", "torch==2.13.0"]
        assert (project / "pyproject.toml").read_text().endswith('"numpy"]\n\n' + after["toml"])


class TestTheFile:
    """--write puts a new file into the place of the old one, or leaves that as it is."""

    def test_its_mode_stays(self, project: Path) -> None:
        pyproject = project / "pyproject.toml"
        pyproject.chmod(0o640)
        init(project, "--write")
        assert pyproject.stat().st_mode & 0o7777 == 0o640

    def test_a_link_stays_one(self, project: Path) -> None:
        (project / "pyproject.toml").rename(project / "elsewhere.toml")
        (project / "pyproject.toml").symlink_to("elsewhere.toml")
        assert init(project, "--write").exit_code == 0
        assert (project / "pyproject.toml").is_symlink()
        assert "[tool.hatch.build.hooks.precompile]" in (project / "elsewhere.toml").read_text()

    def test_a_read_only_one_is_not_replaced(self, project: Path) -> None:
        (project / "pyproject.toml").chmod(0o444)
        result = init(project, "--write")
        assert result.exit_code == 2
        assert "pyproject.toml cannot be written: it is read-only" in result.stderr
        assert (project / "pyproject.toml").read_text() == HATCH

    def test_nothing_is_left_of_a_write_that_fails(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*arguments: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "chown", full)
        result = init(project, "--write")
        assert result.exit_code == 2
        assert "pyproject.toml cannot be written: No space left on device" in result.stderr
        assert [file.name for file in project.iterdir() if file.is_file()] == ["pyproject.toml"]
        assert (project / "pyproject.toml").read_text() == HATCH


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
