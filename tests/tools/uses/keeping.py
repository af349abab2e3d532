"""Those that copy a model, write it to a file, or send it to another process."""

from __future__ import annotations

import copy
import io
import multiprocessing
import os
import pickle
import re
import shelve
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from tests.tools.guest import Guest, tool


def _tried(guest: Guest, again: Callable[[Any], Any], *, later: bool = True) -> None:
    """A copy of each model, made before its first call and after some: what it says, and its weights."""
    for make, given in ((guest.classifier, guest.rows()), (guest.pictures, guest.images())):
        model = make()
        with torch.no_grad():
            for _ in range(3 if later else 1):
                other = again(model)
                guest.note("output", other(given))
                guest.note("output", model(given))
        guest.note("weights", other.state_dict())
        guest.note("class", type(other))
        other.train()
        guest.note("output in training", other(given))
    guest.note("functions", again(guest.package.normalize) is guest.package.normalize)


@tool("pickle, every protocol", suite=True)
def pickle_(guest: Guest) -> None:
    _tried(guest, lambda each: pickle.loads(pickle.dumps(each)))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        model = guest.classifier()
        with torch.no_grad():
            model(guest.rows())
        model.forward_was = model.forward  # a bound method
        file = pickle.dumps(model, protocol)
        guest.note("file", file[:200])
        # Storages are numbered by their addresses, which have fourteen digits or fifteen.
        guest.note("length of the file", len(re.sub(rb"\d{10,}", b"", file)))
    guest.note("functions' file", pickle.dumps([guest.package.normalize, guest.package.Classifier.forward]))


@tool("cloudpickle", "cloudpickle")
def cloudpickle(guest: Guest) -> None:
    import cloudpickle

    _tried(guest, lambda each: pickle.loads(cloudpickle.dumps(each)))
    cloudpickle.register_pickle_by_value(guest.package)
    try:
        file = cloudpickle.dumps((guest.classifier(), guest.package.activation))
    finally:
        cloudpickle.unregister_pickle_by_value(guest.package)
    # Elsewhere: it gives the class that it finds here the functions of the file.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        guest.note("output by value", pool.submit(_unpickled, file).result())


def _unpickled(file: bytes) -> Any:
    model, function = pickle.loads(file)
    with torch.no_grad():
        return model(Guest.rows()).tolist(), function(Guest.rows()).tolist()


@tool("dill, by name and by value", "dill")
def dill(guest: Guest) -> None:
    import dill

    for recurse in (False, True):
        _tried(guest, lambda each: dill.loads(dill.dumps(each, recurse=recurse)))  # noqa: B023
    model = dill.loads(dill.dumps(guest.classifier(), byref=False, recurse=True))
    with torch.no_grad():
        guest.note("output by value", model(guest.rows()))
    guest.note("source", dill.source.getsource(guest.package.activation))


@tool("joblib: dump, load, Parallel", "joblib")
def joblib(guest: Guest) -> None:
    import joblib

    def again(each: Any) -> Any:
        joblib.dump(each, "model.joblib")
        return joblib.load("model.joblib")

    _tried(guest, again)
    model = guest.classifier()
    before = joblib.hash(model)  # which no two processes have alike
    with torch.no_grad():
        model(guest.rows())
    guest.note("hash before and after a call", before == joblib.hash(model))
    with torch.no_grad():
        threads = joblib.Parallel(2, backend="threading")
        guest.note(
            "outputs of threads",
            [
                each.detach()
                for each in threads(joblib.delayed(guest.classifier())(guest.rows(n)) for n in (2, 3))
            ],
        )
    found = joblib.Parallel(2, backend="loky")(joblib.delayed(_called)(guest.classifier(), n) for n in (2, 3))
    guest.note("outputs of processes", found)


def _called(model: Any, rows: int) -> Any:
    with torch.no_grad():
        return model(Guest.rows(rows)).tolist()


@tool("copy.copy, copy.deepcopy", suite=True)
def copies(guest: Guest) -> None:
    _tried(guest, copy.copy)
    _tried(guest, copy.deepcopy)
    model = guest.classifier()
    other = copy.deepcopy(model)
    with torch.no_grad():
        model.last.weight.zero_()
        guest.note("output of the copy", other(guest.rows()))
        guest.note("output", model(guest.rows()))


@tool("torch.save of a model, torch.load", suite=True)
def saved(guest: Guest) -> None:
    def again(each: Any) -> Any:
        file = io.BytesIO()
        torch.save(each, file)
        sizes.append(len(file.getvalue()))
        file.seek(0)
        return torch.load(file, weights_only=False)

    sizes: list[int] = []
    _tried(guest, again)
    guest.note("sizes of the files", sizes)
    torch.save(guest.classifier(), "model.pt")
    with torch.serialization.safe_globals([guest.package.Classifier]):
        guest.attempt("restricted load", lambda: type(torch.load("model.pt", weights_only=True)))
    guest.note(
        "globals of the file", sorted(torch.serialization.get_unsafe_globals_in_checkpoint("model.pt"))
    )
    torch.save(guest.classifier().state_dict(), "weights.pt")
    with torch.no_grad():
        model = guest.classifier()
        model.load_state_dict(torch.load("weights.pt", mmap=True), assign=True)
        guest.note("output of mapped weights", model(guest.rows()))


@tool("state_dict, load_state_dict, assign=True, strict", suite=True)
def states(guest: Guest) -> None:
    for make, given in ((guest.classifier, guest.rows()), (guest.pictures, guest.images())):
        model = make()
        torch.manual_seed(5)
        other = {
            name: torch.rand_like(value) if value.is_floating_point() else value
            for name, value in model.state_dict().items()
        }
        for assign in (False, True):
            with torch.no_grad():
                guest.note("output", model(given))
                model.load_state_dict(
                    {name: value * (3 if value.is_floating_point() else 1) for name, value in other.items()},
                    assign=assign,
                )
                guest.note("output", model(given))
        try:
            model.load_state_dict({"nothing": torch.ones(1)})
        except Exception as error:
            guest.note("exception", error)
        hooked: list[Any] = []
        model.register_load_state_dict_post_hook(lambda module, keys: hooked.append(keys.missing_keys))  # noqa: B023
        model.load_state_dict(other, strict=False)
        guest.note("hook calls", hooked)
        with torch.no_grad():
            guest.note("output", model(given))


@tool("safetensors", "safetensors")
def safetensors(guest: Guest) -> None:
    from safetensors.torch import load_model, save_model

    for make, given in ((guest.classifier, guest.rows()), (guest.pictures, guest.images())):
        model = make()
        with torch.no_grad():
            model(given)
        save_model(model, "model.safetensors")
        guest.note("file", Path("model.safetensors").read_bytes())
        other = type(model)().eval()
        with torch.no_grad():
            other(given)
            load_model(other, "model.safetensors")
            guest.note("output", other(given))


@tool("torch.distributed.checkpoint")
def distributed_checkpoint(guest: Guest) -> None:
    import torch.distributed.checkpoint as dcp

    model = guest.classifier()
    dcp.save({"model": model.state_dict()}, checkpoint_id="checkpoint", no_dist=True)
    other = guest.package.Classifier().eval()
    with torch.no_grad():
        other(guest.rows())
    state = {"model": other.state_dict()}
    dcp.load(state, checkpoint_id="checkpoint", no_dist=True)
    with torch.no_grad():
        guest.note("output", other(guest.rows()))
    guest.note("keys", list(state["model"]))


@tool("shelve")
def shelves(guest: Guest) -> None:
    def again(each: Any) -> Any:
        with shelve.open("shelf") as shelf:
            shelf["it"] = each
        with shelve.open("shelf") as shelf:
            return shelf["it"]

    _tried(guest, again, later=False)


def _pooled(guest: Guest, method: str) -> None:
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        guest.note("output of the process", pool.submit(_called, guest.classifier(), 4).result())
        other = pool.submit(copy.copy, guest.classifier()).result()
    with torch.no_grad():
        guest.note("output of what came back", other(guest.rows()))


@tool("multiprocessing: spawn")
def spawn(guest: Guest) -> None:
    _pooled(guest, "spawn")


@tool("multiprocessing: forkserver")
def forkserver(guest: Guest) -> None:
    _pooled(guest, "forkserver")


@tool("multiprocessing: fork, os.fork", suite=True)
def fork(guest: Guest) -> None:
    _pooled(guest, "fork")
    model = guest.classifier()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with torch.no_grad():
                os.write(writer, pickle.dumps(model(guest.rows()).tolist()))
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    guest.note("output of the child", pickle.loads(os.read(reader, 1 << 16)))


@tool("torch.multiprocessing, share_memory")
def shared(guest: Guest) -> None:
    import torch.multiprocessing as mp

    for make, given in ((guest.classifier, guest.rows()), (guest.pictures, guest.images())):
        model = make().share_memory()
        guest.note("shared", [each.is_shared() for each in model.parameters()])
        with torch.no_grad():
            guest.note("output", model(given))
            process = mp.get_context("spawn").Process(target=_trained_by_another, args=(model,))
            process.start()
            process.join()
            guest.note("output after another process changed it", model(given))


def _trained_by_another(model: Any) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)


@tool("threads: ThreadPoolExecutor, asyncio", suite=True)
def threads(guest: Guest) -> None:
    import asyncio

    model = guest.classifier()

    def call(rows: int) -> Any:
        with torch.no_grad():
            return model(guest.rows(rows))

    with ThreadPoolExecutor(4) as pool:
        guest.note("outputs", list(pool.map(call, [2, 3, 4, 1, 70] * 4)))

    async def all_of_them() -> Any:
        return await asyncio.gather(*(asyncio.to_thread(call, rows) for rows in (2, 3, 4)))

    guest.note("outputs", asyncio.run(all_of_them()))
