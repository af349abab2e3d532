"""The environment of a cell: which interpreter, which installer, and what it is told."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hatch_precompile.config.cells import Cell
from hatch_precompile.errors import BuildError
from hatch_precompile.matrix import environment
from hatch_precompile.matrix.environment import make_environment, with_installer

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
OTHER = "3.13" if HERE == "3.14" else "3.14"


def variables(machine: Path) -> dict[str, str]:
    return {"PATH": str(machine), "PYENV_ROOT": str(machine / "pyenv")}


def interpreter(path: Path, version: str, machine: Path) -> Path:
    """One that says it is of a version, and writes down what else it is asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = -I ]; then echo {version}; exit; fi\necho "$0 $@" >> {machine}/python.log\n'
        f'if [ "$2" = venv ]; then /bin/mkdir -p "$3/bin"; /bin/cp "$0" "$3/bin/python"; fi\n'
    )
    path.chmod(0o755)
    return path


def without_uv(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "find_uv", lambda _: None)


def test_uv_makes_it_where_it_is_there(machine: Path, tmp_path: Path) -> None:
    made = make_environment(Cell(OTHER, "2.13.0"), tmp_path / "cell", variables(machine), lambda _: None)
    log = (machine / "uv.log").read_text().splitlines()
    home = tmp_path / "cell" / "environment"
    assert log == [
        f"venv --no-project --python {OTHER} {home}",
        f"pip install --python {home}/bin/python build>=1.6",
    ]
    assert made.options[-2:] == ["--installer", "uv"]
    assert made.python == home / "bin" / "python"


def test_the_installer_is_held_to_the_torch(machine: Path, tmp_path: Path) -> None:
    made = make_environment(Cell("3.12", "2.14.1"), tmp_path / "cell", variables(machine), lambda _: None)
    assert made.options[0] == "--dependency-constraints-txt"
    assert Path(made.options[1]).read_text() == "torch==2.14.1\n"


def test_of_a_cuda_it_is_the_build_that_pytorchs_index_has(machine: Path, tmp_path: Path) -> None:
    cell = Cell("3.12", "2.14.1", cuda="cu126")
    own = variables(machine) | {"PIP_EXTRA_INDEX_URL": "https://a"}
    made = make_environment(cell, tmp_path / "cell", own, lambda _: None)
    assert Path(made.options[1]).read_text() == "torch==2.14.1+cu126\n"
    indexes = "https://a https://download.pytorch.org/whl/cu126"
    assert (made.variables["PIP_EXTRA_INDEX_URL"], made.variables["UV_INDEX"]) == (indexes, indexes)
    assert made.variables["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    own = variables(machine) | {"UV_INDEX": "https://b"}
    made = make_environment(cell, tmp_path / "other", own, lambda _: None)
    assert made.variables["UV_INDEX"] == "https://b https://download.pytorch.org/whl/cu126"


def test_an_interpreter_that_is_here_is_taken(machine: Path, tmp_path: Path) -> None:
    found = interpreter(
        machine / "pyenv" / "versions" / f"{OTHER}.2" / "bin" / f"python{OTHER}", OTHER, machine
    )
    make_environment(Cell(OTHER, "2.13.0"), tmp_path / "cell", variables(machine), lambda _: None)
    assert f"--python {found} " in (machine / "uv.log").read_text()


def test_a_shim_that_runs_nothing_is_not_taken(machine: Path, tmp_path: Path) -> None:
    shim = machine / f"python{OTHER}"
    shim.write_text(f"#!/bin/sh\necho 'python{OTHER}: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    make_environment(Cell(OTHER, "2.13.0"), tmp_path / "cell", variables(machine), lambda _: None)
    assert f"--python {OTHER} " in (machine / "uv.log").read_text()


def test_without_uv_an_interpreter_makes_it(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_uv(machine, monkeypatch)
    found = interpreter(machine / f"python{OTHER}", OTHER, machine)
    made = make_environment(Cell(OTHER, "2.13.0"), tmp_path / "cell", variables(machine), lambda _: None)
    home = tmp_path / "cell" / "environment"
    assert (machine / "python.log").read_text().splitlines() == [
        f"{found} -m venv {home}",
        f"{home}/bin/python -m pip install build>=1.6",
    ]
    assert made.options[-2:] == ["--installer", "pip"]


def test_without_either_it_says_so(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_uv(machine, monkeypatch)
    with pytest.raises(BuildError) as caught:
        make_environment(Cell("3.98", "2.13.0"), tmp_path / "cell", variables(machine), lambda _: None)
    assert str(caught.value) == (
        "Python 3.98 is not here: no python3.98 runs from PATH, and pyenv has none; "
        "install it, or uv, which can fetch it"
    )


def test_uv_gets_the_settings_of_pip() -> None:
    own = with_installer(
        {
            "PIP_INDEX_URL": "https://a",
            "PIP_EXTRA_INDEX_URL": "https://b https://c",
            "PIP_FIND_LINKS": "/d /e",
            "PIP_CONSTRAINT": "f.txt",
        },
        "/bin/uv",
    )
    assert own["UV_DEFAULT_INDEX"] == "https://a"
    assert own["UV_INDEX"] == "https://b https://c"
    assert own["UV_FIND_LINKS"] == "/d,/e"
    assert own["UV_CONSTRAINT"] == "f.txt"
    assert own["UV_INDEX_STRATEGY"] == "unsafe-best-match"


def test_its_own_are_left_alone() -> None:
    own = with_installer({"PIP_INDEX_URL": "https://a", "UV_DEFAULT_INDEX": "https://b"}, "/bin/uv")
    assert own["UV_DEFAULT_INDEX"] == "https://b"
    assert "UV_INDEX_STRATEGY" not in own


@pytest.mark.parametrize("uv", ["/bin/uv", None])
def test_what_only_this_interpreter_can_use_is_left_out(uv: str | None) -> None:
    own = with_installer({**os.environ, "PYTHONPATH": "/a", "VIRTUAL_ENV": "/b", "PYTHONHOME": "/c"}, uv)
    assert {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME"}.isdisjoint(own)
