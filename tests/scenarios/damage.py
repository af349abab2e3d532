"""Damage to the bundle of the zoo (tests/zoo), of which the scenarios have a copy, and calls after it."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import probe
import torch
import zoo
import zoo.models
from hypothesis import given, settings
from hypothesis import strategies as st

torch.set_grad_enabled(False)

BUNDLE = Path(zoo._precompiled.__file__).parent / "bundle"
MANIFEST = BUNDLE / "manifest.json"
PRISTINE = set(json.loads(MANIFEST.read_text())["files"].values())

zoo._precompiled.uninstall()


class Caller:
    """A call, to be made after each damage."""

    def __init__(self, name: str, model: Any, x: torch.Tensor) -> None:
        self.name, self.model, self.x = name, model, x
        self.expected = probe.eager(model)(x)

    def use(self) -> tuple[list[str], bool, int]:
        """Install anew and call: the warnings there were, whether the answer is eager's, and the hits."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            zoo._precompiled.install()
            same = torch.allclose(self.model(self.x), self.expected)
            hits = zoo._precompiled.status()["entrypoints"].get(self.name, {}).get("hits", 0)
            zoo._precompiled.uninstall()
        return [str(warning.message) for warning in said], same, hits


def _mlp() -> Caller:
    return Caller("mlp", zoo.models.Mlp().eval(), torch.randn(4, 8))


def _replace(file: Path, content: bytes) -> None:
    file.unlink(missing_ok=True)  # a library that is mapped must not change below the process
    file.write_bytes(content)


def _watch() -> list[str]:
    """What no damage may lead to: a library that is not as it was built, a file that is not the bundle's."""
    unverified: list[str] = []

    def watch(event: str, args: tuple[Any, ...]) -> None:
        is_library = event == "import" and str(BUNDLE) in str(args[1])
        if is_library and hashlib.sha256(Path(args[1]).read_bytes()).hexdigest() not in PRISTINE:
            unverified.append(args[1])
        if event == "open" and str(args[0]).endswith(("passwd", "bundle/../../../__init__.py")):
            unverified.append(str(args[0]))

    sys.addaudithook(watch)
    return unverified


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """To each value in what a JSON file holds."""
    yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from _paths(value[key], (*path, key))


JUNK = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**30)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["/etc/passwd", "../../../__init__.py", "mlp/entries/0.entry", "manifest.json"])
    | st.lists(st.integers(), max_size=3)
    | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)
)


def anything_in_the_manifest(examples: int) -> dict[str, Any]:
    """How often a value was changed, and what went wrong then."""
    unverified, caller = _watch(), _mlp()
    manifest = json.loads(MANIFEST.read_text())
    del manifest["sha256"]  # it is made to be right: the values are what is read
    manifest["entrypoints"] = [each for each in manifest["entrypoints"] if each["name"] == "mlp"]
    tried: list[tuple[Any, ...]] = []
    wrong: list[Any] = []

    @settings(max_examples=examples, deadline=None, database=None)
    @given(st.sampled_from([path for path in _paths(manifest) if path]), JUNK)
    def damage(path: tuple[Any, ...], value: Any) -> None:
        changed = copy.deepcopy(manifest)
        place = changed
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        text = json.dumps({key: value for key, value in changed.items() if key != "sha256"})
        MANIFEST.write_bytes(zoo._precompiled.loading.manifest.with_checksum(text.encode()))
        tried.append(path)
        said, same, _ = caller.use()
        if not same or len(said) > 1:
            wrong.append([list(map(str, path)), repr(value), said])

    damage()
    return {"tried": len(tried), "wrong": wrong, "unverified": unverified}


def anything_in_any_file(examples: int) -> dict[str, Any]:
    """How often bytes were changed, and what went wrong then."""
    unverified, caller = _watch(), _mlp()
    contents = {path: path.read_bytes() for path in sorted((BUNDLE / "mlp").rglob("*")) if path.is_file()}
    del contents[BUNDLE / "mlp/guards.so"]  # which the first calls do not need
    tried: list[Path] = []
    wrong: list[Any] = []

    @settings(max_examples=examples, deadline=None, database=None)
    @given(st.data())
    def damage(data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(list(contents)))
        content = bytearray(contents[file])
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(len(content), start + 64)))
        content[start:end] = data.draw(st.binary(max_size=64))
        _replace(file, bytes(content))
        said, same, hits = caller.use()
        if bytes(content) == contents[file] or file.suffix in (".txt", ".words"):  # which no call needs
            fine = (said, hits) == ([], 1)
        else:
            fine = len(said) == 1 and file.name in said[0] and hits == 0
        if not same or not fine:
            wrong.append([str(file), start, end, said, same, hits])
        _replace(file, contents[file])
        tried.append(file)

    damage()
    return {"tried": len(tried), "wrong": wrong, "unverified": unverified}


def _truncated(file: Path, content: bytes) -> None:
    _replace(file, content[: len(content) // 2])


def _emptied(file: Path, content: bytes) -> None:
    _replace(file, b"")


def _flipped(file: Path, content: bytes) -> None:
    middle = len(content) // 2
    _replace(file, content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])


def _missing(file: Path, content: bytes) -> None:
    file.unlink()


def _swapped_with_anothers(file: Path, content: bytes) -> None:
    others = [*(BUNDLE / "whiten").rglob(f"*{file.suffix}"), MANIFEST]
    _replace(file, others[0].read_bytes())


def _a_folder(file: Path, content: bytes) -> None:
    file.unlink()
    file.mkdir()


DAMAGES: tuple[Callable[[Path, bytes], None], ...] = (
    *(_truncated, _emptied, _flipped),
    *(_missing, _swapped_with_anothers, _a_folder),
)


def every_file_in_every_way() -> dict[str, Any]:
    """Every file that a call needs: its name, warnings, whether the answer is right, and hits."""
    zoo._precompiled.errors.IMPORTED += 3600  # as if the files had been damaged before that
    unverified, mlp = _watch(), _mlp()
    chatty = Caller("chatty", zoo.models.Chatty(), torch.randn(6))
    files = [path for path in (BUNDLE / "mlp").rglob("*") if path.suffix in (".heads", ".entry", ".so")]
    files.remove(BUNDLE / "mlp/guards.so")  # which the first calls do not need
    seen = {}
    for file in (*sorted(files), BUNDLE / "chatty/resume/0.code"):
        content = file.read_bytes()
        caller = chatty if file.suffix == ".code" else mlp
        for damage in DAMAGES:
            damage(file, content)
            seen[f"{file.suffix} {damage.__name__}"] = [file.name, *caller.use()]
            if file.is_dir():
                file.rmdir()
            _replace(file, content)
    return {"damaged": seen, "undamaged": mlp.use(), "unverified": unverified}


def a_package_that_is_replaced() -> dict[str, Any]:
    """Between its import and the first call another release is put in its place: warnings, answer, hits."""
    caller = _mlp()
    for file in (BUNDLE / "mlp").rglob("*.entry"):
        _replace(file, file.read_bytes()[::-1])
    return dict(zip(("said", "same", "hits"), caller.use(), strict=True))


def files_that_may_not_be_read() -> dict[str, Any]:
    """By name of the file: warnings, whether the answer is right, and hits."""
    caller = _mlp()
    seen = {}
    for name in ("manifest.json", "mlp/entries/0.entry", "mlp/graphs/0-native.so", "mlp/frames"):
        (BUNDLE / name).chmod(0)
        if os.geteuid() == 0:
            os.seteuid(65534)  # root may read everything
        seen[name] = caller.use()
        os.seteuid(os.getuid())
        (BUNDLE / name).chmod(0o755)
    return seen


def a_package_that_is_gone(at: str) -> dict[str, Any]:
    """Its folder is moved away before the first call, or before the first miss: what two calls give."""
    caller = _mlp()
    zoo._precompiled.install()
    if at == "the first miss":
        caller.model(caller.x)
    folder = Path(zoo.__file__).parent
    folder.rename(folder.with_name("gone"))
    with warnings.catch_warnings(record=True) as said, torch.set_grad_enabled(at == "the first miss"):
        warnings.simplefilter("always")
        same = [torch.allclose(caller.model(caller.x), caller.expected) for _ in range(2)]
    return {"said": [str(warning.message) for warning in said], "same": same}
