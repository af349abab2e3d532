"""How the plugin looks at objects of others: as the runtime does, without running their code."""

from __future__ import annotations

from hatch_precompile.runtime import runtime

__all__ = [
    "attribute",
    "class_name",
    "dict_of",
    "file_of",
    "has",
    "has_global",
    "is_a",
    "is_exactly",
    "module_of",
    "modules",
    "qualname_of",
]

_functions = runtime("values.static_lookup")

attribute = _functions.attribute
class_name = _functions.class_name
dict_of = _functions.dict_of
file_of = _functions.file_of
has = _functions.has
has_global = runtime("dependencies.inputs").has_global
is_a = _functions.is_a
is_exactly = _functions.is_exactly
module_of = _functions.module_of
modules = _functions.modules
qualname_of = _functions.qualname_of
