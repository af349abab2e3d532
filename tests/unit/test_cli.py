"""The command line, on bundles whose manifests are written here."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hatch_precompile import __version__
from hatch_precompile.cli import main

MANIFEST: dict[str, Any] = {
    "format": 1,
    "built_with": {"torch": "2.13.0+cpu", "python": "3.11", "platform": "linux_x86_64"},
    "variants": [{"name": "x86-64-v3", "backend": "x86_64", "requires": ["avx2", "fma"]}],
    "entrypoints": [
        {
            "name": "encoder",
            "target": "textmodel.model:Encoder",
            "activate": "call",
            "on_miss": "eager",
            "mode": "no_grad",
            "samples": 2,
            "frames": [0],
            "skipped": [{"function": "Encoder.search", "reason": "graph break in loop, at m.py:[3]"}],
        }
    ],
    "frames": [{"module": "textmodel.model", "qualname": "Encoder.forward", "entries": [{}, {}, {}]}],
    "graphs": [{"libraries": {"x86-64-v3": "lib/0.so"}}, {"libraries": {"x86-64-v3": "lib/1.so"}}],
    "files": {"lib/0.so": "0" * 64},
    "left_out": [{"name": "decoder", "target": "textmodel.model:Decoder"}],
    "a key of a later version": 1,
}
BUNDLE = {"manifest.json": json.dumps(MANIFEST), "lib/0.so": "x" * 2000, "lib/1.so": "x" * 500}


def make_wheel(path: Path, files: dict[str, str], package: str = "textmodel") -> Path:
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{package}/__init__.py", "")
        for name, content in files.items():
            wheel.writestr(f"{package}/_precompiled/bundle/{name}", content)
    return path


def install(site: Path, package: str) -> None:
    """A package that cannot be imported."""
    folder = site.joinpath(*package.split("."))
    (folder / "_precompiled" / "bundle" / "lib").mkdir(parents=True)
    for parent in (folder, folder.parent):
        if parent != site:
            (parent / "__init__.py").write_text("raise SystemExit('imported')")
    for name, content in BUNDLE.items():
        (folder / "_precompiled" / "bundle" / name).write_text(content)
    (folder / "_precompiled" / "bundle" / "__pycache__").mkdir()
    (folder / "_precompiled" / "bundle" / "__pycache__" / "0.pyc").write_text("written by the installer")


def inspect(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["inspect", *map(str, arguments)], env={"COLUMNS": "200"})


def expect_summary(result: Result, package: str) -> None:
    assert result.exit_code == 0, result.output
    assert f"{package}: bundle format 1, 3 files" in result.output
    assert "built with torch 2.13.0+cpu, python 3.11, platform linux_x86_64" in result.output
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in result.output.splitlines()]
    assert ["encoder", "textmodel.model:Encoder", "no_grad", "call", "eager", "2", "1"] in lines
    assert ["textmodel.model:Encoder.forward", "3"] in lines
    assert "encoder: Encoder.search runs as Python: graph break in loop, at m.py:[3]\n" in result.output
    assert (
        "decoder: left out at the build, which said why: textmodel.model:Decoder is not compiled\n"
        in result.output
    )
    assert ["x86-64-v3", "2 of 2", "2.5 kB", "avx2, fma"] in lines


def expect_error(result: Result, text: str) -> None:
    assert result.exit_code == 2
    assert text in result.output
    assert "Traceback" not in result.output


class TestInspect:
    def test_a_wheel_is_read_from_its_file(self, tmp_path: Path) -> None:
        expect_summary(inspect(make_wheel(tmp_path / "t-1-cp311-cp311-any.whl", BUNDLE)), "textmodel")

    @pytest.mark.parametrize("package", ["textmodel_installed", "textmodel_ns.sub"])
    def test_an_installed_package_is_read_without_being_imported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
    ) -> None:
        install(tmp_path, package)
        monkeypatch.syspath_prepend(str(tmp_path))
        expect_summary(inspect(package), package)

    def test_json_is_the_manifest_by_package(self, tmp_path: Path) -> None:
        result = inspect(make_wheel(tmp_path / "t.whl", BUNDLE), "--json")
        assert json.loads(result.output) == {"textmodel": MANIFEST}

    def test_every_bundle_of_a_wheel_is_shown(self, tmp_path: Path) -> None:
        wheel = make_wheel(tmp_path / "t.whl", BUNDLE)
        with zipfile.ZipFile(wheel, "a") as archive:
            archive.writestr("ns/other/_precompiled/bundle/manifest.json", "{}")
        assert json.loads(inspect(wheel, "--json").output).keys() == {"textmodel", "ns.other"}
        assert "ns.other: bundle format ?, 1 files, 2 B" in inspect(wheel).output


class TestErrors:
    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        expect_error(inspect(tmp_path / "t.whl"), "there is no file")

    def test_a_file_that_is_no_wheel(self, tmp_path: Path) -> None:
        (tmp_path / "t.whl").write_text("text")
        expect_error(inspect(tmp_path / "t.whl"), "is not a wheel")

    def test_a_wheel_without_a_bundle(self, tmp_path: Path) -> None:
        expect_error(inspect(make_wheel(tmp_path / "t.whl", {})), "holds no bundle")

    @pytest.mark.parametrize("content", ["{", "[]"])
    def test_a_damaged_manifest(self, tmp_path: Path, content: str) -> None:
        expect_error(inspect(make_wheel(tmp_path / "t.whl", {"manifest.json": content})), "is damaged")

    @pytest.mark.parametrize("name", ["no_such_package", "no_such.package", "click.no_such", "json.decoder"])
    def test_a_package_that_is_not_there(self, name: str) -> None:
        expect_error(inspect(name), f"no package {name} is installed")

    @pytest.mark.parametrize("name", ["a/b", "text-model", "", "."])
    def test_what_is_neither_a_file_nor_a_name(self, name: str) -> None:
        expect_error(inspect(name), "is neither a wheel's file nor the name of an import package")

    def test_an_installed_package_without_a_bundle(self) -> None:
        expect_error(inspect("click"), "the installed package click carries no bundle")


def test_the_version_is_the_plugins() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"hatch-precompile, version {__version__}\n"


def test_the_command_line_needs_no_torch() -> None:
    code = "import sys, hatch_precompile.cli; sys.exit('torch' in sys.modules)"
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


class TestWithoutTheExtras:
    """A build environment has the hook and what it needs; the command line and the page are extras."""

    WITHOUT = (
        "import sys\n"
        "class Without:\n"
        "    def __init__(self, finder): self.finder = finder\n"
        "    def find_spec(self, name, *more):\n"
        "        found = name.partition('.')[0] in {missing!r}\n"
        "        return None if found else self.finder.find_spec(name, *more)\n"
        "sys.meta_path[:] = map(Without, sys.meta_path)\n"
    )

    def run(self, missing: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
        text = self.WITHOUT.format(missing=missing) + code
        return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)

    @pytest.mark.parametrize("missing", ["click", "rich"])
    def test_the_command_says_what_it_needs(self, missing: str) -> None:
        done = self.run((missing,), "from hatch_precompile.__main__ import run\nrun()")
        assert done.returncode == 1
        assert f"the command line needs {missing}, which is not installed" in done.stderr
        assert "pip install 'hatch-precompile[cli]'" in done.stderr

    def test_so_does_one_that_needs_more(self) -> None:
        project = Path(__file__).parent / "init_project"
        code = f"sys.argv = ['', 'init', {str(project)!r}]\nfrom hatch_precompile.__main__ import run\nrun()"
        done = self.run(("griffe",), code)
        assert done.returncode == 1
        assert "the command line needs griffe, which is not installed" in done.stderr

    def test_the_hooks_need_none_of_it(self) -> None:
        hooks = ("frontends.hatch", "frontends.setuptools", "build", "bundle.writer", "wheel.tag")
        code = "import " + ", ".join(f"hatch_precompile.{name}" for name in hooks)
        done = self.run(("click", "rich", "build", "jinja2", "griffe", "tomlkit"), code)
        assert done.returncode == 0, done.stderr

    def test_a_report_says_what_it_needs(self, tmp_path: Path) -> None:
        code = (
            "from pathlib import Path\n"
            "from hatch_precompile.build import build_bundle\n"
            "from hatch_precompile.config import load\n"
            "entrypoint = {'target': 'model:f', 'samples': 'model:samples'}\n"
            "config = load({'report': True, 'entrypoints': [entrypoint]}, default_package='model')\n"
            f"build_bundle(config, source_roots=[], work=Path({str(tmp_path)!r}), report=print)\n"
        )
        done = self.run(("jinja2",), code)
        assert "BuildError: report = true needs jinja2" in done.stderr
        assert 'require "hatch-precompile[report]" in build-system.requires' in done.stderr


@pytest.mark.parametrize(
    ("runtime", "inputs", "said"),
    [
        ("(", "None", "what ruined carries is damaged: SyntaxError"),
        ("", "None", "what ruined carries is damaged: AttributeError"),
        ("", "1 / 0", "ruined:inputs cannot be called: ZeroDivisionError"),
    ],
)
def test_explain_of_what_is_damaged_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str, inputs: str, said: str
) -> None:
    (tmp_path / "ruined/_precompiled").mkdir(parents=True)
    (tmp_path / "ruined/__init__.py").write_text(f"def inputs():\n    {inputs}\n    return ()\n")
    (tmp_path / "ruined/_precompiled/__init__.py").write_text(runtime)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("ruined", "ruined._precompiled"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    done = CliRunner().invoke(main, ["explain", "ruined:it", "--with", "ruined:inputs"])
    assert (done.exit_code, isinstance(done.exception, SystemExit)) == (2, True)
    assert said in done.output
