/* Many producers, many consumers: TurboStream's OSRBuffer, with what the paper leaves open.
 *
 * Producers hold no lock. One reserves space by moving the tail with compare-and-swap, writes a head (WRITING), then
 * the payload, and flips the head to READY. Consumers take turns: whose turn it is looks from the left edge to the
 * right, marks what it wants as TAKEN, clears what has been read at the left edge and moves the head. So everything
 * between head and tail that nobody has written to is zero, and a status of zero means: reserved, no head yet.
 *
 * The window. A look goes past records that are still being written, but not past more than `window` of them: one
 * slow producer holds up nobody until the ring is full behind it.
 *
 * The gap. Who reserves and dies before it has written a head leaves a gap of unknown length. A producer therefore
 * stores the reservation that it is about to try in its slot, and replaces it only after it has written a head. At a
 * gap, the winner's slot thus holds its reservation; so may slots of losers, who saw the same tail, with other
 * lengths. If all are proven dead, the winner's length is the smallest one at which something else begins: the tail,
 * a head, or a reservation. Nothing begins inside a reservation, as the tail has never been there. If one of them is
 * alive, it will write a head or try elsewhere, and we wait for it.
 *
 * Giving up. A record is given up only when its process is proven dead, which is the caller's to prove: one that is
 * merely stopped may wake up and write. The slot of the dead is free once nothing of it is left in the ring. */
#ifndef TAILRACE_RING_SHARED_H
#define TAILRACE_RING_SHARED_H

#include <sched.h>

#include "_pair.h"

#ifndef RING_STEP
#define RING_STEP(number) ((void)0) /* tests stop a process here */
#endif

#define RING_TRIES 64 /* for a turn, before we look after something else: it takes microseconds */

typedef struct {
    ring_shared *ring;
    uint8_t *data;
    uint64_t capacity;
    uint64_t owner;
    uint32_t slot;
    uint32_t window;
} ring_end;

/* -- slots */

/* NOWHERE in between keeps a reader from pairing the position of one reservation with the length of another. */
static inline void slot_store(ring_slot *slot, uint64_t position, uint64_t length)
{
    atomic_store_explicit(&slot->position, RING_NOWHERE, memory_order_seq_cst);
    atomic_store_explicit(&slot->length, length, memory_order_seq_cst);
    atomic_store_explicit(&slot->position, position, memory_order_seq_cst);
}

/* The length that a slot has for this position; 0 if it has none. */
static inline uint64_t slot_length(ring_slot *slot, uint64_t position)
{
    if (atomic_load_explicit(&slot->position, memory_order_seq_cst) != position) return 0;
    uint64_t length = atomic_load_explicit(&slot->length, memory_order_seq_cst);
    return atomic_load_explicit(&slot->position, memory_order_seq_cst) == position ? length : 0;
}

/* Only its owner counts in a slot. */
static inline void slot_count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more, memory_order_relaxed);
}

/* A free slot's number, now ours; RING_SLOTS if there is none. */
static inline uint32_t shared_register(ring_shared *ring, uint64_t owner)
{
    for (uint32_t number = 0; number < RING_SLOTS; number++) {
        uint64_t nobody = 0;
        /* One word says who it is: a process that dies right here leaves a slot that can be told to be dead. */
        if (atomic_compare_exchange_strong_explicit(
                &ring->slots[number].owner, &nobody, owner, memory_order_seq_cst, memory_order_seq_cst))
            return number;
    }
    return RING_SLOTS;
}

/* -- producing */

static inline int shared_has_room(ring_end *end, uint64_t size)
{
    uint64_t tail = atomic_load_explicit(&end->ring->tail, memory_order_seq_cst);
    /* seq_cst: after producer_waits was announced. Acquire is part of it: what is below has been cleared. */
    uint64_t head = atomic_load_explicit(&end->ring->head, memory_order_seq_cst);
    return tail + ring_skip(end->capacity, tail, size) + size - head <= end->capacity;
}

/* Reserve, and write a head that says WRITING, or FLUSH if the rest before the end is too small: then try again. */
static inline ring_record *shared_reserve(ring_end *end, uint32_t target, uint32_t length)
{
    ring_shared *ring = end->ring;
    uint64_t size = ring_size(length);
    for (;;) {
        /* Acquire: whoever moved the tail here stored its reservation before. */
        uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
        uint64_t skip = ring_skip(end->capacity, tail, size);
        uint64_t all = skip ? skip : size;
        uint64_t held = tail + all - atomic_load_explicit(&ring->head, memory_order_acquire);
        /* A tail that has moved meanwhile may lie below the head; then the subtraction wraps, and we look again. */
        if (held > end->capacity) {
            if (atomic_load_explicit(&ring->tail, memory_order_acquire) != tail) continue;
            /* A reservation that we lost must not lie about: it would keep a gap from being told. */
            atomic_store_explicit(&ring->slots[end->slot].position, RING_NOWHERE, memory_order_seq_cst);
            return NULL;
        }
        RING_STEP(1);
        slot_store(&ring->slots[end->slot], tail, all);
        RING_STEP(2);
        /* seq_cst, and with it release: who sees the tail moved finds our reservation in our slot. */
        if (!atomic_compare_exchange_strong_explicit(
                &ring->tail, &tail, tail + all, memory_order_seq_cst, memory_order_relaxed))
            continue;
        RING_STEP(3);
        if (held > atomic_load_explicit(&ring->high_water, memory_order_relaxed)) /* about: two may race, no harm */
            atomic_store_explicit(&ring->high_water, held, memory_order_relaxed);
        ring_record *record = ring_at(end->data, end->capacity, tail);
        atomic_store_explicit(&record->target, target, memory_order_relaxed);
        atomic_store_explicit(
            &record->length, skip ? (uint32_t)(skip - sizeof(ring_record)) : length, memory_order_relaxed);
        atomic_store_explicit(&record->slot, end->slot, memory_order_relaxed);
        RING_STEP(4);
        /* Release: length and slot are there when the status is. */
        atomic_store_explicit(&record->status, skip ? RING_FLUSH : RING_WRITING, memory_order_release);
        RING_STEP(5);
        if (!skip) return record;
    }
}

/* The payload is whole: show it. RING_BELL if a consumer waits for a bell. */
static inline int shared_publish(ring_end *end, ring_record *record)
{
    RING_STEP(7);
    slot_count(&end->ring->slots[end->slot].records, 1);
    slot_count(
        &end->ring->slots[end->slot].bytes, atomic_load_explicit(&record->length, memory_order_relaxed));
    /* seq_cst: releases the payload, and comes before the look at consumer_waits. */
    atomic_store_explicit(&record->status, RING_READY, memory_order_seq_cst);
    RING_STEP(8);
    return ring_wake(&end->ring->consumer_waits) ? RING_BELL : RING_DONE;
}

/* -- consuming */

static inline void shared_move_head(ring_end *end, uint64_t from, uint64_t to)
{
    /* Someone who dies while clearing leaves zeros that look like a gap: whoever has the next turn must know. */
    atomic_store_explicit(&end->ring->clearing, to, memory_order_seq_cst);
    RING_STEP(11);
    uint64_t begin = from & (end->capacity - 1), size = to - from;
    uint64_t first = size < end->capacity - begin ? size : end->capacity - begin;
    memset(end->data + begin, 0, first);
    RING_STEP(12);
    memset(end->data, 0, size - first);
    /* seq_cst: releases the zeros, and comes before the look at producer_waits. */
    atomic_store_explicit(&end->ring->head, to, memory_order_seq_cst);
}

static inline int shared_take_turn(ring_end *end)
{
    for (int attempt = 0; attempt < RING_TRIES; attempt++) {
        uint64_t nobody = 0;
        /* Acquire: all that the last one did at the left edge. */
        if (atomic_compare_exchange_strong_explicit(
                &end->ring->turn, &nobody, end->owner, memory_order_acquire, memory_order_relaxed)) {
            uint64_t head = atomic_load_explicit(&end->ring->head, memory_order_relaxed);
            uint64_t clearing = atomic_load_explicit(&end->ring->clearing, memory_order_relaxed);
            if (clearing != head) shared_move_head(end, head, clearing);
            return 1;
        }
        sched_yield();
    }
    return 0;
}

static inline void shared_end_turn(ring_end *end)
{
    RING_STEP(13);
    atomic_store_explicit(&end->ring->turn, 0, memory_order_release);
}

/* The size of a gap, and in `dead` whether its producer is; 0 while it cannot be told. `buried` has a bit for every
 * slot that is proven dead. The order of the reads matters: whoever moved the tail on had stored its reservation
 * before, and has written a head before it stores another one. */
static inline uint64_t shared_gap(ring_end *end, uint64_t position, uint64_t buried, int *dead)
{
    ring_slot *slots = end->ring->slots;
    uint64_t tail = atomic_load_explicit(&end->ring->tail, memory_order_seq_cst);
    uint64_t lengths[RING_SLOTS], found = 0, dead_ones = 0;
    int same = 1;
    for (uint32_t number = 0; number < RING_SLOTS; number++) {
        uint64_t length = slot_length(&slots[number], position);
        if (!length) continue;
        dead_ones += (buried >> number) & 1;
        lengths[found++] = length;
        same = same && length == lengths[0];
    }
    ring_record *record = ring_at(end->data, end->capacity, position);
    /* Still no head: so the winner was among those that we found. */
    if (!found || atomic_load_explicit(&record->status, memory_order_seq_cst) != RING_EMPTY) return 0;
    *dead = dead_ones == found;
    if (same && (*dead || dead_ones == 0)) return lengths[0];
    if (!*dead) return 0;
    uint64_t smallest = 0;
    for (uint64_t index = 0; index < found; index++) {
        uint64_t next = position + lengths[index];
        int begins = next == tail;
        for (uint32_t number = 0; number < RING_SLOTS && !begins && next < tail; number++)
            begins = slot_length(&slots[number], next) != 0;
        if (!begins && next < tail)
            begins = atomic_load_explicit(&ring_at(end->data, end->capacity, next)->status, memory_order_acquire) != 0;
        if (begins && (!smallest || lengths[index] < smallest)) smallest = lengths[index];
    }
    return smallest;
}

/* The record at a position: its status, and its size or 0 if that cannot be told yet. RING_CORRUPT if it makes no
 * sense. `dead` tells of a gap only. */
static inline int shared_inspect(
    ring_end *end, uint64_t position, uint64_t tail, uint64_t buried, uint32_t *status, uint64_t *size, int *dead)
{
    ring_record *record = ring_at(end->data, end->capacity, position);
    /* Acquire: pairs with the release of whoever wrote this status. */
    *status = atomic_load_explicit(&record->status, memory_order_acquire);
    uint32_t word = *status & RING_STATUS_MASK;
    if (word > RING_GIVEN_UP) return RING_CORRUPT;
    if (word == RING_EMPTY) {
        *size = shared_gap(end, position, buried, dead);
        if (!*size) return RING_DONE;
    } else {
        *size = ring_size(atomic_load_explicit(&record->length, memory_order_relaxed));
    }
    uint64_t left = end->capacity - (position & (end->capacity - 1));
    return *size > left || position + *size > tail ? RING_CORRUPT : RING_DONE;
}

/* Move the head past all that is done with. Must have the turn. True if it moved. */
static inline int shared_reclaim(ring_end *end)
{
    uint64_t head = atomic_load_explicit(&end->ring->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&end->ring->tail, memory_order_acquire);
    uint64_t position = head;
    while (position < tail) {
        ring_record *record = ring_at(end->data, end->capacity, position);
        uint32_t status = atomic_load_explicit(&record->status, memory_order_acquire);
        if (status != RING_HAS_READ && status != RING_FLUSH && status != RING_GIVEN_UP) break;
        position += ring_size(atomic_load_explicit(&record->length, memory_order_relaxed));
    }
    if (position == head) return 0;
    shared_move_head(end, head, position);
    return 1;
}

/* Take up to `limit` records that are ready; with no `views`, only say whether there is one. The number of them, or
 * RING_CORRUPT. Must have the turn. */
static inline int shared_look(ring_end *end, int limit, ring_view *views)
{
    uint64_t position = atomic_load_explicit(&end->ring->head, memory_order_relaxed);
    /* seq_cst: after consumer_waits was announced. */
    uint64_t tail = atomic_load_explicit(&end->ring->tail, memory_order_seq_cst);
    uint32_t unfinished = 0;
    int found = 0;
    while (position < tail && found < limit && unfinished <= end->window) {
        uint32_t status;
        uint64_t size;
        int dead;
        if (shared_inspect(end, position, tail, 0, &status, &size, &dead) == RING_CORRUPT) return RING_CORRUPT;
        if (!size) break;
        if (status == RING_READY) {
            if (!views) return 1;
            ring_record *record = ring_at(end->data, end->capacity, position);
            RING_STEP(9);
            /* Relaxed: nobody else touches a record that is ready while we have the turn. */
            atomic_store_explicit(&record->status, RING_TAKEN | end->slot << RING_SLOT_SHIFT, memory_order_relaxed);
            views[found].target = atomic_load_explicit(&record->target, memory_order_relaxed);
            views[found].length = atomic_load_explicit(&record->length, memory_order_relaxed);
            views[found].payload = (const uint8_t *)(record + 1);
            views[found++].end = position + size;
        } else if (status == RING_WRITING || status == RING_EMPTY) {
            unfinished++;
        }
        position += size;
    }
    return found;
}

/* This record has been read. */
static inline void shared_finish(ring_view *view)
{
    RING_STEP(10);
    ring_record *record = (ring_record *)view->payload - 1;
    /* Release: our reading is over when someone clears it. */
    atomic_store_explicit(&record->status, RING_HAS_READ, memory_order_release);
}

/* Give up what the dead in `buried` were writing or reading, and free their slots. The number of records given up,
 * or -1 if some must wait for a living process, RING_CORRUPT. Must have the turn. */
static inline int shared_bury(ring_end *end, uint64_t buried)
{
    ring_shared *ring = end->ring;
    uint64_t position = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_seq_cst);
    int given_up = 0;
    while (position < tail) {
        uint32_t status;
        uint64_t size;
        int dead = 0;
        if (shared_inspect(end, position, tail, buried, &status, &size, &dead) == RING_CORRUPT) return RING_CORRUPT;
        if (!size) break;
        ring_record *record = ring_at(end->data, end->capacity, position);
        uint32_t slot = (status & RING_STATUS_MASK) == RING_TAKEN
                            ? status >> RING_SLOT_SHIFT
                            : atomic_load_explicit(&record->slot, memory_order_relaxed);
        int held = status == RING_WRITING || (status & RING_STATUS_MASK) == RING_TAKEN;
        if (status == RING_EMPTY ? dead : held && slot < RING_SLOTS && (buried >> slot) & 1) {
            atomic_store_explicit(&record->length, (uint32_t)(size - sizeof(ring_record)), memory_order_relaxed);
            atomic_store_explicit(&record->status, RING_GIVEN_UP, memory_order_release);
            given_up++;
        }
        position += size;
    }
    slot_count(&ring->slots[end->slot].given_up, (uint64_t)given_up);
    if (position < tail) return -1;
    for (uint32_t number = 0; number < RING_SLOTS; number++)
        if ((buried >> number) & 1) {
            atomic_store_explicit(&ring->slots[number].position, RING_NOWHERE, memory_order_seq_cst);
            atomic_store_explicit(&ring->slots[number].owner, 0, memory_order_seq_cst);
        }
    return given_up;
}

#endif
