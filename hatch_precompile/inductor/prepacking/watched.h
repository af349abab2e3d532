// Whether memory still holds what it held, compiled into the library of a graph with fixed weights: for writes
// that torch does not count (templates/graphs/weights.py).
#include <Python.h>
#include <cstdint>
#include <cstring>
namespace {
// Most pieces are a number of float32, for which no function need be called.
bool precompiled_holds(const int64_t (&piece)[2], const char* held) {
    const void* memory = reinterpret_cast<const void*>(piece[0]);
    return piece[1] == 4 ? !std::memcmp(memory, held, 4) : !std::memcmp(memory, held, piece[1]);
}
// self: bytes of numbers of 64 bits, how many pieces and of each its address and size, then what they held
PyObject* precompiled_unchanged(PyObject* self, PyObject*) {
    const char* from = PyBytes_AS_STRING(self);
    int64_t count, piece[2];
    std::memcpy(&count, from, sizeof(count));
    const char *next = from + sizeof(count), *held = next + count * sizeof(piece);
    for (; count > 0; --count, next += sizeof(piece), held += piece[1]) {
        std::memcpy(piece, next, sizeof(piece));
        if (!precompiled_holds(piece, held)) Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}
PyMethodDef precompiled_unchanged_method = {"unchanged", precompiled_unchanged, METH_NOARGS, nullptr};
}
// The function for such bytes.
extern "C" __attribute__((weak, visibility("default"))) PyObject* precompiled_watch(PyObject* pieces) {
    return PyCFunction_New(&precompiled_unchanged_method, pieces);
}
