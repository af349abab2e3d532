"""Those that spread a model over processes: here, over one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from tests.tools.guest import Guest, tool


@contextlib.contextmanager
def _group() -> Iterator[None]:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _trained(guest: Guest, model: Any, rows: int = 4) -> None:
    """Outputs with gradients and without, and what two steps make of the weights."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(2):
        output = model(guest.rows(rows + step))
        guest.note("output", _local(output))
        output.sum().backward()
        guest.note("gradients", [_local(each.grad) for each in model.parameters()])
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        guest.note("output without gradients", _local(model(guest.rows(rows))))


def _local(value: Any) -> Any:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


@tool("DistributedDataParallel, no_sync, a communication hook")
def ddp(guest: Guest) -> None:
    from torch.nn.parallel import DistributedDataParallel

    with _group():
        for kind in ({}, {"static_graph": True}, {"find_unused_parameters": True}):
            _trained(guest, DistributedDataParallel(guest.classifier(), **kind))
        model = DistributedDataParallel(guest.classifier())
        buckets: list[int] = []

        def hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP looks at annotations
            buckets.append(bucket.buffer().numel())
            done: Any = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        model.register_comm_hook(None, hook)
        with model.no_sync():
            model(guest.rows()).sum().backward()
        model(guest.rows()).sum().backward()
        guest.note("hook calls", buckets)
        guest.note_gradients(model)


@tool("FullyShardedDataParallel")
def fsdp(guest: Guest) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    with _group():
        for original in (False, True):
            model = FullyShardedDataParallel(
                guest.classifier(), device_id=torch.device("cpu"), use_orig_params=original
            )
            _trained(guest, model)
            guest.note("names", list(model.state_dict()))


@tool("fully_shard")
def fully_shard(guest: Guest) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    with _group():
        mesh = init_device_mesh("cpu", (1,))
        model = guest.classifier()
        fully_shard(model.first, mesh=mesh)
        fully_shard(model, mesh=mesh)
        _trained(guest, model)


@tool("DTensor: distribute_module, parallelize_module")
def dtensor(guest: Guest) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_module, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    with _group():
        mesh = init_device_mesh("cpu", (1,))
        model = distribute_module(guest.classifier(), mesh)
        given = distribute_tensor(guest.rows(), mesh, [Replicate()])
        output = model(given)
        guest.note("output", output.full_tensor())
        output.sum().backward()
        guest.note("gradients", [_local(each.grad) for each in model.parameters()])
        plan = {"first": ColwiseParallel(use_local_output=True), "last": RowwiseParallel()}
        _trained(guest, parallelize_module(guest.classifier(), mesh, plan))


@tool("replicate, ZeroRedundancyOptimizer")
def composable(guest: Guest) -> None:
    from torch.distributed._composable.replicate import replicate
    from torch.distributed.optim import ZeroRedundancyOptimizer

    with _group():
        _trained(guest, replicate(guest.classifier()))
        model = guest.classifier()
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
        model(guest.rows()).sum().backward()
        optimizer.step()
        guest.note("weights", model.state_dict())


@tool("DataParallel, its replicas")
def data_parallel(guest: Guest) -> None:
    model = torch.nn.DataParallel(guest.classifier())
    _trained(guest, model)
    replica = guest.classifier()._replicate_for_data_parallel()
    with torch.no_grad():
        guest.attempt("output of a replica", lambda: replica(guest.rows()))
