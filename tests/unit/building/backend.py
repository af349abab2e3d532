"""A build backend that stands for the hook: it says what the hook would say."""

import json
import os
import sys
import zipfile
from pathlib import Path

MANIFEST = {"format": 1, "entrypoints": [{"name": "tint", "target": "kiosk:tint", "samples": 2}]}


def tell(**event):
    with Path(os.environ["HATCH_PRECOMPILE_EVENTS"]).open("a") as file:
        file.write(json.dumps(event) + "\n")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    print("tint: sample 1")
    about = {"entrypoint": "tint", "entrypoints": 1}
    tell(step="start", phase="capture", **about)
    if Path("fail").exists():
        tell(step="failed", text="entrypoint tint: no such word")
        sys.exit("precompile: entrypoint tint: no such word")
    if Path("crash").exists():
        raise LookupError("a bug")
    tell(step="graph", phase="capture", graph=0, variants=1, **about)
    tell(step="end", phase="capture", entries=2, seconds=3.5, **about)
    tell(step="sample-end", phase="verify", difference=2e-7, **about)
    tell(step="sample-end", phase="verify", difference=1e-7, **about)
    tell(step="end", phase="verify", seconds=1.5, **about)
    tell(step="failed", entrypoint="other", text="WARNING: entrypoint other is left out")
    name = "kiosk-1.0-py3-none-any.whl"
    if Path("report").exists():
        report = Path(wheel_directory, "kiosk-1.0-py3-none-any.report.html")
        report.write_text("<p>what was compiled</p>")
    with zipfile.ZipFile(Path(wheel_directory, name), "w") as wheel:
        wheel.writestr("kiosk-1.0.dist-info/METADATA", "Name: kiosk\nVersion: 1.0\n")
        if not Path("plain").exists():
            wheel.writestr("kiosk/_precompiled/bundle/manifest.json", json.dumps(MANIFEST))
            wheel.writestr("kiosk/_precompiled/bundle/tint/graphs/0-native.so", "x" * 1500)
    return name
