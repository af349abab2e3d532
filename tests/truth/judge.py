"""What came of a case: the wheel beside eager code under the same change, and where they differ, beside
torch.compile under it, each in a process of its own."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from tests.truth.agreement import difference
from tests.truth.cases import Case
from tests.truth.catalogue import SOURCES
from tests.truth.observed import Raised
from tests.truth.servers import Answer, Servers

__all__ = ["Verdict", "judge"]


@dataclass(frozen=True)
class Verdict:
    """`verdict`: "right", "wrong", "crash", "hang", "as torch.compile" (and not as eager), or "no judge",
    where eager code itself ends the process, answers otherwise when it is asked again, or fails in torch's
    compiler, which torch.cond and its like call; `needless`: a miss without a
    reason; `changed`: eager's answer is another than without the change."""

    key: str
    program: str
    kind: str
    what: str
    verdict: str
    needless: bool
    changed: bool
    served: list[bool]
    wheel: str = ""
    compiled: str = ""
    why: str = ""
    diff: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def judge(case: Case, servers: Servers, plain: list[tuple[str, Any]] | None) -> Verdict:
    """plain: what eager code does without a change; None where this is that case."""
    eager = servers.ask(case, "eager")
    wheel = servers.ask(case, "wheel")
    served = list(wheel.report["served"]) if wheel.report else []
    verdict, words, compiled = _compared(case, servers, wheel, eager)
    if case.change.aside and any(served) and verdict == "right":
        verdict, words = "wrong", "it was served by compiled code, which was switched off"
    changed = plain is not None and not _as_before(eager.notes, plain)
    needless = (
        case.harmless and verdict == "right" and not all(served) and (case.kind == "data" or not changed)
    )
    return Verdict(
        case.key,
        case.program.name,
        case.kind,
        case.what,
        verdict,
        needless,
        changed,
        served,
        words,
        compiled,
        wheel.report["why"] if wheel.report else "",
        _diff(case) if verdict in ("wrong", "crash", "hang") or needless else "",
    )


def _compared(case: Case, servers: Servers, wheel: Answer, eager: Answer) -> tuple[str, str, str]:
    """The verdict, the wheel beside eager, torch.compile beside eager."""
    if eager.report is None:
        alike = (wheel.ended, wheel.code) == (eager.ended, eager.code)
        said = f"eager: {_end(eager)}; the wheel: {_end(wheel)}"
        return ("right" if alike and eager.ended != "exit" else "no judge"), said, ""
    if wheel.report is None:
        verdict = "hang" if wheel.ended == "hang" else "crash"
        return verdict, _end(wheel), ""
    words = difference(wheel.notes, eager.notes)
    if not words:
        return "right", "", ""
    if any(isinstance(value, Raised) and _OF_THE_COMPILER in value.text for _, value in eager.notes):
        return "no judge", words, "eager code fails in torch's compiler"
    again = servers.ask(case, "eager", perturb=_FILL)  # or what is read but never written would be the same
    if again.report is None or difference(_without_warnings(again.notes), _without_warnings(eager.notes)):
        return "no judge", words, "eager code answers otherwise when it is asked again"
    jitted = servers.ask(case, "compile")
    if jitted.report is None:
        return "wrong", words, f"no answer: {_end(jitted)}"
    beside = difference(_without_warnings(jitted.notes), _without_warnings(eager.notes)) or "as eager"
    if not difference(_without_warnings(wheel.notes), _without_warnings(jitted.notes), texts=False):
        return "as torch.compile", words, beside
    if _each_as_one_of_them(wheel, eager, jitted):
        return "as torch.compile", words, beside
    return "wrong", words, beside


def _each_as_one_of_them(wheel: Answer, eager: Answer, jitted: Answer) -> bool:
    """Whether what was served is as under torch.compile or eager, and all else as eager: a call that is not
    served runs as Python, where torch.compile would have compiled anew."""
    as_wheel, as_eager, as_jitted = map(_numbered, (wheel.notes, eager.notes, jitted.notes))
    served = set(wheel.report["served_notes"]) if wheel.report else set()
    for number, (key, value) in enumerate(as_wheel.items()):
        if key not in as_eager:
            return False
        if difference(value, as_eager[key]):
            if number not in served or key not in as_jitted:
                return False
            if difference(value, as_jitted[key], texts=False):
                return False
    return as_wheel.keys() == as_eager.keys()


def _numbered(notes: list[tuple[str, Any]]) -> dict[tuple[str, int], Any]:
    """By the label and how many had the same one before."""
    seen: Counter[str] = Counter()
    found = {}
    for label, value in notes:
        found[label, seen[label]] = value
        seen[label] += 1
    return found


_FILL = 0x55

# In the text of each error of dynamo's.
_OF_THE_COMPILER = "Set TORCHDYNAMO_VERBOSE=1"


def _without_warnings(notes: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Dynamo warns of much that is nobody's answer."""
    return [(label, value) for label, value in notes if not label.endswith(" warned")]


def _as_before(notes: list[tuple[str, Any]], plain: list[tuple[str, Any]]) -> bool:
    before = dict(plain)
    return not any(difference(value, before[label]) for label, value in notes if label in before)


def _end(answer: Answer) -> str:
    last = [line for line in answer.log.strip().splitlines() if line.strip()][-6:]
    return f"{answer.ended}, code {answer.code}: {' / '.join(last)}"[:800]


def _diff(case: Case) -> str:
    parts = []
    for file, text in case.files.items():
        before = (SOURCES / file).read_text().splitlines()
        parts += difflib.unified_diff(before, text.splitlines(), file, file, n=1, lineterm="")
    return "\n".join(parts)
