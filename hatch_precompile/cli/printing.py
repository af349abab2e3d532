"""What the commands print alike. Whatever it says, none of it is for the terminal to carry out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from hatch_precompile.escaping import in_a_comment, printable

__all__ = ["Commands", "note", "say", "table"]


class Commands(click.Group):
    """A group whose errors may hold text from outside."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except click.UsageError as error:
            raise click.UsageError(printable(error.format_message()), error.ctx) from error
        except click.ClickException as error:
            raise click.ClickException(printable(error.format_message())) from error


def table(title: str, columns: list[str], rows: Iterable[list[Any]]) -> Table:
    made = Table(title=_cell(title), title_justify="left")
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*map(_cell, row))
    return made


def _cell(value: Any) -> Text:
    """As text, and not as rich's markup."""
    return Text("" if value is None else in_a_comment(str(value)))


def say(text: str, *, end: str = "\n") -> None:
    """A line, or several, of the result."""
    click.echo(printable(text) + end, nl=False)


def note(text: str) -> None:
    """A line about what is going on: to stderr, so that stdout is the result alone."""
    click.echo(printable(text), err=True)
