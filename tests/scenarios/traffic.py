"""The desk (tests/traffic/desk): a model behind a server, and those who call it."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import sys
import threading
import urllib.request
import weakref
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from desk import _precompiled
from desk.model import Scorer

SECRET = 1_234_567.0


class _Handler(BaseHTTPRequestHandler):
    model = Scorer().eval()

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps(_answer(self.model, **asked)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def _answer(
    model: Scorer, batch: int, length: int, inference: bool = False, masked: bool = False, **flags: Any
) -> Any:
    ids = (torch.arange(batch * length) % 16).view(batch, length)
    mask = torch.ones(batch, length, dtype=torch.int64) if masked else None
    with torch.inference_mode() if inference else torch.no_grad():
        return model(ids, mask, **flags).tolist()


def odd_traffic() -> list[dict[str, Any]]:
    """Sizes, a mode and flags that the author did not think of."""
    sizes = [(1, 4), (2, 5), (3, 9), (6, 5), (5, 16), (4, 7)]
    ways: list[dict[str, Any]] = [
        {},
        {"inference": True},
        {"masked": True},
        {"double": True, "pooling": "max"},
    ]
    return [{"batch": batch, "length": length, **way} for way in ways for batch, length in sizes] * 2


def a_served_model() -> dict[str, Any]:
    """Its hits and misses of the odd traffic, sent by several clients at once, and whether answers are
    right."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def ask(request: dict[str, Any]) -> Any:
        address = f"http://127.0.0.1:{server.server_port}"
        with urllib.request.urlopen(address, json.dumps(request).encode(), timeout=60) as answer:
            return json.load(answer)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, odd_traffic()))
    server.shutdown()
    server.server_close()
    scorer = _precompiled.status()["entrypoints"]["scorer"]
    _precompiled.uninstall()
    right = [
        torch.allclose(torch.tensor(answer), torch.tensor(_answer(_Handler.model, **request)), atol=1e-5)
        for request, answer in zip(odd_traffic(), answers, strict=True)
    ]
    return {"hits": scorer["hits"], "misses": scorer["misses"], "right": all(right), "calls": len(right)}


def few_calls() -> list[str]:
    """A hit and two misses; what was imported for a record."""
    model = _Handler.model
    for length in (4, 5, 5):
        _answer(model, 1, length)
    prefix = "desk._precompiled."
    return [name for name in ("recorder", "described") if f"{prefix}recording.{name}" in sys.modules]


def private_calls() -> None:
    """Calls with what nobody else may know."""
    model, ids = _Handler.model, torch.full((2, 3), 13)
    with torch.no_grad():
        model(ids, torch.full((2, 3), SECRET))
        model(ids, None, pooling="hunter2")
        model(ids, None, pooling="My name is Ozymandias, king of kings. " * 9)
        model(ids, None, pooling="max")


def crowd(threads: int, children: int, calls: int) -> int:
    """Threads that call at once, in this process and in forked ones; how many calls they made here."""
    torch.set_num_threads(1)
    model = _Handler.model

    def work(first: int) -> None:
        for number in range(calls):
            _answer(model, 2, 2 + (first + number) % 7)

    def all_threads() -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))

    work(0)
    context = multiprocessing.get_context("fork")
    started = [context.Process(target=_flushed, args=(all_threads,)) for _ in range(children)]
    for process in started:
        process.start()
    all_threads()
    for process in started:
        process.join()
        assert process.exitcode == 0
    return calls * (1 + threads * (1 + children))


def _flushed(work: Any) -> None:
    torch.set_num_threads(torch.get_num_threads())  # a child's first, of which torch bears one at a time
    work()
    _precompiled.uninstall()  # a child of multiprocessing runs nothing at its exit


def endless_variety(size: int) -> int:
    """More kinds of calls than a record of this size holds; the size of the file."""
    recording = sys.modules["desk._precompiled.recording.recorder"]
    recording.SIZE = size  # type: ignore[attr-defined]
    for length in range(2, 200):
        _answer(_Handler.model, 2, length)
    return Path(os.environ["HATCH_PRECOMPILE"].partition(":")[2]).stat().st_size


def a_tensor_that_was_passed() -> bool:
    """Whether it is gone when its caller lets it go."""
    ids = torch.ones(2, 3, dtype=torch.int64)
    with torch.no_grad():
        _Handler.model(ids)
    seen = weakref.ref(ids)
    del ids
    gc.collect()
    return seen() is None


def ways_of_calling() -> None:
    """A tensor twice, a transposed one, a subclass, gradients, training, autocast, a default device."""
    ids = torch.ones(3, 2, dtype=torch.int64)
    model = Scorer().eval()
    with torch.no_grad():
        model(ids, ids)
        model(ids.t())
        with torch.autocast("cpu", torch.bfloat16):
            model(ids)
        with torch.device("cpu"):
            model(ids)
        type("Louder", (Scorer,), {})().eval()(ids)
        model.train()(ids)
        model.eval()
    model(ids)
    with torch.inference_mode():
        model(torch.ones(2, 2, dtype=torch.int64))
