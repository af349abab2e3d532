"""What goes into a wheel besides the bundle."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.tags import parse_tag, sys_tags

from hatch_precompile.errors import BuildError
from hatch_precompile.wheel.contents import import_packages, source_roots
from hatch_precompile.wheel.requirement import requirement
from hatch_precompile.wheel.shim import shim_line, with_shim
from hatch_precompile.wheel.tag import wheel_tag

RECORDER = """
import sys
def install():
    sys.installed = sys.modules[__package__.rpartition(".")[0]].__dict__.get("__version__")
"""


def make_package(root: Path, init: bytes, runtime: str | None = RECORDER) -> Path:
    package = root / "textmodel"
    package.mkdir()
    (package / "__init__.py").write_bytes(with_shim(init, "textmodel"))
    if runtime is not None:
        (package / "_precompiled").mkdir()
        (package / "_precompiled" / "__init__.py").write_text(runtime)
    return package


def run(root: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class TestShim:
    def test_it_is_one_line_of_one_statement(self) -> None:
        line = shim_line("textmodel")
        assert "\n" not in line
        assert len(ast.parse(line).body) == 1

    def test_importing_the_package_installs_after_all_of_its_own_code(self, tmp_path: Path) -> None:
        make_package(tmp_path, b"__version__ = '1'\n__version__ = '2'")
        assert run(tmp_path, "import textmodel; print(sys.installed)") == "2"

    def test_a_package_without_its_runtime_imports(self, tmp_path: Path) -> None:
        make_package(tmp_path, b"x = 1\n", runtime=None)
        assert run(tmp_path, "import textmodel; print(textmodel.x)") == "1"

    def test_what_the_runtime_raises_on_purpose_is_raised(self, tmp_path: Path) -> None:
        make_package(tmp_path, b"", runtime="def install(): raise RuntimeError('strict')")
        code = "try: import textmodel\nexcept RuntimeError as error: print(error)"
        assert run(tmp_path, code) == "strict"

    @pytest.mark.parametrize("runtime", ["", "x = (", "\0\0", "install = nothing", "import no_such_module"])
    @pytest.mark.parametrize("mode", ["", "quiet", "off", "strict"])
    def test_a_runtime_that_is_damaged_is_a_warning(self, tmp_path: Path, runtime: str, mode: str) -> None:
        make_package(tmp_path, b"x = 1\n", runtime=runtime)
        code = (
            "import os, warnings\n"
            f"os.environ['HATCH_PRECOMPILE'] = {mode!r}\n"
            "with warnings.catch_warnings(record=True) as said:\n"
            "    warnings.simplefilter('always')\n"
            "    try: import textmodel\n"
            "    except Exception as error: print('raised')\n"
            "    else: print(hasattr(textmodel, '_precompiled'))\n"
            "print([str(each.message) for each in said if 'textmodel' in str(each.message)])"
        )
        first, said = run(tmp_path, code).splitlines()
        assert first == ("raised" if mode == "strict" else "False")
        assert ("textmodel: compiled code is not used: " in said) is (mode == "")
        assert ("; reinstall the package" in said) is (mode == "")

    def test_so_it_is_where_warnings_are_errors(self, tmp_path: Path) -> None:
        make_package(tmp_path, b"x = 1\n", runtime="x = (")
        code = "import warnings; warnings.simplefilter('error'); import textmodel; print(textmodel.x)"
        assert run(tmp_path, code) == "1"

    def test_what_a_signals_handler_raises_in_the_meantime_is_raised(self, tmp_path: Path) -> None:
        make_package(tmp_path, b"", runtime="raise TimeoutError('of a handler')")
        code = "try: import textmodel\nexcept TimeoutError as error: print(error)"
        assert run(tmp_path, code) == "of a handler"

    def test_it_leaves_only_the_runtime_in_the_package(self, tmp_path: Path) -> None:
        make_package(tmp_path, b"")
        names = run(
            tmp_path, "import textmodel; print([n for n in vars(textmodel) if not n.startswith('__')])"
        )
        assert names == "['_precompiled']"

    def test_a_lazy_package_is_not_asked_for_anything(self, tmp_path: Path) -> None:
        make_package(
            tmp_path, b"def __getattr__(name):\n    print('asked for', name)\n    raise AttributeError\n"
        )
        assert run(tmp_path, "import textmodel") == ""

    def test_a_subpackage_installs_its_own(self, tmp_path: Path) -> None:
        package = tmp_path / "ns" / "textmodel"
        package.mkdir(parents=True)
        (package / "__init__.py").write_bytes(with_shim(b"__version__ = 3", "ns.textmodel"))
        (package / "_precompiled.py").write_text("def install(): print('installed')")
        assert run(
            tmp_path, "import ns.textmodel; print([n for n in vars(sys.modules['ns']) if n == 'ns'])"
        ) == ("installed\n[]")


class TestAppending:
    @pytest.mark.parametrize(
        "source",
        [
            b"",
            b"\n",
            b"x = 1",
            b"x = 1\n",
            b"x = 1\r\ny = 2\r\n",
            b"x = 1\r\ny = 2",
            b"\xef\xbb\xbfx = '\xc3\xa9'\n",
            b"# -*- coding: latin-1 -*-\nx = '\xe9'\n",
            b"from __future__ import annotations\n",
            b'"""Docstring."""\n',
            b"if True:\n    x = 1\n    ",
            b"if True:\n    x = 1",
            b"def f():\n    return 1\n\n\n# the end \\",
            b"x = 1;",
            b"__all__ = [\n    'x',\n]\nx = 1\n",
            b"x = '''\n'''\n\x0c\n",
        ],
    )
    def test_every_earlier_line_stands_and_one_statement_is_added(self, source: bytes) -> None:
        result = with_shim(source, "textmodel")
        assert result.startswith(source)
        before, after = ast.parse(source), ast.parse(result)
        assert ast.dump(before, include_attributes=True) == ast.dump(
            ast.Module(after.body[:-1], []), include_attributes=True
        )
        assert after.body[-1].col_offset == 0
        assert len(result.splitlines()) == len(source.splitlines()) + 1

    def test_line_ends_are_those_of_the_file(self) -> None:
        assert with_shim(b"x = 1\r\n", "p").count(b"\n") == with_shim(b"x = 1\r\n", "p").count(b"\r\n") == 2
        assert b"\r" not in with_shim(b"x = 1\n", "p")

    def test_the_package_name_is_written_in_the_encoding_of_the_file(self) -> None:
        line = with_shim(b"# coding: latin-1\n", "mod\u00e8le").splitlines()[-1]
        assert b"mod\xe8le._precompiled" in line

    @pytest.mark.parametrize(
        "source", [b"x = (", b"x = 1 \\", b"x = 1 \\\n", b"\x00", b"# coding: nonsense\n"]
    )
    def test_a_file_that_is_not_python_is_an_error_that_names_it(self, source: bytes) -> None:
        with pytest.raises(BuildError, match=r"ns/textmodel/__init__\.py is not valid Python: "):
            with_shim(source, "ns.textmodel")


def compile_library(directory: Path, source: str, *, name: str = "graph.so", needs: str = "") -> Path:
    """Compile C; `needs` is the `-l` name of a library in the same folder."""
    (directory / "source.c").write_text(source)
    command = ["g++", "-shared", "-fPIC", "-fno-builtin", "-o", name, f"-Wl,-soname,{name}"]
    command += ["-x", "c", "source.c", "-x", "none", "-L."]
    command += ["-Wl,--no-as-needed", f"-l{needs}"] if needs else []
    subprocess.run(command, cwd=directory, check=True)
    return directory / name


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that needs nothing but an old libc."""
    source = 'int puts(const char *); int f() { return puts(""); }'
    return compile_library(tmp_path_factory.mktemp("tag"), source)


class TestTag:
    def test_it_names_this_interpreter_and_the_oldest_platform_that_fits(self, library: Path) -> None:
        (tag,) = parse_tag(wheel_tag([library]))
        here = next(iter(sys_tags()))
        assert (tag.interpreter, tag.abi) == (here.interpreter, here.abi)
        assert tag.platform.startswith("manylinux_2_5_") or tag.platform.startswith("manylinux_2_17_")

    def test_this_interpreter_can_install_it(self, library: Path) -> None:
        assert parse_tag(wheel_tag([library])) <= set(sys_tags())
        assert parse_tag(wheel_tag([])) <= set(sys_tags())

    def test_a_newer_symbol_asks_for_a_newer_platform(self, library: Path, tmp_path: Path) -> None:
        source = "int getentropy(void *, unsigned long); int f(void *p) { return getentropy(p, 1); }"
        newer = compile_library(tmp_path, source)
        policy = parse_tag(wheel_tag([library, newer]))
        assert min(int(tag.platform.split("_")[2]) for tag in policy) >= 25  # getentropy came with glibc 2.25

    def test_libraries_that_torch_brings_may_be_needed(self, tmp_path: Path) -> None:
        compile_library(tmp_path, "int g() { return 1; }", name="libtorch_cpu.so")
        library = compile_library(tmp_path, "int g(); int f() { return g(); }", needs="torch_cpu")
        assert "manylinux" in wheel_tag([library])

    def test_any_other_library_makes_it_a_wheel_for_this_machine(self, library: Path, tmp_path: Path) -> None:
        compile_library(tmp_path, "int g() { return 1; }", name="libelsewhere.so")
        needy = compile_library(tmp_path, "int g(); int f() { return g(); }", needs="elsewhere")
        (tag,) = parse_tag(wheel_tag([library, needy]))
        assert tag.platform.startswith("linux_")

    def test_without_libraries_it_is_bytecode_for_this_interpreter(self) -> None:
        assert wheel_tag([]) == f"{next(iter(sys_tags())).interpreter}-none-any"

    def test_a_file_that_is_no_library_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        (tmp_path / "graph.so").write_bytes(b"not ELF")
        with pytest.raises(BuildError, match=r"graph\.so is not a shared library"):
            wheel_tag([tmp_path / "graph.so"])


class TestRequirement:
    @pytest.mark.parametrize("version", ["2.13.0", "2.13.0+cpu", "2.13.0+cu130"])
    def test_it_is_exactly_the_version_built_with_whichever_build_that_was(self, version: str) -> None:
        assert requirement(version, "exact") == "torch==2.13.0"

    def test_a_nightly_is_required_as_such(self) -> None:
        assert requirement("2.15.0.dev20260102+cpu", "exact") == "torch==2.15.0.dev20260102"

    def test_none_leaves_the_requirements_alone(self) -> None:
        assert requirement("2.13.0", "none", ["torch<2"]) is None

    def test_a_looser_one_of_the_project_does_not_replace_it(self) -> None:
        assert requirement("2.13.0", "exact", ["torch>=2", "numpy"]) == "torch==2.13.0"

    def test_it_is_not_said_twice(self) -> None:
        assert requirement("2.13.0+cpu", "exact", ["torch==2.13.0"]) is None

    def test_a_project_that_excludes_the_version_built_with_is_an_error(self) -> None:
        with pytest.raises(
            BuildError, match=r"requires torch<2\.13, but the build environment has torch 2\.13\.0"
        ):
            requirement("2.13.0+cpu", "exact", ["torch<2.13"])

    def test_requirements_for_elsewhere_do_not_count(self) -> None:
        assert requirement("2.13.0", "exact", ['torch<2; sys_platform == "win32"']) == "torch==2.13.0"


class TestLayout:
    def test_a_flat_layout_is_imported_from_the_project(self, tmp_path: Path) -> None:
        files = {"textmodel/__init__.py": tmp_path / "textmodel/__init__.py"}
        assert source_roots(files, tmp_path / "stage") == [tmp_path]

    def test_a_src_layout_is_imported_from_src(self, tmp_path: Path) -> None:
        files = {
            name: tmp_path / "src" / name
            for name in ("a/__init__.py", "a/b/c.py", "single.py", "a/weights.bin")
        }
        assert source_roots(files, tmp_path / "stage") == [tmp_path / "src"]

    def test_several_roots_are_kept_in_order(self, tmp_path: Path) -> None:
        files = {"a/__init__.py": tmp_path / "x/a/__init__.py", "b/__init__.py": tmp_path / "y/b/__init__.py"}
        assert source_roots(files, tmp_path / "stage") == [tmp_path / "x", tmp_path / "y"]

    def test_renamed_folders_are_imported_as_the_wheel_will_have_them(self, tmp_path: Path) -> None:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "__init__.py").write_text("x = 5")
        (root,) = source_roots({"textmodel/__init__.py": tmp_path / "lib/__init__.py"}, tmp_path / "stage")
        assert run(root, "import textmodel; print(textmodel.x)") == "5"

    def test_the_import_packages_of_a_wheel_are_its_outermost(self) -> None:
        assert import_packages(["a/__init__.py", "a/b/__init__.py", "c.py", "d/data.txt"]) == ["a"]
        assert import_packages(["ns/a/__init__.py", "b/__init__.py"]) == ["b", "ns.a"]
        assert import_packages(["c.py"]) == []
