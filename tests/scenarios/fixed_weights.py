"""`weights = "fixed"`: what a network (tests/weights/src) answers after its weights have changed."""

from __future__ import annotations

import gc
import os
import sys
import threading
from typing import Any

import probe
import sequences
import steady  # noqa: F401  # it installs the wheel
import torch
from steady import _precompiled
from steady._precompiled import weights
from steady.model import inputs, trained, unversioned

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


def a_change_that_torch_does_not_notice() -> list[bool]:
    """Whether the network is right before it, after it, and after a refresh."""
    net = trained()
    right = [_right(net)]
    net.first.weight.data.mul_(2)
    right.append(_right(net))
    _precompiled.refresh()
    return [*right, _right(net)]


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
