"""Wheels of several cells, merged: the file that comes of it, and what is refused."""

from __future__ import annotations

import base64
import csv
import hashlib
import itertools
import json
import platform
import sysconfig
import zipfile
from collections.abc import Callable
from dataclasses import replace
from email.parser import Parser
from pathlib import Path

import pytest
from click.testing import CliRunner
from packaging.tags import parse_tag

from hatch_precompile.bundle.reader import find, find_cells
from hatch_precompile.cli import main
from hatch_precompile.errors import BuildError
from hatch_precompile.merge import Merged, merge_wheels
from hatch_precompile.merge.wheels import read_wheel
from hatch_precompile.merge.zip_writer import write_wheel
from tests.conftest import TESTS, Site
from tests.wheel.cells import (
    BUNDLE,
    ELSEWHERE,
    HERE,
    INFO,
    OLDER,
    Files,
    as_cell,
    changed,
    files_of,
    name_of,
    tag_of,
    with_file,
    write,
    written,
)
from tests.wheel.conftest import TORCH, Built, run

OTHER_MACHINE = "x86_64" if platform.machine() == "aarch64" else "aarch64"

MATRIX = list(itertools.product((HERE, ELSEWHERE), (OLDER, TORCH)))
NAMES = [name_of(python, torch) for python, torch in MATRIX]


@pytest.fixture(scope="module")
def cells(built: Built, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A wheel for each cell of the matrix."""
    folder = tmp_path_factory.mktemp("cells")
    return [as_cell(built.wheel, folder, python, torch) for python, torch in MATRIX]


@pytest.fixture(scope="module")
def merged(cells: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Merged:
    return merge_wheels(cells, tmp_path_factory.mktemp("merged"))


class TestTheSameBytes:
    """The set of cells decides about the wheel, and nothing else."""

    def test_in_any_order(self, cells: list[Path], merged: Merged, tmp_path: Path) -> None:
        again = merge_wheels(cells[::-1], tmp_path)
        assert again.wheel.name == merged.wheel.name
        assert again.wheel.read_bytes() == merged.wheel.read_bytes()

    @pytest.mark.parametrize("parts", [([0, 3], [1, 2]), ([0, 1, 2], [3]), ([3, 1], [2, 1], [0])])
    def test_from_partial_merges(
        self, cells: list[Path], merged: Merged, tmp_path: Path, parts: tuple[list[int], ...]
    ) -> None:
        partial = [
            merge_wheels([cells[index] for index in part], tmp_path / str(number)).wheel
            for number, part in enumerate(parts)
        ]
        again = merge_wheels(partial, tmp_path / "out")
        assert again.wheel.name == merged.wheel.name
        assert again.wheel.read_bytes() == merged.wheel.read_bytes()

    def test_merged_again_with_a_part_of_itself(
        self, cells: list[Path], merged: Merged, tmp_path: Path
    ) -> None:
        again = merge_wheels([cells[2], merged.wheel], tmp_path)
        assert again.wheel.read_bytes() == merged.wheel.read_bytes()

    def test_a_single_wheel(self, cells: list[Path], tmp_path: Path) -> None:
        once = merge_wheels(cells[:1], tmp_path / "once")
        again = merge_wheels([once.wheel], tmp_path / "again")
        assert (once.cells, once.requires) == (NAMES[:1], f"torch=={OLDER}")
        assert again.wheel.read_bytes() == once.wheel.read_bytes()

    def test_times_and_permissions_are_always_the_same(self, merged: Merged) -> None:
        infos = zipfile.ZipFile(merged.wheel).infolist()
        assert {(info.date_time, info.external_attr >> 16) for info in infos} == {
            ((2020, 2, 2, 0, 0, 0), 0o100644)
        }


class TestTheWheel:
    def test_the_index_lists_the_cells_by_python_and_torch(self, merged: Merged) -> None:
        index = json.loads(files_of(merged.wheel)[f"{BUNDLE}cells.json"])
        # 3.98 comes after 3.11, and 2.9.1 before 2.13.0.
        assert [cell["name"] for cell in index["cells"]] == merged.cells == NAMES
        assert index["format"] == 1
        assert index["cells"][1].keys() == {"name", "magic", "python", "torch"}

    def test_it_has_one_for_each_cuda(
        self, built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two builds of one torch, and one that is not for GPUs."""
        wheels = [as_cell(built.wheel, tmp_path, HERE, TORCH)] + [
            as_cell(built.wheel, tmp_path / cuda, HERE, TORCH, for_cuda(cuda)) for cuda in ("13.0", "12.6")
        ]
        merged = merge_wheels(wheels, tmp_path / "out")
        name = name_of(HERE, TORCH)
        assert merged.cells == [name, f"{name}-cu126", f"{name}-cu130"]
        index = json.loads(files_of(merged.wheel)[f"{BUNDLE}cells.json"])
        assert [cell.get("cuda") for cell in index["cells"]] == [None, "12.6", "13.0"]
        again = merge_wheels([merged.wheel], tmp_path / "again")
        assert again.wheel.read_bytes() == merged.wheel.read_bytes()
        for here, chosen in (("12.6", "-cu126"), ("13.0", "-cu130"), ("12.9", ""), (None, "")):
            monkeypatch.setattr("hatch_precompile.bundle.reader._cuda_here", lambda here=here: here)
            assert [each.cell for each in find(str(merged.wheel))] == [f"{name}{chosen}"]

    def test_every_cell_has_its_manifest_and_its_files(self, cells: list[Path], merged: Merged) -> None:
        for wheel, found in zip(cells, find_cells(str(merged.wheel)), strict=True):
            before = files_of(wheel)
            own = {name.removeprefix(BUNDLE) for name in before if name.startswith(BUNDLE)}
            assert set(found.sizes) == own
            assert {name: found.read(name) for name in own} == {name: before[BUNDLE + name] for name in own}

    def test_equal_files_are_stored_once(self, cells: list[Path], merged: Merged) -> None:
        wheels = [files_of(wheel) for wheel in cells]
        of_cells = [files[name] for files in wheels for name in files if name.startswith(BUNDLE)]
        of_cells = [content for content in of_cells if not content.startswith(b'{\n "sha256"')]
        stored = [
            content for name, content in files_of(merged.wheel).items() if name.startswith(f"{BUNDLE}files/")
        ]
        assert sorted(stored) == sorted(set(of_cells))
        # The graph's text, for two versions of torch, and heads, which have the seal of their manifest, are
        # all that is not the same in all four.
        assert len(of_cells) == 4 * (len(stored) - 1 - 3)
        assert merged.shared_bytes == sum(map(len, of_cells)) - sum(map(len, stored))

    def test_all_else_is_as_it_was(self, cells: list[Path], merged: Merged) -> None:
        before, after = files_of(cells[0]), files_of(merged.wheel)
        again_made = {f"{INFO}{name}" for name in ("METADATA", "WHEEL", "RECORD")}

        def others(files: Files) -> Files:
            return {
                name: content
                for name, content in files.items()
                if not name.startswith(BUNDLE) and name not in again_made
            }

        assert others(after) == others(before)

    def test_the_record_lists_every_file_with_its_hash(self, merged: Merged) -> None:
        files = files_of(merged.wheel)
        rows = list(csv.reader(files[f"{INFO}RECORD"].decode().splitlines()))
        assert [row[0] for row in rows] == list(files)
        assert rows[-1] == [f"{INFO}RECORD", "", ""]
        for name, digest, size in rows[:-1]:
            expected = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={expected}", len(files[name])), name

    def test_it_requires_the_range_of_torches_beside_what_the_project_requires(self, merged: Merged) -> None:
        metadata = Parser().parsestr(files_of(merged.wheel)[f"{INFO}METADATA"].decode())
        assert merged.requires == f"torch<={TORCH},>={OLDER}"
        assert metadata.get_all("Requires-Dist") == ["torch>=2", merged.requires]

    def test_of_one_torch_it_requires_that(self, cells: list[Path], tmp_path: Path) -> None:
        of_one = merge_wheels([cells[1], cells[3]], tmp_path)
        assert (of_one.cells, of_one.requires) == ([NAMES[1], NAMES[3]], f"torch=={TORCH}")

    def test_where_none_requires_torch_it_does_not(self, built: Built, tmp_path: Path) -> None:
        def unpinned(files: Files) -> None:
            lines = files[f"{INFO}METADATA"].split(b"\n")
            files[f"{INFO}METADATA"] = b"\n".join(line for line in lines if b"torch==" not in line)

        parts = [as_cell(built.wheel, tmp_path, HERE, torch, unpinned) for torch in (OLDER, TORCH)]
        of_all = merge_wheels(parts, tmp_path / "out")
        metadata = Parser().parsestr(files_of(of_all.wheel)[f"{INFO}METADATA"].decode())
        assert (of_all.requires, metadata.get_all("Requires-Dist")) == (None, ["torch>=2"])

    def test_its_tags_are_all_interpreters_and_the_platform(self, built: Built, merged: Merged) -> None:
        interpreters = ".".join(sorted(map(tag_of, (HERE, ELSEWHERE))))
        platform = built.wheel.stem.split("-")[-1]
        assert merged.wheel.name == f"kiosk-1.0-{interpreters}-{interpreters}-{platform}.whl"
        about = Parser().parsestr(files_of(merged.wheel)[f"{INFO}WHEEL"].decode())
        assert about.get_all("Tag") == sorted(map(str, parse_tag(merged.tag)))

    def test_auditwheel_show_agrees(self, merged: Merged) -> None:
        auditwheel = Path(sysconfig.get_path("scripts"), "auditwheel")
        arguments = ("show", "--json", "--ldpaths", merged.wheel.parent, merged.wheel)
        assert json.loads(run(auditwheel, *arguments))["sym_tag"] == merged.wheel.stem.split("-")[-1]

    def test_what_is_missing_of_each_python_with_each_torch_is_said(
        self, cells: list[Path], tmp_path: Path
    ) -> None:
        assert merge_wheels(cells[1:], tmp_path).missing == NAMES[:1]
        assert merge_wheels(cells[:2], tmp_path).missing == []

    def test_what_is_missing_of_a_plan_is_said(self, cells: list[Path], tmp_path: Path) -> None:
        planned = [*NAMES, "cp311-torch9.9.9"]
        assert merge_wheels(cells, tmp_path, planned=planned).missing == ["cp311-torch9.9.9"]


def test_nothing_of_the_wheels_is_run(cells: list[Path], tmp_path: Path) -> None:
    arguments = {"wheels": list(map(str, cells)), "outdir": str(tmp_path)}
    assert Site(TESTS / "support").play("cells.what_a_merge_does", **arguments) == []


def replace_in(name: str, old: bytes, new: bytes) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        assert old in files[name], name
        files[name] = files[name].replace(old, new)

    return change


def in_manifest(change: Callable[[dict[str, object]], object]) -> Callable[[Files], None]:
    def apply(files: Files) -> None:
        manifest = json.loads(files[f"{BUNDLE}manifest.json"])
        change(manifest)
        manifest.pop("sha256")  # one without is taken for what was made by hand
        files[f"{BUNDLE}manifest.json"] = json.dumps(manifest).encode()

    return apply


def for_cuda(version: str) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        manifest = json.loads(files[f"{BUNDLE}manifest.json"])
        manifest["built_with"]["cuda"] = version
        files[f"{BUNDLE}manifest.json"] = written(manifest, files)

    return change


def another_version(files: Files) -> None:
    replace_in(f"{INFO}METADATA", b"Version: 1.0", b"Version: 1.1")(files)


def flip(files: Files) -> None:
    (name,) = (name for name in files if name.endswith(".entry"))
    content = bytearray(files[name])
    content[len(content) // 2] ^= 1
    files[name] = bytes(content)


def without_bundle(files: Files) -> None:
    for name in [name for name in files if name.startswith(BUNDLE)]:
        del files[name]


# What makes the second of two wheels one that cannot be merged, and what is said.
REFUSED: dict[str, tuple[Callable[[Files], object], str]] = {
    "a changed source": (
        replace_in("kiosk/prints.py", b"* 2", b"* 3"),
        r"are not the same outside of their bundles: kiosk/prints\.py differs; build all cells from",
    ),
    "another runtime": (
        replace_in("kiosk/_precompiled/calling/misses.py", b"UNSERVED = 10", b"UNSERVED = 11"),
        r"kiosk/_precompiled/calling/misses\.py differs",
    ),
    "one file more": (
        lambda files: files.update({"kiosk/more.py": b""}),
        r"kiosk/more\.py is in .*linux.*\.whl alone",
    ),
    "one file less": (lambda files: files.pop("kiosk/prints.py"), r"kiosk/prints\.py is in .*\.whl alone"),
    "other entry points": (
        lambda files: files.update({f"{INFO}entry_points.txt": b"[console_scripts]"}),
        r"entry_points\.txt is in .* alone",
    ),
    "another requirement": (
        replace_in(f"{INFO}METADATA", b"torch>=2\n", b"torch>=2\nRequires-Dist: numpy\n"),
        r"METADATA differs \('Requires-Dist: numpy' is in one of them\)",
    ),
    "no requirement on its torch": (
        replace_in(f"{INFO}METADATA", b"Requires-Dist: torch==", b"X-Torch: "),
        r"requires the torch that it was built with, .* does not",
    ),
    "another build tool": (
        replace_in(f"{INFO}WHEEL", b"Generator: ", b"Generator: other "),
        r"WHEEL differs \('Generator: ",
    ),
    "a damaged file of the bundle": (flip, r"0\.entry has not the sha256 that manifest\.json says"),
    "a missing file of the bundle": (
        lambda files: files.pop(next(name for name in files if name.endswith(".so"))),
        r"lacks tint/(graphs/0-native|guards)\.so, which manifest\.json lists",
    ),
    "a file of no manifest": (
        lambda files: files.update({f"{BUNDLE}tint/more": b""}),
        "holds tint/more, which no manifest lists",
    ),
    "a name that leads out of the bundle": (
        in_manifest(lambda m: m["files"].update({"../../prints.py": "0" * 64})),  # type: ignore[attr-defined]
        r"lists '\.\./\.\./prints\.py', which leads out of the bundle",
    ),
    "a name that leads out of the wheel": (
        lambda files: files.update({"kiosk/../../x": b""}),
        r"holds 'kiosk/\.\./\.\./x', which leads out of the wheel",
    ),
    "a sha256 that is none": (
        in_manifest(lambda m: m["files"].update({"tint": "../.."})),  # type: ignore[attr-defined]
        "manifest.json has no sha256 of 'tint'",
    ),
    "another format": (in_manifest(lambda m: m.update(format=99)), "its bundle has format 99"),
    "a manifest without a part": (in_manifest(lambda m: m.pop("graphs")), "manifest.json has no graphs"),
    "a manifest that is no JSON": (
        lambda files: files.update({f"{BUNDLE}manifest.json": b"{"}),
        "manifest.json is no JSON",
    ),
    "no version of torch": (
        in_manifest(lambda m: m["built_with"].update(torch="/etc")),  # type: ignore[attr-defined]
        "names no version of torch",
    ),
    "a version of torch that is no name": (
        in_manifest(lambda m: m["built_with"].update(torch="2.13.0-1")),  # type: ignore[attr-defined]
        "is no name of a cell",
    ),
    "no version of Python": (
        in_manifest(lambda m: m["built_with"].update(python="../x")),  # type: ignore[attr-defined]
        "names no version of Python: '../x'",
    ),
    "no bundle": (
        without_bundle,
        r"carries no compiled code: there is no _precompiled/bundle/manifest",
    ),
    "a manifest and an index": (
        lambda files: files.update({f"{BUNDLE}cells.json": b"{}"}),
        r"must have either manifest\.json or cells\.json",
    ),
    "a runtime that knows no cells": (
        lambda files: files.pop("kiosk/_precompiled/loading/cells.py"),
        "the runtime in .* is of a hatch-precompile that knows no merged wheels",
    ),
    "a signature": (
        lambda files: files.update({f"{INFO}RECORD.jws": b""}),
        r"is signed \(kiosk-1\.0\.dist-info/RECORD\.jws\)",
    ),
    "no METADATA": (lambda files: files.pop(f"{INFO}METADATA"), "is not a wheel: it has 0 files METADATA"),
    "another version": (another_version, "was renamed: it is kiosk 1.1 for "),
    "another tag than its name says": (
        replace_in(f"{INFO}WHEEL", b"Tag: cp", b"Tag: pp"),
        "was renamed: it is kiosk 1 for pp",
    ),
}


def refused(parts: list[Path], outdir: Path, words: str) -> None:
    with pytest.raises(BuildError, match=words) as caught:
        merge_wheels(parts, outdir)
    assert "\n" not in str(caught.value)
    assert not outdir.exists() or not list(outdir.iterdir())


SCRIPT = "kiosk-1.0.data/scripts/start"


def with_script(part: Path, folder: Path, *, executable: bool) -> Path:
    files = files_of(part) | {SCRIPT: b"#!python"}
    return write(folder / part.parent.name / part.name, files, executable=[SCRIPT] if executable else [])


class TestScripts:
    def test_what_is_executable_stays_it(self, cells: list[Path], tmp_path: Path) -> None:
        parts = [with_script(part, tmp_path, executable=True) for part in cells[:2]]
        with zipfile.ZipFile(merge_wheels(parts, tmp_path / "out").wheel) as archive:
            modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        assert (modes.pop(SCRIPT), set(modes.values())) == (0o100755, {0o100644})

    def test_what_is_executable_in_one_wheel_only_is_named(self, cells: list[Path], tmp_path: Path) -> None:
        parts = [with_script(cells[number], tmp_path, executable=bool(number)) for number in (0, 1)]
        refused(parts, tmp_path / "out", "scripts/start is executable in one of them")


class TestTwoPackages:
    @staticmethod
    def add_another(files: Files) -> None:
        own = {name: files[name] for name in files if name.startswith("kiosk/")}
        files.update({name.replace("kiosk/", "annex/", 1): content for name, content in own.items()})

    def test_each_keeps_its_cells(self, built: Built, tmp_path: Path) -> None:
        parts = [as_cell(built.wheel, tmp_path, HERE, torch, self.add_another) for torch in (OLDER, TORCH)]
        once = merge_wheels(parts, tmp_path / "out")
        again = merge_wheels([once.wheel, parts[0]], tmp_path / "again")
        assert again.wheel.read_bytes() == once.wheel.read_bytes()
        found = [(each.package, each.cell) for each in find_cells(str(once.wheel))]
        assert found == [(package, name) for package in ("annex", "kiosk") for name in NAMES[:2]]

    def test_one_that_only_one_wheel_has_is_named(
        self, built: Built, cells: list[Path], tmp_path: Path
    ) -> None:
        other = as_cell(built.wheel, tmp_path, HERE, TORCH, self.add_another)
        refused([cells[0], other], tmp_path / "out", r"annex/__init__\.py is in .* alone")


class TestRefused:
    """In a sentence, and nothing is written."""

    @pytest.mark.parametrize("case", REFUSED)
    def test_a_wheel(self, built: Built, cells: list[Path], tmp_path: Path, case: str) -> None:
        change, words = REFUSED[case]
        other = as_cell(built.wheel, tmp_path, HERE, TORCH, change)
        refused([cells[0], other], tmp_path / "out", words)

    def test_another_project_or_version(self, cells: list[Path], tmp_path: Path) -> None:
        name = cells[0].name.replace("-1.0-", "-1.1-")
        other = changed(cells[0], tmp_path / name, another_version)
        refused([cells[1], other], tmp_path / "out", r"is of kiosk-1\.0, .* of kiosk-1\.1: they cannot")

    def test_the_same_cell_with_other_content(self, built: Built, cells: list[Path], tmp_path: Path) -> None:
        def other_code(files: Files) -> None:
            with_file(files, "tint/graphs/0.txt", b"another graph")

        other = as_cell(built.wheel, tmp_path, HERE, OLDER, other_code)
        words = rf"both have {name_of(HERE, OLDER)} in {BUNDLE}, and not the same one: tint/graphs/0\.txt"
        refused([*cells, other], tmp_path / "out", words)

    def test_a_file_that_is_not_what_record_says(self, cells: list[Path], tmp_path: Path) -> None:
        other = changed(cells[0], tmp_path / cells[0].name, flip, record=False)
        refused([other], tmp_path / "out", r"0\.entry of .* is damaged: its sha256 is not the one in RECORD")

    def test_a_file_that_record_does_not_list(self, cells: list[Path], tmp_path: Path) -> None:
        change = REFUSED["one file more"][0]
        other = changed(cells[0], tmp_path / cells[0].name, change, record=False)
        refused([other], tmp_path / "out", r"holds kiosk/more\.py, which its RECORD does not list")

    def test_a_file_that_only_record_lists(self, cells: list[Path], tmp_path: Path) -> None:
        change = REFUSED["one file less"][0]
        other = changed(cells[0], tmp_path / cells[0].name, change, record=False)
        refused([other], tmp_path / "out", r"lacks kiosk/prints\.py, which its RECORD lists")

    @pytest.mark.filterwarnings("ignore:Duplicate name")
    def test_a_file_twice(self, cells: list[Path], tmp_path: Path) -> None:
        other = changed(cells[0], tmp_path / cells[0].name, lambda files: None)
        with zipfile.ZipFile(other, "a") as archive:
            archive.writestr("kiosk/prints.py", "")
        refused([other], tmp_path / "out", r"holds kiosk/prints\.py twice")

    def test_a_damaged_archive(self, cells: list[Path], tmp_path: Path) -> None:
        content = bytearray(cells[0].read_bytes())
        at = content.index(b"torch.sigmoid(x) * 2")
        content[at] ^= 1
        other = tmp_path / cells[0].name
        other.write_bytes(content)
        refused([other], tmp_path / "out", r"kiosk/prints\.py of .* is damaged: ")

    def test_what_is_no_wheel(self, tmp_path: Path) -> None:
        other = tmp_path / "kiosk-1.0-cp311-cp311-linux_x86_64.whl"
        other.write_text("text")
        refused([other], tmp_path / "out", "is not a wheel: File is not a zip file")

    def test_what_is_not_there(self, tmp_path: Path) -> None:
        refused([tmp_path / "missing.whl"], tmp_path / "out", r"there is no wheel .*missing\.whl")

    @pytest.mark.parametrize("other", ["macosx_14_0_arm64", f"manylinux_2_27_{OTHER_MACHINE}"])
    def test_another_system(self, built: Built, cells: list[Path], tmp_path: Path, other: str) -> None:
        own = built.wheel.stem.split("-")[-1]
        change = replace_in(f"{INFO}WHEEL", own.encode(), other.encode())
        wheel = changed(cells[0], tmp_path / cells[0].name.replace(own, other), change)
        said = f"{other}.*: one wheel cannot be for both; merge those of each machine by themselves"
        refused([cells[1], wheel], tmp_path / "out", said)

    def test_what_would_replace_one_of_its_parts(self, cells: list[Path]) -> None:
        before = cells[0].read_bytes()
        with pytest.raises(BuildError, match=r"would replace .*, which is one of its parts; name another"):
            merge_wheels(cells[:1], cells[0].parent)
        assert cells[0].read_bytes() == before

    def test_a_place_that_cannot_be_written(self, cells: list[Path], tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(BuildError, match=r"kiosk-1\.0-.* cannot be written: "):
            merge_wheels(cells, tmp_path / "file")

    def test_a_part_that_changes_while_it_is_read(self, cells: list[Path], tmp_path: Path) -> None:
        own = read_wheel(cells[0])
        content = replace(own.files["kiosk/prints.py"], digest="0" * 64)
        with pytest.raises(BuildError, match=r"kiosk/prints\.py of .* has changed while it was read"):
            write_wheel(tmp_path / "out" / "x.whl", {"kiosk/prints.py": content}, own.folder)
        assert list((tmp_path / "out").iterdir()) == []

    # What somebody may have done to a merged wheel.
    DAMAGES = {  # noqa: RUF012
        "an index that is no JSON": (
            lambda files: files.update({f"{BUNDLE}cells.json": b"["}),
            r"cells\.json is no JSON",
        ),
        "an index of another format": (
            replace_in(f"{BUNDLE}cells.json", b'"format": 1', b'"format": 2'),
            r"cells\.json has format 2, this runtime reads 1",
        ),
        "a name in the index": (
            replace_in(f"{BUNDLE}cells.json", name_of(HERE, OLDER).encode(), b"../../../x"),
            r"cells\.json is damaged",
        ),
        "a Python in the index": (
            replace_in(f"{BUNDLE}cells.json", f'"{HERE}"'.encode(), b'"3.1"'),
            f"{name_of(HERE, OLDER)}.json is not of the cell that cells.json has",
        ),
        "no manifest": (
            lambda files: files.pop(f"{BUNDLE}cells/{name_of(HERE, OLDER)}.json"),
            f"lacks cells/{name_of(HERE, OLDER)}.json, which cells.json lists",
        ),
        "another file": (
            lambda files: files.update({f"{BUNDLE}files/{'0' * 64}.so": b""}),
            "which no manifest lists",
        ),
        "no file": (
            lambda files: files.pop(next(name for name in files if name.endswith(".so"))),
            r"lacks tint/(graphs/0-native|guards)\.so",
        ),
    }

    @pytest.mark.parametrize("case", DAMAGES)
    def test_a_merged_wheel(self, merged: Merged, tmp_path: Path, case: str) -> None:
        change, words = self.DAMAGES[case]
        refused([changed(merged.wheel, tmp_path / merged.wheel.name, change)], tmp_path / "out", words)


class TestCommand:
    def test_it_writes_the_wheel_and_says_what_is_in_it(
        self, cells: list[Path], merged: Merged, tmp_path: Path
    ) -> None:
        arguments = ["merge", *map(str, cells[1:]), str(cells[0]), "--outdir", str(tmp_path)]
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
        assert done.output.splitlines()[:4] == NAMES
        assert "not in it" not in done.output
        assert (tmp_path / merged.wheel.name).read_bytes() == merged.wheel.read_bytes()

    def test_it_says_what_is_missing(self, cells: list[Path], tmp_path: Path) -> None:
        done = CliRunner().invoke(main, ["merge", *map(str, cells[:3]), "--outdir", str(tmp_path)])
        assert f"not in it: {NAMES[3]}\n" in done.output

    def test_json(self, cells: list[Path], tmp_path: Path) -> None:
        done = CliRunner().invoke(main, ["merge", *map(str, cells), "--outdir", str(tmp_path), "--json"])
        summary = json.loads(done.output)
        assert summary["cells"] == NAMES
        assert Path(summary["wheel"]).stat().st_size == summary["bytes"]

    def test_what_cannot_be_merged_is_one_sentence(self, cells: list[Path], tmp_path: Path) -> None:
        other = changed(cells[1], tmp_path / cells[1].name, REFUSED["a changed source"][0])
        arguments = ["merge", str(cells[0]), str(other), "--outdir", str(tmp_path / "out")]
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 1
        assert done.output.startswith("Error: ")
        assert done.output.count("\n") == 1
