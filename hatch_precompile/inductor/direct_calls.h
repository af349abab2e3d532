// A call of a graph from Python with nothing in between: tensors and numbers in, a list of tensors out.
// Seen in torch 2.13.0 (torch/csrc/autograd/python_variable.h: THPVariable, THPVariable_Wrap).

namespace precompiled {

// A Python tensor, as far as it is read: what lies in it is what torch's C interface calls a tensor by.
// Whether it does here is seen when the library is loaded.
struct Tensor {
    PyObject_HEAD
    void *held;
};

// Gives a Python tensor for a tensor that it moves from.
static PyObject *(*wrap)(void *tensor);

// What a call needs, in the tuple that is its `self`; constants follow, which are tensors.
enum { FAILED, TO_TENSOR, TENSOR, PARAMETER, CONSTANTS };

static inline bool is_tensor(PyObject *self, PyObject *given) {
    PyTypeObject *type = Py_TYPE(given), *tensor = (PyTypeObject *)PyTuple_GET_ITEM(self, TENSOR);
    return type == tensor || (PyObject *)type == PyTuple_GET_ITEM(self, PARAMETER) || PyType_IsSubtype(type, tensor);
}

static inline bool own(PyObject *tensor, AtenTensorHandle *handle) {
    auto held = reinterpret_cast<AtenTensorHandle>(&reinterpret_cast<Tensor *>(tensor)->held);
    return aoti_torch_new_tensor_handle(held, handle) == AOTI_TORCH_SUCCESS;
}

// One input: its handle, or, without one, its number. False where an exception is set.
static bool take(PyObject *self, PyObject *given, char kind, AtenTensorHandle *handle, int64_t *number) {
    if (is_tensor(self, given)) {
        if (own(given, handle)) return true;
        PyErr_SetString(PyExc_RuntimeError, "a tensor has no handle");
        return false;
    }
    if (kind == 'i' && PyLong_Check(given)) {
        long long value = PyLong_AsLongLong(given);
        if (value != -1 || !PyErr_Occurred()) {
            *number = value;
            return true;
        }
        PyErr_Clear();  // torch says what is wrong with it
    } else if (kind == 'd' && PyFloat_Check(given)) {
        double value = PyFloat_AS_DOUBLE(given);
        static_assert(sizeof value == sizeof *number);
        std::memcpy(number, &value, sizeof value);
        return true;
    }
    PyObject *made = PyObject_CallOneArg(PyTuple_GET_ITEM(self, TO_TENSOR), given);
    bool taken = made && is_tensor(self, made) && own(made, handle);
    if (made && !taken) PyErr_SetString(PyExc_TypeError, "an input is neither a tensor nor a number");
    Py_XDECREF(made);
    return taken;
}

// An exception came out of the graph: what is raised for it is for Python code to say.
static void failed(PyObject *self) {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return;
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace) PyException_SetTraceback(error, trace);
    PyObject *nothing = PyObject_CallOneArg(PyTuple_GET_ITEM(self, FAILED), error);  // it raises
    Py_XDECREF(nothing);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(trace);
}

// The first place that has the handle of this one: one handle is there twice where a tensor is returned twice.
static inline int first(AtenTensorHandle const *outputs, int place) {
    int before = REPEATED ? 0 : place;
    while (outputs[before] != outputs[place]) ++before;
    return before;
}

static PyObject *call(PyObject *self, PyObject *const *inputs, Py_ssize_t count) {
    constexpr int all = sizeof kinds - 1;
    const int constants = (int)PyTuple_GET_SIZE(self) - CONSTANTS;
    if (count + constants != all) {
        PyErr_Format(PyExc_TypeError, "the graph takes %d inputs, not %zd", all - constants, count);
        return nullptr;
    }
    // The numbers are where the graph finds them: before the handles.
    int64_t numbers[all + 1];
    AtenTensorHandle handles[all + 1] = {reinterpret_cast<AtenTensorHandle>(numbers)}, outputs[OUTPUTS + 1] = {};
    PyObject *result = nullptr;
    bool taken = true;
    for (int place = 0; taken && place < all; ++place) {
        PyObject *given = place < count ? inputs[place] : PyTuple_GET_ITEM(self, CONSTANTS + place - count);
        taken = take(self, given, kinds[place], &handles[place + 1], &numbers[place]);
    }
    if (taken) {
        try {
            inductor_entry_impl(handles + 1, outputs);
        } catch (std::exception const &error) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, error.what());
        } catch (...) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "unhandled error");
        }
        if (PyErr_Occurred())
            failed(self);
        else
            result = PyList_New(OUTPUTS);
    }
    for (int place = 0; result && place < OUTPUTS; ++place) {
        PyObject *made = nullptr;
        const int before = first(outputs, place);
        if (before < place)
            made = Py_NewRef(PyList_GET_ITEM(result, before));
        else if (!outputs[place])
            made = Py_NewRef(Py_None);
        else
            try {
                made = wrap(outputs[place]);
            } catch (...) {
                if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "an output cannot be had");
            }
        if (made)
            PyList_SET_ITEM(result, place, made);
        else
            Py_CLEAR(result);
    }
    // The graph has taken the handles of its inputs, unless it was not called.
    for (int place = 1; place <= all; ++place)
        if (handles[place]) aoti_torch_delete_tensor_object(handles[place]);
    for (int place = 0; place < OUTPUTS; ++place)
        if (outputs[place] && first(outputs, place) == place) aoti_torch_delete_tensor_object(outputs[place]);
    return result;
}

static PyMethodDef method = {"graph", (PyCFunction)(void (*)(void))call, METH_FASTCALL, nullptr};

// (address of THPVariable_Wrap, a tensor, its handle, self) -> the function; None where torch's tensors are others.
static PyObject *bind(PyObject *given) {
    if (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) != 4 || !PyTuple_CheckExact(PyTuple_GET_ITEM(given, 3))) {
        PyErr_SetString(PyExc_TypeError, "four things are needed");
        return nullptr;
    }
    void *address = PyLong_AsVoidPtr(PyTuple_GET_ITEM(given, 0));
    void *handle = PyCapsule_GetPointer(PyTuple_GET_ITEM(given, 2), nullptr);
    if (PyErr_Occurred()) return nullptr;
    auto tensor = reinterpret_cast<Tensor *>(PyTuple_GET_ITEM(given, 1));
    bool known = address && Py_TYPE(tensor)->tp_basicsize >= (Py_ssize_t)sizeof(Tensor) &&
                 *static_cast<void **>(handle) == tensor->held;
    aoti_torch_delete_tensor_object(reinterpret_cast<AtenTensorHandle>(handle));
    if (!known) Py_RETURN_NONE;
    wrap = reinterpret_cast<decltype(wrap)>(address);
    return PyCFunction_New(&method, PyTuple_GET_ITEM(given, 3));
}

}  // namespace precompiled
