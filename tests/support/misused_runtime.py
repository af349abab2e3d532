"""Wrong calls of the runtime, for mypy alone: were one of them allowed, its comment would ignore nothing, and
`make lint` would fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hatch_precompile import runtime
    from hatch_precompile.runtime import manifest, references

    references.resolve("module")  # type: ignore[call-arg]
    references.resolve(("module", "name"), ())  # type: ignore[arg-type]
    print(references.no_such_name)  # type: ignore[attr-defined]
    manifest.cell_name("a text")  # type: ignore[arg-type]
    print(runtime.no_such_module)  # type: ignore[attr-defined]
