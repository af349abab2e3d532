"""What a kernel takes, as its image says, and what the C++ that launches it gives: the bytes of each."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from elftools.elf.elffile import ELFFile

__all__ = ["given", "taken"]

_SIZES = {"CUdeviceptr": 8, "int64_t": 8, "double": 8, "int32_t": 4, "int": 4, "float": 4, "bool": 1}
_SIZED, _PARAMETER = 4, 0x17  # of a record in .nv.info: that it says how long it is, and what it is about


def taken(image: Path) -> list[int]:
    """Of the one kernel in an image."""
    (section,) = (
        each
        for each in ELFFile(BytesIO(image.read_bytes())).iter_sections()
        if each.name.startswith(".nv.info.")
    )
    data, at, sizes = section.data(), 0, dict[int, int]()
    while at < len(data):
        form, about, length = struct.unpack_from("<BBH", data, at)
        if (form, about) == (_SIZED, _PARAMETER):
            _, number, _, bits = struct.unpack_from("<IHHI", data, at + 4)
            sizes[number] = bits >> 18
        at += 4 + (length if form == _SIZED else 0)
    return [sizes[number] for number in sorted(sizes)]


def given(source: str) -> Iterator[tuple[Path, list[int]]]:
    """For each kernel of a graph the image, and what it is given."""
    images = dict(re.findall(r'precompiled_image_(\w+):\\n"\s+"\.incbin \\"([^"\\]+)', source))
    for name, body in re.findall(r"static [^\n]*void call_(\w+)\((.*?)\n}", source, re.DOTALL):
        kinds = {variable: kind for kind, variable in re.findall(r"(?m)^\s*(\w+) (\w+) = ", body)}
        (listed,) = re.findall(r"kernel_args_\[\] = {(.*?)};", body)
        yield Path(images[name]), [_SIZES[kinds[variable]] for variable in re.findall(r"&(\w+)", listed)]
