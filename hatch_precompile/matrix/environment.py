"""The environment a cell is built in: its Python, and an installer that is held to its torch.

uv where it is there, which also fetches a Python that is not; else venv and pip.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hatch_precompile.config.cells import Cell
from hatch_precompile.errors import BuildError
from hatch_precompile.processes import run_command

__all__ = ["Environment", "find_uv", "make_environment", "with_installer"]

# The first with `--dependency-constraints-txt` that holds for everything it installs.
_FRONT_END = "build>=1.6"

# What pip and uv call the same setting. uv reads none of pip's.
_SAME = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_NO_INDEX": "UV_NO_INDEX",
    "PIP_CONSTRAINT": "UV_CONSTRAINT",
    "PIP_PRE": "UV_PRERELEASE",
}
_INDEX = "https://download.pytorch.org/whl"
# What only makes sense to the interpreter that this process runs in.
_OWN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")

Line = Callable[[str], None]


@dataclass(frozen=True)
class Environment:
    """Where the front end of a cell runs. `python`: has `build`; `options`: of `build`; `variables`: those of
    the process."""

    python: Path
    options: list[str]
    variables: dict[str, str]
    cell: Cell
    uv: str | None

    def lacks_torch(self) -> str | None:
        """Why the cell's torch cannot be installed; None if it can."""
        command = [*_install(self.python, self.uv), "--dry-run", "--no-deps", _requirement(self.cell)]
        status, tail = run_command(command, self.variables, lambda _: None)
        return (tail[-1].strip() if tail else "no reason is given") if status else None


def make_environment(cell: Cell, folder: Path, variables: Mapping[str, str], on_line: Line) -> Environment:
    """Make it in `folder`. Raises BuildError where there is no such Python, or nothing can be installed."""
    folder.mkdir(parents=True)
    uv = find_uv(variables)
    own = with_installer(_with_index(variables, cell), uv)
    found = _interpreter(cell.python, own)
    if found is None and uv is None:
        raise BuildError(
            f"Python {cell.python} is not here: no python{cell.python} runs from PATH, and pyenv has none; "
            "install it, or uv, which can fetch it"
        )
    home = folder / "environment"
    on_line(f"* Making an environment with Python {cell.python}...")
    _run(
        [uv, "venv", "--no-project", "--python", found or cell.python, home]
        if uv
        else [found or "", "-m", "venv", home],
        f"Python {cell.python} is not to be had",
        own,
        on_line,
    )
    python = home / "bin" / "python"
    command = [*_install(python, uv), _FRONT_END]
    _run(command, f"{_FRONT_END} cannot be installed for Python {cell.python}", own, on_line)
    constraints = folder / "constraints.txt"
    constraints.write_text(f"{_requirement(cell)}\n")
    options = ["--dependency-constraints-txt", str(constraints), "--installer", "uv" if uv else "pip"]
    return Environment(python, options, own, cell, uv)


def _requirement(cell: Cell) -> str:
    return f"torch=={cell.torch}+{cell.cuda}" if cell.cuda else f"torch=={cell.torch}"


def _with_index(variables: Mapping[str, str], cell: Cell) -> dict[str, str]:
    """With PyTorch's index of the builds for the cell's CUDA, beside those that are set."""
    result = dict(variables)
    if cell.cuda:
        for name in ("PIP_EXTRA_INDEX_URL", *(["UV_INDEX"] if "UV_INDEX" in result else [])):
            result[name] = f"{result.get(name, '')} {_INDEX}/{cell.cuda}".strip()
    return result


def with_installer(variables: Mapping[str, str], uv: str | None) -> dict[str, str]:
    """The variables of a process for another interpreter: with uv, pip's settings are uv's as well."""
    result = {key: value for key, value in variables.items() if key not in _OWN}
    if uv is None:
        return result
    result["UV"] = uv
    for theirs, ours in _SAME.items():
        if theirs not in result or ours in result:
            continue
        value = result[theirs]
        if theirs == "PIP_FIND_LINKS":
            value = ",".join(value.split())
        elif theirs == "PIP_PRE":
            value = "allow"
        result[ours] = value
    if "PIP_EXTRA_INDEX_URL" in result or "PIP_FIND_LINKS" in result:
        # As pip does: the best version of all of them, not of the first that has any.
        result.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return result


def find_uv(variables: Mapping[str, str]) -> str | None:
    """The command uv: on PATH, or installed with this plugin; None where it is not."""
    beside = str(Path(sys.executable).parent)
    return shutil.which("uv", path=os.pathsep.join([variables.get("PATH", ""), beside]))


def _install(python: Path, uv: str | None) -> list[str]:
    own = [str(python), "-m", "pip", "install"]
    return [uv, "pip", "install", "--python", str(python)] if uv else own


def _interpreter(version: str, variables: Mapping[str, str]) -> Path | None:
    """An interpreter of this minor version that runs: this one, one on PATH, or one of pyenv's."""
    home = Path(variables.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [
        Path(sys.executable),
        *(
            Path(folder, f"python{version}")
            for folder in variables.get("PATH", "").split(os.pathsep)
            if folder
        ),
        *sorted(home.glob(f"versions/{version}.*/bin/python{version}"), reverse=True),
    ]
    return next((each for each in candidates if os.access(each, os.X_OK) and _is(each, version)), None)


def _is(python: Path, version: str) -> bool:
    # What stands on PATH may be a shim that runs nothing.
    code = "import sys; print('{}.{}'.format(*sys.version_info))"
    try:
        done = subprocess.run(
            [python, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def _run(command: Sequence[str | Path], problem: str, variables: Mapping[str, str], on_line: Line) -> None:
    status, tail = run_command(command, variables, on_line)
    if status:
        raise BuildError("\n".join([f"{problem}:", *tail]))
