"""A real wheel: built by the plugin's own wheel through `python -m build`, installed by pip, imported."""

from __future__ import annotations

import base64
import csv
import dataclasses
import datetime
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.conftest import REPOSITORY, TESTS, Site
from tests.wheel.conftest import EPOCH, TORCH, Built, Environment, build, run


def failing(*command: str | Path, plugin: Path, **environment: str) -> str:
    """What a command says that fails."""
    process = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, "PYTHONPATH": str(plugin), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert process.returncode != 0, process.stdout
    return process.stdout


def page_beside(wheel: Path) -> str:
    """The report of the build."""
    (page,) = wheel.parent.glob("*.html")
    assert page.name == f"{wheel.stem}.report.html"
    return page.read_text("utf-8")


def test_the_plugins_wheel_carries_the_runtime(built: Built) -> None:
    carried, ours = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.py")}
        for folder in (built.plugin / "hatch_precompile/_templates", REPOSITORY / "templates")
    )
    assert carried == ours


def test_the_build_says_what_it_does(built: Built) -> None:
    for line in (
        "tint: import kiosk.prints:tint",
        "compiling",
        "tint: verify: sample 1/1: hit",
        "1 entrypoints",
    ):
        assert line in built.log


def test_a_report_lies_beside_the_wheel(built: Built) -> None:
    page = page_beside(built.wheel)
    for part in (
        "kiosk: what was compiled",
        "kiosk.prints:tint",
        "sample 1 is traced",
        "graph 0 is compiled for native",
        "sample 1 is verified",
        "TENSOR_MATCH",
        "The size of dimension 0 of ",
        "def forward(self",
    ):
        assert part in page, part
    assert not [name for name in built.names() if name.endswith(".html")]
    assert f"the report of the build is {built.wheel.with_suffix('.report.html')}" in built.log


def test_the_tag_is_this_python_and_the_platform_the_library_runs_on(built: Built) -> None:
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    name, version, interpreter, abi, platform = built.wheel.stem.split("-")
    assert (name, version, interpreter, abi) == ("kiosk", "1.0", python, python)
    assert platform.endswith(sysconfig.get_platform().partition("-")[2].replace("-", "_"))
    assert "linux" in platform
    facts = built.metadata("WHEEL")
    assert facts["Root-Is-Purelib"] == "false"
    assert {f"{interpreter}-{abi}-{tag}" for tag in platform.split(".")} == set(facts.get_all("Tag", []))


def test_the_wheel_requires_the_torch_it_was_built_with(built: Built) -> None:
    import torch

    assert f"torch=={torch.__version__.partition('+')[0]}" in built.metadata("METADATA").get_all(
        "Requires-Dist", []
    )


def test_the_record_lists_every_file_with_its_hash(built: Built) -> None:
    rows = list(csv.reader(built.read("kiosk-1.0.dist-info/RECORD").decode().splitlines()))
    assert {row[0] for row in rows} == set(built.names())
    for name, digest, size in rows:
        if not name.endswith("RECORD"):
            content = built.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={expected}", len(content)), name


def test_the_manifest_lists_every_file_of_the_bundle_with_its_hash(built: Built) -> None:
    prefix = "kiosk/_precompiled/bundle/"
    manifest = json.loads(built.read(f"{prefix}manifest.json"))
    names = {name.removeprefix(prefix) for name in built.names() if name.startswith(prefix)}
    assert names == {*manifest["files"], "manifest.json"}
    assert manifest["files"] == {
        name: hashlib.sha256(built.read(prefix + name)).hexdigest() for name in manifest["files"]
    }


def test_the_shim_is_the_last_line_and_the_others_stand(built: Built) -> None:
    source = (built.project / "kiosk/__init__.py").read_text()
    shipped = built.read("kiosk/__init__.py").decode()
    assert shipped.startswith(source)
    (line,) = shipped.removeprefix(source).splitlines()
    assert "kiosk._precompiled" in line


def test_nothing_but_the_bundle_and_the_runtime_is_added(built: Built) -> None:
    others = [
        name for name in built.names() if not name.startswith(("kiosk/_precompiled/", "kiosk-1.0.dist-info/"))
    ]
    assert sorted(others) == ["kiosk/__init__.py", "kiosk/prints.py"]
    assert not any("__pycache__" in name for name in built.names())


def test_the_build_leaves_nothing_in_the_project(built: Built) -> None:
    files = {str(path.relative_to(built.project)) for path in built.project.rglob("*") if path.is_file()}
    files = {file for file in files if "__pycache__" not in file}
    assert files == {"pyproject.toml", "kiosk/__init__.py", "kiosk/prints.py"}


def test_no_path_of_the_build_machine_is_in_the_wheel(built: Built) -> None:
    folders = (tempfile.gettempdir(), REPOSITORY, sys.prefix, sys.base_prefix, Path.home())
    tail = "/".join(built.project.parts[-2:])  # dynamo cuts paths in its comments short from the left
    paths = [tail, *(f"{folder}/" for folder in folders)]
    found = [(name, path) for name in built.names() for path in paths if path.encode() in built.read(name)]
    assert found == []


def test_pip_check_finds_nothing(environment: Environment) -> None:
    lines = [
        line
        for line in subprocess.run(
            [environment.python, "-m", "pip", "check"], capture_output=True, text=True, check=False
        ).stdout.splitlines()
        if line.startswith("kiosk ")
    ]
    assert lines == []


def in_isolation(environment: Environment, scenario: str) -> Any:
    return json.loads(run(environment.python, "-I", TESTS / "scenarios" / "in_isolation.py", scenario))


def test_the_installed_wheel_hits_and_imports_no_compiler(environment: Environment) -> None:
    seen = in_isolation(environment, "a_call")
    assert seen == {"hits": 1, "misses": 0, "imported": [], "same": True}


def test_pip_uninstalls_every_file_and_leaves_another_wheel(built: Built, zoo: Site, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", home)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "parent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    shutil.copytree(zoo.directory / "zoo", site / "zoo")
    python = home / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-deps", "--no-index", built.wheel)
    run(python, "-m", "pip", "uninstall", "--yes", "kiosk")
    assert sorted(path.name for path in site.iterdir()) == ["parent.pth", "zoo"]
    assert Site(site).play("wheels.hits_of_the_zoo") == 1


def test_two_wheels_of_ours_in_one_process_do_not_notice_each_other(
    environment: Environment, zoo: Site, tmp_path: Path
) -> None:
    site = zoo.copy(tmp_path / "site")
    shutil.copytree(environment.site / "kiosk", site.directory / "kiosk")
    assert site.play("wheels.hits_of_both") == {"both": [1, 1], "kiosk": [2]}


def test_a_compile_of_the_users_traces_through_an_entrypoint(environment: Environment) -> None:
    assert in_isolation(environment, "graphs_of_a_function_around_it") == 1


@pytest.fixture(scope="module")
def by_the_command_line(built: Built, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """What `hatch-precompile build` of the same source elsewhere prints at the end, and while it builds."""
    project = tmp_path_factory.mktemp("elsewhere") / "project"
    shutil.copytree(built.project, project, ignore=shutil.ignore_patterns("__pycache__", "dist"))
    process = subprocess.run(
        [built.plugin / "bin" / "hatch-precompile", "build", "--no-isolation", "--json", project],
        env={**os.environ, "PYTHONPATH": str(built.plugin)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout), process.stderr


def test_the_command_line_builds_it_too(by_the_command_line: tuple[dict[str, Any], str]) -> None:
    summary, said = by_the_command_line
    assert summary["bytes"] == Path(summary["wheel"]).stat().st_size
    (tint,) = summary["entrypoints"]
    assert (tint["package"], tint["name"], tint["samples"]) == ("kiosk", "tint", 1)
    assert (tint["entries"], tint["graphs"]) == (1, 1)
    assert 0 < tint["library_bytes"] < summary["bytes"] * 10
    assert 0 < tint["capture_seconds"] < summary["seconds"]
    assert tint["largest_difference"] < 1e-6
    assert "tint: sample 1: graph 0: 2 operations, compiling\n" in said


class TestTheSameBytes:
    """Two builds at once, of one tree in another place than the first, at another time."""

    @pytest.fixture(scope="class")
    @classmethod
    def again(cls, built: Built, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
        project = tmp_path_factory.mktemp("elsewhere") / "deeper" / "project"
        shutil.copytree(built.project, project, ignore=shutil.ignore_patterns("__pycache__"))
        before = set(project.rglob("*"))
        outs = [project.parent / "dist", project.parent / "dist of the other"]
        with ThreadPoolExecutor(2) as pool:
            made = pool.map(lambda out: build(project, built.plugin, out, "--wheel"), outs)
            wheels = [wheel for wheel, _ in made]
        assert {path for path in project.rglob("*") if "__pycache__" not in str(path)} == before
        return wheels

    def test_every_file_is_the_same(self, built: Built, again: list[Path]) -> None:
        for wheel in again:
            other = dataclasses.replace(built, wheel=wheel)
            assert (other.wheel.name, other.names()) == (built.wheel.name, built.names())
            assert [name for name in built.names() if other.read(name) != built.read(name)] == []

    def test_so_is_the_whole_wheel(self, built: Built, again: list[Path]) -> None:
        assert {wheel.read_bytes() for wheel in again} == {built.wheel.read_bytes()}

    def test_every_file_has_the_time_of_source_date_epoch(self, built: Built) -> None:
        times = {datetime.datetime(*file.date_time) for file in zipfile.ZipFile(built.wheel).infolist()}
        assert times == {datetime.datetime.fromtimestamp(int(EPOCH), datetime.UTC).replace(tzinfo=None)}


SETUPTOOLS = """
[build-system]
requires = ["setuptools>=77", "hatch-precompile", "torch==TORCH"]
build-backend = "setuptools.build_meta"

[project]
name = "kiosk"
version = "1.0"
dependencies = ["torch>=2"]

[tool.setuptools]
packages = ["kiosk"]

[tool.hatch-precompile]
report = true

[[tool.hatch-precompile.entrypoints]]
target = "kiosk.prints:tint"
samples = "kiosk.prints:samples"
""".replace("TORCH", TORCH)


class TestSetuptools:
    """The same source, built by setuptools."""

    @pytest.fixture(scope="class")
    @classmethod
    def project(cls, built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
        project = tmp_path_factory.mktemp("setuptools") / "project"
        shutil.copytree(built.project, project, ignore=shutil.ignore_patterns("__pycache__"))
        (project / "pyproject.toml").write_text(SETUPTOOLS)
        return project

    @pytest.fixture(scope="class")
    @classmethod
    def other(cls, built: Built, project: Path) -> Built:
        out = project.parent / "dist"
        uv = ["uv", "build", "--offline", "--no-build-isolation", "--python", sys.executable, "--wheel"]
        log = run(
            sys.executable,
            "-m",
            *uv,
            "--out-dir",
            out,
            project,
            PYTHONPATH=str(built.plugin),
            SOURCE_DATE_EPOCH=EPOCH,
            PYTHONDONTWRITEBYTECODE="",  # what the build imports must leave nothing behind all the same
        )
        (wheel,) = out.glob("*.whl")
        return Built(wheel, log, built.plugin, project)

    def test_the_wheel_holds_the_same_files(self, built: Built, other: Built) -> None:
        package = [name for name in built.names() if name.startswith("kiosk/")]
        assert sorted(package) == sorted(name for name in other.names() if name.startswith("kiosk/"))
        different = [name for name in package if built.read(name) != other.read(name)]
        assert different == []

    def test_a_report_lies_beside_the_wheel(self, other: Built) -> None:
        assert "kiosk: what was compiled" in page_beside(other.wheel)

    def test_its_tag_and_requirement_are_the_same(self, built: Built, other: Built) -> None:
        assert other.wheel.name == built.wheel.name
        for key in ("Tag", "Root-Is-Purelib"):
            assert other.metadata("WHEEL").get_all(key) == built.metadata("WHEEL").get_all(key)
        theirs = other.metadata("METADATA").get_all("Requires-Dist")
        assert theirs == built.metadata("METADATA").get_all("Requires-Dist")

    def test_the_build_says_what_it_is_doing(self, other: Built) -> None:
        assert "precompile: tint: sample 1: graph 0" in other.log

    def test_a_second_build_of_the_same_tree_gives_the_same_bytes(self, built: Built, other: Built) -> None:
        again, _ = build(other.project, built.plugin, other.project.parent / "again", "--wheel")
        assert again.read_bytes() == other.wheel.read_bytes()

    def test_a_source_distribution_gets_no_bundle(self, built: Built, project: Path) -> None:
        sdist, log = build(project, built.plugin, project.parent / "sdist", "--sdist")
        assert "precompile: " not in log
        with tarfile.open(sdist) as archive:
            assert not [name for name in archive.getnames() if "_precompiled" in name]

    def test_a_wrong_key_is_a_sentence_that_names_it(self, built: Built, project: Path) -> None:
        broken = project.parent / "broken"
        shutil.copytree(project, broken, ignore=shutil.ignore_patterns("build", "*.egg-info"))
        (broken / "pyproject.toml").write_text(SETUPTOOLS.replace("samples =", "sample ="))
        said = failing(
            sys.executable, "-m", "build", "--no-isolation", "--wheel", broken, plugin=built.plugin
        )
        assert (
            "precompile: tool.hatch-precompile.entrypoints[0].sample: unknown key; did you mean samples?"
            in said
        )
        assert "Traceback" not in said


@pytest.fixture(scope="module")
def without_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The python of an environment that has all that this one has, but torch."""
    home = tmp_path_factory.mktemp("without-torch")
    run(sys.executable, "-m", "venv", "--without-pip", home)
    (site,) = home.glob("lib/python*/site-packages")
    for there in Path(sysconfig.get_path("purelib")).iterdir():
        if not there.name.startswith(("torch", "__pycache__")):
            (site / there.name).symlink_to(there)
    return home / "bin" / "python"


@pytest.mark.parametrize("command", ["verify", "bench"])
def test_without_torch_a_wheel_cannot_be_run(built: Built, without_torch: Path, command: str) -> None:
    code = "from hatch_precompile.cli import main; main()"
    said = failing(without_torch, "-c", code, command, built.wheel, plugin=built.plugin)
    assert f"Error: torch is not installed here, and what {built.wheel} carries needs it\n" in said


@pytest.mark.parametrize("pyproject", [None, SETUPTOOLS], ids=["hatchling", "setuptools"])
class TestInstallingFromSource:
    """Where the environment of the build lacks something, pip says what."""

    PIP: ClassVar = ["-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation"]

    @pytest.fixture
    @classmethod
    def source(cls, built: Built, tmp_path: Path, pyproject: str | None) -> Path:
        source = tmp_path / "source"
        shutil.copytree(built.project, source, ignore=shutil.ignore_patterns("__pycache__"))
        if pyproject is not None:
            (source / "pyproject.toml").write_text(pyproject)
        return source

    def test_without_a_compiler(self, built: Built, source: Path) -> None:
        arguments = [*self.PIP, "--wheel-dir", source.parent / "dist", source]
        said = failing(sys.executable, *arguments, plugin=built.plugin, CXX="/nonexistent/g++")
        assert (
            "precompile: the C++ compiler '/nonexistent/g++' was not found; install g++ or set CXX "
            "(only the build needs one, the wheel does not): the package is g++ on Debian and Ubuntu, "
            "gcc-c++ on Fedora, gxx of conda\n"
        ) in said
        assert "Traceback" not in said

    def test_without_torch(self, built: Built, source: Path, without_torch: Path) -> None:
        arguments = [*self.PIP, "--wheel-dir", source.parent / "dist", source]
        said = failing(without_torch, *arguments, plugin=built.plugin)
        assert (
            "precompile: torch is not installed in the build environment; add it to "
            'build-system.requires, pinned to what the wheel is for, as in "torch==2.13.0"\n'
        ) in said
        assert "Traceback" not in said
