"""A server of two workers, whose requests run in 40 threads each, and 40 clients that ask all at once."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

__all__ = ["REQUESTS", "app", "served"]

REQUESTS = 10_000
WORKERS = 2
CLIENTS = 40  # as many as the threads in which a worker of FastAPI's runs plain functions
ROUNDS = 2
SIZES = (1, 2, 3, 5, 8, 64, 65)
"""Of which an entry serves all but the first and the last."""


def app() -> Any:
    """Made in each worker."""
    from fastapi import FastAPI

    from tests.tools.guest import Guest

    torch.set_num_threads(1)
    guest = Guest()
    model, pictures = guest.classifier(), guest.pictures()
    application = FastAPI()

    @application.get("/{kind}/{count}")
    def answer(kind: str, count: int) -> Any:
        with torch.no_grad():
            found = model(guest.rows(count)) if kind == "rows" else pictures(guest.images(count))
        return {"answer": found.tolist(), "hits": guest.hits()}

    return application


def served(environments: dict[str, dict[str, str]], requests: int) -> dict[str, Any]:
    """Each role's server is asked in turns, so that what else the machine does meets both."""
    times: dict[str, list[float]] = {role: [] for role in environments}
    seconds = dict.fromkeys(environments, 0.0)
    answers: dict[str, dict[str, Any]] = {role: {} for role in environments}
    hits = dict.fromkeys(environments, 0)
    wrong = dict.fromkeys(environments, 0)
    for _ in range(ROUNDS):
        for role, environment in environments.items():
            with _server(environment) as port:
                start = time.perf_counter()
                found = _asked(port, requests // ROUNDS)
                seconds[role] += time.perf_counter() - start
            for path, (answer, took) in found:
                times[role].append(took)
                hits[role] = max(hits[role], answer["hits"])
                expected = answers["eager"].get(path) or answers[role].setdefault(path, answer["answer"])
                wrong[role] += not _agree(answer["answer"], expected)
    for path, answer in answers["wheel"].items():
        wrong["wheel"] += not _agree(answer, answers["eager"][path])
    return {
        role: {
            "requests": len(took),
            "wrong": wrong[role],
            "hits_of_a_worker": hits[role],
            "median_ms": round(1000 * statistics.median(took), 2),
            "p99_ms": round(1000 * statistics.quantiles(took, n=100)[98], 2),
            "per_second": round(len(took) / seconds[role], 1),
        }
        for role, took in times.items()
    }


@contextlib.contextmanager
def _server(environment: dict[str, str]) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "tests.tools.serving:app",
        "--factory",
        "--log-level",
        "error",
    ]
    process = subprocess.Popen(
        [*command, "--workers", str(WORKERS), "--port", str(port)], env=environment, stdin=subprocess.DEVNULL
    )
    try:
        _wait(port, process)
        yield port
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(1200):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            _one(http.client.HTTPConnection("127.0.0.1", port, timeout=60), "/rows/4")
            return
        time.sleep(0.1)
    raise RuntimeError("the server did not answer within two minutes")


def _asked(port: int, requests: int) -> list[tuple[str, tuple[Any, float]]]:
    """Each path with its answer, and the seconds that it took."""
    mine = threading.local()
    paths = [f"/rows/{size}" for size in SIZES] + ["/images/2", "/images/3"]

    def ask(number: int) -> tuple[str, tuple[Any, float]]:
        path = paths[number % len(paths)]
        if not hasattr(mine, "connection"):
            mine.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        start = time.perf_counter()
        answer = _one(mine.connection, path)
        return path, (answer, time.perf_counter() - start)

    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(ask, range(requests)))


def _one(connection: http.client.HTTPConnection, path: str) -> Any:
    connection.request("GET", path)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path}: {answer.status} {content[:300]!r}")
    return json.loads(content)


def _agree(one: Any, other: Any) -> bool:
    return torch.allclose(torch.tensor(one), torch.tensor(other), rtol=1e-4, atol=1e-5)
