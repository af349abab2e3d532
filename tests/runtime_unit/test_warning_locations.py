"""Which frames of a stack are the runtime's own: what counts frames does not count them."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from hatch_precompile.runtime import runtime

warning_locations = runtime("loading.warning_locations")


def frame_in(file: str, module: Any) -> FrameType:
    own = {"__name__": module, "frame_of": sys._getframe}
    exec(compile("frame = frame_of()", file, "exec"), own)
    frame = own["frame"]
    assert isinstance(frame, FrameType)
    return frame


@pytest.mark.parametrize(
    ("file", "module", "expected"),
    [
        ("/site/textmodel/_precompiled/errors.py", "textmodel._precompiled.errors", True),
        ("/site/textmodel/_precompiled/calling/serving.py", "a.b._precompiled.calling.serving", True),
        ("C.zip/elsewhere/serving.py", "textmodel._precompiled.calling.serving", True),
        ("/srv/_precompiled/app/main.py", "app.main", False),
        ("/srv/_precompiled/main.py", "__main__", False),
        ("<string>", None, False),
        ("<string>", 3, False),
    ],
)
def test_a_frame_is_the_runtimes_by_its_module(file: str, module: Any, expected: bool) -> None:
    assert warning_locations._is_runtimes(frame_in(file, module)) is expected
