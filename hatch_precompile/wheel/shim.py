"""The line at the end of a package's `__init__`, which installs the bundle when the package is imported."""

from __future__ import annotations

import ast
import io
import tokenize

from hatch_precompile.errors import BuildError
from hatch_precompile.runtime import RUNTIME_PACKAGE
from hatch_precompile.wheel.contents import package_path

__all__ = ["shim_line", "with_shim"]


def shim_line(package: str) -> str:
    """The statement that installs the bundle when `package` is imported.

    It names the runtime in full because `from . import _precompiled` would first ask the package's own
    `__getattr__`, which in a lazy package may import torch. Without the runtime it does nothing.
    """
    runtime = f"{package}.{RUNTIME_PACKAGE}"
    return (
        f'with __import__("contextlib").suppress(ImportError): '
        f"import {runtime} as {RUNTIME_PACKAGE}; {RUNTIME_PACKAGE}.install()"
        "  # added by hatch-precompile: installs what was compiled into this wheel"
    )


def with_shim(source: bytes, package: str) -> bytes:
    """The package's `__init__.py` with the shim as its last line.

    Every earlier line keeps its number, and the file its encoding and its line ends. Raises BuildError
    if the source is not valid Python.
    """
    name = f"{package_path(package)}/__init__.py"
    try:
        before = ast.parse(source, name)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    except (SyntaxError, ValueError) as error:  # ValueError: null bytes
        raise BuildError(f"{name} is not valid Python: {error}") from error
    newline = b"\r\n" if b"\r\n" in source else b"\n"
    start = newline if source and not source.endswith((b"\n", b"\r")) else b""
    # A byte order mark stands at the start of the file only; "utf-8-sig" would write another.
    line = shim_line(package).encode("utf-8" if encoding == "utf-8-sig" else encoding)
    result = source + start + line + newline
    after = ast.parse(result, name)
    if ast.dump(ast.Module(after.body[:-1], after.type_ignores)) != ast.dump(before):
        raise BuildError(f"cannot append a line to {name}: its last statement would take it in")
    return result
