"""Models of a real size and kind, built and called on 64-bit Arm: the demo's, and one of transformers."""

from __future__ import annotations

import platform
import re
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, Site, build_entrypoints
from tests.wheel.conftest import build

pytestmark = pytest.mark.skipif(platform.machine() != "aarch64", reason="64-bit Arm: make test-arm64")

MODELS = REPOSITORY / "tests/models"
MINILM = """
import probe, torch
from minilm_search import model, samples
minilm = model.untrained()
other = torch.randint(1000, 2000, (7, 12)), torch.ones(7, 12, dtype=torch.int64)
with torch.no_grad():
    for sample in [*samples.batches(), other]:
        torch.testing.assert_close(minilm(*sample), probe.eager(minilm)(*sample))
package = "minilm_search"
served = probe.hits("minilm", package), probe.misses("minilm", package)
probe.result(served=served, imported=probe.compilers())
"""


def test_the_model_of_the_demo(tmp_path: Path) -> None:
    own, _ = build(REPOSITORY, REPOSITORY, tmp_path / "own", "--wheel")
    with zipfile.ZipFile(own) as archive:
        archive.extractall(tmp_path / "plugin")
    project = tmp_path / "project"
    shutil.copytree(REPOSITORY / "example_project", project, ignore=shutil.ignore_patterns("__pycache__"))
    configuration = project / "pyproject.toml"
    text = configuration.read_text().replace('variants = ["native"]', 'variants = ["native"]\ntimeout = 3600')
    # The build calls the largest declared sizes, too: emulated, that ends in no useful time.
    configuration.write_text(text.replace("max = 64", "max = 8").replace("max = 256", "max = 24"))
    arguments = ("--wheel", "--skip-dependency-check")  # what it requires is its trained weights
    wheel, log = build(project, tmp_path / "plugin", tmp_path / "dist", *arguments)
    assert re.search(r"manylinux_2_\d+_aarch64\.whl$", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    called = Site(tmp_path / "site", timeout=1200).run(MINILM)
    assert called.result == {"served": [3, 0], "imported": []}, log


def test_one_of_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(MODELS)
    target = "transformers.models.bert.modeling_bert:BertModel"
    entrypoint = {
        "target": target,
        "name": "bert",
        "instance": "gallery.small:bert",
        "samples": "gallery.small:bert_samples",
    }
    site = build_entrypoints("gallery", [entrypoint], MODELS, tmp_path / "work", timeout=3600)
    seen = Site(site.directory, timeout=1200).play(
        "models.calls", name="bert", target=target.partition(":")[0]
    )
    assert seen["hits"] == seen["samples"] > 0
    assert seen["misses"] == seen["hit by the strange"] == 0
