/* The module: two types of ends, and the layout. The algorithms are in _pair.h and _shared.h; nothing here waits for
 * more than the caller's timeout. */
#include "_pair_type.h"
#include "_shared_type.h"

#define FIELD(type, field) {#type "." #field, (long)offsetof(type, field)}
#define NUMBER(name) {#name, (long)(name)}

/* All offsets, sizes and constants, to compare layout.py with. */
static const struct {
    const char *name;
    long value;
} numbers[] = {
    FIELD(ring_segment, magic), FIELD(ring_segment, version), FIELD(ring_segment, kind),
    FIELD(ring_segment, capacity), FIELD(ring_segment, owner), FIELD(ring_segment, processes),
    FIELD(ring_segment, nonce), FIELD(ring_record, status), FIELD(ring_record, target), FIELD(ring_record, length),
    FIELD(ring_record, slot), FIELD(ring_pair, tail), FIELD(ring_pair, records), FIELD(ring_pair, bytes),
    FIELD(ring_pair, waits), FIELD(ring_pair, high_water), FIELD(ring_pair, head), FIELD(ring_pair, sleeps),
    FIELD(ring_pair, consumer_waits), FIELD(ring_pair, producer_waits), FIELD(ring_pair, closed),
    FIELD(ring_shared, tail), FIELD(ring_shared, high_water), FIELD(ring_shared, head), FIELD(ring_shared, turn),
    FIELD(ring_shared, clearing), FIELD(ring_shared, given_up), FIELD(ring_shared, consumer_waits),
    FIELD(ring_shared, producer_waits), FIELD(ring_shared, closed), FIELD(ring_shared, sleepers), FIELD(ring_shared, slots), FIELD(ring_slot, owner),
    FIELD(ring_slot, position), FIELD(ring_slot, length), FIELD(ring_slot, records), FIELD(ring_slot, bytes),
    FIELD(ring_slot, waits), FIELD(ring_slot, sleeps), {"ring_segment", sizeof(ring_segment)},
    {"ring_record", sizeof(ring_record)}, {"ring_slot", sizeof(ring_slot)}, {"ring_pair", RING_PAIR_DATA},
    {"ring_shared", RING_SHARED_DATA}, NUMBER(RING_MAGIC), NUMBER(RING_VERSION), NUMBER(RING_LINE), NUMBER(RING_UNIT),
    NUMBER(RING_SLOTS), NUMBER(RING_BATCH), NUMBER(RING_VIEWS), NUMBER(RING_PAIR), NUMBER(RING_SHARED),
    NUMBER(RING_NO_WAITER), NUMBER(RING_SLEEPS), NUMBER(RING_WANTS_BELL), NUMBER(RING_CORRUPT), NUMBER(RING_TOO_LARGE),
    NUMBER(RING_CLOSED), NUMBER(RING_NONE), NUMBER(RING_DONE), NUMBER(RING_BELL),
};

static PyObject *layout(PyObject *module, PyObject *Py_UNUSED(nothing))
{
    PyObject *found = PyDict_New();
    for (size_t index = 0; found && index < sizeof numbers / sizeof *numbers; index++) {
        PyObject *value = PyLong_FromLong(numbers[index].value);
        if (!value || PyDict_SetItemString(found, numbers[index].name, value) < 0) Py_CLEAR(found);
        Py_XDECREF(value);
    }
    return found;
}

static PyMethodDef methods[] = {
    {"layout", layout, METH_NOARGS, "offsets, sizes and numbers by name"},
#ifdef RING_STEPS
    {"stop_at", stop_at, METH_O, "stop this process at a step"},
#endif
    {NULL, NULL, 0, NULL},
};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);
    if (!type) return -1;
    int failed = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return failed;
}

static int fill(PyObject *module)
{
    return add_type(module, "Pair", &pair_spec) || add_type(module, "Shared", &shared_spec) ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_ring", "Rings in shared memory.", 0, methods, module_slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__ring(void) { return PyModuleDef_Init(&definition); }
