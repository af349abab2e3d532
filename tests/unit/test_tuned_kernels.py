"""Which configurations of kernels are kept, and the file they are kept in. The times are made up here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hatch_precompile.config import load
from hatch_precompile.config.tuned_kernels import (
    UNTUNED,
    TunedKernel,
    TunedKernels,
    read_tuned_kernels,
    write_tuned_kernels,
)
from hatch_precompile.errors import BuildError, ConfigError
from hatch_precompile.records import Autotuning, Configuration, MeasuredKernel
from hatch_precompile.tuning.parent import Outcome, Tunable, choose

KEY, OTHER = "0" * 32, "1" * 32
SMALL, MIDDLE, LARGE = (Configuration({"XBLOCK": size}, 4, 1) for size in (64, 128, 256))


def library(*times: tuple[Configuration, float], now: Configuration = SMALL) -> tuple[Tunable, Outcome]:
    autotuning = Autotuning("", {KEY: ("add", now), OTHER: ("one configuration", SMALL)})
    return Tunable("cuda-sm90", "f", autotuning), Outcome("a card", [MeasuredKernel(KEY, "add", [*times])])


def tuned(of: Configuration, microseconds: float = 1.0, before: float = 2.0) -> TunedKernel:
    return TunedKernel(
        *(of.arguments, of.num_warps, of.num_stages),
        name="add",
        microseconds=microseconds,
        before=before,
        gpu="a card",
    )


class TestWhatIsChosen:
    def test_the_fastest(self) -> None:
        found = choose([library((SMALL, 3.0), (MIDDLE, 1.5), (LARGE, 2.0))], {})
        assert found == {KEY: tuned(MIDDLE, 1.5, 3.0)}

    def test_a_gain_of_noise_is_none(self) -> None:
        assert choose([library((SMALL, 3.0), (LARGE, 2.99))], {}) == {KEY: None}

    def test_what_does_not_run_is_not_chosen(self) -> None:
        """Inductor says infinite of one whose registers do not suffice."""
        assert choose([library((SMALL, 3.0), (LARGE, float("inf")))], {}) == {KEY: None}
        assert choose([library((SMALL, float("inf")), (LARGE, 3.0))], {}) == {}

    def test_a_kernel_of_several_libraries_is_chosen_for_all_of_them(self) -> None:
        first = library((SMALL, 4.0), (MIDDLE, 3.0), (LARGE, 1.0))
        second = library((SMALL, 4.0), (MIDDLE, 3.0), (LARGE, 9.0))
        assert choose([first, second], {}) == {KEY: tuned(MIDDLE, 3.0, 4.0)}

    def test_one_that_the_wheel_has_from_the_file_stays(self) -> None:
        known = {KEY: tuned(LARGE)}
        assert choose([library((SMALL, 3.0), (LARGE, 1.0), now=LARGE)], known) == known

    def test_one_that_is_in_the_file_and_no_longer_faster_goes(self) -> None:
        found = choose([library((SMALL, 1.0), (LARGE, 3.0))], {KEY: tuned(LARGE)})
        assert found == {KEY: None}
        before = UNTUNED.merged("cuda-sm90", {KEY: tuned(LARGE), OTHER: tuned(SMALL)})
        assert before.merged("cuda-sm90", found).variants == {"cuda-sm90": {OTHER: tuned(SMALL)}}


class TestTheFile:
    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        file = tmp_path / "tuned.json"
        kernels = UNTUNED.merged("cuda-sm90", {KEY: tuned(LARGE)}).merged("cuda-sm80", {OTHER: tuned(SMALL)})
        write_tuned_kernels(file, kernels)
        assert read_tuned_kernels(file, "key") == kernels
        assert list(json.loads(file.read_text())["variants"]) == ["cuda-sm80", "cuda-sm90"]
        assert [each.name for each in tmp_path.iterdir()] == ["tuned.json"]

    def test_a_variant_of_which_nothing_is_left_is_not_in_it(self, tmp_path: Path) -> None:
        write_tuned_kernels(tmp_path / "tuned.json", UNTUNED.merged("cuda-sm90", {KEY: None}))
        assert read_tuned_kernels(tmp_path / "tuned.json", "key") == TunedKernels()

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ("{", "tuned.json is no file of tuned kernels: Input data was truncated"),
            ('{"format": 2}', "Invalid enum value 2"),
            ('{"variants": {"cuda-sm90": {"x": {}}}}', "`key` in `$.variants[...]`"),
            (
                json.dumps({"variants": {"v": {KEY: {"arguments": {}, "num_warps": 0, "num_stages": 1}}}}),
                "$.variants[...][...].num_warps",
            ),
        ],
    )
    def test_another_stops_with_the_key_that_names_it(self, tmp_path: Path, content: str, said: str) -> None:
        file = tmp_path / "tuned.json"
        file.write_text(content)
        with pytest.raises(BuildError) as error:
            read_tuned_kernels(file, "table.tuned-kernels")
        assert str(error.value).startswith("table.tuned-kernels: ")
        assert said in str(error.value)
        assert "write it with `hatch-precompile tune`" in str(error.value)

    def test_one_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(BuildError, match=r"key: .*/none.json cannot be read: No such file"):
            read_tuned_kernels(tmp_path / "none.json", "key")


class TestTheKey:
    def table(self, **more: Any) -> dict[str, Any]:
        entrypoint = {"target": "p:f", "samples": "p:s", "devices": ["cuda"]}
        return {"package": "p", "variants": ["cuda-sm90"], "entrypoints": [entrypoint], **more}

    def test_it_names_a_file_of_the_project(self) -> None:
        config = load(self.table(**{"tuned-kernels": "gpu/tuned.json"}), default_package=None)
        assert config.tuned_kernels == "gpu/tuned.json"

    @pytest.mark.parametrize("value", ["", "/tuned.json", "{root}/tuned.json", "tuned", 3, True])
    def test_and_nothing_else(self, value: object) -> None:
        with pytest.raises(ConfigError, match=r"precompile\.tuned-kernels: expected the name of a JSON file"):
            load(self.table(**{"tuned-kernels": value}), default_package=None)

    def test_without_an_entrypoint_for_gpus_it_is_refused(self) -> None:
        table = self.table(variants=["native"], **{"tuned-kernels": "tuned.json"})
        table["entrypoints"][0].pop("devices")
        with pytest.raises(ConfigError, match='tuned-kernels: is for GPUs, and no entrypoint has "cuda"'):
            load(table, default_package=None)
