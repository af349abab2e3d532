"""What a wheel requires of torch."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from hatch_precompile.errors import BuildError

__all__ = ["requirement"]


def requirement(torch_version: str, policy: str, dependencies: Iterable[str] = ()) -> str | None:
    """What the wheel has to require of torch, None if nothing needs adding.

    `policy` is the configuration's require-torch, `dependencies` what the project requires anyway. The
    local part ("+cpu") is left out: which build of a version is installed is the user's choice, and
    `==` without a local part accepts them all. Raises BuildError if the project's own requirement
    excludes the version built with.
    """
    if policy == "none":
        return None
    public = Version(torch_version).public
    exact = f"torch=={public}"
    for own in _on_torch(dependencies):
        if not own.specifier.contains(public, prereleases=True):
            raise BuildError(
                f"the project requires {own}, but the build environment has torch {torch_version}; "
                "pin a torch in build-system.requires that the project's dependencies allow, "
                'or set require-torch = "none"'
            )
        if str(own) == exact:
            return None
    return exact


def _on_torch(dependencies: Iterable[str]) -> Iterable[Requirement]:
    for dependency in dependencies:
        try:
            found = Requirement(dependency)
        except InvalidRequirement:
            continue
        if found.name.lower() == "torch" and (found.marker is None or found.marker.evaluate({"extra": ""})):
            yield found
