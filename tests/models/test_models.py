"""Models that nobody here wrote, small: built, and then called in a process that has never seen a compiler.

`make models` does the same with some hundred more, and measures.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import Site, build_entrypoints

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from gallery.cases import CASES  # noqa: E402

# An encoder; one that writes into its cache; convolutions; an encoder-decoder. At the last torch before 2.13
# gives up, where transformers copies a configuration.
MODELS = ["bert", "gpt2_static_cache", "resnet", *(["bart"] if torch.__version__ >= (2, 13) else [])]


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Site:
    entrypoints = [
        {
            "target": CASES[name].target,
            "name": name,
            "instance": f"gallery.small:{name}",
            "samples": f"gallery.small:{name}_samples",
        }
        for name in MODELS
    ]
    return build_entrypoints("gallery", entrypoints, HERE, tmp_path_factory.mktemp("gallery") / "work")


@pytest.mark.parametrize("name", MODELS)
def test_every_sample_hits_and_agrees_and_another_size_misses(gallery: Site, name: str) -> None:
    # A process for each model: transformers keeps a list of the models that a process has made, and its code,
    # and so dynamo's guards, look at the list as a whole.
    arguments = {"name": name, "target": CASES[name].target.partition(":")[0]}
    seen = gallery.play("models.calls", **arguments)
    without = gallery.play("models.calls", environment={"HATCH_PRECOMPILE": "off"}, **arguments)
    imported = without["imported"]  # by transformers
    assert without == {**seen, "hits": 0, "misses": 0, "imported": imported}
    assert seen == {
        "samples": seen["samples"],
        "hits": seen["samples"],
        "misses": 0,
        "hit by the strange": 0,
        "imported": imported,
    }
