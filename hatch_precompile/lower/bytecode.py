"""Dynamo's transformed bytecode, made portable within one Python minor version.

Dynamo binds names in the frame's globals and lets the bytecode load them. Some carry an id of this
process, some clash with what a later real compile expects: all are renamed to names of our own.
"""

from __future__ import annotations

import dataclasses
import dis
import itertools
import warnings
from collections.abc import Mapping
from types import CodeType, ModuleType
from typing import Any

from hatch_precompile.errors import Unsupported
from hatch_precompile.lower.names import Namer, is_plain
from hatch_precompile.static_lookup import is_a
from hatch_precompile.tracing import random_calls

__all__ = ["LoweredCode", "lower_code", "portable_code"]

# (path of co_consts indexes, encoded constant)
Patches = tuple[tuple[tuple[int, ...], Any], ...]


@dataclasses.dataclass(frozen=True)
class LoweredCode:
    """Portable bytecode and what its injected names stand for.

    globals: our name -> a pair of a kind and an argument. Names are `__precompiled_<8 digits>_<entry>_<n>`,
    with the start of the sha256 of `<package> <entrypoint>`. The kinds:
    "graph", "plain graph": its number; torch functions of subclasses are off while a plain one runs
    "resume": the number of a resume function
    "helpers": a module of dynamo's; most helpers are the runtime's own, others import it
    "random": encoded calls of Python's `random`, each (function, arguments, keywords)
    "warnings": the module or its `warn`: ("constant", encoded) or ("global", name)
    "constant": an encoded constant
    constants: (path of co_consts indexes, encoded) for constants that marshal cannot hold
    native: False where running the frame imports torch._dynamo
    """

    code: CodeType
    globals: dict[str, tuple[str, Any]]
    constants: Patches
    native: bool


def lower_code(
    code: CodeType,
    injected: dict[str, Any],
    frame_globals: dict[str, Any],
    prefix: str,
    graphs: Mapping[str, tuple[str, int]],
    resumes: Mapping[str, int],
) -> LoweredCode:
    """Rename, describe and strip one frame's transformed bytecode.

    injected: every name dynamo put into the globals, with its value; graphs and resumes: those of
    them that are compiled graphs and resume functions, with our ids. A plain graph does not let subclasses
    of tensors override what is done to them in it.
    """
    namer = Namer(frame_globals, injected)
    where = f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"
    table: dict[str, tuple[str, Any]] = {}
    renamed: dict[str, str] = {}
    native = True
    for name in sorted(_global_names(code) & set(injected)):
        value = injected[name]
        ours = f"{prefix}_{len(renamed)}"
        renamed[name] = ours
        if name in graphs:
            table[ours] = graphs[name]
        elif name in resumes:
            table[ours] = ("resume", resumes[name])
        elif is_a(value, ModuleType) and value.__name__.startswith("torch._dynamo"):
            table[ours] = ("helpers", value.__name__)
            native = native and _only_native_helpers(code, name)
        elif _is_of_warnings(value):
            table[ours] = ("warnings", ("constant", namer.constant(value, None, where)))
        elif name.startswith("__gen_rand_values"):
            table[ours] = ("random", namer.constant(random_calls(value), None, where))
        else:
            table[ours] = ("constant", namer.constant(value, None, where))
    for name in sorted(_global_names(code) - set(injected) - _other_names(code)):
        if _is_of_warnings(frame_globals.get(name)):
            ours = f"{prefix}_{len(renamed)}"
            renamed[name] = ours
            table[ours] = ("warnings", ("global", name))
    portable, constants = portable_code(code, renamed, namer)
    return LoweredCode(portable, table, constants, native)


def portable_code(code: CodeType, renamed: dict[str, str], namer: Namer) -> tuple[CodeType, Patches]:
    """Bytecode that marshal can write, and the constants to be put back into it where it is loaded."""
    patches: list[tuple[tuple[int, ...], Any]] = []
    where = f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"
    return _portable(code, renamed, namer, where, (), patches), tuple(patches)


def _portable(
    code: CodeType,
    renamed: dict[str, str],
    namer: Namer,
    where: str,
    path: tuple[int, ...],
    patches: list[tuple[tuple[int, ...], Any]],
) -> CodeType:
    consts: list[Any] = []
    for index, constant in enumerate(code.co_consts):
        if isinstance(constant, CodeType) and (reference := _original(constant, namer)) is not None:
            # Functions made of it are guarded by its identity.
            patches.append(((*path, index), reference))
            consts.append(None)
        elif isinstance(constant, CodeType):
            consts.append(_portable(constant, renamed, namer, where, (*path, index), patches))
        elif is_plain(constant):
            consts.append(constant)
        else:
            patches.append(((*path, index), namer.constant(constant, None, where)))
            consts.append(None)
    return code.replace(
        co_consts=tuple(consts),
        co_names=tuple(renamed.get(name, name) for name in code.co_names),
        co_filename="<precompiled>",  # the runtime puts the target's own file name here
    )


def _original(code: CodeType, namer: Namer) -> list[Any] | None:
    """A reference to a code object that the program itself has: not one dynamo has written."""
    try:
        return namer.reference(code)
    except Unsupported:
        return None


def _global_names(code: CodeType) -> set[str]:
    """Names the bytecode loads from globals. A name that is an attribute too would be renamed there."""
    loaded = {
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
    }
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            loaded |= _global_names(constant)
    return loaded


def _other_names(code: CodeType) -> set[str]:
    """Names that the bytecode uses for something else than globals."""
    others = {
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opcode in dis.hasname and "GLOBAL" not in instruction.opname
    }
    return others.union(*(_other_names(each) for each in code.co_consts if isinstance(each, CodeType)))


def _is_of_warnings(value: Any) -> bool:
    """What counts frames: those of compiled code are more (templates/loading/warning_locations.py)."""
    return value is warnings or value is warnings.warn


def _only_native_helpers(code: CodeType, module_name: str) -> bool:
    from hatch_precompile.runtime import helpers  # which imports torch

    native = vars(helpers.DynamoHelpers)
    instructions = list(dis.get_instructions(code))
    for instruction, following in itertools.pairwise(instructions):
        loads_module = instruction.opname == "LOAD_GLOBAL" and instruction.argval == module_name
        if loads_module and following.argval not in native:
            return False
    return all(
        _only_native_helpers(constant, module_name)
        for constant in code.co_consts
        if isinstance(constant, CodeType)
    )
