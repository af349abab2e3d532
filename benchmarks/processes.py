"""Child processes that are timed: run one, see when its first output came, read what it measured."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inside import FIRST_OUTPUT

__all__ = ["Outcome", "RunError", "last_error", "run_timed", "run_to_log"]

_ERROR_LINE = re.compile(r"^\s*([A-Za-z_][\w.]*(Error|Exception|Unsupported|Exit)|Error|ERROR)\b.*\S")
_UNTELLING = re.compile(r"^ERROR Backend |CalledProcessError")


class RunError(Exception):
    """A child process failed; the text is its error in one line."""


@dataclass(frozen=True)
class Outcome:
    """What one run of a measured process gave."""

    process_s: float
    """From just before the process is started to its first output, on the parent's clock."""
    fields: dict[str, Any]
    """The JSON object the process printed as its last line."""


def last_error(text: str) -> str:
    """The line of ``text`` that says what went wrong, as well as one line can."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [n for n, line in enumerate(lines) if _ERROR_LINE.match(line) and not _UNTELLING.search(line)]
    if not telling:
        return lines[-1] if lines else "no output"
    at = telling[-1]
    return " ".join(lines[at : at + 2]) if lines[at].endswith(":") else lines[at]


def run_timed(
    command: Sequence[str | Path], *, env: Mapping[str, str], cwd: Path | None = None, timeout: float = 1200
) -> Outcome:
    """Run a process that prints FIRST_OUTPUT and, last, a JSON object. Raises RunError."""
    with tempfile.TemporaryFile("w+") as errors:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, env=dict(env), cwd=cwd, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        killer = threading.Timer(timeout, process.kill)
        killer.start()
        process_s, lines = None, []
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == FIRST_OUTPUT:
                process_s = time.perf_counter() - start
            lines.append(line)
        process.wait()
        timed_out = not killer.is_alive()
        killer.cancel()
        errors.seek(0)
        complaint = errors.read()
    if timed_out:
        raise RunError(f"no answer within {timeout:.0f} s")
    if process.returncode or process_s is None:
        raise RunError(last_error("".join(lines) + complaint))
    return Outcome(process_s, json.loads(lines[-1]))


def run_to_log(
    command: Sequence[str | Path], log: Path, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> float:
    """Run a process with its output in ``log``; returns its wall seconds. Raises RunError."""
    log.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    with log.open("w") as out:
        done = subprocess.run(
            command,
            check=False,
            env=None if env is None else dict(env),
            cwd=cwd,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    if done.returncode:
        raise RunError(f"{last_error(log.read_text(errors='replace'))} (log: {log})")
    return time.perf_counter() - start
