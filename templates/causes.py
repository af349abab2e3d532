"""What helps where a file of the package cannot be used: not always another copy. Loaded with a failure."""

from __future__ import annotations

import errno
import os
import sys

__all__ = ["advice_on"]

_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_RIGHTS = (errno.EACCES, errno.EPERM)


def advice_on(path: str, imported: float, error: BaseException | None = None) -> str:
    """What to do, by the cause that can be seen.

    path: of the file; imported: when this process imported the package, as `time.time()` has it; error: what
    opening the file raised, or None where its content is not what was built.
    """
    code = getattr(error, "errno", None)
    if code in _LIMITS or isinstance(error, MemoryError):
        return "raise the limit of this process on what it has open, or on memory"
    archive = _archive_around(path)
    if archive:
        return f"install the package into a folder: compiled code is not loaded out of {archive}"
    if getattr(sys, "frozen", False) and code == errno.ENOENT:
        folder = __name__.rpartition(".")[0].replace(".", "/")
        return f"freeze the program with all files of the folder {folder}, its libraries too"
    if code in _RIGHTS:
        return "let this process read it"
    if _changed_since(imported, path):
        return "the package was replaced or removed after this process had imported it: restart the process"
    if error is None and path.endswith(".so"):
        return "install the wheel as it was built: a tool such as strip or patchelf may have changed the file"
    return "reinstall the package"


def _archive_around(path: str) -> str:
    """The file that `path` would lie in, if it is one: a zip archive that Python imports from."""
    folder = os.path.dirname(path)
    while folder and not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return folder if os.path.isfile(folder) else ""


def _changed_since(imported: float, path: str) -> bool:
    """Whether the file, or where it is missing the nearest folder there is, was written since then. What the
    file system says of that time is not exact: a file must be newer by more than that."""
    while path and not os.path.lexists(path):
        path = os.path.dirname(path)
    try:
        return os.stat(path).st_ctime > imported + _CLOCK
    except OSError:
        return False


_CLOCK = 0.02  # seconds; kernels keep the time of a file by their ticks


WHOLE = True
