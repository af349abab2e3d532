"""A second way into the library of a graph: a function that takes Python's tensors and numbers as they are.

Inductor's own takes handles of tensors, which Python code has to make, and numbers as tensors, from which the
library reads them again. That one stays, for a build, and for graphs that are called through other code.
Seen in torch 2.11.0 to 2.15.0 (torch/_inductor/codecache.py, codegen/cpp_wrapper_cpu.py).
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from importlib.resources import files
from typing import Any
from unittest.mock import patch

__all__ = ["entered_directly", "with_direct_entry"]

_INPUTS = re.compile(r"steal_from_raw_handles_to_raii_handles\(input_handles, (\d+)\)")
_NUMBER = re.compile(r"\baoti_torch_item_(int64|float64)\(inputs\[(\d+)\], &(\w+)\)")
_ENTRY = re.compile(r"^void inductor_entry_impl\(", re.MULTILINE)
_OUTPUT_OF_ITS_OWN = re.compile(r"\boutput_handles\[\d+\] = \w+\.release\(\);")
_KINDS = {"int64": "i", "float64": "d"}

_READING = """
#include <cstring>
namespace precompiled {
// A number: of a tensor, or where there is none, of those that lie where the entry before the handles says.
#define PRECOMPILED_READ(type, dtype) \\
    static inline AOTITorchError read(AtenTensorHandle *handles, AtenTensorHandle given, int place, \\
                                      type *number) { \\
        if (given) return aoti_torch_item_##dtype(given, number); \\
        std::memcpy(number, reinterpret_cast<const int64_t *>(handles[-1]) + place, sizeof *number); \\
        return AOTI_TORCH_SUCCESS; \\
    }
PRECOMPILED_READ(int64_t, int64)
PRECOMPILED_READ(double, float64)
#undef PRECOMPILED_READ
}
"""
_NONE = "\nnamespace precompiled { static PyObject *bind(PyObject *) { Py_RETURN_NONE; } }\n"

# What a library is called with: a tuple until torch 2.14, an array since 2.15 (METH_VARARGS, METH_FASTCALL).
_FIRST = """
namespace precompiled {
[[maybe_unused]] static PyObject *first(PyObject *args) { return PyTuple_GET_ITEM(args, 0); }
[[maybe_unused]] static PyObject *first(PyObject *const *args) { return args[0]; }
}
"""


def with_direct_entry(source: str, outputs: int) -> str:
    """The C++ source of a graph's wrapper, as inductor writes it, with the function beside its own."""
    inputs, entry = _INPUTS.search(source), _ENTRY.search(source)
    if inputs is None or entry is None or outputs < 0:
        return source + _FIRST + _NONE
    kinds = ["t"] * int(inputs[1])

    def read(match: re.Match[str]) -> str:
        kinds[int(match[2])] = _KINDS[match[1]]
        return f"precompiled::read(input_handles, inputs[{match[2]}], {match[2]}, &{match[3]})"

    rewritten = _NUMBER.sub(read, source)
    place = entry.start()
    # Where these are fewer, one handle may be among the outputs twice.
    repeated = len(_OUTPUT_OF_ITS_OWN.findall(source)) != outputs
    facts = (
        f'static constexpr char kinds[] = "{"".join(kinds)}";\nstatic constexpr int OUTPUTS = {outputs};\n'
        f"static constexpr bool REPEATED = {str(repeated).lower()};\n"
    )
    whole = rewritten[:place] + _READING + rewritten[place:]
    header = files(__package__).joinpath("direct_calls.h").read_text("utf-8")
    return f"{whole}\nnamespace precompiled {{\n{facts}}}\n{header}{_FIRST}"


def entered_directly() -> AbstractContextManager[Any]:
    """Libraries that inductor compiles while the block runs give the function to who asks with a tuple."""
    from torch._inductor.codecache import CppWrapperCodeCache

    own = CppWrapperCodeCache.call_entry_function
    given = "precompiled::first(args)"
    both = f"if (PyTuple_CheckExact({given})) return precompiled::bind({given}); {own}"
    return patch.object(CppWrapperCodeCache, "call_entry_function", both)
