"""Records: how calls are described, which samples they need, and what is suggested for them."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from hatch_precompile.cli import main
from hatch_precompile.config import Config, Dimension, Entrypoint, load
from hatch_precompile.entrypoints.recorded import sample_of
from hatch_precompile.entrypoints.samples import samples_of
from hatch_precompile.errors import CaptureError, ConfigError
from hatch_precompile.runtime import runtime
from hatch_precompile.traffic.reading import Call, read_records, to_lines
from hatch_precompile.traffic.samples import with_recorded_calls
from hatch_precompile.traffic.structures import structures_of

TABLE = "tool.hatch.build.hooks.precompile"


def tensor(*size: int, dtype: str = "float32", **more: Any) -> dict[str, Any]:
    return {"tensor": dtype, "size": list(size), **more}


def call(
    count: int = 1, *, mode: str = "no_grad", hits: int = 0, entrypoint: str = "net", **kwargs: Any
) -> Call:
    more = {key: kwargs.pop(key) for key in ("training", "autocast", "owner") if key in kwargs}
    content = {"args": [], "kwargs": kwargs, "mode": mode, **more}
    return Call("shop", entrypoint, content, count, hits, complete=True)


def entrypoint(**keys: Any) -> Entrypoint:
    return Entrypoint(target="shop.model:Net", name="net", samples="shop.samples:net", **keys)


SIZES = {"x": {0: Dimension("batch", 2, 8)}}


# -- describing --------------------------------------------------------------------------------------


def described(function: Any, frame_of: Any, frame_locals: dict[str, Any], kind: str = "function") -> Any:
    form = runtime("recording.described").Form(
        SimpleNamespace(function=lambda: function, value=function, record={"kind": kind}),
        SimpleNamespace(code=frame_of.__code__, sites=[SimpleNamespace(function=frame_of)]),
    )
    with torch.no_grad():
        return form.describe(frame_locals)


def value(given: Any) -> Any:
    def function(x: Any) -> None: ...

    return described(function, function, {"x": given})["kwargs"]["x"]


class TestDescribing:
    def test_defaults_are_left_out_but_for_numbers(self) -> None:
        def function(x: Any, y: Any = None, z: str = "plain", n: int = 3, *, k: bool = False) -> None: ...

        seen = described(function, function, {"x": 1, "y": None, "z": "plain", "n": 3, "k": False})
        assert seen == {"args": [], "kwargs": {"x": 1, "n": 3, "k": False}, "mode": "no_grad"}

    def test_what_a_decorator_passes_on_keeps_its_form_and_gets_its_names(self) -> None:
        def function(self: Any, x: Any, y: Any) -> None: ...

        def wrapper(self: Any, *args: Any, **kwargs: Any) -> None: ...

        wrapper.__wrapped__ = function  # type: ignore[attr-defined]
        seen = described(wrapper, wrapper, {"self": 0, "args": (1,), "kwargs": {"y": 2}}, "method")
        assert (seen["args"], seen["kwargs"]) == ([["x", 1]], {"y": 2})

    def test_positional_only_and_surplus_arguments(self) -> None:
        def function(a: Any, /, b: Any, *more: Any) -> None: ...

        assert described(function, function, {"a": 1, "b": 2, "more": ()})["args"] == [["a", 1]]
        assert described(function, function, {"a": 1, "b": 2, "more": (3,)})["args"] == [
            ["a", 1],
            ["b", 2],
            [None, 3],
        ]

    @pytest.mark.parametrize(
        ("given", "seen"),
        [
            (None, None),
            (True, True),
            (7, 7),
            (2**70, {"type": "int"}),
            (0.5, 0.5),
            (float("inf"), {"float": "inf"}),
            ("private", {"type": "str"}),
            (b"private", {"type": "bytes"}),
            (torch.float16, {"dtype": "float16"}),
            (torch.device("cpu"), {"device": "cpu"}),
            ([1, (2, None)], {"list": [1, {"tuple": [2, None]}]}),
            ({"a": 1}, {"dict": {"a": 1}}),
            ({"a private key": 1}, {"type": "dict"}),
            (OrderedDict(a=1), {"type": "collections.OrderedDict", "items": {"a": 1}}),
            (torch.Size([3]), {"type": "torch.Size", "items": {"_0": 3}}),
            (torch.zeros(2, 3).t(), tensor(3, 2, stride=[1, 3])),
            (torch.zeros(2, requires_grad=True), tensor(2, requires_grad=True)),
            (torch.zeros(2).to_sparse(), {"tensor": "float32", "layout": "sparse_coo"}),
            (torch.zeros(4, device="meta"), tensor(4, device="meta")),
        ],
    )
    def test_values(self, given: Any, seen: Any) -> None:
        found = value(given)
        assert (
            {key: found[key] for key in sorted(found)} == {key: seen[key] for key in sorted(seen)}
            if isinstance(seen, dict)
            else found == seen
        )

    def test_names_that_are_none_are_not_recorded(self) -> None:
        def function(**options: Any) -> None: ...

        seen = described(function, function, {"options": {"jane@example.org": 1, "b": 2}})
        assert seen["kwargs"] == {"**options": {"type": "dict"}}
        assert described(function, function, {"options": {"a": 1}})["kwargs"] == {"a": 1}

    def test_a_dataclass(self) -> None:
        @dataclasses.dataclass
        class Pair:
            one: Any
            two: Any = None

        assert value(Pair(1))["items"] == {"one": 1, "two": None}

    def test_a_string_that_the_code_spells_out_is_no_data(self) -> None:
        def function(x: str) -> bool:
            return x in ("mean", "max")

        seen = [described(function, function, {"x": given})["kwargs"]["x"] for given in ("max", "min")]
        assert seen == [{"string": "max"}, {"type": "str"}]

    def test_something_endless(self) -> None:
        endless: list[Any] = []
        endless.append(endless)
        assert '{"type": "list"}' in json.dumps(value(endless))


# -- reading -----------------------------------------------------------------------------------------


class TestReading:
    def test_what_was_written_is_read(self, tmp_path: Path) -> None:
        calls = (call(3, x=tensor(2)), call(5, hits=5, x=tensor(3)), call(7, hits=2, x=tensor(4)))
        file = tmp_path / "record"
        file.write_text(to_lines(calls))
        found = read_records([file])
        assert (found.calls, found.damaged, found.full) == (calls, 0, False)
        # Of several processes, or files: their counts are added.
        assert [each.count for each in read_records([file, file]).calls] == [6, 10, 14]

    def test_damaged_lines_are_skipped_and_counted(self, tmp_path: Path) -> None:
        good = to_lines([call(x=tensor(2))])
        bad = [
            good[:40],
            "[]",
            '{"again":"of nothing","count":2}',
            '{"count":1}',
            good.replace('"count":1', '"count":-1').strip(),
            good.replace("[2]", '["2"]').strip(),
            good.replace("no_grad", "eval").strip(),
            "[" * 100_000,
            "\xff",
        ]
        file = tmp_path / "record"
        file.write_bytes("\n".join([*bad, good]).encode("latin-1"))
        found = read_records([file])
        assert (len(found.calls), found.damaged) == (1, len(bad))

    def test_a_full_record(self, tmp_path: Path) -> None:
        file = tmp_path / "record"
        file.write_text(to_lines([call(x=1)]) + '{"stopped":"the record is full"}   \n')
        assert read_records([file]).full

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (None, "cannot be read: No such file or directory"),
            ("", "is empty: no call was recorded"),
            ("x\ny\n", "is no record: none of its 2 lines is a recorded call"),
        ],
    )
    def test_what_is_no_record_is_refused(self, tmp_path: Path, content: str | None, why: str) -> None:
        file = tmp_path / "record"
        if content is not None:
            file.write_text(content)
        with pytest.raises(ConfigError, match=why):
            read_records([file])


# -- structures --------------------------------------------------------------------------------------


def sizes_of(calls: list[Call], entry: Entrypoint) -> list[tuple[list[int], int]]:
    return [
        (each.call.content["kwargs"]["x"]["size"], each.count) for each in structures_of(calls, entry).found
    ]


class TestStructures:
    def test_one_for_all_sizes_in_the_range_and_one_for_each_other(self) -> None:
        calls = [call(size, x=tensor(size, 4)) for size in (0, 1, 2, 5, 8, 9) if size] + [
            call(x=tensor(0, 4))
        ]
        found = sizes_of(calls, entrypoint(dynamic_shapes=SIZES))
        assert sorted(count for _, count in found) == [1, 1, 9, 15]
        assert [8, 4] in [size for size, _ in found]

    def test_the_sample_tells_sizes_apart_that_are_free(self) -> None:
        shapes = {"x": {0: Dimension("batch"), 1: Dimension("length")}}
        calls = [call(100, x=tensor(4, 4)), call(1, x=tensor(3, 4)), call(50, x=tensor(5, 5))]
        assert sizes_of(calls, entrypoint(dynamic_shapes=shapes)) == [([3, 4], 151)]

    def test_dimensions_of_one_name_that_differ_are_a_structure_of_their_own(self) -> None:
        shapes = {"x": {0: Dimension("n")}, "y": {0: Dimension("n")}}
        calls = [call(x=tensor(n), y=tensor(m)) for n, m in ((3, 3), (4, 4), (4, 5))]
        assert [each.count for each in structures_of(calls, entrypoint(dynamic_shapes=shapes)).found] == [
            2,
            1,
        ]

    def test_what_cannot_be_dynamic_tells_them_apart(self) -> None:
        calls = [
            call(x=tensor(2)),
            call(x=tensor(2, dtype="float64")),
            call(x=tensor(2, inference=True)),
            call(x=tensor(2), flag=True),
            call(x=tensor(2), mask=tensor(2)),
            call(x=tensor(2), mask={"same": 0}),
            call(x={"list": [tensor(2)]}),
        ]
        assert len(structures_of(calls, entrypoint()).found) == len(calls)

    def test_numbers(self) -> None:
        calls = [call(x=tensor(2), n=n) for n in (0, 1, 2, 3, 0.0, 0.5)]
        assert len(structures_of(calls, entrypoint(dynamic_numbers=("n",))).found) == 4
        assert len(structures_of(calls, entrypoint()).found) == 6

    def test_a_transposed_tensor_of_any_size(self) -> None:
        calls = [call(x=tensor(n, 4, stride=[1, n])) for n in (2, 3, 5)]
        sliced = [call(x=tensor(n, 4, stride=[10, 1])) for n in (2, 3)]
        assert len(structures_of([*calls, *sliced], entrypoint(dynamic_shapes=SIZES)).found) == 3

    @pytest.mark.parametrize(
        ("made", "why"),
        [
            (call(mode="grad", x=1), "gradients are on"),
            (call(mode="inference", x=1), 'torch.inference_mode(), and mode has no "inference"'),
            (call(training=True, x=1), "the module is in training mode"),
            (call(autocast="bfloat16", x=1), "autocast is on"),
            (call(owner="shop.Other", x=1), "a subclass, shop.Other"),
            (call(y={"type": "str"}), "y: a string, which is data and not recorded"),
            (call(y={"list": [{"type": "shop.Cache"}]}), "y: a shop.Cache, of which no sample is made"),
            (call(y=tensor(2, device="cuda")), "y: a tensor on cuda"),
            (call(y={"tensor": "float32", "layout": "sparse_coo"}), "whose layout is sparse_coo"),
            (call(x=3), "x: no tensor, which dynamic-shapes.x asks for"),
            (call(x=tensor()), "x: a tensor of 0 dimensions, too few for dynamic-shapes.x"),
            (call(n=True), "n: no number, which dynamic-numbers asks for"),
        ],
    )
    def test_what_is_left_out_and_why(self, made: Call, why: str) -> None:
        found = structures_of([made], entrypoint(dynamic_shapes=SIZES, dynamic_numbers=("n",)))
        assert found.found == ()
        ((said, count),) = found.left_out.items()
        assert why in said and count == 1


# -- samples -----------------------------------------------------------------------------------------


def config(**keys: Any) -> Config:
    table = {"target": "shop.model:Net", "name": "net", "samples": "recorded:calls.jsonl", **keys}
    return load({"entrypoints": [table]}, default_package="shop")


class TestSamples:
    def test_they_are_of_the_recorded_kind(self) -> None:
        content = call(
            mode="inference",
            x=tensor(2, 3),
            again={"same": 0},
            ids=tensor(2, 5, dtype="int64"),
            lengths=tensor(4, dtype="int32"),
            keep=tensor(2, 2, dtype="bool"),
            turned=tensor(3, 2, stride=[1, 3]),
            wide=tensor(3, 4, stride=[0, 1]),
            own=tensor(2, inference=True),
            more={"dict": {"a": {"tuple": [1, {"float": "inf"}, {"string": "max"}]}}},
        ).content
        made = sample_of(content, "it")
        assert made.mode == "inference"
        assert made.kwargs["again"] is made.kwargs["x"]
        assert made.kwargs["ids"].tolist() == [[1, 0, 1, 0, 1]] * 2
        assert made.kwargs["lengths"].tolist() == [1] * 4
        assert made.kwargs["keep"].all() and made.kwargs["keep"].dtype is torch.bool
        assert made.kwargs["turned"].stride() == (1, 3)
        assert made.kwargs["wide"].stride() == (0, 1)
        assert [made.kwargs[name].is_inference() for name in ("x", "own")] == [False, True]
        assert made.kwargs["more"] == {"a": (1, float("inf"), "max")}
        assert torch.equal(sample_of(content, "it").kwargs["x"], made.kwargs["x"])

    def test_a_dtype_that_this_torch_does_not_have(self) -> None:
        with pytest.raises(
            CaptureError, match="recorded call 1 cannot be made again: this torch has no dtype int99"
        ):
            sample_of(call(x=tensor(2, dtype="int99")).content, "recorded call 1")

    def test_they_go_with_the_entrypoint(self, tmp_path: Path) -> None:
        calls = [call(n, x=tensor(n)) for n in (2, 3)] + [call(x={"type": "shop.Cache"})]
        (tmp_path / "calls.jsonl").write_text(to_lines([*calls, call(entrypoint="other", x=1)]))
        made, notes = with_recorded_calls(config(**{"dynamic-shapes": {"x": {"0": "n"}}}), tmp_path, TABLE)
        (tmp_path / "calls.jsonl").unlink()
        (sample,) = samples_of(made.entrypoints[0])
        assert sample.kwargs["x"].shape == (3,)
        assert notes == [
            "net: 1 samples of calls.jsonl, which stand for 5 of 6 recorded calls",
            "net: sample 1: x float32[3] (no_grad)",
            "net: 1 recorded calls are left out: x: a shop.Cache, of which no sample is made",
        ]

    @pytest.mark.parametrize(
        ("calls", "why"),
        [
            ([], r"entrypoints\[0\].samples: the record .* is empty"),
            ([call(entrypoint="other", x=1)], "no call of shop:net; it has those of shop:other"),
            ([call(mode="grad", x=1)], "no sample can be made of calls.jsonl: 1 recorded calls are left out"),
        ],
    )
    def test_a_record_that_is_of_no_use_is_refused(self, tmp_path: Path, calls: list[Call], why: str) -> None:
        (tmp_path / "calls.jsonl").write_text(to_lines(calls))
        with pytest.raises(ConfigError, match=why):
            with_recorded_calls(config(), tmp_path, TABLE)


# -- suggestions -------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        f'[[{TABLE}.entrypoints]]\ntarget = "shop.model:Net"\nworkload = "shop.use:it"\non-miss = "error"\n'
    )
    return folder


def suggest(project: Path, calls: list[Call], *options: str) -> Result:
    record = project / "record.jsonl"
    record.write_text(to_lines(calls))
    return CliRunner().invoke(main, ["suggest", str(project), str(record), *options])


def proposed(project: Path, calls: list[Call], *options: str) -> dict[str, Any]:
    result = suggest(project, calls, *options)
    assert result.exit_code == 0, result.output
    table = tomllib.loads(result.stdout)
    load(table["tool"]["hatch"]["build"]["hooks"]["precompile"], default_package="shop")
    (made,) = table["tool"]["hatch"]["build"]["hooks"]["precompile"]["entrypoints"]
    return made


class TestSuggestions:
    def test_what_varies_together_has_one_name(self, project: Path) -> None:
        calls = [
            call(x=tensor(b, s, 16), mask=tensor(b, s), other=tensor(o))
            for b, s, o in ((1, 4, 3), (2, 7, 9), (6, 5, 9), (3, 9, 4))
        ]
        assert proposed(project, calls) == {
            "target": "shop.model:Net",
            "samples": "recorded:record.jsonl",
            "on-miss": "error",
            "dynamic-shapes": {
                "x": {
                    "0": {"name": "batch", "min": 2, "max": 6},
                    "1": {"name": "length", "min": 4, "max": 9},
                },
                "mask": {"0": "batch", "1": "length"},
                "other": {"0": {"name": "other_0", "min": 3, "max": 9}},
            },
        }

    def test_what_is_configured_stays_and_grows(self, project: Path) -> None:
        file = project / "pyproject.toml"
        more = (
            'dynamic-shapes = { x = { 0 = { name = "rows", min = 2, max = 8 }, 1 = "columns" } }\n'
            'dynamic-numbers = ["scale"]\nmode = "inference"\n'
        )
        file.write_text(file.read_text() + more)
        made = proposed(project, [call(x=tensor(n, 4), mask=tensor(n)) for n in (5, 20)])
        assert made["mode"] == ["inference", "no_grad"]
        assert made["dynamic-numbers"] == ["scale"]
        assert made["dynamic-shapes"] == {
            "x": {"0": {"name": "rows", "min": 2, "max": 20}, "1": "columns"},
            "mask": {"0": "rows"},
        }

    def test_numbers_with_many_values_and_modes(self, project: Path) -> None:
        calls = [call(x=tensor(2), n=n, two=n % 2, flag=bool(n % 2)) for n in range(5)]
        made = proposed(
            project, [*calls, call(mode="inference", x=tensor(2)), call(mode="grad", x=tensor(2))]
        )
        assert made["dynamic-numbers"] == ["n"]
        assert made["mode"] == ["no_grad", "inference"]
        assert "dynamic-shapes" not in made

    def test_an_argument_that_is_now_this_now_that_is_not_dynamic(self, project: Path) -> None:
        calls = (
            [call(x=tensor(2, n)) for n in (3, 4)] + [call(x=tensor(5))] + [call(y=tensor(n)) for n in (2, 3)]
        )
        made = proposed(project, [*calls, call(y=7), call(z=2), call(z=3), call(z=4), call(z=True)])
        assert not {"dynamic-shapes", "dynamic-numbers"} & made.keys()

    def test_rare_calls_and_those_without_a_sample_are_listed(self, project: Path) -> None:
        calls = [call(1998, hits=7, x=tensor(2)), call(x=tensor(2, dtype="float64")), call(mode="grad", x=1)]
        result = suggest(project, calls, "--write", str(project / "small.jsonl"))
        assert result.stdout.splitlines()[:4] == [
            "# net: 2000 calls recorded, 7 of them hits; this serves 1998 (99.9 %)",
            "# Samples take the place of the workload; name an instance if the class needs arguments.",
            "# left out: 1 call, gradients are on: call under torch.no_grad(), or give it an entrypoint with "
            'mode = "train"',
            "# left out: 1 call, rare: x float64[2] (no_grad)",
        ]
        assert 'samples = "recorded:small.jsonl"' in result.stdout
        (kept,) = read_records([project / "small.jsonl"]).calls
        assert (kept.content, kept.count) == (calls[0].content, 1998)

    def test_a_record_of_misses_alone_is_not_enough(self, project: Path) -> None:
        calls = [dataclasses.replace(call(x=tensor(2)), complete=False)]
        result = suggest(project, calls)
        assert "1 calls recorded, all of them misses" in result.stdout
        assert "use one of record-all" in result.stdout

    def test_json_is_all_of_stdout(self, project: Path) -> None:
        (found,) = json.loads(suggest(project, [call(4, hits=1, x=tensor(2))], "--json").stdout)
        assert (found["entrypoint"], found["calls"], found["hits"], found["served"]) == ("net", 4, 1, 4)
        assert found["structures"][0]["count"] == 4

    def test_notes_go_to_stderr(self, project: Path) -> None:
        record = project / "record.jsonl"
        record.write_text(to_lines([call(x=1), call(2, entrypoint="gone", x=1)]) + "damaged\n")
        result = CliRunner().invoke(main, ["suggest", str(project), str(record)])
        assert "2 calls of shop:gone, which this project does not configure" in result.stderr
        assert "1 damaged lines of the record were skipped" in result.stderr

    def test_nothing_to_go_by_is_a_sentence_and_a_status_of_2(self, project: Path) -> None:
        unknown = suggest(project, [call(entrypoint="gone", x=1)])
        assert unknown.exit_code == 2
        assert "the record has nothing of this project" in unknown.stderr
        missing = CliRunner().invoke(main, ["suggest", str(project), str(project / "none")])
        assert missing.exit_code == 2 and "cannot be read" in missing.stderr
        nowhere = suggest(project, [call(x=1)], "--write", str(project / "no" / "file"))
        assert nowhere.exit_code == 2 and "--write" in nowhere.stderr
        (project / "pyproject.toml").write_text("")
        bare = suggest(project, [call(x=1)])
        assert bare.exit_code == 2 and "configures no entrypoint" in bare.stderr
