"""Names of files that somebody else has given."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["is_below", "is_file_name"]

_LONGEST = 1024  # characters of a path; Linux takes 4096 bytes, the folder included

_DRIVE = re.compile(r"[A-Za-z]:")


def is_below(name: str) -> bool:
    """Whether a path stays within the folder that it is joined to, on every system, and is plain text."""
    return (
        0 < len(name) <= _LONGEST
        and not {"", ".", ".."} & set(name.split("/"))
        and "\\" not in name
        and _DRIVE.match(name) is None
        and not any(unicodedata.category(each) in ("Cc", "Cs") for each in name)
    )


def is_file_name(name: str) -> bool:
    """The same, in the folder itself."""
    return "/" not in name and is_below(name)
