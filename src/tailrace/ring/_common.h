/* Code that both types of ends share. The memory has been mapped and checked by Python (segment.py). */
#ifndef TAILRACE_RING_COMMON_H
#define TAILRACE_RING_COMMON_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include "_steps.h"

#include "_shared.h"

#define METHOD(function) (PyCFunction)(void (*)(void))function

/* The mapped memory. Views of records are slices of `whole`, so the memory stays mapped while one exists. */
typedef struct {
    Py_buffer buffer;
    PyObject *whole;
    uint8_t *data;
    uint64_t capacity;
} ring_memory;

static void *map_memory(ring_memory *memory, PyObject *object, uint32_t kind, uint64_t begin)
{
    if (PyObject_GetBuffer(object, &memory->buffer, PyBUF_WRITABLE) < 0) {
        memory->buffer.obj = NULL;
        return NULL;
    }
    ring_segment *segment = memory->buffer.buf;
    uint64_t bytes = (uint64_t)memory->buffer.len;
    memory->capacity = bytes >= begin ? segment->capacity : 0;
    if (memory->capacity < RING_LINE || memory->capacity & (memory->capacity - 1) || memory->capacity > UINT32_MAX ||
        bytes < begin + memory->capacity || segment->magic != RING_MAGIC || segment->kind != kind) {
        PyErr_SetString(PyExc_ValueError, "not a segment of this kind");
        return NULL;
    }
    PyObject *writable = PyMemoryView_FromObject(object);
    memory->whole = writable ? PyObject_CallMethod(writable, "toreadonly", NULL) : NULL;
    Py_XDECREF(writable);
    memory->data = (uint8_t *)segment + begin;
    return memory->whole ? segment : NULL;
}

static PyObject *allocate(PyTypeObject *type) { return ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0); }

static void free_object(PyObject *self, ring_memory *memory)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(memory->whole);
    if (memory->buffer.obj) PyBuffer_Release(&memory->buffer);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *corrupt(void)
{
    PyErr_SetString(PyExc_ValueError, "corrupted ring");
    return NULL;
}

static PyObject *record_tuple(ring_memory *memory, ring_view *view, int copied)
{
    Py_ssize_t begin = view->payload - (uint8_t *)memory->buffer.buf;
    PyObject *payload = copied ? PyBytes_FromStringAndSize((const char *)view->payload, view->length)
                               : PySequence_GetSlice(memory->whole, begin, begin + view->length);
    if (!payload) return NULL;
    PyObject *target = PyLong_FromUnsignedLong(view->target);
    PyObject *pair = target ? PyTuple_New(2) : NULL;
    if (!pair) {
        Py_XDECREF(target);
        Py_DECREF(payload);
        return NULL;
    }
    PyTuple_SetItem(pair, 0, target);
    PyTuple_SetItem(pair, 1, payload);
    return pair;
}

/* Parse a number below a limit; -1 on an error. */
static int64_t number_below(PyObject *object, uint64_t limit)
{
    unsigned long long number = PyLong_AsUnsignedLongLong(object);
    if (PyErr_Occurred()) return -1;
    if (number < limit) return (int64_t)number;
    PyErr_Format(PyExc_OverflowError, "number too large: number=%llu limit=%llu", number, (unsigned long long)limit);
    return -1;
}

static int two_numbers(PyObject *const *arguments, Py_ssize_t count, int64_t *one, int64_t *two)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "takes two arguments");
        return -1;
    }
    *one = number_below(arguments[0], INT64_MAX);
    *two = *one < 0 ? -1 : number_below(arguments[1], INT64_MAX);
    return *two < 0 ? -1 : 0;
}

static PyObject *close_ring(_Atomic uint32_t *closed, _Atomic uint32_t *consumers, _Atomic uint32_t *producers)
{
    /* seq_cst: ordered before the check for waiting ends, and before the last read of a reader that has seen it. */
    atomic_store_explicit(closed, 1, memory_order_seq_cst);
    int bells = ring_wake(consumers);
    bells |= ring_wake(producers);
    return PyBool_FromLong(bells);
}

#endif
