"""Memory that a graph's calls take again and again is kept by the process between them.

glibc gives the end of its heap back to the system when more is free there than twice the largest block that
somebody once gave back (mallopt(3), "dynamic mmap threshold"). Tensors that live at once are together more
than that: each call has their memory taken away, and comes by it anew, page by page, which is a fifth of a
call of EfficientNet-B0. A library takes one block of that size when it is loaded, and gives it back. glibc
learns from that. Whoever sets those thresholds keeps what was set.
Seen in torch 2.11.0, 2.13.0, 2.14.1 and 2.15.0 (torch/_inductor/scheduler.py).
"""

from __future__ import annotations

from typing import Any

__all__ = ["bytes_at_once", "with_memory_kept"]

# glibc learns nothing from blocks of less than 128 KiB, or of more than 32 MiB with what it adds to them.
_MOST, _LEAST = (32 << 20) - (64 << 10), 128 << 10

_LEARNING = """
#include <cstdlib>
namespace precompiled {
[[maybe_unused]] static const bool memory_is_kept = [] {
    void *volatile all = std::malloc(%d);
    std::free(all);
    return true;
}();
}
"""


def bytes_at_once() -> int:
    """Of the tensors that the graph makes which is being compiled, how many bytes there are at the same time,
    at most; for sizes that vary, in the sample. One that takes over another's memory counts like any other.
    """
    from torch._inductor.virtualized import V

    most, there = 0, dict[str, int]()
    for node in V.graph.scheduler.nodes:
        made = [each for each in node.get_outputs() if each.get_name() not in V.graph.removed_buffers]
        there |= {each.get_name(): _bytes(each.node) for each in made}
        most = max(most, sum(there.values()))
        for name in node.last_usage:
            there.pop(name, None)
    return most


def _bytes(buffer: Any) -> int:
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    layout = buffer.maybe_get_layout()
    if type(layout) not in (ir.FixedLayout, ir.FlexibleLayout) or layout.device.type != "cpu":
        return 0
    count: int = V.graph.sizevars.optimization_hint(layout.storage_size(), fallback=0)
    return count * layout.dtype.itemsize


def with_memory_kept(source: str) -> str:
    """The C++ source of the graph that is being compiled, with what has glibc keep the memory of a call."""
    size = min(bytes_at_once(), _MOST)
    return source + _LEARNING % size if size > _LEAST else source
