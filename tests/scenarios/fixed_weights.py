"""`weights = "fixed"`: what a network (tests/weights/src) answers after its weights have changed."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import probe
import sequences
import steady  # noqa: F401  # it installs the wheel
import torch
from steady import _precompiled
from steady._precompiled.graphs import weights
from steady.model import inputs, maps, trained, unversioned

torch.set_num_threads(1)


def _close(found: Any, expected: Any) -> bool:
    pairs = zip(found, expected, strict=True)
    return all(torch.allclose(a, b, atol=2e-5, rtol=2e-5) for a, b in pairs)


def _right(net: Any) -> bool:
    """Whether a network answers as eager code does."""
    given = inputs()
    with torch.no_grad():
        return _close(net(*given), probe.eager(net)(*given))


def _kept() -> int:
    return _precompiled.status()["prepared_bytes"]


def _hits() -> int:
    return probe.hits("net", "steady")


def sequences_of_changes(times: int) -> dict[str, int]:
    return {"calls": sequences.run(times, seed=0), "hits": _hits()}


def two_instances_that_come_and_go() -> dict[str, Any]:
    """How often weights were computed, the bytes kept at each step, hits, and whether dynamo was imported."""
    times = []
    computed = weights.computed

    def counted(*arguments: Any) -> Any:
        times.append(1)
        return computed(*arguments)

    weights.computed = counted
    net, other = trained(), trained(1)
    kept = {"before": _kept()}
    right = [_right(each) for _ in range(5) for each in (net, other)]
    kept["both"] = _kept()
    del other
    gc.collect()
    kept["one"] = _kept()
    del net
    gc.collect()
    kept["none"] = _kept()
    return {
        "times": len(times),
        "right": right,
        "kept": kept,
        "hits": _hits(),
        "imported": probe.loaded("torch._dynamo"),
    }


def changes_that_torch_does_not_count() -> dict[str, list[bool]]:
    """Whether a network is right before each, after it and, where that is of interest, after a refresh."""
    found = {}
    for name, write in _UNCOUNTED.items():
        net = maps() if name.startswith("statistics") else trained()
        right = [_right(net)]
        write(net)
        right.append(_right(net))
        if name == "one number":
            _precompiled.refresh()
            right.append(_right(net))
        found[name] = right
    return found


def _through_a_storage(net: Any) -> None:
    weight = net.closer.weight
    weight.untyped_storage().copy_((weight.detach() * 2).untyped_storage())


def _by_another_process(net: Any) -> None:
    net.share_memory()
    assert _right(net)
    child = os.fork()
    if child == 0:
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.mul_(1.5)
        os._exit(0)
    os.waitpid(child, 0)


def _by_a_collective(net: Any) -> None:
    """What another rank sends."""
    from torch.distributed import HashStore, ProcessGroupGloo

    store, groups = HashStore(), {}

    def join(rank: int) -> None:
        options = ProcessGroupGloo._Options()
        options._devices = [ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        options._timeout = timedelta(seconds=60)
        groups[rank] = ProcessGroupGloo(store, rank, 2, options)
        if rank == 0:
            groups[rank].broadcast(torch.randn(512, 128)).wait()
        else:
            groups[rank].broadcast(net.first.weight.detach()).wait()

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


_UNCOUNTED: dict[str, Callable[[Any], Any]] = {
    "one number": lambda net: net.first.weight.data[300, 100].mul_(-100),
    "data": lambda net: net.first.weight.data.mul_(2),
    "data of a bias": lambda net: net.closer.bias.data.add_(1),
    "numpy": lambda net: net.picture.weight.detach().numpy().__imul__(3),
    "DLPack": lambda net: torch.from_dlpack(net.second.weight.detach()).mul_(2),
    "a storage": _through_a_storage,
    "a vector": lambda net: torch.nn.utils.vector_to_parameters(
        torch.nn.utils.parameters_to_vector(net.parameters()) * 2, net.parameters()
    ),
    "another process": _by_another_process,
    "a collective": _by_a_collective,
    "statistics of many channels": lambda net: net.wide.train()(torch.rand(8, 9000) * 3) is net.eval(),
    "statistics, data of one": lambda net: net.wide.running_mean.data[4567].add_(1),
}


def weights_and_pictures_that_are_not_finite() -> dict[str, Any]:
    right = []
    for value in (torch.nan, torch.inf, -torch.inf):
        for name in ("picture.weight", "closer.weight", "norm.running_var", "norm.weight"):
            net, given = maps(), inputs()
            with torch.no_grad():
                _tensor(net, name).view(-1)[0] = value
                right.append(_same(net(*given), probe.eager(net)(*given)))
    net, given = maps(), inputs()
    with torch.no_grad():
        for each in given:
            each.fill_(torch.nan)
        right.append(_same(net(*given), probe.eager(net)(*given)))
        net.closer.weight[3, 3, 0, 0] = torch.nan
        net(*given)
        net.closer.weight[3, 3, 0, 0] = 1
        right.append(_same(net(*inputs()), probe.eager(net)(*inputs())))
    return {"right": right, "hits": probe.hits("maps", "steady")}


def _tensor(net: Any, name: str) -> Any:
    for part in name.split("."):
        net = getattr(net, part)
    return net


def _same(found: Any, expected: Any) -> bool:
    pairs = zip(found, expected, strict=True)
    return all(torch.allclose(a, b, atol=2e-5, rtol=2e-5, equal_nan=True) for a, b in pairs)


def weights_are_swapped() -> list[bool]:
    """Whether the network is right, at each step."""
    net, other = trained(), trained(1)
    right = [_right(net), _right(other)]
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        torch.utils.swap_tensors(one, two)
    right += [_right(net), _right(other)]
    torch.__future__.set_swap_module_params_on_conversion(True)
    net.double().float()
    return [*right, _right(net)]


def what_lives_without_the_collector() -> dict[str, Any]:
    """What is alive of what was dropped, and the bytes that are kept."""
    _right(trained())
    gc.collect()
    gc.disable()
    alive, kept = [], {}

    def dropped(*things: Any) -> None:
        references.extend(map(weakref.ref, things))

    references: list[weakref.ref[Any]] = []
    net = trained()
    _right(net)
    kept["a network"] = _kept()
    for _ in range(3):
        net.load_state_dict(trained(1).state_dict())
        _right(net)
    held = [trained(2).first.weight.detach() for _ in range(100)]
    for each in held:
        net.first.weight = torch.nn.Parameter(each)
        _right(net)
    kept["replaced a hundred times, each kept"] = _kept()
    dropped(net, *(each.untyped_storage() for each in net.parameters()), *net.parameters())
    del net, each, held
    alive = [reference() is not None for reference in references]
    kept["none"] = _kept()
    return {"alive": alive, "kept": kept}


def many_first_callers() -> dict[str, Any]:
    """How often it was computed for 16 threads, whether they were right, and how a child ended that was
    forked meanwhile."""
    times, computed = [], weights.computed

    def counted(*arguments: Any) -> Any:
        times.append(1)
        started.set()
        time.sleep(0.2)
        return computed(*arguments)

    started, net, given = threading.Event(), trained(), inputs()
    with torch.no_grad():
        net.eval()
        expected = probe.eager(net)(*given)
    weights.computed = counted
    right = []

    def work() -> None:
        with torch.no_grad():
            right.append(_close(net(*given), expected))

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    started.wait()
    child = os.fork()
    if child == 0:
        weights.computed = computed
        os._exit(0 if _right(net) and _right(trained(3)) else 1)
    for thread in threads:
        thread.join()
    return {"times": len(times), "right": right, "child": os.waitpid(child, 0)[1]}


def changes_of_weights_without_versions() -> dict[str, Any]:
    net, given, right = unversioned(), inputs(), []
    for _ in range(2):
        with torch.inference_mode():
            right.append(_close(net(*given), probe.eager(net)(*given)))
            net.first.weight.mul_(2)
    return {"right": right, "kept": _kept(), "hits": probe.hits("unversioned", "steady")}


def threads_and_forks() -> dict[str, Any]:
    """Which answers of four threads are right, hits after them, and how three children ended."""
    nets = [trained(number) for number in range(3)]
    given = [inputs(seed) for seed in range(20)]
    with torch.no_grad():
        expected = [[probe.eager(net)(*each) for each in given] for net in nets]
    right = []

    def work(number: int) -> None:
        with torch.no_grad():
            for each, answer in zip(given, expected[number % 3], strict=True):
                right.append(_close(nets[number % 3](*each), answer))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            os._exit(_in_a_child(nets[0]))
        children.append(os.waitpid(child, 0)[1])
    return {"right": right, "hits": _hits(), "children": children}


def _in_a_child(net: Any) -> int:
    right = _right(net) and _right(trained(7))
    with torch.no_grad():
        net.second.bias.add_(1)
    return 0 if right and _right(net) else 1


def modes_of_the_caller() -> list[bool]:
    """Whether networks are right that were first called under a mode, and the last one again without it."""

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            assert "reorder" not in str(function)
            return function(*args, **(kwargs or {}))

    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        right = [_right(trained())]
    with Mode():
        right.append(_right(trained(2)))
    net = trained(1)
    with torch.inference_mode():
        right.append(_right(net))
    return [*right, _right(net)]


def an_interrupt_while_weights_are_computed() -> dict[str, Any]:
    """Whether it came out of the call, and the next one is right; and the hits."""
    prepare = weights._Prepared.__init__

    def interrupted(self: Any, *arguments: Any) -> None:
        prepare(self, *arguments)
        raise KeyboardInterrupt

    net, came_out = trained(), False
    weights._Prepared.__init__ = interrupted
    try:
        with torch.no_grad():
            net(*inputs())
    except KeyboardInterrupt:
        came_out = True
    weights._Prepared.__init__ = prepare
    return {"came out": came_out, "right": _right(net), "hits": _hits()}


def weights_that_cannot_be_computed() -> dict[str, list[Any]]:
    """Whether a network is right and the bytes kept, while it fails and afterwards."""

    def fails(*arguments: Any) -> None:
        raise RuntimeError("no memory")

    computed, weights.computed = weights.computed, fails
    net = trained()
    failing = [_right(net), _kept()]
    weights.computed = computed
    return {"failing": failing, "afterwards": [_right(net), _kept()]}


def what_is_left_in_torch() -> list[list[str]]:
    """Hooks on optimizers, after a call and after the wheel was taken out."""
    hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
    net = trained()
    assert _right(net)
    found = [[str(name) for name in hooks]]
    _precompiled.uninstall()
    return [*found, [str(name) for name in hooks]]
