/* tailrace.ring._ring.Shared: an end of a ring with many producers and many consumers. */
#ifndef TAILRACE_RING_SHARED_TYPE_H
#define TAILRACE_RING_SHARED_TYPE_H

#include "_common.h"

#define RING_VIEWS 256 /* records that an end may hold at once */

typedef struct {
    PyObject_HEAD
    ring_memory memory;
    ring_end end;
    ring_view views[RING_VIEWS];
    int held;
    int bell; /* a bell must be rung: the next release reports it */
    uint64_t seen; /* the tail when there was last nothing to draw */
} Shared;

static PyObject *shared_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *object;
    unsigned long long owner;
    unsigned int window;
    if (!PyArg_ParseTuple(arguments, "OKI", &object, &owner, &window)) return NULL;
    Shared *self = (Shared *)allocate(type);
    if (!self) return NULL;
    ring_shared *ring = map_memory(&self->memory, object, RING_SHARED, RING_SHARED_DATA);
    if (!ring) {
        Py_DECREF(self);
        return NULL;
    }
    self->end = (ring_end){ring, self->memory.data, self->memory.capacity, owner, RING_SLOTS, window};
    self->seen = RING_NOWHERE;
    return (PyObject *)self;
}

static void shared_free(PyObject *self) { free_object(self, &((Shared *)self)->memory); }

static PyObject *shared_py_register(Shared *self, PyObject *Py_UNUSED(nothing))
{
    if (self->end.slot == RING_SLOTS) self->end.slot = shared_register(self->end.ring, self->end.owner);
    return PyBool_FromLong(self->end.slot != RING_SLOTS);
}

static PyObject *shared_py_leave(Shared *self, PyObject *Py_UNUSED(nothing))
{
    if (self->end.slot < RING_SLOTS) shared_leave(self->end.ring, self->end.slot);
    self->end.slot = RING_SLOTS;
    Py_RETURN_NONE;
}

static int is_registered(Shared *self)
{
    if (self->end.slot < RING_SLOTS) return 1;
    PyErr_SetString(PyExc_ValueError, "not registered");
    return 0;
}

/* -- writing */

/* Reserve a record to fill in: RING_DONE, or the reason for a failure. */
static int shared_begin(Shared *self, int64_t target, uint64_t length, ring_record **record)
{
    if (length > ring_largest(self->end.capacity)) return RING_TOO_LARGE;
    /* Acquire is enough for this first check: shared_reserve checks again. */
    if (atomic_load_explicit(&self->end.ring->closed, memory_order_acquire)) return RING_CLOSED;
    return shared_reserve(&self->end, (uint32_t)target, (uint32_t)length, record);
}

static PyObject *shared_py_write(Shared *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) return PyErr_Format(PyExc_TypeError, "write takes a target and a payload");
    int64_t target = number_below(arguments[0], RING_BATCH);
    Py_buffer payload;
    if (target < 0 || !is_registered(self) || PyObject_GetBuffer(arguments[1], &payload, PyBUF_SIMPLE) < 0) return NULL;
    ring_record *record;
    int result = shared_begin(self, target, (uint64_t)payload.len, &record);
    if (result == RING_DONE) {
        size_t half = (size_t)payload.len / 2;
        memcpy(record + 1, payload.buf, half);
        RING_STEP(6);
        memcpy((uint8_t *)(record + 1) + half, (uint8_t *)payload.buf + half, (size_t)payload.len - half);
        result = shared_publish(&self->end, record);
    }
    PyBuffer_Release(&payload);
    return PyLong_FromLong(result);
}

/* Write all payloads as one record, each after its length. They must be bytes: nothing may fail after reserving. */
static PyObject *shared_py_write_batch(Shared *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2 || !PyList_Check(arguments[1]))
        return PyErr_Format(PyExc_TypeError, "write_batch takes a target and a list of bytes");
    int64_t target = number_below(arguments[0], RING_BATCH);
    if (target < 0 || !is_registered(self)) return NULL;
    Py_ssize_t tuples = PyList_Size(arguments[1]);
    uint64_t length = 0;
    for (Py_ssize_t index = 0; index < tuples; index++) {
        PyObject *payload = PyList_GetItem(arguments[1], index);
        if (!PyBytes_Check(payload)) return PyErr_Format(PyExc_TypeError, "a batch holds bytes");
        length += sizeof(uint32_t) + (uint64_t)PyBytes_Size(payload);
    }
    ring_record *record;
    int result = shared_begin(self, target | RING_BATCH, length, &record);
    if (result == RING_DONE) {
        uint8_t *place = (uint8_t *)(record + 1);
        for (Py_ssize_t index = 0; index < tuples; index++) {
            PyObject *payload = PyList_GetItem(arguments[1], index);
            uint32_t size = (uint32_t)PyBytes_Size(payload);
            memcpy(place, &size, sizeof size);
            memcpy(place + sizeof size, PyBytes_AsString(payload), size);
            place += sizeof size + size;
        }
        result = shared_publish(&self->end, record);
    }
    return PyLong_FromLong(result);
}

/* -- reading */

static PyObject *shared_records(Shared *self, PyObject *number, int copied)
{
    int64_t limit = number_below(number, INT64_MAX);
    if (limit < 0 || !is_registered(self)) return NULL;
    if (limit > RING_VIEWS - self->held) limit = RING_VIEWS - self->held;
    ring_view *views = self->views + self->held;
    int found = 0;
    if (limit > 0 && shared_take_turn(&self->end)) {
        found = shared_look(&self->end, (int)limit, views);
        shared_end_turn(&self->end);
    }
    if (found == RING_CORRUPT) return corrupt();
    self->held += found; /* even on an error: they have been taken, and the next release returns them */
    PyObject *records = PyList_New(found);
    for (int index = 0; records && index < found; index++) {
        PyObject *record = record_tuple(&self->memory, &views[index], copied);
        if (record) PyList_SetItem(records, index, record);
        else Py_CLEAR(records);
    }
    return records;
}

static PyObject *shared_py_read(Shared *self, PyObject *limit) { return shared_records(self, limit, 1); }

static PyObject *shared_py_look(Shared *self, PyObject *limit) { return shared_records(self, limit, 0); }

static PyObject *shared_py_release(Shared *self, PyObject *Py_UNUSED(nothing))
{
    int result = shared_release(&self->end, self->views, self->held);
    self->held = 0;
    if (result == RING_CORRUPT) return corrupt();
    if (self->bell) result = RING_BELL;
    self->bell = 0;
    return PyLong_FromLong(result);
}

/* Announce that this end waits for data, and how. False if there is no reason to. */
static PyObject *shared_py_want_data(Shared *self, PyObject *how)
{
    int64_t waiting = number_below(how, RING_LINE);
    if (waiting < 0 || !is_registered(self)) return NULL;
    int result = shared_want_data(&self->end, (uint32_t)waiting, &self->bell);
    return result == RING_CORRUPT ? corrupt() : PyBool_FromLong(result == RING_NONE);
}

/* -- drawing, by threads of which some may sleep */

static void copy_record(void *to, const ring_view *view)
{
    *(PyObject **)to = PyBytes_FromStringAndSize((const char *)view->payload, view->length);
}

/* draw() -> (payload, result). Without a payload, RING_NONE: there is none; RING_DONE: another process has the turn. */
static PyObject *shared_py_draw(Shared *self, PyObject *Py_UNUSED(nothing))
{
    if (!is_registered(self)) return NULL;
    PyObject *payload = Py_None;
    int result = RING_DONE;
    if (shared_take_turn(&self->end)) {
        /* Read before looking: a reservation after it counts as new. */
        uint64_t tail = atomic_load_explicit(&self->end.ring->tail, memory_order_seq_cst);
        result = shared_draw(&self->end, copy_record, &payload);
        shared_end_turn(&self->end);
        if (result == RING_NONE) self->seen = tail;
    }
    if (!payload) return NULL; /* out of memory: the record is lost with this process */
    PyObject *both = result == RING_CORRUPT ? corrupt() : Py_BuildValue("Oi", payload, result);
    if (payload != Py_None) Py_DECREF(payload);
    return both;
}

/* Whether drawing may succeed: the ring is not empty, and space was reserved since there was last nothing. */
static PyObject *shared_py_worth_drawing(Shared *self, PyObject *Py_UNUSED(nothing))
{
    uint64_t tail = atomic_load_explicit(&self->end.ring->tail, memory_order_acquire);
    return PyBool_FromLong(
        tail != self->seen && tail != atomic_load_explicit(&self->end.ring->head, memory_order_relaxed));
}

/* The bell has rung: a record that was being written at the last look may be ready now. */
static PyObject *shared_py_heard(Shared *self, PyObject *Py_UNUSED(nothing))
{
    self->seen = RING_NOWHERE;
    Py_RETURN_NONE;
}

static PyObject *shared_py_prepare_sleep(Shared *self, PyObject *Py_UNUSED(nothing))
{
    if (!is_registered(self)) return NULL;
    int result = shared_prepare_sleep(&self->end);
    if (!result) self->seen = RING_NOWHERE;
    return result == RING_CORRUPT ? corrupt() : PyBool_FromLong(result);
}

/* The number of sleeping consumers. */
static PyObject *shared_py_sleepers(Shared *self, PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromLong((long)atomic_load_explicit(&self->end.ring->sleepers, memory_order_seq_cst));
}

static PyObject *shared_py_awake(Shared *self, PyObject *Py_UNUSED(nothing))
{
    shared_awake(&self->end);
    Py_RETURN_NONE;
}

/* -- waiting */

static PyObject *shared_py_want_room(Shared *self, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t length, how;
    if (two_numbers(arguments, count, &length, &how) < 0 || !is_registered(self)) return NULL;
    ring_announce(&self->end.ring->producer_waits, (uint32_t)how);
    if (shared_has_room(&self->end, ring_size((uint64_t)length)) ||
        atomic_load_explicit(&self->end.ring->closed, memory_order_seq_cst))
        Py_RETURN_FALSE;
    slot_count(&self->end.ring->slots[self->end.slot].waits, 1);
    Py_RETURN_TRUE;
}

static PyObject *shared_py_sleep(Shared *self, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t producer, timeout_ns;
    if (two_numbers(arguments, count, &producer, &timeout_ns) < 0 || !is_registered(self)) return NULL;
    if (!producer) slot_count(&self->end.ring->slots[self->end.slot].sleeps, 1);
    Py_BEGIN_ALLOW_THREADS
    ring_sleep(producer ? &self->end.ring->producer_waits : &self->end.ring->consumer_waits, timeout_ns);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* -- dead processes */

/* All processes at the ring: the owner of each slot in use, and the holder of the turn. */
static PyObject *shared_py_owners(Shared *self, PyObject *Py_UNUSED(nothing))
{
    PyObject *owners = PySet_New(NULL);
    for (uint32_t number = 0; owners && number <= RING_SLOTS; number++) {
        _Atomic uint64_t *place = number < RING_SLOTS ? &self->end.ring->slots[number].owner : &self->end.ring->turn;
        uint64_t owner = atomic_load_explicit(place, memory_order_seq_cst);
        PyObject *name = owner ? PyLong_FromUnsignedLongLong(owner) : NULL;
        if (owner && (!name || PySet_Add(owners, name) < 0)) Py_CLEAR(owners);
        Py_XDECREF(name);
    }
    return owners;
}

/* bury([dead owner, ...]) -> records given up. An end without a slot may call it. */
static PyObject *shared_py_bury(Shared *self, PyObject *dead)
{
    if (!PyList_Check(dead)) return PyErr_Format(PyExc_TypeError, "bury takes a list of owners");
    uint64_t owners[RING_SLOTS + 1];
    Py_ssize_t count = PyList_Size(dead);
    if (count > RING_SLOTS + 1) return PyErr_Format(PyExc_ValueError, "more dead than slots");
    for (Py_ssize_t index = 0; index < count; index++) {
        owners[index] = PyLong_AsUnsignedLongLong(PyList_GetItem(dead, index));
        if (PyErr_Occurred()) return NULL;
    }
    int given_up = shared_bury(&self->end, owners, (size_t)count, &self->bell);
    return given_up == RING_CORRUPT ? corrupt() : PyLong_FromLong(given_up);
}

/* -- other methods */

static PyObject *shared_py_close(Shared *self, PyObject *Py_UNUSED(nothing))
{
    return close_ring(&self->end.ring->closed, &self->end.ring->consumer_waits, &self->end.ring->producer_waits);
}

static PyObject *shared_py_closed(Shared *self, PyObject *Py_UNUSED(nothing))
{
    return PyBool_FromLong(atomic_load_explicit(&self->end.ring->closed, memory_order_seq_cst));
}

static PyObject *shared_py_statistics(Shared *self, PyObject *Py_UNUSED(nothing))
{
    ring_shared *ring = self->end.ring;
    uint64_t records = 0, bytes = 0, waits = 0, sleeps = 0;
    for (uint32_t number = 0; number < RING_SLOTS; number++) {
        records += atomic_load(&ring->slots[number].records);
        bytes += atomic_load(&ring->slots[number].bytes);
        waits += atomic_load(&ring->slots[number].waits);
        sleeps += atomic_load(&ring->slots[number].sleeps);
    }
    uint64_t head = atomic_load(&ring->head); /* read before the tail, which is never below it */
    return Py_BuildValue("KKKKKKK", records, bytes, waits, sleeps, atomic_load(&ring->given_up),
                         atomic_load(&ring->high_water), atomic_load(&ring->tail) - head);
}

#ifdef RING_STEPS
LEAVING(shared_leaving_write, Shared, shared_py_write(self, arguments + 1, count - 1))
LEAVING(shared_leaving_read, Shared, shared_py_read(self, arguments[1]))
LEAVING(shared_leaving_release, Shared, shared_py_release(self, NULL))

/* Continue the write that was abandoned at step 5, 6 or 7. */
static PyObject *shared_resume(Shared *self, PyObject *payload)
{
    uint64_t position = atomic_load(&self->end.ring->slots[self->end.slot].position);
    ring_record *record = ring_at(self->end.data, self->end.capacity, position);
    memcpy(record + 1, PyBytes_AsString(payload), (size_t)PyBytes_Size(payload));
    return PyLong_FromLong(shared_publish(&self->end, record));
}
#endif

static PyMethodDef shared_methods[] = {
    {"register", METHOD(shared_py_register), METH_NOARGS, "take a slot; False if all are taken"},
    {"leave", METHOD(shared_py_leave), METH_NOARGS, "give the slot back"},
    {"write", METHOD(shared_py_write), METH_FASTCALL, "write(target, payload) -> result"},
    {"write_batch", METHOD(shared_py_write_batch), METH_FASTCALL, "write_batch(target, payloads) -> result"},
    {"read", METHOD(shared_py_read), METH_O, "read(limit) -> [(target, bytes), ...]"},
    {"look", METHOD(shared_py_look), METH_O, "look(limit) -> [(target, memoryview), ...]"},
    {"release", METHOD(shared_py_release), METH_NOARGS, "give back all that was read"},
    {"want_data", METHOD(shared_py_want_data), METH_O, "want_data(how) -> whether to wait"},
    {"want_room", METHOD(shared_py_want_room), METH_FASTCALL, "want_room(bytes, how) -> whether to wait"},
    {"sleep", METHOD(shared_py_sleep), METH_FASTCALL, "sleep(producer, timeout_ns)"},
    {"draw", METHOD(shared_py_draw), METH_NOARGS, "draw() -> (payload or None, result)"},
    {"worth_drawing", METHOD(shared_py_worth_drawing), METH_NOARGS, "whether something came since there was nothing"},
    {"heard", METHOD(shared_py_heard), METH_NOARGS, "the bell has rung"},
    {"prepare_sleep", METHOD(shared_py_prepare_sleep), METH_NOARGS, "prepare_sleep() -> whether to sleep until the bell rings"},
    {"sleepers", METHOD(shared_py_sleepers), METH_NOARGS, "how many sleep"},
    {"awake", METHOD(shared_py_awake), METH_NOARGS, "no longer asleep"},
    {"owners", METHOD(shared_py_owners), METH_NOARGS, "everybody at the ring"},
    {"bury", METHOD(shared_py_bury), METH_O, "bury(dead owners) -> records given up"},
    {"close", METHOD(shared_py_close), METH_NOARGS, "close() -> whether a bell must be rung"},
    {"closed", METHOD(shared_py_closed), METH_NOARGS, NULL},
    {"statistics", METHOD(shared_py_statistics), METH_NOARGS, NULL},
#ifdef RING_STEPS
    {"leaving_write", METHOD(shared_leaving_write), METH_FASTCALL, "leaving_write(step, target, payload)"},
    {"leaving_read", METHOD(shared_leaving_read), METH_FASTCALL, "leaving_read(step, limit)"},
    {"leaving_release", METHOD(shared_leaving_release), METH_FASTCALL, "leaving_release(step)"},
    {"resume", METHOD(shared_resume), METH_O, "resume(payload)"},
#endif
    {NULL, NULL, 0, NULL},
};

static PyType_Slot shared_slots[] = {
    {Py_tp_new, shared_new}, {Py_tp_dealloc, shared_free}, {Py_tp_methods, shared_methods}, {0, NULL}};
static PyType_Spec shared_spec = {"tailrace.ring._ring.Shared", sizeof(Shared), 0, Py_TPFLAGS_DEFAULT, shared_slots};

#endif
