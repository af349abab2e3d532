"""Text that somebody else has written, for where it goes: a terminal, a comment. HTML is quoted by jinja2."""

from __future__ import annotations

import unicodedata

__all__ = ["in_a_comment", "printable"]

# What is no character by itself: controls, what turns the order of others or hides, halves of a pair, and
# what ends a line for some readers and not for others.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    """The text with an escape such as `\\x1b` in the place of what is no character; lines stay lines."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each in "\n\t" or not _is_escaped(each) else _escape(each) for each in text)


def in_a_comment(text: str) -> str:
    """The text in one line, whatever is in it: as of a comment, which ends where the line does."""
    return "".join(_escape(each) if each in "\n\t" else each for each in printable(text))


def _is_escaped(character: str) -> bool:
    return unicodedata.category(character) in _ESCAPED


def _escape(character: str) -> str:
    """As Python and, beyond ASCII, TOML write it."""
    number = ord(character)
    if number < 0x80:
        return repr(character)[1:-1]
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
