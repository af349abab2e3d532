"""A model that changed after the build: only the entries that traced the change are left out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.conftest import Site

# What is changed in which file, and what the warning must say of it.
CHANGES = {
    "a changed default argument": (
        "helpers.py",
        ("by=1.0", "by=2.0"),
        "compiled code for Mlp.forward is not used: zoo.helpers.lift has changed since the build",
    ),
    "a changed default argument of the target": (
        "models.py",
        ("shift=None", "shift=1.0"),
        "entrypoint mlp is not used: zoo.models.Mlp.forward has changed since the build",
    ),
    "a renamed class": (
        "models.py",
        ("Block(", "Stage("),
        "compiled code for Mlp.forward is not used: zoo.models.Block",
    ),
    "a renamed target": (
        "models.py",
        ("class Mlp(", "class Perceptron("),
        "entrypoint mlp is not used: zoo.models.Mlp is gone",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_only_what_traced_it_is_left_out_and_the_warning_names_it(zoo_copy: Site, change: str) -> None:
    name, (old, new), words = CHANGES[change]
    path = Path(zoo_copy.directory, "zoo", name)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    seen: Any = zoo_copy.run("""
import warnings
said = warnings.catch_warnings(record=True).__enter__()
warnings.simplefilter("always")
import torch, zoo, probe
import zoo.functions, zoo.models, zoo.tools
torch.set_grad_enabled(False)
kind = getattr(zoo.models, "Mlp", None) or zoo.models.Perceptron
model, x = kind().eval(), torch.randn(4, 8)
same = all(torch.equal(model(x), probe.eager(model)(x)) for _ in range(2))
zoo.models.Chatty()(torch.randn(6))
zoo.functions.whiten(torch.randn(2, 3, 4, 5))
hits = {name: probe.hits(name) for name in ("mlp", "chatty", "whiten")}
said = [str(w.message) for w in said if "Precompile" in w.category.__name__]
probe.result(same=same, said=said, hits=hits)
""").result
    assert seen["same"]
    assert seen["hits"] == {"mlp": 0, "chatty": 1, "whiten": 1}
    (warning,) = seen["said"]
    assert warning.startswith(f"zoo: {words}")
    assert warning.endswith("; rebuild the wheel")
