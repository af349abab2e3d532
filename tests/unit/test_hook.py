"""The build hook: what it asks of Hatch, what it hands to the build, and what the wheel then holds."""

from __future__ import annotations

import base64
import csv
import gc
import hashlib
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from email.parser import Parser
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from hatchling.plugin.manager import PluginManager
from packaging.version import Version

import hatch_precompile.frontends.hatch
from hatch_precompile.config import Config
from hatch_precompile.config.cells import Shard
from hatch_precompile.errors import CaptureError
from hatch_precompile.wheel.layout import digests, lay_out

TORCH = Version(version("torch")).public
FLAT = "[tool.hatch.build.targets.wheel]\npackages = ['textmodel']"
SRC = "[tool.hatch.build.targets.wheel]\npackages = ['src/textmodel']"


@dataclass(frozen=True)
class BuiltBundle:
    directory: Path
    libraries: list[Path]
    torch_version: str
    compiled: dict[str, str]
    page: str | None


@dataclass
class FakeBuild:
    """Stands for hatch_precompile.build: writes two files and remembers what it was asked."""

    error: BaseException | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)

    def build_bundle(
        self,
        config: Config,
        *,
        source_roots: list[Path],
        files: dict[str, Path],
        work: Path,
        report: Callable[[str], None],
        table: str,
        root: Path,
        reuse: Path | None,
        shard: Shard | None,
    ) -> BuiltBundle:
        call = {"config": config, "table": table, "source_roots": source_roots, "work": work, "root": root}
        self.calls.append({**call, "reuse": reuse, "shard": shard})
        report("encoder: sample 1 of 1")
        if self.error is not None:
            raise self.error
        directory = work / "out"
        (directory / "bundle").mkdir(parents=True)
        (directory / "__init__.py").write_text("def install(): pass\n")
        (directory / "bundle" / "manifest.json").write_text("{}")
        (directory / "__pycache__").mkdir()
        (directory / "__pycache__" / "left.pyc").write_text("by a verification")
        lay_out(files, config.package, work / "site")
        compiled = digests(files, work / "site")
        return BuiltBundle(directory, [], f"{TORCH}+cpu", compiled, "<p>½</p>" if config.report else None)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBuild:
    fake = FakeBuild()
    module = ModuleType("hatch_precompile.build")
    module.build_bundle = fake.build_bundle  # type: ignore[attr-defined]
    module.BuiltBundle = BuiltBundle  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "hatch_precompile.build", module)
    return fake


def make_project(
    root: Path,
    *,
    wheel: str = FLAT,
    package: str = "textmodel",
    hook: str = "",
    extra: str = "",
    requires: str = "",
) -> Path:
    folder = root / package
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from textmodel.model import Encoder\n")
    (folder / "model.py").write_text("class Encoder: pass\n")
    (root / "pyproject.toml").write_text(f"""
[build-system]
requires = ["hatchling", "hatch-precompile"]
build-backend = "hatchling.build"
[project]
name = "text-model"
version = "1.0"
dependencies = [{requires}]
{wheel}
[tool.hatch.build.hooks.precompile]
{hook}
[[tool.hatch.build.hooks.precompile.entrypoints]]
target = "textmodel.model:Encoder"
samples = "textmodel.model:samples"
{extra}
""")
    return root


def plugins() -> PluginManager:
    """Hatch's plugins with ours among them, whether or not the environment has it installed."""
    manager = PluginManager()
    manager.manager.register(hatch_precompile.frontends.hatch)
    manager.third_party_plugins.loaded = True
    return manager


def build_wheel(root: Path, version: str = "standard") -> Path:
    builder = WheelBuilder(str(root), plugin_manager=plugins())
    (artifact,) = builder.build(directory=str(root / "dist"), versions=[version])
    return Path(artifact)


def read(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names)), "a path stands in the wheel twice"
        return {name: archive.read(name) for name in names}


def metadata(files: dict[str, bytes], name: str) -> Message:
    return Parser().parsestr(files[f"text_model-1.0.dist-info/{name}"].decode())


class TestWheel:
    def test_it_holds_the_bundle_beside_the_project(self, tmp_path: Path, fake: FakeBuild) -> None:
        files = read(build_wheel(make_project(tmp_path)))
        assert sorted(name for name in files if not name.startswith("text_model-1.0")) == [
            "textmodel/__init__.py",
            "textmodel/_precompiled/__init__.py",
            "textmodel/_precompiled/bundle/manifest.json",
            "textmodel/model.py",
        ]

    def test_only_the_init_differs_from_the_source_and_by_its_last_line(
        self, tmp_path: Path, fake: FakeBuild
    ) -> None:
        source = make_project(tmp_path) / "textmodel"
        files = read(build_wheel(tmp_path))
        assert files["textmodel/model.py"] == (source / "model.py").read_bytes()
        *earlier, last = files["textmodel/__init__.py"].decode().splitlines(keepends=True)
        assert "".join(earlier) == (source / "__init__.py").read_text()
        assert "_precompiled.install()" in last

    def test_the_record_has_every_file_once_with_its_hash(self, tmp_path: Path, fake: FakeBuild) -> None:
        files = read(build_wheel(make_project(tmp_path)))
        record = files["text_model-1.0.dist-info/RECORD"].decode()
        rows = {name: (digest, size) for name, digest, size in csv.reader(record.splitlines())}
        assert len(rows) == len(record.splitlines())
        assert rows.keys() == files.keys()
        del rows["text_model-1.0.dist-info/RECORD"]
        for name, row in rows.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
            assert row == (f"sha256={digest}", str(len(files[name])))

    def test_it_is_for_this_python_and_requires_the_torch_it_was_built_with(
        self, tmp_path: Path, fake: FakeBuild
    ) -> None:
        wheel = build_wheel(make_project(tmp_path, requires='"torch>=2", "numpy"'))
        files = read(wheel)
        tag = f"cp{sys.version_info.major}{sys.version_info.minor}-none-any"
        assert wheel.name == f"text_model-1.0-{tag}.whl"
        assert metadata(files, "WHEEL").get_all("Tag") == [tag]
        assert metadata(files, "WHEEL")["Root-Is-Purelib"] == "false"
        required = metadata(files, "METADATA").get_all("Requires-Dist")
        assert required == ["numpy", "torch>=2", f"torch=={TORCH}"]

    @pytest.mark.parametrize(("requires", "said"), [('"torch>=2"', True), (f'"torch=={TORCH}"', False)])
    def test_a_requirement_that_is_in_the_wheel_alone_is_said(
        self, tmp_path: Path, fake: FakeBuild, capsys: pytest.CaptureFixture[str], requires: str, said: bool
    ) -> None:
        build_wheel(make_project(tmp_path, requires=requires))
        assert (
            f"requires torch=={TORCH}; for installs from source by uv, name" in capsys.readouterr().err
        ) == said

    def test_require_torch_none_leaves_the_requirements_alone(self, tmp_path: Path, fake: FakeBuild) -> None:
        files = read(build_wheel(make_project(tmp_path, hook='require-torch = "none"')))
        assert metadata(files, "METADATA").get_all("Requires-Dist") is None

    def test_two_builds_give_the_same_bytes(self, tmp_path: Path, fake: FakeBuild) -> None:
        make_project(tmp_path)
        assert build_wheel(tmp_path).read_bytes() == build_wheel(tmp_path).read_bytes()


class TestLayouts:
    def expect(self, root: Path, fake: FakeBuild, source_root: Path) -> None:
        files = read(build_wheel(root))
        assert fake.calls[0]["source_roots"] == [source_root]
        assert b"_precompiled.install()" in files["textmodel/__init__.py"]
        assert "textmodel/_precompiled/bundle/manifest.json" in files
        assert "textmodel/model.py" in files

    def test_flat(self, tmp_path: Path, fake: FakeBuild) -> None:
        self.expect(make_project(tmp_path), fake, tmp_path)

    def test_src(self, tmp_path: Path, fake: FakeBuild) -> None:
        self.expect(make_project(tmp_path, wheel=SRC, package="src/textmodel"), fake, tmp_path / "src")

    def test_sources(self, tmp_path: Path, fake: FakeBuild) -> None:
        wheel = "[tool.hatch.build.targets.wheel]\nonly-include = ['lib/textmodel']\nsources = ['lib']"
        self.expect(make_project(tmp_path, wheel=wheel, package="lib/textmodel"), fake, tmp_path / "lib")

    def test_include_patterns(self, tmp_path: Path, fake: FakeBuild) -> None:
        wheel = "[tool.hatch.build.targets.wheel]\ninclude = ['textmodel/**/*.py']"
        self.expect(make_project(tmp_path, wheel=wheel), fake, tmp_path)

    def test_a_folder_that_is_force_included(self, tmp_path: Path, fake: FakeBuild) -> None:
        wheel = "[tool.hatch.build.targets.wheel.force-include]\n'elsewhere/textmodel' = 'textmodel'"
        self.expect(
            make_project(tmp_path, wheel=wheel, package="elsewhere/textmodel"), fake, tmp_path / "elsewhere"
        )

    def test_a_renamed_folder_is_built_from_a_copy_named_as_in_the_wheel(
        self, tmp_path: Path, fake: FakeBuild
    ) -> None:
        wheel = "[tool.hatch.build.targets.wheel]\ninclude = ['lib/**']\nsources = {lib = 'textmodel'}"
        files = read(build_wheel(make_project(tmp_path, wheel=wheel, package="lib")))
        (source_root,) = fake.calls[0]["source_roots"]
        assert not source_root.is_relative_to(tmp_path)
        assert b"_precompiled.install()" in files["textmodel/__init__.py"]
        assert "textmodel/_precompiled/__init__.py" in files

    def test_a_prefix_put_before_everything(self, tmp_path: Path, fake: FakeBuild) -> None:
        wheel = "[tool.hatch.build.targets.wheel]\ninclude = ['textmodel']\nsources = {'' = 'ns'}"
        files = read(build_wheel(make_project(tmp_path, wheel=wheel)))
        assert b"import ns.textmodel._precompiled" in files["ns/textmodel/__init__.py"]
        assert "ns/textmodel/_precompiled/__init__.py" in files

    def test_one_of_several_packages(self, tmp_path: Path, fake: FakeBuild) -> None:
        wheel = "[tool.hatch.build.targets.wheel]\npackages = ['textmodel', 'other']"
        make_project(tmp_path, wheel=wheel, hook='package = "textmodel"')
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "__init__.py").write_text("")
        files = read(build_wheel(tmp_path))
        assert files["other/__init__.py"] == b""
        assert b"_precompiled" in files["textmodel/__init__.py"]


class TestWhatCarriesNoBundle:
    def test_an_sdist(self, tmp_path: Path, fake: FakeBuild) -> None:
        builder = SdistBuilder(str(make_project(tmp_path)), plugin_manager=plugins())
        (artifact,) = builder.build(directory=str(tmp_path / "dist"))
        assert Path(artifact).name == "text_model-1.0.tar.gz"
        assert not fake.calls

    def test_an_editable_install_which_says_so(
        self, tmp_path: Path, fake: FakeBuild, capsys: pytest.CaptureFixture[str]
    ) -> None:
        wheel = "[tool.hatch.build.targets.wheel]\npackages = ['textmodel']\ndev-mode-dirs = ['.']"
        files = read(build_wheel(make_project(tmp_path, wheel=wheel), "editable"))
        assert not fake.calls
        assert not any("_precompiled" in name for name in files)
        assert "precompile: nothing is compiled for an editable install" in capsys.readouterr().err


class TestDependencies:
    @pytest.mark.parametrize(
        ("builder", "expected"), [(WheelBuilder, ["numpy>=2", "torch"]), (SdistBuilder, [])]
    )
    def test_a_wheel_is_built_where_the_project_can_run(
        self, tmp_path: Path, builder: Any, expected: list[str]
    ) -> None:
        root = make_project(tmp_path, requires='"torch", "numpy>=2"')
        assert builder(str(root), plugin_manager=plugins()).config.dependencies == expected

    def test_the_hook_is_imported_without_torch(self) -> None:
        code = "import sys, hatch_precompile.frontends.hatch; sys.exit('torch' in sys.modules)"
        root = Path(hatch_precompile.frontends.hatch.__file__).parents[2]
        assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


class TestBuilding:
    def test_the_build_gets_the_configuration_and_a_folder_outside_the_project(
        self, tmp_path: Path, fake: FakeBuild, capsys: pytest.CaptureFixture[str]
    ) -> None:
        build_wheel(make_project(tmp_path, hook="jobs = 3"))
        (call,) = fake.calls
        assert call["config"].package == "textmodel"
        assert call["config"].jobs == 3
        assert call["table"] == "tool.hatch.build.hooks.precompile"
        assert call["root"] == tmp_path
        assert not call["work"].is_relative_to(tmp_path)
        assert "encoder: sample 1 of 1\n" in capsys.readouterr().err

    def test_the_environment_says_what_is_no_configuration(
        self, tmp_path: Path, fake: FakeBuild, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HATCH_PRECOMPILE_REUSE", "earlier.whl")
        monkeypatch.setenv("HATCH_PRECOMPILE_SHARD", "2of3")
        build_wheel(make_project(tmp_path))
        assert (fake.calls[0]["reuse"], fake.calls[0]["shard"]) == (Path("earlier.whl"), Shard(2, 3))

    def test_its_folder_is_gone_afterwards(self, tmp_path: Path, fake: FakeBuild) -> None:
        build_wheel(make_project(tmp_path))
        assert not fake.calls[0]["work"].parent.exists()

    def test_a_report_is_written_beside_the_wheel_where_one_is_wanted(
        self, tmp_path: Path, fake: FakeBuild, capsys: pytest.CaptureFixture[str]
    ) -> None:
        wheel = build_wheel(make_project(tmp_path / "one", hook="report = true"))
        page = wheel.with_name(f"{wheel.stem}.report.html")
        assert page.read_text("utf-8") == "<p>½</p>"
        assert f"the report of the build is {page}\n" in capsys.readouterr().err
        wheel = build_wheel(make_project(tmp_path / "two"))
        assert list(wheel.parent.iterdir()) == [wheel]

    @pytest.mark.parametrize("error", [CaptureError("no"), KeyError("a bug"), KeyboardInterrupt()])
    def test_its_folder_is_gone_after_a_failure_too(
        self, tmp_path: Path, fake: FakeBuild, error: BaseException
    ) -> None:
        fake.error = error
        with pytest.raises((SystemExit, KeyError, KeyboardInterrupt)):
            build_wheel(make_project(tmp_path))
        assert not fake.calls[0]["work"].parent.exists()
        assert not list((tmp_path / "dist").iterdir())


def aborted(root: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a failed build says."""
    with pytest.raises(SystemExit) as caught:
        build_wheel(root)
    assert caught.value.code == 1
    return capsys.readouterr().err


class TestErrors:
    def test_an_error_of_the_build_is_one_sentence_and_a_status_of_1(
        self, tmp_path: Path, fake: FakeBuild, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake.error = CaptureError("encoder: sample 1 raised ValueError: no such word")
        text = aborted(make_project(tmp_path), capsys)
        assert text.endswith("precompile: encoder: sample 1 raised ValueError: no such word\n")
        assert "Traceback" not in text

    def test_an_error_of_the_configuration_names_the_table_it_stands_in(
        self, tmp_path: Path, fake: FakeBuild, capsys: pytest.CaptureFixture[str]
    ) -> None:
        text = aborted(make_project(tmp_path, extra='on-miss = "jit"'), capsys)
        assert text == (
            "precompile: tool.hatch.build.hooks.precompile.entrypoints[0].on-miss: "
            'expected "eager", "compile" or "error", got "jit"\n'
        )

    @pytest.mark.parametrize(
        ("hook", "extra", "text"),
        [
            ("job = 2", "", "job: unknown key; did you mean jobs?"),
            ("jobs = 'all'", "", 'jobs: expected a whole number, 0 or more, got "all"'),
            ("verify = 1", "", 'verify: expected true or false, or "run", got 1'),
            (
                "variants = 'native'",
                "",
                'variants: expected an array of one or more variant names, such as ["native"], got "native"',
            ),
            ("require-torch = '2.13.0'", "", 'require-torch: expected "exact" or "none", got "2.13.0"'),
            (
                "package = 'text-model'",
                "",
                'package: expected the name of an import package, such as "textmodel", got "text-model"',
            ),
            (
                "",
                "mode = 'eval'",
                'entrypoints[0].mode: expected "no_grad", "inference" or "train", got "eval"',
            ),
            (
                "",
                "instance = 'textmodel.model.small'",
                'entrypoints[0].instance: expected a reference like "package.module:name", '
                'got "textmodel.model.small"',
            ),
            (
                "",
                "workload = 'textmodel.model:use'",
                "entrypoints[0].workload: expected either samples or workload, got both",
            ),
            (
                "",
                "dynamic-shapes = { x = ['batch'] }",
                "entrypoints[0].dynamic-shapes.x: expected a table of dimensions, such as "
                '{ 0 = "batch" }, got ["batch"]',
            ),
            (
                "",
                "dynamic-shapes.x.0 = { name = 'n', min = 8, max = 2 }",
                "entrypoints[0].dynamic-shapes.x.0: expected min <= max, got min = 8 and max = 2",
            ),
            (
                "",
                "[[tool.hatch.build.hooks.precompile.entrypoints]]\nsamples = 'textmodel.model:samples'",
                'entrypoints[1].target: expected a reference like "package.module:name", '
                "but the key is missing",
            ),
        ],
    )
    def test_a_broken_configuration_is_a_sentence_with_the_key_and_what_was_expected(
        self,
        tmp_path: Path,
        fake: FakeBuild,
        capsys: pytest.CaptureFixture[str],
        hook: str,
        extra: str,
        text: str,
    ) -> None:
        project = make_project(tmp_path, hook=hook, extra=extra)
        said = aborted(project, capsys)
        assert said == f"precompile: tool.hatch.build.hooks.precompile.{text}\n"
        assert fake.calls == []

    def test_also_where_that_is_the_table_of_the_target(
        self, tmp_path: Path, fake: FakeBuild, capsys: pytest.CaptureFixture[str]
    ) -> None:
        in_target = "tool.hatch.build.targets.wheel.hooks.precompile"
        file = make_project(tmp_path) / "pyproject.toml"
        without_entrypoints = file.read_text().partition("[[")[0]
        file.write_text(without_entrypoints.replace("tool.hatch.build.hooks.precompile", in_target))
        assert aborted(tmp_path, capsys).startswith(
            "precompile: tool.hatch.build.targets.wheel.hooks.precompile.entrypoints: expected"
        )

    def test_one_that_another_replaces(
        self, tmp_path: Path, fake: FakeBuild, capsys: pytest.CaptureFixture[str]
    ) -> None:
        make_project(tmp_path, extra="\n[tool.hatch.build.targets.wheel.hooks.precompile]\njobs = 2")
        assert aborted(tmp_path, capsys) == (
            "precompile: tool.hatch.build.hooks.precompile, tool.hatch.build.targets.wheel.hooks.precompile: "
            "one hook has one table, so only the last is read; keep one\n"
        )

    def test_also_where_that_is_in_hatch_toml(
        self, tmp_path: Path, fake: FakeBuild, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = make_project(tmp_path) / "pyproject.toml"
        file.write_text(file.read_text().partition("[tool.hatch")[0])
        (tmp_path / "hatch.toml").write_text(
            "[build.hooks.precompile]\njob = 1\n[build.targets.wheel]\npackages = ['textmodel']\n"
        )
        assert aborted(tmp_path, capsys) == (
            "precompile: hatch.toml: build.hooks.precompile.job: unknown key; did you mean jobs?\n"
        )

    def test_a_wheel_with_several_packages_must_say_which(
        self, tmp_path: Path, fake: FakeBuild, capsys: pytest.CaptureFixture[str]
    ) -> None:
        make_project(tmp_path, wheel="[tool.hatch.build.targets.wheel]\npackages = ['textmodel', 'other']")
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "__init__.py").write_text("")
        assert "precompile.package: the wheel holds other and textmodel; name" in aborted(tmp_path, capsys)

    def test_a_package_without_an_init_cannot_carry_a_bundle(
        self, tmp_path: Path, fake: FakeBuild, capsys: pytest.CaptureFixture[str]
    ) -> None:
        make_project(tmp_path, hook='package = "textmodel"')
        (tmp_path / "textmodel" / "__init__.py").unlink()
        assert "the wheel holds no textmodel/__init__.py" in aborted(tmp_path, capsys)

    def test_an_init_that_is_force_included_by_itself_cannot_be_replaced(
        self, tmp_path: Path, fake: FakeBuild, capsys: pytest.CaptureFixture[str]
    ) -> None:
        included = "'init.py' = 'textmodel/__init__.py'"
        make_project(tmp_path, wheel=f"[tool.hatch.build.targets.wheel.force-include]\n{included}")
        (tmp_path / "init.py").write_text("")
        assert "force-include the folder it is in" in aborted(tmp_path, capsys)

    def test_the_name_of_the_runtime_must_be_free(
        self, tmp_path: Path, fake: FakeBuild, capsys: pytest.CaptureFixture[str]
    ) -> None:
        make_project(tmp_path)
        (tmp_path / "textmodel" / "_precompiled.py").write_text("")
        assert "the project already has textmodel/_precompiled" in aborted(tmp_path, capsys)

    def test_a_project_that_excludes_the_torch_of_the_build_is_told_so(
        self, tmp_path: Path, fake: FakeBuild, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "the project requires torch<2" in aborted(make_project(tmp_path, requires='"torch<2"'), capsys)

    def test_a_folder_for_temporary_files_inside_the_project_is_refused(
        self,
        tmp_path: Path,
        fake: FakeBuild,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        make_project(tmp_path)
        (tmp_path / "tmp").mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
        assert "set TMPDIR to one that is not" in aborted(tmp_path, capsys)
        assert not list((tmp_path / "tmp").iterdir())


MAKES_VERSION = """
from pathlib import Path
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Hook(BuildHookInterface):
    def initialize(self, version, build_data):
        Path(self.root, "textmodel", "_version.py").write_text("version = 3.0")
"""
OTHER = "[tool.hatch.build.hooks.custom]"


ENDS = """
import os, signal
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Ends(BuildHookInterface):
    def initialize(self, version, build_data):
        os.kill(os.getpid(), signal.SIGHUP)
"""


class TestSignals:
    """From the first moment at which there is a folder to the last."""

    @pytest.fixture(autouse=True)
    def usual(self) -> Iterator[None]:
        before = {
            number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
        }
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        yield
        for number, handler in before.items():
            signal.signal(number, handler)

    @staticmethod
    def require_ended(project: Path, fake: FakeBuild) -> None:
        with pytest.raises(SystemExit) as caught:
            build_wheel(project)
        assert caught.value.code == 128 + signal.SIGHUP
        del caught
        gc.collect()  # as when the process ends
        assert not fake.calls[0]["work"].exists()

    def test_while_the_wheel_is_packed(self, tmp_path: Path, fake: FakeBuild) -> None:
        project = make_project(tmp_path, extra=OTHER)
        (project / "hatch_build.py").write_text(ENDS)
        self.require_ended(project, fake)

    def test_before_anything_is_captured(
        self, tmp_path: Path, fake: FakeBuild, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def source_roots(files: dict[str, Path], folder: Path) -> list[Path]:
            fake.calls.append({"work": folder})
            os.kill(os.getpid(), signal.SIGHUP)
            return []

        monkeypatch.setattr(hatch_precompile.frontends.hatch, "source_roots", source_roots)
        self.require_ended(make_project(tmp_path), fake)

    def test_afterwards_they_are_handled_as_before(self, tmp_path: Path, fake: FakeBuild) -> None:
        build_wheel(make_project(tmp_path))
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


class TestOtherHooks:
    """What is compiled is what the wheel holds, or there is no wheel."""

    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        root = make_project(tmp_path)
        (root / "hatch_build.py").write_text(MAKES_VERSION)
        return root

    @staticmethod
    def add(project: Path, first: bool) -> None:
        file = project / "pyproject.toml"
        text = file.read_text()
        ours = "[tool.hatch.build.hooks.precompile]"
        file.write_text(text.replace(ours, f"{OTHER}\n{ours}") if first else f"{text}\n{OTHER}\n")

    def test_what_one_before_makes_is_compiled(self, project: Path, fake: FakeBuild) -> None:
        self.add(project, first=True)
        (project / "textmodel" / "_version.py").write_text("version = 2.0")
        assert read(build_wheel(project))["textmodel/_version.py"] == b"version = 3.0"

    @pytest.mark.parametrize(("before", "what"), [("version = 2.0", "are another"), (None, "were not there")])
    def test_what_one_after_makes_was_not_compiled(
        self,
        project: Path,
        fake: FakeBuild,
        before: str | None,
        what: str,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.add(project, first=False)
        if before is not None:
            (project / "textmodel" / "_version.py").write_text(before)
        said = aborted(project, capsys)
        assert f"of its files textmodel/_version.py {what}" in said
        assert "put its table above this one's" in said
        assert not list((project / "dist").iterdir())

    def test_what_one_after_makes_was_missed(
        self, project: Path, fake: FakeBuild, capsys: pytest.CaptureFixture[str]
    ) -> None:
        fake.error = CaptureError("textmodel cannot be imported: No module named 'textmodel._version'")
        assert "custom" not in aborted(project, capsys)
        self.add(project, first=False)
        assert "Hooks that run after this one: custom. " in aborted(project, capsys)
