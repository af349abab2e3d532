"""What a merged wheel says of itself: for which systems it is, and which torches it goes with."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import parse_tag

from hatch_precompile.errors import BuildError
from hatch_precompile.merge.metadata import range_of, with_torch, without_torch
from hatch_precompile.merge.tags import merged_tag


def merged(*tags: str) -> str:
    return merged_tag({Path(f"{number}.whl"): parse_tag(tag) for number, tag in enumerate(tags)})


OLD, NEW = "cp311-cp311-manylinux_2_17_x86_64", "cp312-cp312-manylinux_2_34_x86_64"


class TestTag:
    @pytest.mark.parametrize(
        ("tags", "expected"),
        [
            ([NEW], NEW),
            ([OLD, NEW], "cp311.cp312-cp311.cp312-manylinux_2_34_x86_64"),
            ([OLD, OLD.replace("2_17", "2_9")], OLD),
            ([OLD, "cp311-cp311-manylinux2014_x86_64"], OLD),
            (["cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64"], OLD),
            (["cp311-cp311-manylinux_2_5_x86_64.manylinux_2_34_x86_64", OLD], OLD),
            ([OLD, "cp312-cp312-linux_x86_64"], "cp311.cp312-cp311.cp312-linux_x86_64"),
            (["cp311-none-any", "cp312-none-any"], "cp311.cp312-none-any"),
            # Beside libraries, bytecode alone runs where these do.
            (["cp311-none-any", NEW], "cp311.cp312-cp311.cp312-manylinux_2_34_x86_64"),
            (["cp311-cp311-musllinux_1_2_x86_64"], "cp311-cp311-musllinux_1_2_x86_64"),
            (
                ["cp311-cp311-macosx_14_0_arm64", "cp312-cp312-macosx_14_0_arm64"],
                "cp311.cp312-cp311.cp312-macosx_14_0_arm64",
            ),
        ],
    )
    def test_it_has_all_interpreters_and_the_platform_that_all_run_on(
        self, tags: list[str], expected: str
    ) -> None:
        assert merged(*tags) == merged(*tags[::-1]) == expected

    @pytest.mark.parametrize(
        "tag",
        [
            "cp312-cp312-manylinux_2_34_aarch64",
            "cp312-cp312-linux_aarch64",
            "cp312-cp312-musllinux_1_2_x86_64",
            "cp312-cp312-win_amd64",
        ],
    )
    def test_other_systems_are_named(self, tag: str) -> None:
        for tags in ((OLD, tag), (tag, OLD)):
            with pytest.raises(
                BuildError, match=r"0\.whl is for .* and 1\.whl for .*: one wheel cannot be for"
            ):
                merged(*tags)

    def test_merging_in_parts_makes_no_difference(self) -> None:
        tags = ["cp313-none-any", OLD, NEW]
        assert merged(merged(*tags[:2]), tags[2]) == merged(tags[0], merged(*tags[1:])) == merged(*tags)


class TestTorch:
    def test_one_is_required_as_it_is(self) -> None:
        assert range_of(["2.13.0+cpu", "2.13.0"]) == "torch==2.13.0"

    def test_several_are_a_range_by_version(self) -> None:
        assert range_of(["2.13.0+cpu", "2.9.1", "2.10.0"]) == "torch<=2.13.0,>=2.9.1"

    def test_the_range_holds_every_build_of_its_ends(self) -> None:
        holds = Requirement(range_of(["2.15.0.dev20260102", "2.9.1"])).specifier
        for version in ("2.15.0.dev20260102+cpu", "2.9.1+cu130"):
            assert holds.contains(version)
        assert not holds.contains("2.15.0")

    def test_what_the_build_added_is_found_behind_the_projects_own(self) -> None:
        own = b"Name: a\nRequires-Dist: torch==2.9.1\nRequires-Dist: numpy\n"
        text, found = without_torch(
            own + b"Requires-Dist: torch==2.9.1\n\nRequires-Dist: torch==2.9.1", ["2.9.1"]
        )
        assert found
        written = with_torch(text, ["2.9.1", "2.13.0"])
        assert written == own + b"Requires-Dist: torch<=2.13.0,>=2.9.1\n\nRequires-Dist: torch==2.9.1"

    @pytest.mark.parametrize(
        "line", ["torch>=2", "torch==2.9.1; extra == 'x'", "torch[x]==2.9.1", "torchvision==2.9.1", "no one"]
    )
    def test_what_the_project_requires_is_left_alone(self, line: str) -> None:
        text = f"Name: a\nRequires-Dist: {line}\n".encode()
        assert without_torch(text, ["2.9.1"]) == (text, False)
