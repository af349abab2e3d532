"""Small wheels with a bundle that was never built: right for `inspect` and `merge`, with anything changed."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import marshal
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hatch_precompile.errors import OutsideError
from hatch_precompile.runtime import runtime
from hatch_precompile.validation.code import split_heads

HERE = "cp311-cp311-linux_x86_64"
FOLDER = "p/_precompiled/bundle/"


def _code(x: Any) -> Any:
    return x


def files() -> dict[str, bytes]:
    """Those of a bundle with one entrypoint, one entry, one graph."""
    head = marshal.dumps((_code.__code__, _code.__code__, (), ()), 2)
    return {
        "net/frames/0.heads": marshal.dumps([head, b"0" * 64], 2),
        "net/entries/0.entry": marshal.dumps({}, 2),
        "net/entries/0.guards.txt": b"def guard(L):\n    return True\n",
        "net/guards.so": b"\x7fELF",
        "net/graphs/0-native.so": b"\x7fELF",
        "net/graphs/0.txt": b"graph text\n",
    }


def manifest(content: Mapping[str, bytes]) -> dict[str, Any]:
    entry = {
        "data": "net/entries/0.entry",
        "source": "net/entries/0.guards.txt",
        "guards": "net/guards.so",
        "graphs": [0],
        "sample": 0,
        "checks": 1,
        "by_kind": {"TENSOR_MATCH": 1},
        "dropped": 0,
        "rebound": 0,
        "native": True,
        "first_graph": 0,
        "first_resume": 0,
    }
    entrypoint = {
        "name": "net",
        "target": "p.model:Net",
        "home": ["p.model", [["a", "Net"]]],
        "kind": "module class",
        "mode": ["no_grad"],
        "activate": "call",
        "on_miss": "eager",
        "samples": 1,
        "recipe": {"samples": "p.samples:net"},
        "made_from": {},
        "frames": [0],
    }
    function = ["p.model", [["a", "Net"], ["a", "forward"]], "0" * 16]
    return {
        "format": 3,
        "built_with": {
            "hatch_precompile": "0.1.0",
            "torch": "2.13.0+cpu",
            "torch_git": "0" * 40,
            "python": "3.11",
            "magic": importlib.util.MAGIC_NUMBER.hex(),
            "platform": "linux-x86_64",
        },
        "variants": [{"name": "native", "backend": "x86_64", "requires": []}],
        "entrypoints": [entrypoint],
        "frames": [
            {
                "qualname": "Net.forward",
                "module": "p.model",
                "functions": [function],
                "code": None,
                "resume": None,
                "heads": "net/frames/0.heads",
                "entries": [entry],
            }
        ],
        "graphs": [
            {
                "libraries": {"native": "net/graphs/0-native.so"},
                "inputs": 1,
                "outputs": 1,
                "readable": "net/graphs/0.txt",
            }
        ],
        "resumes": [],
        "files": {name: hashlib.sha256(each).hexdigest() for name, each in content.items()},
    }


def wheel(
    folder: Path,
    change: Callable[[dict[str, Any]], object] = lambda _: None,
    *,
    bundle: Mapping[str, bytes] | None = None,
    text: bytes | None = None,
    extra: Mapping[str, bytes] | None = None,
    tag: str = HERE,
    record: bytes | None = None,
    shard: bool = False,
) -> Path:
    """change: what is done to the manifest; text: in its place; extra: further files of the wheel."""
    bundle = files() if bundle is None else bundle
    written = manifest(bundle)
    if shard:
        written["part"] = {"shard": 1, "of": 1, "entrypoints": ["net"]}
    change(written)
    bundle, text = _sealed(bundle, json.dumps(written).encode() if text is None else text)
    content = {
        "p/__init__.py": b"",
        "p/_precompiled/loading/cells.py": b"",
        f"{FOLDER}manifest.json": text,
        **{f"{FOLDER}{name}": each for name, each in bundle.items()},
        "p-1.dist-info/METADATA": b"Metadata-Version: 2\nName: p\nVersion: 1\nRequires-Dist: torch==2.13.0\n",
        "p-1.dist-info/WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n".encode(),
        **(extra or {}),
    }
    rows = "".join(f"{name},sha256={_digest(each)},{len(each)}\n" for name, each in content.items())
    path = folder / f"p-1-{HERE}.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, each in content.items():
            archive.writestr(name, each)
        archive.writestr("p-1.dist-info/RECORD", record or f"{rows}p-1.dist-info/RECORD,,\n".encode())
    return path


def _sealed(bundle: Mapping[str, bytes], text: bytes) -> tuple[Mapping[str, bytes], bytes]:
    """The same with heads that have the seal of this manifest: that is not what is wrong with it. One with a
    checksum of its own stays as it is."""
    name = "net/frames/0.heads"
    if b'"sha256"' in text:
        return bundle, text
    try:
        heads, _ = split_heads(bundle[name], name)
        seal = runtime("loading.manifest").seal_of(json.loads(text))
    except (OutsideError, KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return bundle, text
    sealed = marshal.dumps([*heads, seal], 2)
    before, after = (hashlib.sha256(each).hexdigest().encode() for each in (bundle[name], sealed))
    return {**bundle, name: sealed}, text.replace(before, after)


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


# -- a project, and records of calls of it

PROJECT = """
[build-system]
requires = ["hatchling", "hatch-precompile", "torch==2.13.0"]
build-backend = "hatchling.build"
[project]
name = "p"
version = "1"
[[tool.hatch.build.hooks.precompile.entrypoints]]
target = "p.model:Net"
samples = "p.samples:net"
"""
PLAIN = PROJECT.partition("[[")[0]
"""The same before it configures anything."""


def tensor(size: list[Any], **more: Any) -> dict[str, Any]:
    return {"tensor": "float32", "size": size, **more}


def line(value: Any, name: str | None = "x", count: int = 2, **more: Any) -> str:
    call = {"args": [[name, value]], "kwargs": {}, "mode": "no_grad", **more}
    about = {"package": "p", "entrypoint": "net", "of": "misses", "served": False}
    return json.dumps({**about, "call": call, "id": f"id{abs(hash(json.dumps(call)))}", "count": count})


GOOD = line(tensor([4, 8]), count=1000)


def for_gpus(manifest: dict[str, Any]) -> None:
    """Another entry of the same, with a graph of its own, for GPUs."""
    manifest["built_with"]["cuda"] = "13.0"
    manifest["variants"].append(
        {"name": "cuda-sm90", "backend": "cuda", "requires": ["sm_90"], "device": "cuda", "run": False}
    )
    there = {f"net/cuda-sm90/{name[4:]}": digest for name, digest in manifest["files"].items()}
    there["net/cuda-sm90/graphs/0-cuda-sm90.so"] = there.pop("net/cuda-sm90/graphs/0-native.so")
    manifest["files"] |= there
    entries, graphs = manifest["frames"][0]["entries"], manifest["graphs"]
    text = (
        json.dumps([entries[0], graphs[0]]).replace("native", "cuda-sm90").replace("net/", "net/cuda-sm90/")
    )
    entry, graph = json.loads(text.replace('"cuda-sm90": true', '"native": true'))
    entries.append(
        {**entry, "graphs": [1], "first_graph": 1, "gpu": {"variant": "cuda-sm90", "pinned": False}}
    )
    graphs.append(graph)


def wheel_for_gpus(
    folder: Path,
    change: Callable[[dict[str, Any]], object] = lambda _: None,
    *,
    autotuning: bytes | None = None,
) -> Path:
    """A wheel with that entry, too. autotuning: what there is of the kernels of its library"""
    bundle = files()
    bundle |= {name.replace("net/", "net/cuda-sm90/"): content for name, content in bundle.items()}
    bundle["net/cuda-sm90/graphs/0-cuda-sm90.so"] = b"\x7fELF"
    name = "net/cuda-sm90/graphs/0-cuda-sm90.autotuning"
    if autotuning is not None:
        bundle[name] = autotuning

    def changed(manifest: dict[str, Any]) -> None:
        for_gpus(manifest)
        if autotuning is not None:
            manifest["graphs"][1]["autotuning"] = {"cuda-sm90": name}
        change(manifest)

    return wheel(folder, changed, bundle=bundle)
