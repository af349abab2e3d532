"""A function's code with a prologue: it asks who serves the call, and goes on with the body if nobody does.

The function stays the object that it was: it gets another `__code__`, with the same signature, names, file
and lines. A call that nobody serves runs the original instructions in the same frame. What one version of
CPython writes otherwise than another is in one table, `KNOWN`.
"""

from __future__ import annotations

import inspect
import opcode
import sys
from types import CodeType
from typing import Any

from ..values.references import MARK

__all__ = ["KNOWN", "arguments_of", "is_simple", "with_constants", "with_prologue"]

_OPCODES = opcode.opmap
_CACHES: Any = opcode._inline_cache_entries  # type: ignore[attr-defined]
# The versions whose bytecode is known (a build refuses any other), and the instructions in which they differ.
# cell: loads a cell; dict: makes a dict of values on the stack and a tuple of keys (None: BUILD_MAP, of keys
# and values in turn); jump: jumps forward if None is on top of the stack; fall: must follow that jump; call:
# comes before CALL; below: whether the NULL is below the callable on the stack.
KNOWN: dict[tuple[int, int], dict[str, Any]] = {
    (3, 11): {
        "cell": "LOAD_CLOSURE",
        "dict": "BUILD_CONST_KEY_MAP",
        "jump": "POP_JUMP_FORWARD_IF_NONE",
        "fall": None,
        "call": "PRECALL",
        "below": True,
    },
}
KNOWN[3, 12] = {**KNOWN[3, 11], "jump": "POP_JUMP_IF_NONE", "call": None}
KNOWN[3, 13] = {**KNOWN[3, 12], "cell": "LOAD_FAST", "below": False}
KNOWN[3, 14] = {**KNOWN[3, 13], "dict": None, "fall": "NOT_TAKEN"}
_HERE = KNOWN.get(sys.version_info[:2], KNOWN[3, 14])
_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def is_simple(code: CodeType) -> bool:
    """Whether all parameters can be passed by their position."""
    return not code.co_kwonlyargcount and not code.co_flags & _VARIADIC


def arguments_of(code: CodeType) -> tuple[str, ...]:
    """The names of all parameters, in the order in which a frame holds them."""
    starred = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + starred]


def with_prologue(code: CodeType, name: str) -> CodeType:
    """The code, which first calls the builtin `name` with a dict of its arguments and the cells of its free
    variables.

    Where that gives a function, it is called instead of the body: with the arguments where they can be
    passed by position, else with none. Where there is no such name, as in a process that was sent the code
    by value, the body runs. Raises ValueError for code that cannot have a prologue: a generator's, a
    coroutine's.
    """
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise ValueError(f"{code.co_qualname} is a generator or a coroutine")
    names = arguments_of(code)
    text = _Assembler()
    text.add("LOAD_GLOBAL", len(code.co_names) << 1 | 1)
    asked = len(text) // 2
    first = code.co_nlocals + len([name for name in code.co_cellvars if name not in code.co_varnames])
    values = [
        ("LOAD_DEREF" if name in code.co_cellvars else "LOAD_FAST", index) for index, name in enumerate(names)
    ]
    values += [(_HERE["cell"], first + index) for index in range(len(code.co_freevars))]
    keys = (*names, *code.co_freevars)
    more = text.mapping(keys, values, len(code.co_consts))
    text.call(1)
    serve = _Assembler()
    if _HERE["fall"]:
        serve.add(_HERE["fall"])
    serve.add("PUSH_NULL")
    if _HERE["below"]:
        serve.add("SWAP", 2)
    passed = names if is_simple(code) else ()
    for index, argument in enumerate(passed):
        serve.add("LOAD_DEREF" if argument in code.co_cellvars else "LOAD_FAST", index)
    serve.call(len(passed))
    serve.add("RETURN_VALUE")
    text.add("COPY", 1)
    text.add(_HERE["jump"], len(serve) // 2)
    text.append(serve)
    end = len(text) // 2
    text.add("POP_TOP")  # None, or the NameError
    start = _after_resume(code.co_code)
    without_name = (start // 2, asked, start // 2 + end, 0)
    return code.replace(
        co_code=code.co_code[:start] + bytes(text) + code.co_code[start:],
        co_consts=(*code.co_consts, *more, MARK, code),
        co_names=(*code.co_names, name),
        co_stacksize=max(code.co_stacksize, len(keys) + len(more) + 3),
        co_linetable=_with_lines(code.co_linetable, start // 2, asked, len(text) // 2),
        co_exceptiontable=_entry(*without_name) + _shifted(code.co_exceptiontable, len(text) // 2),
    )


def with_constants(code: CodeType, index: int, constant: Any) -> CodeType:
    """The code with another constant, known for what it was, too."""
    consts = list(code.co_consts)
    consts[index] = constant
    return code.replace(co_consts=(*consts, MARK, code))


class _Assembler:
    """Instructions as bytes, each with its inline cache."""

    def __init__(self) -> None:
        self._content = bytearray()

    def __bytes__(self) -> bytes:
        return bytes(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def append(self, other: _Assembler) -> None:
        self._content += other._content

    def add(self, name: str, argument: int = 0) -> None:
        number = _OPCODES[name]
        for shift in (24, 16, 8):
            if argument >> shift:
                self._content += bytes((_OPCODES["EXTENDED_ARG"], argument >> shift & 255))
        self._content += bytes((number, argument & 255))
        caches = _CACHES.get(name, 0) if isinstance(_CACHES, dict) else _CACHES[number]
        self._content += bytes(2 * caches)

    def call(self, arguments: int) -> None:
        if _HERE["call"]:
            self.add(_HERE["call"], arguments)
        self.add("CALL", arguments)

    def mapping(self, keys: tuple[str, ...], values: list[tuple[str, int]], first: int) -> tuple[Any, ...]:
        """values: the instructions that load them. Returns the constants that it needs, from `first` on."""
        if _HERE["dict"]:
            for value in values:
                self.add(*value)
            self.add("LOAD_CONST", first)
            self.add(_HERE["dict"], len(keys))
            return (keys,)
        for place, value in enumerate(values, first):
            self.add("LOAD_CONST", place)
            self.add(*value)
        self.add("BUILD_MAP", len(keys))
        return keys


def _after_resume(content: bytes) -> int:
    """Where the body begins: cells are made and free variables are there by then."""
    position = 0
    while content[position] != _OPCODES["RESUME"]:
        position += 2  # what comes before has no cache
    return position + 2


def _with_lines(table: bytes, start: int, without: int, length: int) -> bytes:
    """The table of lines with `length` units, from the unit `start` on, that are on the body's first line.

    Whoever follows the lines meets that one once, as without them. The first `without` of the units are on
    none: a debugger would be called there, and its errors lost.

    An entry begins with a byte that has the highest bit set: its kind, and how many units it covers.
    """
    position = units = 0
    while units < start:
        units += (table[position] & 7) + 1
        position += 1
        while position < len(table) and not table[position] & 128:
            position += 1
    if units != start:
        raise ValueError("the table of lines is not known")
    further, rest = _on_the_same_line(table[position:])
    more = bytearray()
    # 15: no line. 13: a line without columns, as many lines further as follow.
    for count, kind, content in ((without, 15, b""), (1, 13, further), (length - without - 1, 13, b"\0")):
        for first in range(0, count, 8):
            more += bytes((128 | kind << 3 | min(count - first, 8) - 1,)) + content
    return table[:position] + bytes(more) + rest


def _on_the_same_line(table: bytes) -> tuple[bytes, bytes]:
    """The line delta of the table's first entry, encoded, and the table with that delta set to 0."""
    kind, units = table[0] >> 3 & 15, table[0] & 7
    if 10 <= kind <= 12:  # on one line, with columns: the kind says how many lines further
        return bytes(((kind - 10) << 1,)), bytes((128 | 10 << 3 | units,)) + table[1:]
    if kind in (13, 14):  # a number follows, of six bits in each byte
        end = next(place for place, byte in enumerate(table[1:], 2) if not byte & 64)
        return table[1:end], table[:1] + b"\0" + table[end:]
    return b"\0", table


def _shifted(table: bytes, units: int) -> bytes:
    """The table of exception handlers, for instructions that stand so many units later."""
    numbers: list[int] = []
    position = 0
    while position < len(table):
        byte = table[position]
        number = byte & 63
        while byte & 64:
            position += 1
            byte = table[position]
            number = number << 6 | byte & 63
        position += 1
        numbers.append(number)
    result = bytearray()
    for index in range(0, len(numbers), 4):
        start, length, target, depth = numbers[index : index + 4]
        result += _entry(start + units, length, target + units, depth)
    return bytes(result)


def _entry(start: int, length: int, target: int, depth: int) -> bytes:
    """Of the table of exception handlers: its first byte has the highest bit set."""
    entry = b"".join(map(_varint, (start, length, target, depth)))
    return bytes((entry[0] | 128,)) + entry[1:]


def _varint(number: int) -> bytes:
    """Six bits to a byte, the highest first; all but the last are marked."""
    chunks = [number & 63]
    while number >> 6:
        number >>= 6
        chunks.insert(0, number & 63 | 64)
    return bytes(chunks)


WHOLE = True
