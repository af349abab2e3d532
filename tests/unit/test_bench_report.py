"""What `make bench` says at its end: which models are ahead, and whether packing made one slower."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

MODELS = {
    "lstm": {
        "eager": {"least_ms": 20.0},
        "fxcache": {"least_ms": 18.0},
        "onnxruntime": {"least_ms": 9.0},
        "wheel": {"least_ms": 21.0},
        "wheel_fixed": {"least_ms": 10.0},
    },
    "vit": {
        "onnxruntime": {"least_ms": 280.0},
        "openvino": {"error": "no such processor"},
        "openvino_bfloat16": {"least_ms": 80.0},
        "wheel": {"least_ms": 200.0},
        "wheel_fixed": {"least_ms": 210.0},
    },
    "mlp": {"wheel": {"least_ms": 1.0}},
}


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    before = dict(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import report as imported

    for name in sys.modules.keys() - before.keys():
        monkeypatch.delitem(sys.modules, name)
    return imported


def test_each_model_is_compared_with_the_fastest_of_the_same_numbers(report: ModuleType) -> None:
    rows = report.ahead_table(MODELS).splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells == [["lstm", "ONNX Runtime", "1.11", "behind"], ["vit", "ONNX Runtime", "0.75", "ahead"]]


def test_neither_packing_nor_the_wheel_may_make_a_model_slower(report: ModuleType) -> None:
    verdicts = {
        (verdict.model, verdict.what): verdict.passed for verdict in report.ahead.__globals__["judge"](MODELS)
    }
    assert verdicts["lstm", "a call, with fixed weights against read ones"] is True
    assert verdicts["vit", "a call, with fixed weights against read ones"] is False
    assert verdicts["lstm", "a call, with read weights against eager code"] is False
    assert verdicts["vit", "a call, with read weights against eager code"] is None


def test_every_model_has_its_package() -> None:
    models = runpy.run_path(str(BENCHMARKS / "models.py"))["MODELS"]
    assert {"mobilenet", "efficientnet", "vit", "lstm"} <= models.keys()
    for model in models.values():
        assert (BENCHMARKS / "packages" / model.package / "__init__.py").is_file()


def test_the_processor_is_named(report: ModuleType) -> None:
    assert report.machine()["processor"]
