from __future__ import annotations

import pytest

from tests.conftest import made_once
from tests.reuse.shop import Made, make


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The shop as it is, built whole."""
    return Made(made_once(tmp_path_factory, "shop", lambda folder: make(folder, {})))
