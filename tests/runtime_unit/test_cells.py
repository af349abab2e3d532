"""The index of a merged wheel, and which of its cells is chosen."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest

from hatch_precompile.bundle.format import INDEX_FORMAT
from hatch_precompile.runtime import runtime

cells, manifests, errors = map(runtime, ("loading.cells", "loading.manifest", "errors"))
HERE = importlib.util.MAGIC_NUMBER.hex()


def cell(python: str, torch: str, magic: str = HERE, **cuda: str) -> dict[str, str]:
    built_with = {"python": python, "torch": torch, "magic": magic, **cuda}
    return {"name": manifests.cell_name(built_with), **built_with}


def test_the_plugin_writes_the_format_the_runtime_reads() -> None:
    assert cells.FORMAT == INDEX_FORMAT


def test_the_name_of_a_cell_has_no_local_part() -> None:
    assert cell("3.11", "2.13.0+cpu")["name"] == "cp311-torch2.13.0"


def test_the_name_of_one_for_gpus_has_the_cuda() -> None:
    assert cell("3.11", "2.13.0+cu130", cuda="13.0")["name"] == "cp311-torch2.13.0-cu130"


@pytest.mark.parametrize(
    "name",
    ["cp311-torch2.13.0", "cp311-torch2.13.0-cu130", "cp313-torch2.15.0.dev20260102", "cp39-torch2.9.0a0"],
)
def test_names_that_are(name: str) -> None:
    assert cells.is_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "cp311",
            "cp311-torch",
            "311-torch2.13.0",
            "cp-torch2.13.0",
            "cp311-torch2/13",
            "cp311-torch2.13.0-1",
            "cp311-torch2.13.0-cu",
            "cp311-torch2.13.0-cu13/0",
            "cp311-torch2.13.0-cu130-cu126",
            "cp311-torch-cu130",
        ),
        *("../cp311-torch2.13.0", "cp3/11-torch2", "cp\u0663-torch2", "cp311-torch\0", "cp311-torch2.13.0\n"),
    ],
)
def test_names_that_are_none(name: str) -> None:
    assert not cells.is_name(name)


@pytest.mark.parametrize(
    "index",
    [
        {"format": 1},
        {"format": 1, "cells": []},
        {"format": 1, "cells": [[]]},
        {"format": 1, "cells": [cell("3.11", "2.13.0") | {"magic": 1}]},
        {"format": 1, "cells": [cell("3.11", "2.13.0") | {"name": "../x"}]},
        {"format": 1, "cells": [cell("3.11", "2.13.0") | {"cuda": 13}]},
        {"format": 1, "cells": [cell("3.11", "2.13.0") | {"cuda": "13.0"}]},
    ],
)
def test_a_damaged_index_is_named(index: Any) -> None:
    with pytest.raises(errors.Unfit, match=r"cells\.json is damaged; reinstall the package"):
        cells.check_index(index, "cells.json")


class TestChoice:
    @pytest.fixture(autouse=True)
    def torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(cells.sys.modules, "torch", SimpleNamespace(__version__="2.13.0+cpu"))
        monkeypatch.setattr(cells.sys, "version_info", (3, 11, 7))

    def test_it_is_of_this_python_and_this_torch(self) -> None:
        wanted = cell("3.11", "2.13.0+cu130")
        others = [cell("3.11", "2.13.1"), cell("3.12", "2.13.0", "00"), cell("3.11", "2.14.0")]
        assert cells.of_this_torch([*others, wanted]) is wanted

    @pytest.mark.parametrize(
        ("here", "names"),
        [
            ("12.6", "cu126 of cu126, cu130"),
            ("13.0", "cu130 of cu126, cu130"),
            ("13.0", "cu130 of , cu126, cu130"),
            ("12.9", "cu126 of cu126, cu130"),  # whose code for CPUs serves
            ("12.9", " of cu126, "),
            (None, " of cu126, "),
            (None, "cu130 of cu130, cu126"),
        ],
    )
    def test_and_of_the_cuda_of_this_torch(
        self, monkeypatch: pytest.MonkeyPatch, here: str | None, names: str
    ) -> None:
        wanted, _, there = names.partition(" of ")
        version = SimpleNamespace(cuda=here)
        monkeypatch.setitem(
            cells.sys.modules, "torch", SimpleNamespace(__version__="2.13.0", version=version)
        )
        given = [
            cell("3.11", "2.13.0", **({"cuda": f"{name[2:4]}.{name[4]}"} if name else {}))
            for name in there.split(", ")
        ]
        found = cells.of_this_torch(given)["name"]
        assert found == (f"cp311-torch2.13.0-{wanted}" if wanted else "cp311-torch2.13.0")

    @pytest.mark.parametrize(
        ("listed", "words"),
        [
            (
                [cell("3.11", "2.14.0"), cell("3.12", "2.13.0", "00")],
                "it was built for Python 3.11 with torch 2.14.0 and Python 3.12 with torch 2.13.0; this is "
                "Python 3.11 with torch 2.13.0+cpu; install torch==2.14.0, or a wheel built with this torch",
            ),
            (
                [cell("3.12", "2.13.0", "00"), cell("3.13", "2.13.0", "01"), cell("3.14", "2.14.0", "02")],
                "it was built for Python 3.12, 3.13 with torch 2.13.0 and Python 3.14 with torch 2.14.0; "
                "this is Python 3.11 with torch 2.13.0+cpu; "
                "use Python 3.12 or 3.13, or install a wheel built for this Python",
            ),
            (
                [cell("3.12", "2.14.0", "00"), cell("3.12", "2.15.0", "00")],
                "it was built for Python 3.12 with torch 2.14.0, 2.15.0; "
                "this is Python 3.11 with torch 2.13.0+cpu; "
                "use Python 3.12 with torch 2.14.0 or 2.15.0, or install a wheel built for this Python",
            ),
        ],
    )
    def test_where_none_fits_it_says_what_there_is_and_what_would_help(
        self, listed: list[dict[str, str]], words: str
    ) -> None:
        with pytest.raises(errors.Unfit) as caught:
            cells.of_this_torch(listed)
        assert str(caught.value) == words
