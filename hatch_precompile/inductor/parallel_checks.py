"""Checks that fail in a parallel region of a kernel: the C++ source is made to raise after the region.

Inductor writes a check of an index, and others, as a throw. Out of an OpenMP region a throw ends the process
(std::terminate), and with dynamic threads every kernel has such a region, however small. Here each loop that
is shared out among the threads keeps the first exception of its iterations; the loops after it, which might
use what it did not compute, are left out; and the exception goes on its way where the region ends.

The text is read, and not inductor's kernel classes overridden, because its templates of products and our own
kernels write regions of their own as text: one reader finds them all, and refuses what it cannot read.
Seen in torch 2.13.0 (torch/_inductor/codegen/cpp.py, torch/csrc/inductor/cpp_prefix.h).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["THROWING_HELPERS", "NotGuarded", "guarded"]

# Functions of torch's cpp_prefix.h that throw: where an integer is divided by zero.
THROWING_HELPERS = ("floor_divide_integral", "mod", "remainder_integral")

_THROWS = re.compile(rf"\bthrow\b|\b\w*(?:CHECK|ASSERT)\w*\s*\(|\b(?:{'|'.join(THROWING_HELPERS)})\s*\(")
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+omp[ \t]+(.*)$", re.MULTILINE)
_CODE_OUTSIDE = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<mark>[^\s()\\]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|(?<![\w'])'(?:\\.|[^'\\\n])+'""",
    re.DOTALL,
)

# A kernel notes a division by zero in a variable which all threads of the process share, so that what one of
# them divides may be told to another, or end the process. Without these lines the division throws.
_DIVISION_NOTES = re.compile(
    r"^.*\binductor_cpu_(?:integer_div_error|throw_if_integer_div_error).*\n", re.MULTILINE
)

_FAILURES = """
#include <atomic>
#include <exception>
namespace {
template <int loops> struct PrecompiledFailures {
    std::atomic<bool> failed[loops] = {};
    std::atomic<bool> kept{false};
    std::exception_ptr first;
    bool in(int loop) const noexcept { return failed[loop].load(std::memory_order_relaxed); }
    bool before(int loop) const noexcept { return loop > 0 && (in(loop - 1) || before(loop - 1)); }
    void keep(int loop) noexcept {
        if (!kept.exchange(true)) first = std::current_exception();
        failed[loop].store(true);
    }
    void rethrow() const { if (first) std::rethrow_exception(first); }
};
}
"""
_PREFIX = re.compile(r"^#include <torch/csrc/inductor/(?:cpp_prefix|cpp_wrapper/\w+)\.h>\n", re.MULTILINE)


class NotGuarded(Exception):
    """A check of a kernel stands where its failure would end the process; the text says where."""


@dataclass(frozen=True)
class _Directive:
    """An OpenMP directive: its words, where its line begins and ends, where the statement it governs ends."""

    words: str
    begin: int
    after: int
    end: int

    @property
    def kind(self) -> str:
        return " ".join(re.findall(r"^(?:parallel|for|single|simd)\b|(?<=^parallel )for\b", self.words))


def guarded(source: str) -> str:
    """The C++ source of kernels, in which no check that fails ends the process. Raises NotGuarded.

    One without checks in a parallel region comes back as it is, but for its notes of divisions by zero.
    """
    source = _DIVISION_NOTES.sub("", source)
    code = _CODE_OUTSIDE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    edits = [edit for region in _regions(code) for edit in _guard_region(code, region)]
    if not edits:
        return source
    for begin, end, text in sorted(edits, key=lambda edit: edit[0])[::-1]:
        source = source[:begin] + text + source[end:]
    prefix = _PREFIX.search(source)
    place = prefix.end() if prefix else 0
    return source[:place] + _FAILURES + source[place:]


def _directives(code: str, begin: int, end: int) -> Iterator[_Directive]:
    for match in _DIRECTIVE.finditer(code, begin, end):
        yield _Directive(match[1].strip(), match.start(), match.end(), _statement_end(code, match.end()))


def _regions(code: str) -> Iterator[_Directive]:
    """The parallel regions in which something may be thrown."""
    for directive in _directives(code, 0, len(code)):
        if directive.words.startswith("parallel") and _THROWS.search(code, directive.after, directive.end):
            yield directive


def _guard_region(code: str, region: _Directive) -> Iterator[tuple[int, int, str]]:
    """What to write where, for the checks in a region to be kept until it ends."""
    inside = list(_directives(code, region.after, region.end))
    if any(each.words.startswith("parallel") for each in inside):
        raise NotGuarded("one parallel region is in another")
    shared = [each for each in inside if each.kind in ("for", "single")]
    if region.kind == "parallel for":
        shared = [region]
    throwing = [each for each in shared if _THROWS.search(code, each.after, each.end)]
    if region not in shared:
        outside = [region.after, *(end for each in shared for end in (each.begin, each.end)), region.end]
        for begin, end in zip(outside[::2], outside[1::2], strict=True):
            if _THROWS.search(code, begin, end):
                raise NotGuarded("a check is made by every thread of a parallel region")
    declared = f"{{\nPrecompiledFailures<{len(throwing)}> precompiled_failures;\n"
    yield region.begin, region.begin, declared
    before = 0
    for directive in shared:
        skipped = before
        if skipped:  # every thread comes to the same answer: there is a barrier after each of these loops
            yield directive.begin, directive.begin, f"if (!precompiled_failures.before({skipped})) {{\n"
        if directive in throwing:
            yield from _guard_loop(code, directive, before)
            before += 1
        if skipped:
            yield directive.end, directive.end, "\n}"
    yield region.end, region.end, "\nprecompiled_failures.rethrow();\n}"


def _guard_loop(code: str, directive: _Directive, loop: int) -> Iterator[tuple[int, int, str]]:
    begin = directive.after
    if directive.kind != "single":
        collapsed = re.search(r"\bcollapse\((\d+)\)", directive.words)
        for _ in range(int(collapsed[1]) if collapsed else 1):
            begin = _loop_body(code, begin)
    end = _statement_end(code, begin)
    if _THROWS.search(code, directive.after, begin):
        raise NotGuarded("a check is made for the bounds of a parallel loop")
    # Nothing may be thrown in a simd region either; and the loops after this one rely on its barrier.
    words = re.sub(r"\bsimd\b|\bsimdlen\(\d+\)|\bnowait\b", "", directive.words)
    if words != directive.words:
        yield directive.begin, directive.after, f"#pragma omp {words}"
    for inner in _directives(code, begin, end):
        if _THROWS.search(code, inner.after, inner.end):
            if inner.kind != "simd":
                raise NotGuarded(f"a check is made under '#pragma omp {inner.words}'")
            yield inner.begin, inner.after, ""
    yield begin, begin, f"\n{{ if (!precompiled_failures.in({loop})) try {{"
    yield end, end, f"\n}} catch (...) {{ precompiled_failures.keep({loop}); }} }}"


def _loop_body(code: str, place: int) -> int:
    """Where the body of the loop begins that stands here, alone in braces or not."""
    match = re.compile(r"[\s{]*for\s*(?=\()").match(code, place)
    if match is None:
        raise NotGuarded("a parallel loop is written in a way that is not known")
    return _closing(code, match.end())


def _statement_end(code: str, place: int) -> int:
    """The end of the C++ statement that begins here or after white space and directives."""
    while True:
        match = re.compile(r"\s*(#[^\n]*|(?:for|while|if|switch)\b[^({]*(?=\())?").match(code, place)
        assert match is not None
        place = match.end()
        if match[1] is None:
            break
        if not match[1].startswith("#"):
            place = _closing(code, place)
    if code[place : place + 1] == "{":
        return _closing(code, place)
    while code[place : place + 1] not in (";", "}", ""):
        place = _closing(code, place) if code[place] in "({[" else place + 1
    return place + 1


def _closing(code: str, place: int) -> int:
    """Past the bracket that closes the one that stands here."""
    depth = 0
    for match in re.compile(r"[(\[{}\])]").finditer(code, place):
        depth += 1 if match[0] in "([{" else -1
        if depth == 0:
            return match.end()
    raise NotGuarded("its brackets do not match")
