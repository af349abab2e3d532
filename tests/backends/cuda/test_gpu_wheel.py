"""A wheel for CPUs and GPUs, built without a GPU; called where something stands in for two, or nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch

from hatch_precompile.backends.base import Surroundings
from hatch_precompile.backends.cuda import standin
from hatch_precompile.backends.cuda.cards import CARDS, Card
from hatch_precompile.config import Entrypoint
from hatch_precompile.errors import BuildError
from hatch_precompile.verify import on_standin, parent
from tests.backends.cuda.test_libraries import needs_cuda
from tests.conftest import REPOSITORY, Site, build_entrypoints, made_once

pytestmark = needs_cuda

HERE = Path(__file__).parent
BOTH = ["cpu", "cuda"]
ENTRYPOINTS: list[dict[str, Any]] = [
    {
        "target": "rig.models:Net",
        "samples": "rig.models:batches",
        "devices": BOTH,
        "dynamic-shapes": {"x": {"0": {"name": "batch", "min": 2, "max": 64}}},
    },
    {"target": "rig.models:scaled", "samples": "rig.models:pairs", "devices": BOTH},
    {"target": "rig.models:ways", "samples": "rig.models:every_way", "devices": ["cuda"]},
    {"target": "rig.models:doubled", "samples": "rig.models:there_already", "devices": ["cuda"]},
    {
        "target": "rig.models:Vision",
        "samples": "rig.models:images",
        "devices": ["cuda"],
        "mode": "train",
    },
    {"target": "rig.kernels:tripled", "samples": "rig.models:batches", "devices": ["cuda"]},
    {"target": "rig.kernels:squared", "samples": "rig.kernels:large", "devices": ["cuda"]},
    {"target": "rig.models:Attention", "samples": "rig.models:texts", "devices": ["cuda"]},
    {
        "target": "rig.models:Trained",
        "samples": "rig.models:batches",
        "devices": ["cuda"],
        "mode": "train",
    },
]


def make(place: Path) -> None:
    said: list[str] = []
    variants = ["native", "cuda-sm80", "cuda-sm90"]
    build_entrypoints("rig", ENTRYPOINTS, HERE, place / "work", said.append, variants=variants)
    standin.build(place / "standin")
    (place / "log").write_text("\n".join(said))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "cuda-wheel", make)


def play(
    place: Path,
    scenario: str,
    card: Card | None = CARDS["cuda-sm90"],
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """card: what stands in for a GPU; None: nothing does."""
    site = Site(place / "work/installed")
    environment = {**variables, "PYTHONPATH": f"{site.directory}:{REPOSITORY}:{REPOSITORY}/tests/support:"}
    environment["PYTHONPATH"] += f"{REPOSITORY}/tests/scenarios"
    if card is not None:
        environment |= standin.environment_with(standin.build(place / "standin"), card)
    return site.play(f"gpus.{scenario}", environment=environment)


def test_the_build_says_what_was_not_run(place: Path) -> None:
    log = (place / "log").read_text()
    for variant in ("cuda-sm80", "cuda-sm90"):
        for gpu in (0, 1):
            for turn in ("", ", again"):  # guards as Python, and as native code
                hit = f"sample 1/1 on cuda:{gpu}{turn}: hit, 1 kernels launched, and none run"
                assert f"scaled: verify {variant}: {hit}" in log
    assert "net: verify cuda-sm90: sample 1/1 at batch 64 on cuda:1: hit, " in log
    for name in ("vision", "attention"):  # torch's own kernels between ours are passed over
        for variant in ("cuda-sm80", "cuda-sm90"):
            assert f"{name}: verify {variant}: sample 1/" in log
    assert "up to where torch itself would compute" not in log
    assert "trained: verify cuda-sm90: sample 1/1 on cuda:0: hit, " in log
    assert "scaled: verify native: sample 1/1: hit, largest difference from eager" in log


def test_it_says_which_entries_serve_one_gpu_only(place: Path) -> None:
    said = [line for line in (place / "log").read_text().splitlines() if "serves the first GPU" in line]
    assert {line.split(": ")[2].split(" serves")[0] for line in said if line.startswith("ways")} == {
        *("sample 2", "sample 3", "sample 4"),
    }


def test_the_manifest_has_its_variants_and_devices(place: Path) -> None:
    path = place / "work/installed/rig/_precompiled/bundle/manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["built_with"]["cuda"] == torch.version.cuda
    native, *for_gpus = manifest["variants"]
    assert not {"device", "run"} & native.keys()
    assert [(each["name"], each["device"], each["run"]) for each in for_gpus] == [
        ("cuda-sm80", "cuda", False),
        ("cuda-sm90", "cuda", False),
    ]
    (frame,) = [each for each in manifest["frames"] if each["qualname"] == "scaled"]
    of_each = [each.get("gpu", {}).get("variant") for each in frame["entries"]]
    assert of_each == [None, "cuda-sm90", "cuda-sm80"]  # the highest capability is asked first
    assert all(each["guards"] for each in frame["entries"])  # as native code


def test_calls_are_served_on_each_gpu(place: Path) -> None:
    seen = play(place, "on_both")
    grid = [8, 1, 1]
    assert seen["cuda:0"] == {"devices": ["cuda:0"], "launches": [[0, grid, 0]], "hits": 1}
    assert seen["cuda:1"] == {"devices": ["cuda:1"], "launches": [[1, grid, 0]], "hits": 1}
    assert seen["both"]["hits"] == 0 and seen["both"]["launches"] == []
    assert seen["stream"]["launches"] == [[0, grid, seen["stream"]["expected"]]]
    assert seen["unaligned"] == {"devices": ["cuda:0"], "launches": [[0, grid, 0]], "hits": 1}
    assert seen["cpu"] == {"devices": ["cpu"], "launches": [], "hits": 1}


def test_a_thread_need_not_have_used_a_gpu_before(place: Path) -> None:
    assert play(place, "in_a_thread") == {"devices": ["cuda:0"], "launches": [[0, [8, 1, 1], 0]], "hits": 1}


def test_what_is_for_one_gpu_serves_that_one_while_it_is_current(place: Path) -> None:
    assert play(place, "ways") == {
        "beside": [1, 1, 1],
        "the current one": [1, 0, 0],
        "its number": [1, 0, 0],
        "returned": [1, 0, 0],
        "its capability": [1, 1, 1],
    }


def test_a_view_that_is_written_to_is_copied_back(place: Path) -> None:
    assert play(place, "written") == [1, 1, 0.0]


@pytest.mark.parametrize(
    ("old", "new", "hits"),
    [
        ("FACTOR", "FACTOR", [1, 1]),
        ("constexpr(3)", "constexpr(4)", [0, 0]),
        ("x * FACTOR", "x + FACTOR", [0, 0]),
        ("places < n", "places <= n", [0, 0]),
    ],
)
def test_a_kernel_of_the_authors_has_to_be_as_at_the_build(
    place: Path, tmp_path: Path, old: str, new: str, hits: list[int]
) -> None:
    shutil.copytree(place / "work/installed", tmp_path / "work/installed")
    source = tmp_path / "work/installed/rig/kernels.py"
    source.write_text(source.read_text().replace(old, new))
    assert play(tmp_path, "own_kernel") == hits


def test_a_kernel_that_a_card_refuses_is_said_once(place: Path) -> None:
    assert play(place, "too_large", CARDS["cuda-sm80"]) == {"launches": [2, 2], "said": []}
    seen = play(place, "too_large", CARDS["cuda-sm86"])
    assert seen["launches"] == [0, 0]
    (said,) = seen["said"]
    assert said.startswith("rig: a graph could not run: CUDA driver error: ")


def test_settings_that_a_trace_asks_for_are_asked_for(place: Path) -> None:
    names = ("flash", "order", "sums", "third", "cudnn", "tf32", "autocast")
    assert play(place, "settings") == {name: [1, 0, 1] for name in names}


def test_the_first_kind_of_attention_is_asked_for(place: Path) -> None:
    """By a variable that torch reads when it first chooses one: on 9.0 that is cuDNN's else."""
    environment = {"TORCH_CUDNN_SDPA_DEPRIORITIZED": "1"}
    assert play(place, "other_card", CARDS["cuda-sm90"])["hits"] == 1
    assert play(place, "other_card", CARDS["cuda-sm90"], environment)["hits"] == 0
    assert play(place, "other_card", CARDS["cuda-sm80"], environment)["hits"] == 1


def test_a_constant_that_does_not_fit_is_moved_once(place: Path) -> None:
    seen = play(place, "no_room")
    assert seen["moved"] == [["cuda:0"]] and seen["launches"] == [[], [], []]
    (said,) = seen["said"]
    assert said == "rig: a graph runs as eager code on cuda:0: OutOfMemoryError: CUDA out of memory"
    assert seen["elsewhere"] == 1


@pytest.mark.parametrize(
    ("major", "minor", "hits"), [(8, 0, 1), (8, 9, 1), (9, 0, 1), (9, 1, 0), (10, 0, 0), (7, 5, 0)]
)
def test_a_card_runs_what_is_for_its_capability(place: Path, major: int, minor: int, hits: int) -> None:
    card = Card("A card", major, minor, 100, 1536, 101376, 102400, 1 << 34, 1 << 22)
    seen = play(place, "other_card", card)
    assert (seen["hits"], len(seen["launches"])) == (hits, hits)


def test_an_explanation_has_the_reason(place: Path) -> None:
    reasons = play(place, "explained")
    for_cpus, *for_gpus = reasons["two GPUs"]
    assert "device" in for_cpus
    assert for_gpus == ["y is on cuda:1, and x is on cuda:0; the entry needs one GPU for all"] * 2
    assert reasons["no cuDNN"][1:] == [
        "torch's settings for GPUs differ: the kinds of attention that are enabled, their order, or cuDNN",
        "it is for a GPU of capability 8.0 to 8.9",
    ]


def test_where_there_is_no_gpu_nothing_is_said_or_opened(place: Path) -> None:
    seen = play(place, "without", None)
    assert seen["hits"] == {
        "net": 1,
        "scaled": 1,
        **dict.fromkeys(("ways", "doubled", "vision", "tripled", "squared", "attention", "trained"), 0),
    }
    assert (seen["said"], seen["opened"], seen["compilers"]) == ([], False, [])
    assert seen["variant"] == "native" and not seen["backend"]
    assert seen["not run"] == ["cuda-sm80", "cuda-sm90"]
    assert seen["reasons"] == [
        "it would be served",
        "it is for cuda-sm90, and this process has no tensor on a GPU",
        "it is for cuda-sm80, and this process has no tensor on a GPU",
    ]


def test_where_it_is_to_be_run_and_there_is_no_gpu_the_build_stops(tmp_path: Path) -> None:
    said = 'verify = "run": the first GPU here does not run cuda-sm90, or there is none; build where one does'
    with pytest.raises(BuildError, match=said):
        build_entrypoints(
            "rig", ENTRYPOINTS[2:3], HERE, tmp_path / "work", variants=["cuda-sm90"], verify="run"
        )


def test_what_is_to_be_run_calls_the_kernels(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here what stands in for a GPU is taken for one, and refuses."""
    card = standin.environment_with(standin.build(place / "standin"), CARDS["cuda-sm90"])
    monkeypatch.setattr(parent, "Surroundings", lambda **_: Surroundings(card, forked=False))
    entrypoint = Entrypoint(target="rig.models:scaled", samples="rig.models:pairs", name="scaled")
    (result,) = parent.run_samples(
        *(entrypoint, "rig"),
        paths=[place / "work/installed"],
        work=tmp_path / "work",
        timeout=300,
        on_event=lambda event: None,
        variant="cuda-sm90",
        run=True,
    )
    assert result.problem == (
        "sample 1/1 is not served by any entry: rig: a graph could not run: CUDA driver error: "
        "there is no GPU, and what stands in for one computes nothing"
    )


def test_a_graph_that_fails_is_noted() -> None:
    """Eager code answers then, which says nothing of the library."""

    class Failed(RuntimeError):
        def __init__(self, instead: BaseException, *, rerun: bool) -> None:
            super().__init__(str(instead))
            self.rerun = rerun

    found = on_standin._noted(Failed)
    wrong = ValueError("a size")
    assert Failed(wrong, rerun=True).rerun and found == [wrong]


@pytest.mark.parametrize(
    ("target", "samples", "said"),
    [
        ("with_number", "batches", r"something would have to be computed .*models.py:\d+ in with_number"),
        ("with_a_branch", "batches", r"something would have to be computed while it is traced, and there is"),
        ("Recurrent", "batches", "to move the instance there: something would have to be computed"),
        ("without_meta", "batches", "There was no fake impl registered"),
    ],
)
def test_what_needs_a_gpu_to_be_built_stops(tmp_path: Path, target: str, samples: str, said: str) -> None:
    entrypoint = {"target": f"rig.models:{target}", "samples": f"rig.models:{samples}", "devices": ["cuda"]}
    with pytest.raises(BuildError, match=rf"(?s){said}"):
        build_entrypoints("rig", [entrypoint], HERE, tmp_path / "work", variants=["cuda-sm90"])
