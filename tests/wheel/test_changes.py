"""A model that changed after the build: only the entries that traced the change are left out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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
    seen = zoo_copy.play("unfit.calls_of_three_entrypoints")
    assert seen["same"]
    assert seen["hits"] == {"mlp": 0, "chatty": 1, "whiten": 1}
    (warning,) = seen["said"]
    assert warning.startswith(f"zoo: {words}")
    assert warning.endswith("; rebuild the wheel")
