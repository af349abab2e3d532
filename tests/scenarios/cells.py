"""The kiosk (tests/kiosk) as a merged wheel installs it; scenarios import torch and it themselves."""

from __future__ import annotations

import copy
import json
import sys
import warnings
from pathlib import Path
from typing import Any


def _watch_bundle() -> list[str]:
    """The files of bundles that are opened from here on, as far as they are there."""
    opened: list[str] = []

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and "/bundle/" in str(args[0]) and Path(str(args[0])).exists():
            opened.append(str(args[0]).partition("/bundle/")[2])

    sys.addaudithook(watch)
    return opened


def _ours(said: list[warnings.WarningMessage]) -> list[str]:
    return [str(each.message) for each in said if each.category.__name__ == "PrecompileWarning"]


def a_call(torch: str | None = None) -> dict[str, Any]:
    """What happens in an import and three calls, under a torch that says it is of that version."""
    import torch as library

    if torch is not None:
        library.__version__ = torch
    opened = _watch_bundle()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        import kiosk

        of_import = list(opened)
        x = library.randn(6)
        with library.no_grad():
            same = [library.allclose(kiosk.tint(x), library.sigmoid(x) * 2) for _ in range(3)]
    status = kiosk._precompiled.status()
    return {
        "same": all(same),
        "said": _ours(said),
        "cell": status["cell"],
        "cells": status["cells"],
        "installed": status["installed"],
        "hits": status["entrypoints"].get("tint", {}).get("hits", 0),
        "opened": of_import,
    }


def torch_after_the_package() -> dict[str, Any]:
    """A package that imports nothing: its status before torch comes in and after, warnings, and hits."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        import kiosk

        before = kiosk._precompiled.status()
        assert "torch" not in sys.modules
        import torch

        after = kiosk._precompiled.status()
        import kiosk.prints

        with torch.no_grad():
            kiosk.prints.tint(torch.randn(6))
    entrypoints = kiosk._precompiled.status()["entrypoints"]
    return {
        "before": [before["installed"], before["cell"], before["reason"], before["entrypoints"]],
        "after": [after["cell"], list(after["entrypoints"])],
        "said": _ours(said),
        "hits": entrypoints["tint"]["hits"] if entrypoints else 0,
    }


def anything_in_the_index(examples: int) -> dict[str, Any]:
    """How often a value in the index was changed, or its bytes, and what went wrong then."""
    import kiosk
    import torch
    from hypothesis import given, settings
    from hypothesis import strategies as st

    kiosk._precompiled.uninstall()
    torch.set_grad_enabled(False)
    x = torch.randn(6)
    expected = torch.sigmoid(x) * 2
    path = Path(kiosk._precompiled.__file__).parent / "bundle" / "cells.json"
    pristine = path.read_bytes()
    index = json.loads(pristine)
    opened = _watch_bundle()
    wrong: list[Any] = []
    tried: list[bytes] = []

    def use(content: bytes) -> None:
        path.write_bytes(content)
        tried.append(content)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            kiosk._precompiled.install()
            same = torch.allclose(kiosk.tint(x), expected)
            kiosk._precompiled.status()
            kiosk._precompiled.uninstall()
        if not same or len(said) > 1:
            wrong.append([content.decode("latin-1"), [str(warning.message) for warning in said]])

    places = [(), ("format",), ("cells",), *[("cells", 0)], *[("cells", 0, key) for key in index["cells"][0]]]
    junk = st.none() | st.integers() | st.text(max_size=8) | st.lists(st.integers(), max_size=2)
    junk |= st.sampled_from(["../../..", "/etc/passwd", "cp311-torch2.9.1", "cp311-torch9.9", "a70d0d0a"])
    junk |= st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)

    @settings(max_examples=examples, deadline=None, database=None)
    @given(st.sampled_from(places), junk)
    def values(place: tuple[Any, ...], value: Any) -> None:
        changed: Any = {"": copy.deepcopy(index)}
        inner = changed
        for key in ("", *place)[:-1]:
            inner = inner[key]
        inner[("", *place)[-1]] = value
        use(json.dumps(changed[""]).encode())

    @settings(max_examples=examples, deadline=None, database=None)
    @given(st.integers(0, len(pristine)), st.integers(0, 64), st.binary(max_size=64))
    def parts(start: int, length: int, content: bytes) -> None:
        use(pristine[:start] + content + pristine[start + length :])

    values()
    parts()
    use(pristine)
    outside = [name for name in opened if ".." in name]
    return {"tried": len(tried), "wrong": wrong, "outside": outside}


def what_a_merge_does(wheels: list[str], outdir: str) -> list[str]:
    """Whatever would run something of a wheel, while it is merged for the second time."""
    from hatch_precompile.merge import merge_wheels

    parts = [Path(wheel) for wheel in wheels]
    first = merge_wheels(parts, Path(outdir, "first"))
    seen: list[str] = []
    running = ("marshal.loads", "pickle.find_class", "exec", "compile", "import", "subprocess.Popen")
    sys.addaudithook(lambda event, args: seen.append(event) if event in running else None)
    again = merge_wheels(parts, Path(outdir, "again"))
    seen = list(seen)
    assert "torch" not in sys.modules
    assert first.wheel.read_bytes() == again.wheel.read_bytes()
    return seen
