"""Makes a project's source distribution: `python sdist_child.py PROJECT OUTDIR TORCH INSTALLER`.

As the front end `build` does, but without torch, which is several hundred megabytes and packs no sources.
Only `build` and `packaging` are imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Literal

__all__ = ["main"]


def main(project: str, out: str, torch: str, installer: Literal["pip", "uv"]) -> None:
    from build import ProjectBuilder
    from build.env import DefaultIsolatedEnv

    with DefaultIsolatedEnv(installer=installer) as environment:
        builder = ProjectBuilder.from_isolated_env(environment, project)
        # Something else may bring torch in: then one that the matrix has.
        constraints = {f"torch=={torch}"}
        environment.install(_without_torch(builder.build_system_requires), constraints)
        environment.install(_without_torch(builder.get_requires_for_build("sdist")), constraints)
        builder.build("sdist", out)


def _without_torch(requirements: Iterable[str]) -> set[str]:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    return {each for each in requirements if canonicalize_name(Requirement(each).name) != "torch"}


if __name__ == "__main__":
    _, project, out, torch, installer = sys.argv
    main(project, out, torch, "uv" if installer == "uv" else "pip")
