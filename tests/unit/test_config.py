"""The configuration table: what it accepts, what it makes of it, and what it says when it does not."""

from __future__ import annotations

import tomllib
from typing import Any

import msgspec
import pytest

from hatch_precompile.config import Config, Dimension, Entrypoint, load
from hatch_precompile.config.cells import cells_of
from hatch_precompile.errors import BuildError, ConfigError

PREFIX = "tool.hatch.build.hooks.precompile"
ONE = {"target": "textmodel.model:Encoder", "samples": "textmodel.samples:encoder"}


def read(text: str) -> Config:
    return load(tomllib.loads(text), default_package="textmodel")


def read_entrypoint(**keys: Any) -> Entrypoint:
    (entrypoint,) = load({"entrypoints": [ONE | keys]}, default_package="textmodel").entrypoints
    return entrypoint


def error(table: dict[str, Any], *, default_package: str | None = "textmodel") -> str:
    """The error without the prefix every one starts with."""
    with pytest.raises(ConfigError) as caught:
        load(table, default_package=default_package)
    assert isinstance(caught.value, BuildError)
    text = str(caught.value)
    assert text.startswith(f"{PREFIX}."), text
    return text.removeprefix(f"{PREFIX}.")


def entrypoint_error(**keys: Any) -> str:
    text = error({"entrypoints": [ONE | keys]})
    assert text.startswith("entrypoints[0]."), text
    return text.removeprefix("entrypoints[0].")


def test_everything_but_target_and_samples_has_a_default() -> None:
    assert load({"entrypoints": [ONE]}, default_package="textmodel") == Config(
        package="textmodel",
        variants=("native",),
        require_torch="exact",
        verify=True,
        on_error="fail",
        jobs=0,
        timeout=600.0,
        entrypoints=(
            Entrypoint(
                target="textmodel.model:Encoder",
                samples="textmodel.samples:encoder",
                name="encoder",
                instance=None,
                mode="no_grad",
                dynamic_shapes={},
                activate="call",
                on_miss="eager",
                options={},
            ),
        ),
    )


def test_every_key_is_read() -> None:
    config = read("""
        package = "ns.textmodel"
        variants = ["x86-64-v2", "x86-64-v4"]
        require-torch = "none"
        verify = false
        on-error = "warn"
        jobs = 3
        timeout = 90
        [[entrypoints]]
        target = "textmodel.model:Encoder.encode"
        name = "text"
        instance = "textmodel.model:small"
        samples = "textmodel.samples:encoder"
        mode = "train"
        dynamic-shapes = { ids = { 0 = { name = "batch", min = 2, max = 64 }, 1 = "sequence" } }
        weights = "fixed"
        float32-matmul-precision = "medium"
        activate = "compile"
        on-miss = "error"
        fullgraph = true
        options = { max_autotune = false }
    """)
    assert config == Config(
        package="ns.textmodel",
        variants=("x86-64-v2", "x86-64-v4"),
        require_torch="none",
        verify=False,
        on_error="warn",
        jobs=3,
        timeout=90.0,
        entrypoints=(
            Entrypoint(
                target="textmodel.model:Encoder.encode",
                name="text",
                instance="textmodel.model:small",
                samples="textmodel.samples:encoder",
                mode="train",
                dynamic_shapes={"ids": {0: Dimension("batch", 2, 64), 1: Dimension("sequence")}},
                weights="fixed",
                float32_matmul_precision="medium",
                activate="compile",
                on_miss="error",
                fullgraph=True,
                options={"max_autotune": False},
            ),
        ),
    )


def test_a_workload_stands_where_samples_would() -> None:
    table = {"target": "textmodel.model:Encoder", "workload": "textmodel.use:it"}
    (entrypoint,) = load({"entrypoints": [table]}, default_package="textmodel").entrypoints
    assert (entrypoint.samples, entrypoint.workload) == (None, "textmodel.use:it")


def test_a_config_survives_being_sent_to_another_process() -> None:
    config = load({"entrypoints": [ONE]}, default_package="textmodel")
    assert msgspec.json.decode(msgspec.json.encode(config), type=Config) == config


@pytest.mark.parametrize(
    "key",
    ["dependencies", "enable-by-default", "path", "require-runtime-dependencies", "require-runtime-features"],
)
def test_keys_that_hatch_reads_from_every_hook_are_left_to_hatch(key: str) -> None:
    assert load({"entrypoints": [ONE], key: object()}, default_package="textmodel").package == "textmodel"


def test_several_modes_are_told_apart() -> None:
    assert read_entrypoint().modes == ("no_grad",)
    assert read_entrypoint(mode="train").modes == ("train",)
    assert read_entrypoint(mode=["no_grad", "inference"]).modes == ("no_grad", "inference")
    with pytest.raises(ConfigError, match=r"mode\[1\]: expected a value of its own, got \"no_grad\" as in "):
        read_entrypoint(mode=["no_grad", "no_grad"])


class TestNames:
    @pytest.mark.parametrize(
        ("target", "name"),
        [
            ("textmodel.model:Encoder", "encoder"),
            ("pkg.mod:Class.method", "class-method"),
            ("pkg.mod:encode_text", "encode_text"),
            ("pkg.mod:_private", "private"),
            ("pkg.mod:Größe", "gr--e"),
        ],
    )
    def test_a_name_comes_from_the_target(self, target: str, name: str) -> None:
        assert read_entrypoint(target=target).name == name

    def test_names_from_targets_are_made_unique(self) -> None:
        entrypoints = [ONE, ONE | {"mode": "train"}, ONE | {"name": "encoder-2"}]
        config = load({"entrypoints": entrypoints}, default_package="textmodel")
        assert [entrypoint.name for entrypoint in config.entrypoints] == ["encoder", "encoder-3", "encoder-2"]

    def test_names_that_were_written_must_be_unique(self) -> None:
        text = error({"entrypoints": [ONE | {"name": "a"}, ONE | {"name": "a"}]})
        assert text == (
            f'entrypoints[1].name: expected a value of its own, got "a" as in {PREFIX}.entrypoints[0].name'
        )

    @pytest.mark.parametrize("name", ["", "a/b", "..", "a b"])
    def test_a_name_must_be_fit_for_a_file(self, name: str) -> None:
        assert entrypoint_error(name=name) == (
            f'name: expected a name of letters, digits, dots, hyphens and underscores, got "{name}"'
        )


class TestDynamicShapes:
    def test_a_dimension_that_is_only_named_takes_the_range_stated_elsewhere(self) -> None:
        shapes = {"ids": {"0": "batch", "1": "length"}, "mask": {"0": {"name": "batch", "min": 2, "max": 64}}}
        batch = Dimension("batch", 2, 64)
        assert read_entrypoint(**{"dynamic-shapes": shapes}).dynamic_shapes == {
            "ids": {0: batch, 1: Dimension("length", None, None)},
            "mask": {0: batch},
        }

    def test_names_are_shared_within_an_entrypoint_only(self) -> None:
        first = ONE | {"dynamic-shapes": {"x": {"0": {"name": "n", "max": 4}}}}
        second = ONE | {"dynamic-shapes": {"x": {"0": {"name": "n", "max": 8}}}}
        config = load({"entrypoints": [first, second]}, default_package="textmodel")
        assert [entrypoint.dynamic_shapes["x"][0].max for entrypoint in config.entrypoints] == [4, 8]

    @pytest.mark.parametrize(
        ("shapes", "text"),
        [
            (3, "dynamic-shapes: expected a table of argument names, got 3"),
            (
                {"x": ["batch"]},
                'dynamic-shapes.x: expected a table of dimensions, such as { 0 = "batch" }, got ["batch"]',
            ),
            (
                {"x": {"-1": "batch"}},
                "dynamic-shapes.x.-1: expected the number of a dimension, 0 or more, as key "
                '(a way into an argument is one key, in quotes), got "-1"',
            ),
            (
                {"x": {"first": "batch"}},
                "dynamic-shapes.x.first: expected the number of a dimension, 0 or more, as key "
                '(a way into an argument is one key, in quotes), got "first"',
            ),
            (
                {"x": {"0": 64}},
                "dynamic-shapes.x.0: expected the name of the dimension or { name, min, max }, got 64",
            ),
            (
                {"x..keys": {"0": "batch"}},
                'dynamic-shapes: expected an argument or a way into one, such as "cache.layers.*.keys", as '
                'key, got "x..keys"',
            ),
            ({"x": {"0": "a b"}}, 'dynamic-shapes.x.0: expected a name, such as "batch", got "a b"'),
            (
                {"x": {"0": {"min": 2}}},
                'dynamic-shapes.x.0.name: expected a name, such as "batch", but the key is missing',
            ),
            (
                {"x": {"0": {"name": "n", "size": 2}}},
                "dynamic-shapes.x.0.size: unknown key; the keys here are name, min, max",
            ),
            (
                {"x": {"0": {"name": "n", "min": -2}}},
                "dynamic-shapes.x.0.min: expected a whole number, 0 or more, got -2",
            ),
            (
                {"x": {"0": {"name": "n", "max": 2.5}}},
                "dynamic-shapes.x.0.max: expected a whole number, 0 or more, got 2.5",
            ),
            (
                {"x": {"0": {"name": "n", "min": 3, "max": 2}}},
                "dynamic-shapes.x.0: expected min <= max, got min = 3 and max = 2",
            ),
        ],
    )
    def test_errors_name_the_dimension(self, shapes: object, text: str) -> None:
        assert entrypoint_error(**{"dynamic-shapes": shapes}) == text

    def test_one_name_cannot_have_two_ranges(self) -> None:
        shapes = {"x": {"0": {"name": "n", "min": 2}}, "y": {"1": {"name": "n", "max": 8}}}
        assert entrypoint_error(**{"dynamic-shapes": shapes}) == (
            f"dynamic-shapes.y.1: expected the range that {PREFIX}.entrypoints[0].dynamic-shapes.x.0 gives "
            'to the dimension "n" (min 2, max any), got min any, max 8'
        )


def test_a_matrix_is_every_python_with_every_torch() -> None:
    config = read(
        'matrix = { python = ["3.11", "3.13"], torch = ["2.13.0", "2.15.0rc1"] }\n'
        '[[entrypoints]]\ntarget = "textmodel:f"\nsamples = "textmodel:s"\n'
    )
    assert config.matrix is not None
    names = ["cp311-torch2.13.0", "cp311-torch2.15.0rc1", "cp313-torch2.13.0", "cp313-torch2.15.0rc1"]
    assert [cell.name for cell in cells_of(config.matrix)] == names


class TestErrors:
    @pytest.mark.parametrize(
        ("table", "text"),
        [
            ({}, "entrypoints: expected an array of tables, but the key is missing"),
            ({"entrypoints": []}, "entrypoints: expected at least one entrypoint, got none"),
            (
                {"entrypoints": ONE},
                f"entrypoints: expected an array of tables, got a table; write [[{PREFIX}.entrypoints]]",
            ),
            (
                {"entrypoints": ["textmodel:Encoder"]},
                'entrypoints: expected an array of tables, got ["textmodel:Encoder"]',
            ),
            ({"require_torch": "none"}, "require_torch: unknown key; did you mean require-torch?"),
            ({"entrypoint": [ONE]}, "entrypoint: unknown key; did you mean entrypoints?"),
            (
                {"zzz": 1},
                "zzz: unknown key; the keys here are package, variants, matrix, require-torch, verify, "
                "on-error, jobs, timeout, memory-limit, tuned-kernels, report, entrypoints",
            ),
            (
                {"entrypoints": [ONE], "package": "text-model"},
                'package: expected the name of an import package, such as "textmodel", got "text-model"',
            ),
            (
                {"entrypoints": [ONE], "variants": "native"},
                'variants: expected an array of one or more variant names, such as ["native"], got "native"',
            ),
            (
                {"entrypoints": [ONE], "variants": []},
                'variants: expected an array of one or more variant names, such as ["native"], got []',
            ),
            (
                {"entrypoints": [ONE], "variants": ["native", ""]},
                'variants[1]: expected the name of a variant, got ""',
            ),
            (
                {"entrypoints": [ONE], "variants": ["native", 3]},
                "variants[1]: expected the name of a variant, got 3",
            ),
            (
                {"entrypoints": [ONE], "variants": ["native", "native"]},
                f'variants[1]: expected a value of its own, got "native" as in {PREFIX}.variants[0]',
            ),
            (
                {"entrypoints": [ONE], "require-torch": "2.13.0"},
                'require-torch: expected "exact" or "none", got "2.13.0"',
            ),
            ({"entrypoints": [ONE], "verify": "yes"}, 'verify: expected true or false, or "run", got "yes"'),
            ({"entrypoints": [ONE], "on-error": True}, 'on-error: expected "fail" or "warn", got true'),
            ({"entrypoints": [ONE], "jobs": -1}, "jobs: expected a whole number, 0 or more, got -1"),
            ({"entrypoints": [ONE], "jobs": True}, "jobs: expected a whole number, 0 or more, got true"),
            (
                {"entrypoints": [ONE], "matrix": ["3.12"]},
                'matrix: expected a table such as { python = ["3.12"], torch = ["2.13.0"] }, got ["3.12"]',
            ),
            (
                {"entrypoints": [ONE], "matrix": {"python": ["3.12"]}},
                "matrix.torch: expected an array of one or more versions of torch, "
                'such as ["2.13.0", "2.14.1"], but the key is missing',
            ),
            (
                {"entrypoints": [ONE], "matrix": {"python": ["3.12"], "torch": ["2.13.0"], "rocm": []}},
                "matrix.rocm: unknown key; the keys here are python, torch, cuda",
            ),
            (
                {"entrypoints": [ONE], "matrix": {"python": ["3.12"], "torch": ["2.13.0"], "cuda": []}},
                "matrix.cuda: expected an array of one or more builds of torch for a CUDA, "
                'such as ["cu126", "cu130"], got []',
            ),
            (
                {"entrypoints": [ONE], "matrix": {"python": ["3.12"], "torch": ["2.13.0"], "cuda": ["13.0"]}},
                "matrix.cuda[0]: expected a build of torch for a CUDA, as PyTorch's index calls it, "
                'such as "cu130", got "13.0"',
            ),
            (
                {
                    "entrypoints": [ONE],
                    "matrix": {"python": ["3.12"], "torch": ["2.13.0"], "cuda": ["cu126", "cu126"]},
                },
                f'matrix.cuda[1]: expected a value of its own, got "cu126" as in {PREFIX}.matrix.cuda[0]',
            ),
            (
                {"entrypoints": [ONE], "matrix": {"python": ["3.12", "3.10"], "torch": ["2.13.0"]}},
                "matrix.python[1]: expected a minor version of Python, 3.11 or later, "
                'such as "3.12", got "3.10"',
            ),
            (
                {"entrypoints": [ONE], "matrix": {"python": [3.12], "torch": ["2.13.0"]}},
                "matrix.python[0]: expected a minor version of Python, 3.11 or later, "
                'such as "3.12", got 3.12',
            ),
            (
                {"entrypoints": [ONE], "matrix": {"python": ["3.12"], "torch": ["2.13.0+cpu"]}},
                "matrix.torch[0]: expected a whole version of torch without a local part, "
                'such as "2.13.0", got "2.13.0+cpu"',
            ),
            (
                {"entrypoints": [ONE], "matrix": {"python": ["3.12"], "torch": []}},
                "matrix.torch: expected an array of one or more versions of torch, "
                'such as ["2.13.0", "2.14.1"], got []',
            ),
            (
                {"entrypoints": [ONE], "matrix": {"python": ["3.12", "3.12"], "torch": ["2.13.0"]}},
                f'matrix.python[1]: expected a value of its own, got "3.12" as in {PREFIX}.matrix.python[0]',
            ),
            (
                {"entrypoints": [ONE], "timeout": 0},
                "timeout: expected a number of seconds, more than 0, got 0",
            ),
        ],
    )
    def test_errors_of_the_table_name_the_key_and_what_was_expected(
        self, table: dict[str, Any], text: str
    ) -> None:
        assert error(table) == text

    @pytest.mark.parametrize(
        ("keys", "text"),
        [
            ({"on-miss": "jit"}, 'on-miss: expected "eager", "compile" or "error", got "jit"'),
            ({"on_miss": "eager"}, "on_miss: unknown key; did you mean on-miss?"),
            ({"mode": "eval"}, 'mode: expected "no_grad", "inference" or "train", got "eval"'),
            ({"mode": ["eval"]}, 'mode[0]: expected "no_grad", "inference" or "train", got "eval"'),
            ({"mode": []}, 'mode: expected "no_grad", "inference" or both, or "train" alone, got []'),
            (
                {"mode": ["train", "no_grad"]},
                'mode: expected "no_grad", "inference" or both, or "train" alone, got ["train", "no_grad"]',
            ),
            ({"activate": 1}, 'activate: expected "call" or "compile", got 1'),
            ({"weights": "frozen"}, 'weights: expected "read" or "fixed", got "frozen"'),
            (
                {"float32-matmul-precision": "low"},
                'float32-matmul-precision: expected "highest", "high" or "medium", got "low"',
            ),
            (
                {"target": "textmodel.model.Encoder"},
                'target: expected a reference like "package.module:name", got "textmodel.model.Encoder"',
            ),
            (
                {"samples": "textmodel/samples:text"},
                'samples: expected a reference like "package.module:name", or "recorded:FILE", '
                'got "textmodel/samples:text"',
            ),
            (
                {"samples": "recorded:/var/log/calls"},
                'samples: expected a file of the project, relative to its folder, got "/var/log/calls"',
            ),
            ({"instance": 3}, 'instance: expected a reference like "package.module:name", got 3'),
            (
                {"workload": "textmodel.use:it"},
                "workload: expected either samples or workload, got both",
            ),
            ({"fullgraph": "yes"}, 'fullgraph: expected true or false, got "yes"'),
            (
                {"fullgraph": True, "on-skip": "eager"},
                'on-skip: expected "fail" beside fullgraph = true, got "eager"',
            ),
            ({"options": "max-autotune"}, 'options: expected a table, got "max-autotune"'),
            (
                {"options": {"max_autotune": True, "freezing": True}},
                "options.freezing: expected no setting that the build makes itself: weights are not in the "
                "wheel; the key weights says whether they may change",
            ),
            (
                {"options": {"fx-graph-cache": True}},
                "options.fx-graph-cache: expected no setting that the build makes itself: nothing is read "
                "from or left in the caches of the build machine",
            ),
            (
                {"options": {"triton.cudagraphs": True}},
                'options."triton.cudagraphs": expected no setting that the build makes itself: CUDA graphs '
                "are recorded in the process that calls, and nothing does that yet",
            ),
        ],
    )
    def test_errors_of_an_entrypoint_name_its_number_too(self, keys: dict[str, Any], text: str) -> None:
        assert entrypoint_error(**keys) == text

    def test_a_target_is_needed(self) -> None:
        assert error({"entrypoints": [ONE, {"samples": "textmodel.samples:encoder"}]}) == (
            'entrypoints[1].target: expected a reference like "package.module:name", but the key is missing'
        )

    def test_samples_or_a_workload_is_needed(self) -> None:
        assert error({"entrypoints": [ONE, {"target": "textmodel.model:Encoder"}]}) == (
            'entrypoints[1].samples: expected a reference like "package.module:name", here or as workload, '
            "but both are missing"
        )

    @pytest.mark.parametrize(
        ("keys", "text"),
        [
            (
                {"workload": "textmodel.use"},
                'workload: expected a reference like "package.module:name", got "textmodel.use"',
            ),
            (
                {"workload": "textmodel.use:it", "instance": "textmodel.model:small"},
                "instance: expected no instance beside workload, which calls objects of its own",
            ),
        ],
    )
    def test_errors_of_an_entrypoint_with_a_workload(self, keys: dict[str, str], text: str) -> None:
        table = {"target": "textmodel.model:Encoder", **keys}
        assert error({"entrypoints": [table]}) == f"entrypoints[0].{text}"

    def test_the_package_is_needed_where_the_wheel_does_not_tell(self) -> None:
        assert error({"entrypoints": [ONE]}, default_package=None).startswith("package: expected the name")

    def test_errors_start_with_the_place_the_table_was_written_in(self) -> None:
        with pytest.raises(ConfigError, match=r"\Ahatch\.toml: build\.hooks\.precompile\.jobs: expected"):
            load(
                {"entrypoints": [ONE], "jobs": "all"},
                default_package="textmodel",
                prefix="hatch.toml: build.hooks.precompile",
            )
