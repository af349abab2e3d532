"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

__all__ = ["as_json", "timeout"]


def timeout(of: str) -> Callable[[Any], Any]:
    """`--timeout`. of: what may be silent no longer"""
    return click.option(
        "--timeout",
        metavar="SECONDS",
        type=click.FloatRange(min=0, min_open=True),
        default=600.0,
        show_default=True,
        help=f"How long {of} may be silent.",
    )


def as_json(what: str) -> Callable[[Any], Any]:
    """`--json`. what: is printed"""
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what} as JSON.")
