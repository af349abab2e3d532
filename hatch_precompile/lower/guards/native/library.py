"""The native guards of one capture, compiled to one library."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from hatch_precompile.lower.guards.checks import Function
from hatch_precompile.lower.guards.native.c_code import Translation, Untranslatable

__all__ = ["NativeGuard", "NativeGuards"]

NativeGuard = tuple[int, tuple[str, ...], tuple[object, ...]]
"""Its number in the library, the names of its first constants, the values of the rest."""

# The C library is named though it may not be used: auditwheel tells by it which system a library is for.
_FLAGS = ("-O1", "-DNDEBUG", "-shared", "-fPIC", "-fvisibility=hidden", "-s", "-Wl,--no-as-needed")
_MODULE = """
// guards(number, constants) -> a guard function
static PyObject *guards(PyObject *module, PyObject *arguments) {
    Py_ssize_t number;
    PyObject *constants;
    if (!PyArg_ParseTuple(arguments, "nO!", &number, &PyTuple_Type, &constants)) return NULL;
    if (number < 0 || number >= COUNT || PyTuple_GET_SIZE(constants) != sizes[number]) {
        PyErr_SetString(PyExc_ValueError, "there is no such guard");
        return NULL;
    }
    return PyCFunction_New(&methods[number], constants);
}

static PyMethodDef functions[] = {{"guards", guards, METH_VARARGS, NULL}, {NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "guards", NULL, -1, functions};

PyMODINIT_FUNC PyInit_guards(void) { return prepare() ? NULL : PyModule_Create(&definition); }
"""


class NativeGuards:
    """The guards of one capture, to become one library."""

    def __init__(self) -> None:
        self._functions: list[str] = []
        self._sizes: list[int] = []
        self.left_in_python: list[str] = []
        """The expressions for which there was no C, one for each guard that has such."""

    def add(self, functions: Sequence[Function]) -> NativeGuard | None:
        """Translate a guard. Returns None if it has to stay Python."""
        number = len(self._functions)
        try:
            translated = Translation(f"guard{number}", functions)
        except Untranslatable as error:
            self.left_in_python.append(str(error))
            return None
        self._functions.append(translated.source())
        self._sizes.append(len(translated.names) + len(translated.literals))
        return number, tuple(translated.names), tuple(translated.literals)

    def source(self) -> str:
        """The whole library as C."""
        header = files(__package__).joinpath("guards.h").read_text("utf-8")
        methods = "".join(f'{{"guard", guard{i}, METH_O, NULL}}, ' for i in range(len(self._functions)))
        sizes = f"static const Py_ssize_t sizes[] = {{{', '.join(map(str, self._sizes))}}};\n"
        table = f"static PyMethodDef methods[] = {{{methods}}};\nenum {{ COUNT = {len(self._functions)} }};\n"
        return "\n".join([header, *self._functions, sizes + table + _MODULE])

    def compile(self, library: Path) -> str:
        """Write the library. Returns what the compiler said if it would not."""
        if not self._functions:
            return ""
        with tempfile.TemporaryDirectory() as folder:
            # Compiled by their bare names, which the compiler may put into the library.
            Path(folder, "guards.c").write_text(self.source(), "utf-8")
            tensors = files(__package__).joinpath("tensors.h").read_text("utf-8")
            Path(folder, "tensors.cpp").write_text(tensors, "utf-8")
            include = sysconfig.get_paths()["include"]
            sources = ("-x", "c++", "tensors.cpp", "-x", "c", "-std=gnu11", "guards.c")
            command = [os.environ.get("CXX", "g++"), *_FLAGS, f"-I{include}", *sources, "-o", "guards.so"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                return done.stderr.strip() or f"{command[0]} ended with {done.returncode}"
            library.write_bytes(Path(folder, "guards.so").read_bytes())
        return ""
