"""The source distribution that all cells are built from."""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hatch_precompile.errors import BuildError
from hatch_precompile.matrix import sdist_child
from hatch_precompile.matrix.environment import find_uv, with_installer
from hatch_precompile.processes import run_command

__all__ = ["Source", "make_source"]


@dataclass(frozen=True)
class Source:
    """A source distribution: the name of its file, and its bytes."""

    name: str
    content: bytes

    def digest(self) -> str:
        """What is in it, whenever it was packed: a sha256 of the names and the contents of its files."""
        digest = hashlib.sha256()
        with tarfile.open(fileobj=io.BytesIO(self.content)) as archive:
            for member in sorted(archive.getmembers(), key=lambda member: member.name):
                file = archive.extractfile(member) if member.isfile() else None
                content = file.read() if file else b""
                name = f"{member.name}\0{member.linkname}".encode("utf-8", "surrogateescape")
                digest.update(len(name).to_bytes(8, "big") + name)
                digest.update(len(content).to_bytes(8, "big") + content)
        return digest.hexdigest()


def make_source(
    project: Path, variables: Mapping[str, str], torch: str, on_line: Callable[[str], None]
) -> Source:
    """Build the source distribution of a project: by its backend, in an environment of its own that has what
    build-system.requires lists but for torch. torch: the version, should something else bring it in.

    Raises BuildError with the last lines where the backend fails.
    """
    with tempfile.TemporaryDirectory(prefix="hatch-precompile-sdist-") as folder:
        temporary = Path(folder, "tmp")
        temporary.mkdir()
        out = Path(folder, "dist")
        uv = find_uv(variables)
        status, tail = run_command(
            # -P: the folder of this module has modules of its own.
            [sys.executable, "-P", sdist_child.__file__, project, out, torch, "uv" if uv else "pip"],
            {**with_installer(variables, uv), "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
            on_line,
        )
        if status:
            raise BuildError("\n".join(["the source distribution cannot be built:", *tail]))
        (made,) = out.glob("*.tar.gz")
        return Source(made.name, made.read_bytes())
