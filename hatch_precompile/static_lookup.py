"""How the plugin looks at objects of others: as the runtime does, without running their code."""

from __future__ import annotations

from hatch_precompile.runtime import comparison, static_lookup

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

attribute = static_lookup.attribute
class_name = static_lookup.class_name
dict_of = static_lookup.dict_of
file_of = static_lookup.file_of
has = static_lookup.has
has_global = comparison.has_global
is_a = static_lookup.is_a
is_exactly = static_lookup.is_exactly
module_of = static_lookup.module_of
modules = static_lookup.modules
qualname_of = static_lookup.qualname_of
