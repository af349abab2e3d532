"""A build backend that stands for the hook in a cell: its wheel is what a merge looks at, and no more.

Which cell it is in, the interpreter that fake_uv.py makes tells it. Files of the project say what it does.
"""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

TINT = {
    "name": "tint",
    "target": "kiosk:tint",
    "home": ["kiosk", []],
    "kind": "function",
    "mode": ["no_grad"],
    "recipe": {"samples": "kiosk:samples"},
    "skipped": [],
    "made_from": {},
    "activate": "call",
    "on_miss": "eager",
    "samples": 1,
    "frames": [],
}


def here():
    (constraints,) = re.findall(r"--dependency-constraints-txt (\S+)", os.environ["FAKE_ARGUMENTS"])
    torch = Path(constraints).read_text().strip().partition("==")[2]
    python = os.environ["FAKE_PYTHON"]
    return python, torch, f"cp{python.replace('.', '')}"


def entrypoints():
    """All that are configured, and those that are asked for."""
    names = re.findall(r'target = "kiosk:(\w+)"', Path("pyproject.toml").read_text())
    number, _, of = os.environ.get("HATCH_PRECOMPILE_SHARD", "1of1").partition("of")
    return names, names[int(number) - 1 :: int(of)]


def tell(**event):
    with Path(os.environ["HATCH_PRECOMPILE_EVENTS"]).open("a") as file:
        file.write(json.dumps(event) + "\n")


def build_sdist(sdist_directory, config_settings=None):
    name = "kiosk-1.0.tar.gz"
    with tarfile.open(Path(sdist_directory, name), "w:gz") as archive:
        for file in sorted(Path.cwd().iterdir()):
            if file.is_file():
                archive.add(file, f"kiosk-1.0/{file.name}")
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    python, torch, tag = here()
    cell = f"{tag}-torch{torch}"
    print(f"this is {cell}")
    _, own = entrypoints()
    for name in own:
        tell(step="start", phase="capture", entrypoint=name, entrypoints=len(own))
    if Path(f"fail-{cell}").exists():
        tell(step="failed", text="entrypoint tint: no such word")
        sys.exit(1)
    linger(cell)
    for name in own:
        tell(step="end", phase="capture", entrypoint=name, entrypoints=len(own), entries=1, seconds=2.0)
    name = f"kiosk-1.0-{tag}-{tag}-manylinux_2_28_x86_64.whl"
    if Path("report").exists():
        Path(wheel_directory, name).with_suffix(".report.html").write_text(f"<p>{cell}</p>")
    write(Path(wheel_directory, name), wheel_files(python, torch, tag))
    return name


def linger(cell):
    """The first time, wait for somebody to end this: what is in the file is where to say that it began."""
    file = Path(f"linger-{cell}")
    if not file.exists():
        return
    mark, started = file.read_text().split()
    if not Path(started).exists():
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(90)", mark])
        Path(started).touch()
        time.sleep(90)


def wheel_files(python, torch, tag):
    names, own = entrypoints()
    libraries = {f"{name}/graphs/0-native.so": f"{name} with {torch} for {python}" for name in own}
    built_with = {
        "python": python,
        "torch": f"{torch}+cpu",
        "torch_git": torch,
        "magic": f"{tag[2:]:0>4}0d0a",
    }
    manifest = {
        "format": 3,
        "built_with": built_with,
        "files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in libraries.items()},
        "entrypoints": [{**TINT, "name": name, "target": f"kiosk:{name}"} for name in own],
        **{key: [] for key in ("variants", "frames", "graphs", "resumes")},
    }
    if "HATCH_PRECOMPILE_SHARD" in os.environ:
        number, _, of = os.environ["HATCH_PRECOMPILE_SHARD"].partition("of")
        manifest["part"] = {"shard": int(number), "of": int(of), "entrypoints": names}
    if Path("another-torch").exists():
        built_with["torch"] = "2.12.0"
    info = "kiosk-1.0.dist-info"
    return {
        "kiosk/__init__.py": "",
        "kiosk/_precompiled/loading/cells.py": "",
        "kiosk/_precompiled/bundle/manifest.json": json.dumps(manifest),
        **{f"kiosk/_precompiled/bundle/{name}": text for name, text in libraries.items()},
        f"{info}/METADATA": (
            f"Metadata-Version: 2.3\nName: kiosk\nVersion: 1.0\nRequires-Dist: torch=={torch}\n"
        ),
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\n"
            f"Tag: {tag}-{tag}-manylinux_2_28_x86_64\n"
        ),
    }


def write(path, files):
    rows = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(content)}\n")
    record = "kiosk-1.0.dist-info/RECORD"
    with zipfile.ZipFile(path, "w") as wheel:
        date = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
        for name, content in {**files, record: "".join([*rows, f"{record},,\n"])}.items():
            wheel.writestr(zipfile.ZipInfo(name, date), content)
