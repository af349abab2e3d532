"""What the commands print alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
from rich.table import Table

__all__ = ["count", "note", "table"]


def table(title: str, columns: list[str], rows: Iterable[list[Any]]) -> Table:
    made = Table(title=title, title_justify="left")
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*("" if cell is None else str(cell) for cell in row))
    return made


def count(value: Any) -> Any:
    """The length of a list; a number stands for itself."""
    return len(value) if isinstance(value, (list, dict)) else value


def note(text: str) -> None:
    """A line about what is going on: to stderr, so that stdout is the result alone."""
    click.echo(text, err=True)
