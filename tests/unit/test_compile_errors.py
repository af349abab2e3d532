"""What a build says of an error that torch.compile raised: the lines that tell why, and no others."""

from __future__ import annotations

import pytest
from torch._inductor.exc import CppCompileError

from hatch_precompile.capture import compile_errors

INCLUDED = [
    "In file included from /torch/include/c10/util/StringUtil.h:6,",
    "                 from /torch/include/ATen/core/Tensor.h:3,",
    "                 from /tmp/graph.cpp:1:0:",
]
WARNED = [
    f"/tmp/graph.cpp:{line}: warning: unused variable 'tmp{line}' [-Wunused-variable]" for line in range(20)
]


def told(*output: str) -> list[str]:
    error = CppCompileError(["g++", "graph.cpp"], "\n".join(output))
    said = str(compile_errors.failure("entrypoint fine", error, with_traceback=False, runs_eagerly=True))
    return [line.strip() for line in said.splitlines()]


def test_the_compiler_is_named() -> None:
    first = told("fatal error: no such thing")[0]
    assert first == "entrypoint fine: torch.compile failed: CppCompileError: C++ compile error"


@pytest.mark.parametrize(
    "reason",
    [
        "/tmp/graph.s: fatal error: cannot write /tmp/graph.o: No space left on device",
        "/tmp/graph.cpp:31:5: error: 'aten' was not declared in this scope",
        "/usr/bin/ld: final link failed: No space left on device",
    ],
)
def test_an_error_stands_before_any_number_of_warnings(reason: str) -> None:
    assert reason in told(*WARNED, reason, *WARNED)


def test_the_headers_by_which_a_compiler_came_there_are_left_out() -> None:
    reason = "/tmp/graph.cpp:31:5: error: 'aten' was not declared in this scope"
    said = told(*INCLUDED, reason)
    assert reason in said
    assert not [line for line in said if "from " in line]


def test_lines_of_other_errors_stay_in_their_order() -> None:
    said = compile_errors.failure(
        "entrypoint fine", ValueError("one\ntwo\nerror: three"), with_traceback=False
    )
    assert [line.strip() for line in str(said).splitlines()][:3] == [
        "entrypoint fine raised ValueError: one",
        "two",
        "error: three",
    ]
