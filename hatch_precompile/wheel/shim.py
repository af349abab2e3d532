"""The line at the end of a package's `__init__`, which installs the bundle when the package is imported."""

from __future__ import annotations

import ast
import io
import tokenize

from hatch_precompile.errors import BuildError
from hatch_precompile.runtime import RUNTIME_PACKAGE
from hatch_precompile.wheel.contents import package_path

__all__ = ["shim_line", "with_shim"]


# What damage to the runtime's own first file raises: its code is no Python, or lacks something.
_OF_DAMAGE = "ImportError, SyntaxError, AttributeError, NameError, ValueError, EOFError, PermissionError"


# A name of its own, which goes at the line's end: a reload finds the runtime under the package's.
_STACK = f"{RUNTIME_PACKAGE}_line"


def shim_line(package: str) -> str:
    """The statement that installs the bundle when `package` is imported.

    It names the runtime in full because `from . import _precompiled` would first ask the package's own
    `__getattr__`, which in a lazy package may import torch. Without the runtime it does nothing. Where the
    runtime's first file is damaged, this line says so, in one warning; all that install() raises is meant.
    """
    runtime = f"{package}.{RUNTIME_PACKAGE}"
    mode = '__import__("os").environ.get("HATCH_PRECOMPILE")'
    says = f'f"{package}: compiled code is not used: {{kind.__name__}}: {{error}}; reinstall the package"'
    handler = (
        f"lambda kind, error, trace: kind is not None and issubclass(kind, ({_OF_DAMAGE}))"
        " and (trace.tb_next is None or trace.tb_next.tb_next is None"  # not deeper than install() itself
        ' or trace.tb_next.tb_frame.f_code.co_name != "install")'
        f' and {mode} != "strict"'
        f' and (globals().pop("{RUNTIME_PACKAGE}", None) and False'
        f' or getattr(error, "name", "") == "{runtime}"'
        f' or {mode} in ("off", "quiet") or __import__("warnings").warn({says}) or True)'
    )
    return (
        f'with __import__("contextlib").ExitStack() as {_STACK}: '
        f'{_STACK}.callback(globals().pop, "{_STACK}", None); '
        f'{_STACK}.enter_context(__import__("contextlib").suppress(Warning)); '
        f"{_STACK}.push({handler}); "
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
