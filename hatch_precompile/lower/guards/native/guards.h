// What translated guards call. Every function gives a new reference, or a number; NULL and -1 mean that an
// exception is set, as it would be in the Python text. Seen in CPython 3.11 to 3.14.

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>

// In tensors.h, which is C++.
extern int tensors_agree(PyObject *check, PyObject *const *tensors, Py_ssize_t count);

static PyObject *plain_getattribute, *word_getattribute, *word_dict;

static int prepare(void) {
    plain_getattribute = PyObject_GetAttrString((PyObject *)&PyBaseObject_Type, "__getattribute__");
    word_getattribute = PyUnicode_InternFromString("__getattribute__");
    word_dict = PyUnicode_InternFromString("__dict__");
    return plain_getattribute && word_getattribute && word_dict ? 0 : -1;
}

// Functions of their own, or the code would be several times as long.
#define APART __attribute__((noinline)) static

static inline PyObject *kept(PyObject *value) {
    Py_XINCREF(value);
    return value;
}

// Whether `__dict__` of a value is what the interpreter keeps its attributes in. A class may say otherwise.
static inline int has_plain_dict(PyObject *value) {
    PyTypeObject *type = Py_TYPE(value);
    if (type->tp_getattro != PyObject_GenericGetAttr &&
        _PyType_Lookup(type, word_getattribute) != plain_getattribute)
        return 0;
    PyObject *found = _PyType_Lookup(type, word_dict);
    return found && Py_TYPE(found) == &PyGetSetDescr_Type;
}

APART PyObject *dict_of(PyObject *value) {
    return has_plain_dict(value) ? PyObject_GenericGetDict(value, NULL) : PyObject_GetAttr(value, word_dict);
}

// The truth of value.__dict__. None is made for a value that has no attributes yet.
APART int has_attributes(PyObject *value) {
    if (has_plain_dict(value)) {
        PyObject **place = _PyObject_GetDictPtr(value);
        if (place && (!*place || PyDict_CheckExact(*place)))
            return *place && PyDict_GET_SIZE(*place) > 0;
    }
    PyObject *dict = PyObject_GetAttr(value, word_dict);
    int truth = dict ? PyObject_IsTrue(dict) : -1;
    Py_XDECREF(dict);
    return truth;
}

APART PyObject *item(PyObject *base, PyObject *key) {
    if (!PyDict_CheckExact(base)) return PyObject_GetItem(base, key);
    PyObject *found = PyDict_GetItemWithError(base, key);
    if (!found && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, key);
    return kept(found);
}

APART PyObject *item_at(PyObject *base, Py_ssize_t place, PyObject *number) {
    if (PyTuple_CheckExact(base) && place >= 0 && place < PyTuple_GET_SIZE(base))
        return kept(PyTuple_GET_ITEM(base, place));
    if (PyList_CheckExact(base) && place >= 0 && place < PyList_GET_SIZE(base))
        return kept(PyList_GET_ITEM(base, place));
    return item(base, number);
}

APART int compared(PyObject *left, PyObject *right, int how) {
    PyObject *answer = PyObject_RichCompare(left, right, how);
    int truth = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return truth;
}

// What `alike` in templates/values/constants.py says, which is asked about what is not known here.
APART int alike(PyObject *asked, PyObject *one, PyObject *other) {
    PyTypeObject *type = Py_TYPE(one);
    if (type != Py_TYPE(other)) return 0;
    if (one == other) return 1;
    if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBool_Type)
        return PyObject_RichCompareBool(one, other, Py_EQ);
    if (type == &PyFloat_Type) {
        double mine = PyFloat_AS_DOUBLE(one), its = PyFloat_AS_DOUBLE(other);
        return mine == its ? !signbit(mine) == !signbit(its) : mine != mine && its != its;
    }
    if (type == &PyTuple_Type || type == &PyList_Type) {
        Py_ssize_t size = PySequence_Fast_GET_SIZE(other);
        int same = PySequence_Fast_GET_SIZE(one) == size;
        for (Py_ssize_t place = 0; same == 1 && place < size; place++) {
            if (place >= PySequence_Fast_GET_SIZE(one)) return 0;  // Python code may have changed it
            PyObject *mine = kept(PySequence_Fast_GET_ITEM(one, place));
            same = alike(asked, mine, PySequence_Fast_GET_ITEM(other, place));
            Py_DECREF(mine);
        }
        return same;
    }
    PyObject *answer = PyObject_CallFunctionObjArgs(asked, one, other, NULL);
    int truth = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return truth;
}

APART Py_ssize_t size_of_dict(PyObject *value) {
    if (PyDict_Check(value)) return PyDict_GET_SIZE(value);
    PyErr_SetString(PyExc_TypeError, "dict.__len__ of what is no dict");
    return -1;
}

// Python 3.11 gives a dict another number whenever it changes, and no two dicts the same; 0 elsewhere.
static inline uint64_t version_of(PyObject *dict) {
#if PY_VERSION_HEX < 0x030C0000
    return ((PyDictObject *)dict)->ma_version_tag;
#else
    return 0;
#endif
}

// Dicts that had none of some keys. A model has a dict for each of its modules, and they hardly ever change.
static struct {
    PyObject *dict;
    uint64_t version, keys;
} lacking[1024];

// Whether a dict has none of these keys. `number`: the same for the same keys, or 0.
APART int dict_lacks(PyObject *dict, PyObject *keys, uint64_t number) {
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "keys of what is no dict");
        return -1;
    }
    uint64_t version = version_of(dict);
    size_t place = (((uintptr_t)dict >> 4) * 0x9E3779B97F4A7C15ull ^ number) >> 54;
    if (version && number && lacking[place].version == version && lacking[place].dict == dict &&
        lacking[place].keys == number)
        return 1;
    for (Py_ssize_t key = 0; key < PyTuple_GET_SIZE(keys); key++) {
        int found = PyDict_Contains(dict, PyTuple_GET_ITEM(keys, key));
        if (found) return found < 0 ? -1 : 0;
    }
    lacking[place].dict = dict;
    lacking[place].version = version;
    lacking[place].keys = number;
    return 1;
}

// Python numbers classes, and gives another number to one that has changed, or a base of it; 0 for none. `seen`
// is that of a class when it was last looked at, which is seldom done again.
static inline uint64_t number_of(PyObject *cls) {
    PyTypeObject *type = (PyTypeObject *)cls;
#if PY_VERSION_HEX < 0x030D0000
    if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
    return type->tp_version_tag; // from Python 3.13 on, 0 where it is not valid
}

static inline int is_as_seen(PyObject *cls, const uint64_t *seen) { return *seen && number_of(cls) == *seen; }

static void see(PyObject *cls, uint64_t *seen) {
    (void)_PyType_Lookup((PyTypeObject *)cls, word_dict); // which numbers it
    *seen = number_of(cls);
}

// How many of some names a class itself has; the names are a tuple or a set.
static Py_ssize_t names_of_class(PyObject *cls, PyObject *names) {
    Py_ssize_t count = 0;
    PyObject *own = PyObject_GetAttr(cls, word_dict); // a proxy of a dict
    PyObject *each = own ? PyObject_GetIter(names) : NULL, *name;
    while (each && (name = PyIter_Next(each))) {
        int found = PySequence_Contains(own, name);
        Py_DECREF(name);
        if (found < 0) break;
        count += found;
    }
    Py_XDECREF(each);
    Py_XDECREF(own);
    return PyErr_Occurred() ? -1 : count;
}

// Whether the first `count` classes that a class finds names in, itself the first, have none of these.
APART int class_lacks(PyObject *cls, Py_ssize_t count, PyObject *names, uint64_t *seen) {
    if (!PyType_Check(cls)) {
        PyErr_SetString(PyExc_TypeError, "names of what is no class");
        return -1;
    }
    if (is_as_seen(cls, seen)) return 1;
    PyObject *bases = ((PyTypeObject *)cls)->tp_mro;
    for (Py_ssize_t place = 0; place < count && place < PyTuple_GET_SIZE(bases); place++) {
        Py_ssize_t found = names_of_class(PyTuple_GET_ITEM(bases, place), names);
        if (found) return found < 0 ? -1 : 0;
    }
    see(cls, seen);
    return 1;
}

// Whether a class itself has, of some names, those that are expected, and no others.
APART int class_has(PyObject *cls, PyObject *names, PyObject *expected, uint64_t *seen) {
    if (!PyType_Check(cls)) {
        PyErr_SetString(PyExc_TypeError, "names of what is no class");
        return -1;
    }
    if (is_as_seen(cls, seen)) return 1;
    Py_ssize_t wanted = PyTuple_GET_SIZE(expected), found = names_of_class(cls, names);
    if (found == wanted) found = names_of_class(cls, expected);
    if (found < 0) return -1;
    if (found != wanted) return 0;
    see(cls, seen);
    return 1;
}

static inline int is_size(Py_ssize_t size, Py_ssize_t expected) { return size < 0 ? -1 : size == expected; }

APART void set(PyObject **place, PyObject *value) { Py_XSETREF(*place, value); }

APART void drop(PyObject **values, Py_ssize_t count) {
    while (count--) Py_CLEAR(values[count]);
}

// What a guard answers when an exception ended it. One that was raised by what it looked for, and no
// Python code was running, is a refusal; any other is the caller's to judge.
APART PyObject *ended_by_exception(void) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (!trace && (PyErr_GivenExceptionMatches(type, PyExc_LookupError) ||
                   PyErr_GivenExceptionMatches(type, PyExc_AttributeError) ||
                   PyErr_GivenExceptionMatches(type, PyExc_TypeError) ||
                   PyErr_GivenExceptionMatches(type, PyExc_ValueError) ||
                   PyErr_GivenExceptionMatches(type, PyExc_ArithmeticError))) {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_RETURN_FALSE;
    }
    PyErr_Restore(type, value, trace);
    return NULL;
}
