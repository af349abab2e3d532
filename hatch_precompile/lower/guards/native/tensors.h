// Torch's check of several tensors, with a handler around it. It is a C function of C++ code that lets
// exceptions out, such as that a nested tensor has no sizes, and nothing between here and there takes
// them: through the interpreter they would end the process. Seen in torch 2.13.0 to 2.15.0.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *answer_of(PyObject *check, PyObject *tensors) {
    if (PyCFunction_Check(check)) {
        PyCFunction function = PyCFunction_GET_FUNCTION(check);
        PyObject *self = PyCFunction_GET_SELF(check);
        int how = PyCFunction_GET_FLAGS(check) & ~METH_STATIC & ~METH_COEXIST;
        if (how == (METH_VARARGS | METH_KEYWORDS))
            return ((PyCFunctionWithKeywords)(void (*)(void))function)(self, tensors, NULL);
        if (how == METH_VARARGS) return function(self, tensors);
    }
    return PyObject_CallObject(check, tensors);
}

// 1, 0, or -1 for an exception of Python's.
extern "C" int tensors_agree(PyObject *check, PyObject *const *tensors, Py_ssize_t count) {
    PyObject *given = PyTuple_New(count), *answer = NULL;
    if (!given) return -1;
    for (Py_ssize_t number = 0; number < count; ++number) {
        Py_INCREF(tensors[number]);
        PyTuple_SET_ITEM(given, number, tensors[number]);
    }
    int truth = 0;
    try {
        answer = answer_of(check, given);
        truth = answer ? PyObject_IsTrue(answer) : -1;
    } catch (...) {
        truth = PyErr_Occurred() ? -1 : 0;
    }
    Py_XDECREF(answer);
    Py_DECREF(given);
    return truth;
}
