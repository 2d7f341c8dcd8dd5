/* tailrace.ring._ring.Pair: an end of a ring with one producer and one consumer. */
#ifndef TAILRACE_RING_PAIR_TYPE_H
#define TAILRACE_RING_PAIR_TYPE_H

#include "_common.h"

typedef struct {
    PyObject_HEAD
    ring_memory memory;
    ring_pair *ring;
    uint64_t reading; /* the position up to which this end has read */
} Pair;

static PyObject *pair_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *object;
    if (!PyArg_ParseTuple(arguments, "O", &object)) return NULL;
    Pair *self = (Pair *)allocate(type);
    if (!self) return NULL;
    self->ring = map_memory(&self->memory, object, RING_PAIR, RING_PAIR_DATA);
    if (!self->ring) {
        Py_DECREF(self);
        return NULL;
    }
    /* Acquire: an earlier consumer, if there was one, has finished with everything below. */
    self->reading = atomic_load_explicit(&self->ring->head, memory_order_acquire);
    return (PyObject *)self;
}

static void pair_free(PyObject *self) { free_object(self, &((Pair *)self)->memory); }

static int pair_find(Pair *self, ring_view *view)
{
    return pair_look(self->ring, self->memory.data, self->memory.capacity, self->reading, view);
}

static PyObject *pair_py_write(Pair *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) return PyErr_Format(PyExc_TypeError, "write takes a target and a payload");
    int64_t target = number_below(arguments[0], 1ULL << 32);
    Py_buffer payload;
    if (target < 0 || PyObject_GetBuffer(arguments[1], &payload, PyBUF_SIMPLE) < 0) return NULL;
    int result = pair_write(self->ring, self->memory.data, self->memory.capacity, (uint32_t)target, payload.buf,
                            (uint64_t)payload.len);
    PyBuffer_Release(&payload);
    return PyLong_FromLong(result);
}

static PyObject *pair_records(Pair *self, PyObject *number, int copied)
{
    int64_t limit = number_below(number, INT64_MAX);
    PyObject *records = limit < 0 ? NULL : PyList_New(0);
    ring_view view;
    while (records && limit-- > 0) {
        int result = pair_find(self, &view);
        if (result == RING_NONE) break;
        PyObject *record = result == RING_DONE ? record_tuple(&self->memory, &view, copied) : corrupt();
        if (!record || PyList_Append(records, record) < 0) Py_CLEAR(records);
        else self->reading = view.end;
        Py_XDECREF(record);
    }
    return records;
}

static PyObject *pair_py_read(Pair *self, PyObject *limit) { return pair_records(self, limit, 1); }

static PyObject *pair_py_look(Pair *self, PyObject *limit) { return pair_records(self, limit, 0); }

static PyObject *pair_py_release(Pair *self, PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromLong(pair_release(self->ring, self->memory.capacity, self->reading));
}

/* Announce that this end waits for data, and how. False if there is some after all. */
static PyObject *pair_py_want_data(Pair *self, PyObject *how)
{
    ring_view view;
    int64_t waiting = number_below(how, RING_LINE);
    if (waiting < 0) return NULL;
    ring_announce(&self->ring->consumer_waits, (uint32_t)waiting);
    /* seq_cst: ordered after the announcement, like the read of the tail. */
    if (pair_find(self, &view) == RING_NONE && !atomic_load_explicit(&self->ring->closed, memory_order_seq_cst))
        Py_RETURN_TRUE;
    /* Relaxed: the worst outcome is an unneeded wake-up. */
    atomic_store_explicit(&self->ring->consumer_waits, RING_NO_WAITER, memory_order_relaxed);
    Py_RETURN_FALSE;
}

/* Announce that this end waits for room for so many bytes, and how. False if there is some after all. */
static PyObject *pair_py_want_room(Pair *self, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t length, how;
    if (two_numbers(arguments, count, &length, &how) < 0) return NULL;
    ring_announce(&self->ring->producer_waits, (uint32_t)how);
    if (pair_has_room(self->ring, self->memory.capacity, ring_size((uint64_t)length)) == RING_NONE &&
        !atomic_load_explicit(&self->ring->closed, memory_order_seq_cst)) {
        slot_count(&self->ring->waits, 1);
        Py_RETURN_TRUE;
    }
    atomic_store_explicit(&self->ring->producer_waits, RING_NO_WAITER, memory_order_relaxed);
    Py_RETURN_FALSE;
}

static PyObject *pair_py_sleep(Pair *self, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t producer, timeout_ns;
    if (two_numbers(arguments, count, &producer, &timeout_ns) < 0) return NULL;
    if (!producer) slot_count(&self->ring->sleeps, 1);
    Py_BEGIN_ALLOW_THREADS
    ring_sleep(producer ? &self->ring->producer_waits : &self->ring->consumer_waits, timeout_ns);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *pair_py_close(Pair *self, PyObject *Py_UNUSED(nothing))
{
    return close_ring(&self->ring->closed, &self->ring->consumer_waits, &self->ring->producer_waits);
}

static PyObject *pair_py_closed(Pair *self, PyObject *Py_UNUSED(nothing))
{
    return PyBool_FromLong(atomic_load_explicit(&self->ring->closed, memory_order_seq_cst));
}

/* records, bytes, producer waits, consumer sleeps, given up, high water, held */
static PyObject *pair_py_statistics(Pair *self, PyObject *Py_UNUSED(nothing))
{
    ring_pair *ring = self->ring;
    uint64_t head = atomic_load(&ring->head); /* read before the tail, which is never below it */
    return Py_BuildValue("KKKKKKK", atomic_load(&ring->records), atomic_load(&ring->bytes), atomic_load(&ring->waits),
                         atomic_load(&ring->sleeps), 0ULL, atomic_load(&ring->high_water),
                         atomic_load(&ring->tail) - head);
}

static PyMethodDef pair_methods[] = {
    {"write", METHOD(pair_py_write), METH_FASTCALL, "write(target, payload) -> result"},
    {"read", METHOD(pair_py_read), METH_O, "read(limit) -> [(target, bytes), ...]"},
    {"look", METHOD(pair_py_look), METH_O, "look(limit) -> [(target, memoryview), ...]"},
    {"release", METHOD(pair_py_release), METH_NOARGS, "give back all that was read"},
    {"want_data", METHOD(pair_py_want_data), METH_O, "want_data(how) -> whether to wait"},
    {"want_room", METHOD(pair_py_want_room), METH_FASTCALL, "want_room(bytes, how) -> whether to wait"},
    {"sleep", METHOD(pair_py_sleep), METH_FASTCALL, "sleep(producer, timeout_ns)"},
    {"close", METHOD(pair_py_close), METH_NOARGS, "close() -> whether a bell must be rung"},
    {"closed", METHOD(pair_py_closed), METH_NOARGS, NULL},
    {"statistics", METHOD(pair_py_statistics), METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot pair_slots[] = {
    {Py_tp_new, pair_new}, {Py_tp_dealloc, pair_free}, {Py_tp_methods, pair_methods}, {0, NULL}};
static PyType_Spec pair_spec = {"tailrace.ring._ring.Pair", sizeof(Pair), 0, Py_TPFLAGS_DEFAULT, pair_slots};

#endif
