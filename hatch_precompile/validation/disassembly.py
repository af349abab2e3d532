"""Disassembles heads of entries (lower/entries.py): a list of them on stdin, one of texts on stdout.

Run as a file, in a process of its own: standard library only.
"""

from __future__ import annotations

import dis
import io
import json
import marshal
import sys
from types import CodeType

__all__: list[str] = []

_MOST = 16 << 20  # characters


def main() -> int:
    texts = []
    try:
        for head in json.load(sys.stdin):
            _, code, _, _ = marshal.loads(bytes.fromhex(head))
            if not isinstance(code, CodeType):
                raise ValueError("it holds no code")
            text = io.StringIO()
            dis.dis(code, file=text)
            texts.append(text.getvalue())
            if sum(map(len, texts)) > _MOST:
                raise ValueError("it is too long")
    except Exception as error:  # whatever code can be made to raise that no compiler has made
        sys.stderr.write(f"{type(error).__name__}: {error}\n".encode("ascii", "backslashreplace").decode())
        return 1
    sys.stdout.write(json.dumps(texts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
