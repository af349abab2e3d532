"""What a capture was made from, besides what its entries check themselves: a digest of each part.

Two captures with the same digests, whose entries' inputs are as they were, have the same bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import linecache
import marshal
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec

from hatch_precompile.backends.base import Variant
from hatch_precompile.config import Entrypoint
from hatch_precompile.entrypoints.call import Sample
from hatch_precompile.entrypoints.description import described
from hatch_precompile.errors import BuildError
from hatch_precompile.inductor import compiler_settings
from hatch_precompile.lower.dependencies.kinds import Dependency, Function, dependency
from hatch_precompile.records import CAPTURE, Capture
from hatch_precompile.runtime import comparison, references
from hatch_precompile.validation.effects import refusing_effects

__all__ = ["made_from", "sources_of", "what_has_changed"]

_PARTS = {
    "configuration": "its configuration is another",
    "variants": "the variants are others",
    "compiler": "the C++ compiler is another",
    "settings": "the settings of torch are others",
    "samples": "its samples are others",
    "sources": "its sources have changed, or moved within their files",
}


def made_from(
    entrypoint: Entrypoint, variants: Sequence[Variant], samples: Sequence[Sample]
) -> dict[str, str]:
    """All but the sources, which are known when the samples have been traced."""
    parts: dict[str, Any] = {
        "configuration": msgspec.to_builtins(entrypoint),
        "variants": [dataclasses.astuple(variant) for variant in variants],
        "compiler": _compiler(),
        "settings": compiler_settings(),
        "samples": [
            (sample.mode, described(sample.owner), described(sample.args), described(sample.kwargs))
            for sample in samples
        ],
    }
    return {name: _digest(_plain(value)) for name, value in parts.items()}


def sources_of(dependencies: Iterable[Dependency]) -> str:
    """The text of every function that was traced, and where it stands: tracebacks and the readable graphs
    have both. Raises Stale where one is gone."""
    found = set()
    for each in dependencies:
        if not isinstance(each, Function) or each.module.partition(".")[0] == "torch":
            continue
        function = references.resolve(each.module, each.steps)
        code = function if isinstance(function, CodeType) else getattr(function, "__code__", None)
        if code is not None:
            found.add((each.module, repr(each.steps), code.co_firstlineno, code.co_linetable, _text(code)))
    return _digest(sorted(found))


def what_has_changed(earlier: Path, now: Mapping[str, str]) -> str:
    """Why the capture in a folder is not what would be captured here, in words; nothing if it is.

    now: what a capture would be made from, without its sources. What only a call can tell, as what guards
    look at, is for verification.
    """
    captured = msgspec.json.decode((earlier / CAPTURE).read_bytes(), type=Capture)
    for part, words in _PARTS.items():
        if part != "sources" and captured.made_from.get(part) != now[part]:
            return words
    if captured.skipped:
        return "some of it runs as Python, and nothing says whether that has changed"
    try:
        with refusing_effects(lambda what: BuildError(f"what its entries depend on tried {what}")):
            same = _sources_of(captured, earlier) == captured.made_from.get("sources")
    except Exception as error:  # whatever another's entries raise: it is captured anew
        return str(error) or type(error).__name__
    return "" if same else _PARTS["sources"]


def _sources_of(captured: Capture, folder: Path) -> str:
    """The digest of the sources that a capture was traced from, if its entries' inputs are as they were."""
    dependencies: list[Dependency] = []
    for frame in captured.frames:
        for entry in frame.entries:
            data = marshal.loads((folder / entry.data).read_bytes())
            for module in data["modules"]:
                importlib.import_module(module)
            comparison.check_dependencies(data["inputs"])
            dependencies += map(dependency, data["inputs"])
    return sources_of(dependencies)


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """The same in the same order, whatever order it is kept in."""
    if isinstance(value, Mapping):
        return sorted((str(key), _plain(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _compiler() -> str:
    """What the compiler calls itself. Raises BuildError if it does not run."""
    name = os.environ.get("CXX", "g++")
    try:
        done = subprocess.run([name, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"the C++ compiler {name!r} does not run: {error}") from error
    return done.stdout


def _text(code: CodeType) -> str:
    lines = linecache.getlines(code.co_filename)
    return "".join(lines[code.co_firstlineno - 1 : _last_line(code)])


def _last_line(code: CodeType) -> int:
    inner = (_last_line(each) for each in code.co_consts if isinstance(each, CodeType))
    return max(code.co_firstlineno, *(line or 0 for _, _, line in code.co_lines()), *inner)
