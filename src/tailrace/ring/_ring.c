/* What Python calls. Ends of rings over memory that Python has mapped and checked (segment.py); the algorithms are in
 * _pair.h and _shared.h. Nothing here waits for more than the caller's timeout. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#ifdef RING_STEPS /* a build for tests: stop this process where it says */
#include <signal.h>
static int ring_stop_at;
#define RING_STEP(number) ((void)(ring_stop_at == (number) && raise(SIGSTOP)))
#endif

#include "_shared.h"

#define BATCH_VIEWS 256 /* records that a shared ring's end holds at once */

typedef struct {
    PyObject_HEAD
    Py_buffer memory;
    ring_pair *ring;
    uint8_t *data;
    uint64_t capacity;
    uint64_t reading; /* up to where this end has looked */
} Pair;

typedef struct {
    PyObject_HEAD
    Py_buffer memory;
    ring_end end;
    ring_view views[BATCH_VIEWS];
    int held;
} Shared;

/* -- common */

static int map_memory(PyObject *object, Py_buffer *memory, uint32_t kind, uint64_t begin)
{
    if (PyObject_GetBuffer(object, memory, PyBUF_WRITABLE) < 0) return -1;
    ring_segment *segment = memory->buf;
    uint64_t capacity = (uint64_t)memory->len >= begin ? segment->capacity : 0;
    if (capacity < RING_LINE || capacity & (capacity - 1) || capacity > UINT32_MAX ||
        (uint64_t)memory->len < begin + capacity || segment->magic != RING_MAGIC || segment->kind != kind) {
        PyBuffer_Release(memory);
        PyErr_SetString(PyExc_ValueError, "not a segment of this kind");
        return -1;
    }
    return 0;
}

static void free_object(PyObject *self, Py_buffer *memory)
{
    PyTypeObject *type = Py_TYPE(self);
    if (memory->obj) PyBuffer_Release(memory);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *corrupt(void)
{
    PyErr_SetString(PyExc_ValueError, "corrupted head");
    return NULL;
}

static PyObject *record_tuple(ring_view *view, int copied)
{
    PyObject *payload = copied ? PyBytes_FromStringAndSize((const char *)view->payload, view->length)
                               : PyMemoryView_FromMemory((char *)view->payload, view->length, PyBUF_READ);
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

static int two_numbers(PyObject *const *arguments, Py_ssize_t count, long long *one, long long *two)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "takes two arguments");
        return -1;
    }
    *one = PyLong_AsLongLong(arguments[0]);
    *two = PyLong_AsLongLong(arguments[1]);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *close_ring(_Atomic uint32_t *closed, _Atomic uint32_t *consumers, _Atomic uint32_t *producers)
{
    atomic_store_explicit(closed, 1, memory_order_seq_cst);
    int bells = ring_wake(consumers);
    bells |= ring_wake(producers);
    return PyBool_FromLong(bells);
}

/* -- one producer, one consumer */

static PyObject *pair_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *object;
    if (!PyArg_ParseTuple(arguments, "O", &object)) return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Pair *self = (Pair *)allocate(type, 0);
    if (!self) return NULL;
    if (map_memory(object, &self->memory, RING_PAIR, RING_PAIR_DATA) < 0) {
        self->memory.obj = NULL;
        Py_DECREF(self);
        return NULL;
    }
    self->ring = self->memory.buf;
    self->data = (uint8_t *)self->memory.buf + RING_PAIR_DATA;
    self->capacity = self->ring->segment.capacity;
    self->reading = atomic_load_explicit(&self->ring->head, memory_order_acquire);
    return (PyObject *)self;
}

static void pair_free(PyObject *self) { free_object(self, &((Pair *)self)->memory); }

static PyObject *pair_py_write(Pair *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) return PyErr_Format(PyExc_TypeError, "write takes a target and a payload");
    unsigned long target = PyLong_AsUnsignedLong(arguments[0]);
    if (PyErr_Occurred()) return NULL;
    Py_buffer payload;
    if (PyObject_GetBuffer(arguments[1], &payload, PyBUF_SIMPLE) < 0) return NULL;
    int result = pair_write(self->ring, self->data, self->capacity, (uint32_t)target, payload.buf, (uint64_t)payload.len);
    PyBuffer_Release(&payload);
    return PyLong_FromLong(result);
}

static PyObject *pair_records(Pair *self, long limit, int copied)
{
    PyObject *records = PyList_New(0);
    ring_view view;
    while (records && limit-- > 0) {
        int result = pair_look(self->ring, self->data, self->capacity, self->reading, &view);
        if (result == RING_NONE) break;
        PyObject *record = result == RING_DONE ? record_tuple(&view, copied) : corrupt();
        if (!record || PyList_Append(records, record) < 0) Py_CLEAR(records);
        else self->reading = view.end;
        Py_XDECREF(record);
    }
    return records;
}

static PyObject *pair_py_read(Pair *self, PyObject *limit) { return pair_records(self, PyLong_AsLong(limit), 1); }

static PyObject *pair_py_look(Pair *self, PyObject *limit) { return pair_records(self, PyLong_AsLong(limit), 0); }

static PyObject *pair_py_release(Pair *self, PyObject *Py_UNUSED(nothing))
{
    return PyLong_FromLong(pair_release(self->ring, self->capacity, self->reading));
}

/* Announce that we wait for data, and how; False if there is some after all. */
static PyObject *pair_py_want_data(Pair *self, PyObject *how)
{
    ring_view view;
    uint32_t waiting = (uint32_t)PyLong_AsUnsignedLong(how);
    if (PyErr_Occurred()) return NULL;
    atomic_store_explicit(&self->ring->consumer_waits, waiting, memory_order_seq_cst);
    int found = pair_look(self->ring, self->data, self->capacity, self->reading, &view) != RING_NONE;
    if (found || atomic_load_explicit(&self->ring->closed, memory_order_seq_cst)) {
        atomic_store_explicit(&self->ring->consumer_waits, RING_NOBODY, memory_order_relaxed);
        Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

/* The same for room: (bytes, how). */
static PyObject *pair_py_want_room(Pair *self, PyObject *const *arguments, Py_ssize_t count)
{
    long long length, how;
    if (two_numbers(arguments, count, &length, &how) < 0) return NULL;
    atomic_store_explicit(&self->ring->producer_waits, (uint32_t)how, memory_order_seq_cst);
    if (pair_has_room(self->ring, self->capacity, ring_size((uint64_t)length)) ||
        atomic_load_explicit(&self->ring->closed, memory_order_seq_cst)) {
        atomic_store_explicit(&self->ring->producer_waits, RING_NOBODY, memory_order_relaxed);
        Py_RETURN_FALSE;
    }
    slot_count(&self->ring->waits, 1);
    Py_RETURN_TRUE;
}

static PyObject *pair_py_sleep(Pair *self, PyObject *const *arguments, Py_ssize_t count)
{
    long long producer, timeout_ns;
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
    return Py_BuildValue("KKKKKKK", atomic_load(&ring->records), atomic_load(&ring->bytes), atomic_load(&ring->waits),
                         atomic_load(&ring->sleeps), 0ULL, atomic_load(&ring->high_water),
                         atomic_load(&ring->tail) - atomic_load(&ring->head));
}

static PyMethodDef pair_methods[] = {
    {"write", (PyCFunction)(void (*)(void))pair_py_write, METH_FASTCALL, "write(target, payload) -> result"},
    {"read", (PyCFunction)(void (*)(void))pair_py_read, METH_O, "read(limit) -> [(target, bytes), ...]"},
    {"look", (PyCFunction)(void (*)(void))pair_py_look, METH_O, "look(limit) -> [(target, memoryview), ...]"},
    {"release", (PyCFunction)(void (*)(void))pair_py_release, METH_NOARGS, "give back all that was read"},
    {"want_data", (PyCFunction)(void (*)(void))pair_py_want_data, METH_O, "want_data(how) -> whether to wait"},
    {"want_room", (PyCFunction)(void (*)(void))pair_py_want_room, METH_FASTCALL, "want_room(bytes, how)"},
    {"sleep", (PyCFunction)(void (*)(void))pair_py_sleep, METH_FASTCALL, "sleep(producer, timeout_ns)"},
    {"close", (PyCFunction)(void (*)(void))pair_py_close, METH_NOARGS, "close() -> whether a bell must be rung"},
    {"closed", (PyCFunction)(void (*)(void))pair_py_closed, METH_NOARGS, NULL},
    {"statistics", (PyCFunction)(void (*)(void))pair_py_statistics, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot pair_slots[] = {
    {Py_tp_new, pair_new}, {Py_tp_dealloc, pair_free}, {Py_tp_methods, pair_methods}, {0, NULL}};
static PyType_Spec pair_spec = {"tailrace.ring._ring.Pair", sizeof(Pair), 0, Py_TPFLAGS_DEFAULT, pair_slots};

/* -- many producers, many consumers */

static PyObject *shared_new(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    PyObject *object;
    unsigned long long owner;
    unsigned int window;
    if (!PyArg_ParseTuple(arguments, "OKI", &object, &owner, &window)) return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Shared *self = (Shared *)allocate(type, 0);
    if (!self) return NULL;
    if (map_memory(object, &self->memory, RING_SHARED, RING_SHARED_DATA) < 0) {
        self->memory.obj = NULL;
        Py_DECREF(self);
        return NULL;
    }
    ring_shared *ring = self->memory.buf;
    self->end = (ring_end){ring, (uint8_t *)(ring + 1), ring->segment.capacity, owner, RING_SLOTS, window};
    return (PyObject *)self;
}

static void shared_free(PyObject *self) { free_object(self, &((Shared *)self)->memory); }

static PyObject *shared_py_register(Shared *self, PyObject *Py_UNUSED(nothing))
{
    uint32_t slot = shared_register(self->end.ring, self->end.owner);
    if (slot == RING_SLOTS) Py_RETURN_FALSE;
    atomic_store_explicit(&self->end.ring->slots[slot].position, RING_NOWHERE, memory_order_seq_cst);
    self->end.slot = slot;
    Py_RETURN_TRUE;
}

static PyObject *shared_py_leave(Shared *self, PyObject *Py_UNUSED(nothing))
{
    if (self->end.slot < RING_SLOTS) {
        ring_slot *slot = &self->end.ring->slots[self->end.slot];
        atomic_store_explicit(&slot->position, RING_NOWHERE, memory_order_seq_cst);
        atomic_store_explicit(&slot->owner, 0, memory_order_seq_cst);
        self->end.slot = RING_SLOTS;
    }
    Py_RETURN_NONE;
}

static PyObject *not_registered(void)
{
    PyErr_SetString(PyExc_ValueError, "not registered");
    return NULL;
}

/* RING_DONE and a record to fill in, or why not. */
static int shared_begin(Shared *self, PyObject *target, uint64_t length, uint32_t flag, ring_record **record)
{
    unsigned long number = PyLong_AsUnsignedLong(target);
    if (PyErr_Occurred()) return RING_CORRUPT;
    if (length > ring_largest(self->end.capacity)) return RING_TOO_LARGE;
    if (atomic_load_explicit(&self->end.ring->closed, memory_order_acquire)) return RING_CLOSED;
    *record = shared_reserve(&self->end, (uint32_t)number | flag, (uint32_t)length);
    return *record ? RING_DONE : RING_NONE;
}

static PyObject *shared_py_write(Shared *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) return PyErr_Format(PyExc_TypeError, "write takes a target and a payload");
    if (self->end.slot == RING_SLOTS) return not_registered();
    Py_buffer payload;
    if (PyObject_GetBuffer(arguments[1], &payload, PyBUF_SIMPLE) < 0) return NULL;
    ring_record *record;
    int result = shared_begin(self, arguments[0], (uint64_t)payload.len, 0, &record);
    if (result == RING_DONE) {
        memcpy(record + 1, payload.buf, (size_t)payload.len / 2);
        RING_STEP(6);
        memcpy((uint8_t *)(record + 1) + payload.len / 2, (uint8_t *)payload.buf + payload.len / 2,
               (size_t)(payload.len - payload.len / 2));
        result = shared_publish(&self->end, record);
    }
    PyBuffer_Release(&payload);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(result);
}

/* All payloads in one record, each after its length. They must be bytes: nothing may fail once space is reserved. */
static PyObject *shared_py_write_batch(Shared *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2 || !PyList_Check(arguments[1]))
        return PyErr_Format(PyExc_TypeError, "write_batch takes a target and a list of bytes");
    if (self->end.slot == RING_SLOTS) return not_registered();
    Py_ssize_t tuples = PyList_Size(arguments[1]);
    uint64_t length = 0;
    for (Py_ssize_t index = 0; index < tuples; index++) {
        PyObject *payload = PyList_GetItem(arguments[1], index);
        if (!PyBytes_Check(payload)) return PyErr_Format(PyExc_TypeError, "a batch holds bytes");
        length += sizeof(uint32_t) + (uint64_t)PyBytes_Size(payload);
    }
    ring_record *record;
    int result = shared_begin(self, arguments[0], length, RING_BATCH, &record);
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
    return PyErr_Occurred() ? NULL : PyLong_FromLong(result);
}

static PyObject *shared_records(Shared *self, long limit, int copied)
{
    if (self->end.slot == RING_SLOTS) return not_registered();
    if (limit > BATCH_VIEWS - self->held) limit = BATCH_VIEWS - self->held;
    int found = 0;
    if (limit > 0 && shared_take_turn(&self->end)) {
        found = shared_look(&self->end, (int)limit, self->views + self->held);
        shared_end_turn(&self->end);
    }
    if (found == RING_CORRUPT) return corrupt();
    PyObject *records = PyList_New(found);
    for (int index = 0; records && index < found; index++) {
        PyObject *record = record_tuple(&self->views[self->held + index], copied);
        if (record) PyList_SetItem(records, index, record);
        else Py_CLEAR(records);
    }
    self->held += found; /* even on an error: they are ours, and go back with the next release */
    return records;
}

static PyObject *shared_py_read(Shared *self, PyObject *limit) { return shared_records(self, PyLong_AsLong(limit), 1); }

static PyObject *shared_py_look(Shared *self, PyObject *limit) { return shared_records(self, PyLong_AsLong(limit), 0); }

static int reclaim_now(Shared *self)
{
    if (!shared_take_turn(&self->end)) return RING_DONE; /* who has it, or the next one, will do it */
    int moved = shared_reclaim(&self->end);
    shared_end_turn(&self->end);
    return moved && ring_wake(&self->end.ring->producer_waits) ? RING_BELL : RING_DONE;
}

static PyObject *shared_py_release(Shared *self, PyObject *Py_UNUSED(nothing))
{
    for (int index = 0; index < self->held; index++) shared_finish(&self->views[index]);
    self->held = 0;
    return PyLong_FromLong(reclaim_now(self));
}

static PyObject *shared_py_want_data(Shared *self, PyObject *how)
{
    uint32_t waiting = (uint32_t)PyLong_AsUnsignedLong(how);
    if (PyErr_Occurred()) return NULL;
    if (self->end.slot == RING_SLOTS) return not_registered();
    atomic_store_explicit(&self->end.ring->consumer_waits, waiting, memory_order_seq_cst);
    if (!shared_take_turn(&self->end)) Py_RETURN_FALSE; /* cannot tell */
    int found = shared_look(&self->end, 1, NULL);
    int moved = shared_reclaim(&self->end);
    shared_end_turn(&self->end);
    if (moved) ring_wake(&self->end.ring->producer_waits);
    if (found == RING_CORRUPT) return corrupt();
    /* The announcement stays: it may be another's as well, and costs one wake-up too many at most. */
    return PyBool_FromLong(!found && !atomic_load_explicit(&self->end.ring->closed, memory_order_seq_cst));
}

static PyObject *shared_py_want_room(Shared *self, PyObject *const *arguments, Py_ssize_t count)
{
    long long length, how;
    if (two_numbers(arguments, count, &length, &how) < 0) return NULL;
    if (self->end.slot == RING_SLOTS) return not_registered();
    atomic_store_explicit(&self->end.ring->producer_waits, (uint32_t)how, memory_order_seq_cst);
    if (shared_has_room(&self->end, ring_size((uint64_t)length)) ||
        atomic_load_explicit(&self->end.ring->closed, memory_order_seq_cst))
        Py_RETURN_FALSE;
    slot_count(&self->end.ring->slots[self->end.slot].waits, 1);
    Py_RETURN_TRUE;
}

static PyObject *shared_py_sleep(Shared *self, PyObject *const *arguments, Py_ssize_t count)
{
    long long producer, timeout_ns;
    if (two_numbers(arguments, count, &producer, &timeout_ns) < 0) return NULL;
    if (!producer && self->end.slot < RING_SLOTS) slot_count(&self->end.ring->slots[self->end.slot].sleeps, 1);
    Py_BEGIN_ALLOW_THREADS
    ring_sleep(producer ? &self->end.ring->producer_waits : &self->end.ring->consumer_waits, timeout_ns);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* The owner of every slot, and whose turn it is: [owner, ...], turn. */
static PyObject *shared_py_owners(Shared *self, PyObject *Py_UNUSED(nothing))
{
    PyObject *owners = PyList_New(RING_SLOTS);
    for (uint32_t number = 0; owners && number < RING_SLOTS; number++) {
        uint64_t owner = atomic_load_explicit(&self->end.ring->slots[number].owner, memory_order_seq_cst);
        PyList_SetItem(owners, number, PyLong_FromUnsignedLongLong(owner));
    }
    uint64_t turn = atomic_load_explicit(&self->end.ring->turn, memory_order_seq_cst);
    return owners ? Py_BuildValue("NK", owners, turn) : NULL;
}

/* bury([dead owner, ...]) -> records given up; -1 if not all of it could be told yet. */
static PyObject *shared_py_bury(Shared *self, PyObject *dead)
{
    if (self->end.slot == RING_SLOTS) return not_registered();
    if (!PyList_Check(dead)) return PyErr_Format(PyExc_TypeError, "bury takes a list of owners");
    uint64_t owners[RING_SLOTS];
    Py_ssize_t count = PyList_Size(dead);
    if (count > RING_SLOTS) count = RING_SLOTS;
    for (Py_ssize_t index = 0; index < count; index++) {
        owners[index] = PyLong_AsUnsignedLongLong(PyList_GetItem(dead, index));
        if (PyErr_Occurred()) return NULL;
        uint64_t owner = owners[index]; /* its turn ends with it; the name of a process is never used again */
        atomic_compare_exchange_strong_explicit(
            &self->end.ring->turn, &owner, 0, memory_order_acq_rel, memory_order_relaxed);
    }
    if (!shared_take_turn(&self->end)) return PyLong_FromLong(-1);
    uint64_t buried = 0;
    for (uint32_t number = 0; number < RING_SLOTS; number++) { /* slots of the dead change hands only in a turn */
        uint64_t owner = atomic_load_explicit(&self->end.ring->slots[number].owner, memory_order_seq_cst);
        for (Py_ssize_t index = 0; index < count; index++)
            if (owner && owner == owners[index]) buried |= 1ULL << number;
    }
    int given_up = shared_bury(&self->end, buried);
    int moved = given_up != RING_CORRUPT && shared_reclaim(&self->end);
    shared_end_turn(&self->end);
    if (moved) ring_wake(&self->end.ring->producer_waits);
    return given_up == RING_CORRUPT ? corrupt() : PyLong_FromLong(given_up);
}

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
    uint64_t records = 0, bytes = 0, waits = 0, sleeps = 0, given_up = 0;
    for (uint32_t number = 0; number < RING_SLOTS; number++) {
        records += atomic_load(&ring->slots[number].records);
        bytes += atomic_load(&ring->slots[number].bytes);
        waits += atomic_load(&ring->slots[number].waits);
        sleeps += atomic_load(&ring->slots[number].sleeps);
        given_up += atomic_load(&ring->slots[number].given_up);
    }
    return Py_BuildValue("KKKKKKK", records, bytes, waits, sleeps, given_up, atomic_load(&ring->high_water),
                         atomic_load(&ring->tail) - atomic_load(&ring->head));
}

static PyMethodDef shared_methods[] = {
    {"register", (PyCFunction)(void (*)(void))shared_py_register, METH_NOARGS, "take a slot; False if all are taken"},
    {"leave", (PyCFunction)(void (*)(void))shared_py_leave, METH_NOARGS, "give the slot back"},
    {"write", (PyCFunction)(void (*)(void))shared_py_write, METH_FASTCALL, "write(target, payload) -> result"},
    {"write_batch", (PyCFunction)(void (*)(void))shared_py_write_batch, METH_FASTCALL, "write_batch(target, payloads)"},
    {"read", (PyCFunction)(void (*)(void))shared_py_read, METH_O, "read(limit) -> [(target, bytes), ...]"},
    {"look", (PyCFunction)(void (*)(void))shared_py_look, METH_O, "look(limit) -> [(target, memoryview), ...]"},
    {"release", (PyCFunction)(void (*)(void))shared_py_release, METH_NOARGS, "give back all that was read"},
    {"want_data", (PyCFunction)(void (*)(void))shared_py_want_data, METH_O, "want_data(how) -> whether to wait"},
    {"want_room", (PyCFunction)(void (*)(void))shared_py_want_room, METH_FASTCALL, "want_room(bytes, how)"},
    {"sleep", (PyCFunction)(void (*)(void))shared_py_sleep, METH_FASTCALL, "sleep(producer, timeout_ns)"},
    {"owners", (PyCFunction)(void (*)(void))shared_py_owners, METH_NOARGS, NULL},
    {"bury", (PyCFunction)(void (*)(void))shared_py_bury, METH_O, "bury(dead owners) -> records given up, or -1"},
    {"close", (PyCFunction)(void (*)(void))shared_py_close, METH_NOARGS, "close() -> whether a bell must be rung"},
    {"closed", (PyCFunction)(void (*)(void))shared_py_closed, METH_NOARGS, NULL},
    {"statistics", (PyCFunction)(void (*)(void))shared_py_statistics, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot shared_slots[] = {
    {Py_tp_new, shared_new}, {Py_tp_dealloc, shared_free}, {Py_tp_methods, shared_methods}, {0, NULL}};
static PyType_Spec shared_spec = {"tailrace.ring._ring.Shared", sizeof(Shared), 0, Py_TPFLAGS_DEFAULT, shared_slots};

/* -- the module */

/* Every offset and size, for layout.py to be compared with. */
static PyObject *layout(PyObject *module, PyObject *Py_UNUSED(nothing))
{
#define FIELD(type, field) #type "." #field, (int)offsetof(type, field)
    return Py_BuildValue(
        "{si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si,si}",
        FIELD(ring_segment, magic), FIELD(ring_segment, version), FIELD(ring_segment, kind),
        FIELD(ring_segment, capacity), FIELD(ring_segment, owner), FIELD(ring_segment, processes),
        FIELD(ring_segment, nonce), FIELD(ring_record, status), FIELD(ring_record, target),
        FIELD(ring_record, length), FIELD(ring_record, slot), FIELD(ring_pair, tail), FIELD(ring_pair, head),
        FIELD(ring_pair, consumer_waits), FIELD(ring_pair, producer_waits), FIELD(ring_pair, closed),
        FIELD(ring_shared, tail), FIELD(ring_shared, high_water), FIELD(ring_shared, head), FIELD(ring_shared, turn),
        FIELD(ring_shared, clearing), FIELD(ring_shared, consumer_waits), FIELD(ring_shared, producer_waits),
        FIELD(ring_shared, closed), FIELD(ring_shared, slots), FIELD(ring_slot, owner), FIELD(ring_slot, position),
        FIELD(ring_slot, length), "ring_segment", (int)sizeof(ring_segment), "ring_record", (int)sizeof(ring_record),
        "ring_slot", (int)sizeof(ring_slot), "ring_pair", (int)RING_PAIR_DATA, "ring_shared", (int)RING_SHARED_DATA,
        "slots", (int)RING_SLOTS);
#undef FIELD
}

#ifdef RING_STEPS
static PyObject *stop_at(PyObject *module, PyObject *step)
{
    ring_stop_at = (int)PyLong_AsLong(step);
    Py_RETURN_NONE;
}
#endif

static PyMethodDef methods[] = {
    {"layout", layout, METH_NOARGS, "offsets and sizes by name"},
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
