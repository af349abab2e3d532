"""Average pools whose window is larger than the image, of which inductor's code goes through all of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from hatch_precompile.inductor import compiling
from tests.support.layers import compiled, variant

aten = torch.ops.aten

WHOLE: dict[str, Any] = {
    "larger": lambda x: F.avg_pool2d(x, 2560, ceil_mode=True),
    "as large": lambda x: F.avg_pool2d(x, (7, 5), stride=3, ceil_mode=True),
    "of what is inside": lambda x: F.avg_pool2d(x, 64, 64, 0, True, False),
}
OTHERS: dict[str, Any] = {
    "smaller": lambda x: F.avg_pool2d(x, (6, 5), ceil_mode=True),
    "padded": lambda x: F.avg_pool2d(x, 9, padding=2, ceil_mode=True),
    "divided by another number": lambda x: F.avg_pool2d(x, 9, ceil_mode=True, divisor_override=3),
}


class Pooled(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x + 1)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", [*WHOLE, *OTHERS])
def test_windows_that_cover_the_image_are_means(
    name: str, dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets: list[Any] = []
    own = compiling._compile_variant

    def watched(part: Any, variant: Any, compiler: Any, gm: Any, *args: Any) -> Any:
        targets.extend(node.target for node in gm.graph.nodes)
        return own(part, variant, compiler, gm, *args)

    monkeypatch.setattr(compiling, "_compile_variant", watched)
    model, x = Pooled((WHOLE | OTHERS)[name]), torch.randn(2, 3, 7, 5)
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    call, *_ = compiled(model, variant("native"), x)
    assert (aten.mean.dim in targets) == (name in WHOLE)
    assert (aten.avg_pool2d.default in targets) == (name in OTHERS)
    expected = model(x)
    torch.testing.assert_close(call()[0], expected)
    assert call()[0].stride() == expected.stride()
