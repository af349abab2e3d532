"""The hook for setuptools: what it says is in the words of its own table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hatch_precompile.errors import BuildError
from hatch_precompile.frontends.setuptools import _add_bundle

ENTRYPOINT = {"target": "textmodel:encode", "samples": "textmodel:samples"}


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"variants": ["x86-64-v9"], "entrypoints": [ENTRYPOINT]}, "variants"),
        ({"variants": ["x86-64-v3"] * 2, "entrypoints": [ENTRYPOINT]}, "variants[1]"),
        ({"entrypoints": []}, "entrypoints"),
        ({"entrypoints": [{**ENTRYPOINT, "mode": "fast"}]}, "entrypoints[0].mode"),
    ],
)
def test_an_error_names_the_key_as_its_author_wrote_it(
    tmp_path: Path, table: dict[str, Any], key: str
) -> None:
    (tmp_path / "textmodel").mkdir()
    (tmp_path / "textmodel" / "__init__.py").write_text("")
    with pytest.raises(BuildError) as caught:
        _add_bundle(tmp_path, ["textmodel/__init__.py"], table)
    assert str(caught.value).startswith(f"tool.hatch-precompile.{key}: ")
