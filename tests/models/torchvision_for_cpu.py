"""Let torchvision from the package index, which is built for GPUs, be imported beside a torch without them.

Its library does not load there, which it allows for, but its Python describes two operators that are in the
library. timm imports it. Run once in the environment of `make models`, after the installation.
"""

import importlib.util
from pathlib import Path

OPERATORS = """

if not _has_ops():  # tests/models/torchvision_for_cpu.py of hatch-precompile
    _OPERATORS = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""

found = importlib.util.find_spec("torchvision")
assert found is not None and found.origin is not None
extension = Path(found.origin).parent / "extension.py"
source = extension.read_text()
if OPERATORS not in source:
    extension.write_text(source + OPERATORS)
