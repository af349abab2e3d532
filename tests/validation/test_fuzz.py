"""A short run of `make fuzz`."""

from __future__ import annotations

import pytest

from tests.validation.fuzz import TARGETS, examine


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_changed_at_random_ends_in_a_result_or_a_sentence(name: str) -> None:
    examine(name, 10 if name == "code" else 40, 0)
