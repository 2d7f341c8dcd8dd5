/* Many producers, many consumers: TurboStream's OSRBuffer, with solutions to what the paper leaves open.
 *
 * Producers hold no lock. A producer reserves space by moving the tail with compare-and-swap, writes a head (WRITING)
 * and the payload, and sets the head to READY. Consumers take turns. The consumer that has the turn scans from the head
 * towards the tail, marks the records that it takes as TAKEN, zeroes those at the head that have been read, and moves
 * the head past them. Space between head and tail that has not been written to is therefore zero, and a status of zero
 * means: reserved, no head yet.
 *
 * The window. A scan skips records that are still being written, but at most `window` of them: a slow producer does not
 * hold up the others until the ring is full behind it.
 *
 * The gap. A producer that reserves and dies before it has written a head leaves a gap of unknown length. Each producer
 * therefore stores the reservation that it is about to try in its slot, and replaces it only after it has written a
 * head. At a gap, the slot of the producer that won it holds its reservation. Slots of producers that lost the race for
 * the same tail may hold reservations at the same position with other lengths. If all of them are proven dead, the
 * length of the winner is the smallest one at which something else begins: the tail, a head, or a reservation. Nothing
 * begins inside a reservation, because the tail was never there. If one of them is alive, it will write a head or try
 * elsewhere, and consumers wait for it: two producers that are stopped at one gap with different lengths hold up the
 * readers until one of them continues or both are dead.
 *
 * Giving up. A record is given up only if its process is proven dead, and the caller provides the proof: a process that
 * is merely stopped may continue to write. The slot of a dead process is freed once none of its records are left. The
 * turn of a dead process is inherited, together with the clearing that it had begun. */
#ifndef TAILRACE_RING_SHARED_H
#define TAILRACE_RING_SHARED_H

#include <sched.h>

#include "_pair.h"

#define RING_TRIES 64 /* attempts to get the turn, which is held for microseconds, before returning to the caller */

typedef struct {
    ring_shared *ring;
    uint8_t *data;
    uint64_t capacity;
    uint64_t owner;
    uint32_t slot;
    uint32_t window;
} ring_end;

/* -- slots */

/* NOWHERE in between keeps a reader from combining the position of one reservation with the length of another. */
static inline void slot_store(ring_slot *slot, uint64_t position, uint64_t length)
{
    atomic_store_explicit(&slot->position, RING_NOWHERE, memory_order_seq_cst);
    atomic_store_explicit(&slot->length, length, memory_order_seq_cst);
    atomic_store_explicit(&slot->position, position, memory_order_seq_cst);
}

/* The length that a slot has announced for this position; 0 if it has none. */
static inline uint64_t slot_length(ring_slot *slot, uint64_t position)
{
    if (atomic_load_explicit(&slot->position, memory_order_seq_cst) != position) return 0;
    uint64_t length = atomic_load_explicit(&slot->length, memory_order_seq_cst);
    return atomic_load_explicit(&slot->position, memory_order_seq_cst) == position ? length : 0;
}

/* Relaxed, and not an atomic addition: only one process counts here at a time. */
static inline void slot_count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more, memory_order_relaxed);
}

/* Claim a free slot. Returns its number, or RING_SLOTS if there is none. */
static inline uint32_t shared_register(ring_shared *ring, uint64_t owner)
{
    for (uint32_t number = 0; number < RING_SLOTS; number++) {
        uint64_t unclaimed = 0;
        /* A single word identifies the owner: even a process that dies right here can be recognised as dead. */
        if (atomic_compare_exchange_strong_explicit(
                &ring->slots[number].owner, &unclaimed, owner, memory_order_seq_cst, memory_order_seq_cst))
            return number;
    }
    return RING_SLOTS;
}

/* Free a slot whose owner has no write or read in progress, or is dead and has no records left. */
static inline void shared_leave(ring_shared *ring, uint32_t number)
{
    atomic_store_explicit(&ring->slots[number].position, RING_NOWHERE, memory_order_seq_cst);
    /* seq_cst, which includes release: the next owner of the slot finds the position cleared. */
    atomic_store_explicit(&ring->slots[number].owner, 0, memory_order_seq_cst);
}

/* -- producing */

static inline int shared_has_room(ring_end *end, uint64_t size)
{
    /* The head is read first: a tail that is read later is never below it. seq_cst: ordered after the announcement in
     * producer_waits, so that a consumer that moves the head after this read wakes the producer. */
    uint64_t head = atomic_load_explicit(&end->ring->head, memory_order_seq_cst);
    uint64_t tail = atomic_load_explicit(&end->ring->tail, memory_order_seq_cst);
    return tail + ring_skip(end->capacity, tail, size) + size - head <= end->capacity;
}

/* Reserve, and write a head that says WRITING, or FLUSH if the rest before the end is too small: then try again.
 * RING_DONE and the record, or RING_NONE, RING_CLOSED, RING_CORRUPT. */
static inline int shared_reserve(ring_end *end, uint32_t target, uint32_t length, ring_record **reserved)
{
    ring_shared *ring = end->ring;
    uint64_t size = ring_size(length);
    for (;;) {
        /* Acquire: everything below the head has been cleared. Read before the tail: see shared_has_room. */
        uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
        /* Acquire: the process that moved the tail here had stored its reservation before. */
        uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
        if (ring_nonsense(end->capacity, head, tail)) {
            if (atomic_load_explicit(&ring->head, memory_order_acquire) != head) continue; /* both have moved on */
            return RING_CORRUPT;
        }
        uint64_t skip = ring_skip(end->capacity, tail, size);
        uint64_t all = skip ? skip : size;
        uint64_t held = tail + all - head;
        if (held > end->capacity) {
            /* A lost reservation must be removed: it would make the length of a gap ambiguous. */
            atomic_store_explicit(&ring->slots[end->slot].position, RING_NOWHERE, memory_order_seq_cst);
            return RING_NONE;
        }
        RING_STEP(1);
        slot_store(&ring->slots[end->slot], tail, all);
        RING_STEP(2);
        /* seq_cst, which includes release: a process that sees the new tail finds this reservation in the slot. */
        if (!atomic_compare_exchange_strong_explicit(
                &ring->tail, &tail, tail + all, memory_order_seq_cst, memory_order_relaxed))
            continue;
        RING_STEP(3);
        if (held > atomic_load_explicit(&ring->high_water, memory_order_relaxed)) /* approximate: a race is harmless */
            atomic_store_explicit(&ring->high_water, held, memory_order_relaxed);
        ring_record *record = ring_at(end->data, end->capacity, tail);
        /* Relaxed: no process reads these before the status. */
        atomic_store_explicit(&record->target, target, memory_order_relaxed);
        atomic_store_explicit(
            &record->length, skip ? (uint32_t)(skip - sizeof(ring_record)) : length, memory_order_relaxed);
        atomic_store_explicit(&record->slot, end->slot, memory_order_relaxed);
        RING_STEP(4);
        /* Release: length and slot are visible when the status is. */
        atomic_store_explicit(&record->status, skip ? RING_FLUSH : RING_WRITING, memory_order_release);
        RING_STEP(5);
        if (skip) continue;
        /* seq_cst, like the move of the tail: either this producer sees that the ring is closed, or a consumer that
         * has seen it closed also sees this reservation, and waits for it. */
        if (atomic_load_explicit(&ring->closed, memory_order_seq_cst)) {
            atomic_store_explicit(&record->status, RING_HAS_READ, memory_order_release); /* not to be read */
            return RING_CLOSED;
        }
        *reserved = record;
        return RING_DONE;
    }
}

/* Publish a record whose payload is complete. RING_BELL if a consumer waits for a bell. */
static inline int shared_publish(ring_end *end, ring_record *record)
{
    RING_STEP(7);
    slot_count(&end->ring->slots[end->slot].records, 1);
    slot_count(
        &end->ring->slots[end->slot].bytes, atomic_load_explicit(&record->length, memory_order_relaxed));
    /* seq_cst: releases the payload, and is ordered before the read of consumer_waits. */
    atomic_store_explicit(&record->status, RING_READY, memory_order_seq_cst);
    RING_STEP(8);
    int bell = ring_wake(&end->ring->consumer_waits);
    /* seq_cst: not read before the record is visible; see shared_prepare_sleep. */
    return bell || atomic_load_explicit(&end->ring->sleepers, memory_order_seq_cst) ? RING_BELL : RING_DONE;
}

/* -- consuming */

static inline void shared_move_head(ring_end *end, uint64_t from, uint64_t to)
{
    /* A process that dies while clearing leaves zeros that look like a gap: the next turn must know how far it was. */
    atomic_store_explicit(&end->ring->clearing, to, memory_order_seq_cst);
    RING_STEP(11);
    uint64_t begin = from & (end->capacity - 1), size = to - from;
    uint64_t first = size < end->capacity - begin ? size : end->capacity - begin;
    memset(end->data + begin, 0, first);
    RING_STEP(12);
    memset(end->data, 0, size - first);
    /* seq_cst: releases the zeros, and is ordered before the read of producer_waits. */
    atomic_store_explicit(&end->ring->head, to, memory_order_seq_cst);
}

static inline int shared_take_turn(ring_end *end)
{
    for (int attempt = 0; attempt < RING_TRIES; attempt++) {
        uint64_t unclaimed = 0;
        /* Acquire: everything that the previous holder of the turn did at the head. */
        if (atomic_compare_exchange_strong_explicit(
                &end->ring->turn, &unclaimed, end->owner, memory_order_acquire, memory_order_relaxed))
            return 1;
        sched_yield();
    }
    return 0;
}

/* Take over the turn of a dead process, if it has it, and finish its clearing. RING_DONE if this process now has the
 * turn; otherwise RING_NONE or RING_CORRUPT. An owner (pid and start time) is never reused, so no living process loses
 * its turn. */
static inline int shared_inherit_turn(ring_end *end, uint64_t dead)
{
    /* Acquire: everything done in earlier turns. The stores of the dead process are visible because it is dead. */
    if (!atomic_compare_exchange_strong_explicit(
            &end->ring->turn, &dead, end->owner, memory_order_acquire, memory_order_relaxed))
        return RING_NONE;
    uint64_t head = atomic_load_explicit(&end->ring->head, memory_order_relaxed);
    uint64_t clearing = atomic_load_explicit(&end->ring->clearing, memory_order_relaxed);
    if (ring_nonsense(end->capacity, head, clearing)) return RING_CORRUPT;
    if (clearing != head) shared_move_head(end, head, clearing);
    return RING_DONE;
}

static inline void shared_end_turn(ring_end *end)
{
    RING_STEP(13);
    /* Release: everything done at the head, for the next turn. */
    atomic_store_explicit(&end->ring->turn, 0, memory_order_release);
}

/* Whether a reservation begins at a position: it is the tail, or a slot has announced it, or it has a head. The order
 * of the reads matters: a slot drops its announcement only after the head has been written. */
static inline int shared_begins(ring_end *end, uint64_t position, uint64_t tail)
{
    if (position >= tail || position & (RING_UNIT - 1)) return position == tail;
    for (uint32_t number = 0; number < RING_SLOTS; number++)
        if (slot_length(&end->ring->slots[number], position)) return 1;
    ring_record *record = ring_at(end->data, end->capacity, position);
    return atomic_load_explicit(&record->status, memory_order_acquire) != RING_EMPTY;
}

/* The size of a gap, and in `dead` whether its producer is dead; 0 while the size is unknown. `buried` has a bit for
 * each slot that is proven dead. The order of the reads matters: the process that moved the tail had stored its
 * reservation before, and writes a head before it stores another one. */
static inline uint64_t shared_gap(ring_end *end, uint64_t position, uint64_t buried, int *dead)
{
    uint64_t tail = atomic_load_explicit(&end->ring->tail, memory_order_seq_cst);
    uint64_t lengths[RING_SLOTS], found = 0, dead_ones = 0;
    int same = 1;
    for (uint32_t number = 0; number < RING_SLOTS; number++) {
        uint64_t length = slot_length(&end->ring->slots[number], position);
        if (!length) continue;
        dead_ones += (buried >> number) & 1;
        lengths[found++] = length;
        same = same && length == lengths[0];
    }
    ring_record *record = ring_at(end->data, end->capacity, position);
    /* Still no head, so the winner was among the slots found. */
    if (!found || atomic_load_explicit(&record->status, memory_order_seq_cst) != RING_EMPTY) return 0;
    *dead = dead_ones == found;
    if (same && (*dead || dead_ones == 0)) return lengths[0];
    if (!*dead) return 0;
    /* Shortest first: the first one that ends where something begins is the winner's, and nothing beyond it is read. */
    for (uint64_t tried = 0;;) {
        uint64_t length = RING_NOWHERE;
        for (uint64_t index = 0; index < found; index++)
            if (lengths[index] > tried && lengths[index] < length) length = lengths[index];
        if (length == RING_NOWHERE) return 0;
        if (shared_begins(end, position + length, tail)) return length;
        tried = length;
    }
}

/* Whether a size is possible at a position: a multiple of the unit that exceeds neither the data nor the tail. */
static inline int shared_fits(ring_end *end, uint64_t position, uint64_t size, uint64_t tail)
{
    return !(size & (RING_UNIT - 1)) && size <= end->capacity - (position & (end->capacity - 1)) &&
           size <= tail - position;
}

/* The record at a position: its status, and its size, which is 0 if it is not known yet. RING_CORRUPT if it is invalid.
 * `dead` is set only at a gap. */
static inline int shared_inspect(
    ring_end *end, uint64_t position, uint64_t tail, uint64_t buried, uint32_t *status, uint64_t *size, int *dead)
{
    ring_record *record = ring_at(end->data, end->capacity, position);
    for (;;) {
        /* seq_cst: ordered after the announcement in consumer_waits. Includes acquire, which pairs with the release of
         * the process that wrote this status. */
        *status = atomic_load_explicit(&record->status, memory_order_seq_cst);
        if (*status != RING_EMPTY) break;
        *size = shared_gap(end, position, buried, dead);
        if (*size) return shared_fits(end, position, *size, tail) ? RING_DONE : RING_CORRUPT;
        /* Do not stop at a head that was written just now: records behind it may be ready. */
        if (atomic_load_explicit(&record->status, memory_order_seq_cst) == RING_EMPTY) return RING_DONE;
    }
    uint32_t word = *status & RING_STATUS_MASK;
    if (word > RING_GIVEN_UP || (word != RING_TAKEN && word != *status)) return RING_CORRUPT;
    *size = ring_size(atomic_load_explicit(&record->length, memory_order_relaxed));
    return shared_fits(end, position, *size, tail) ? RING_DONE : RING_CORRUPT;
}

/* Move the head past all records that are done. RING_DONE if it moved, or RING_NONE, RING_CORRUPT. Needs the turn. */
static inline int shared_reclaim(ring_end *end)
{
    uint64_t head = atomic_load_explicit(&end->ring->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&end->ring->tail, memory_order_acquire);
    if (ring_nonsense(end->capacity, head, tail)) return RING_CORRUPT;
    uint64_t position = head;
    while (position < tail) {
        ring_record *record = ring_at(end->data, end->capacity, position);
        /* Acquire: its reader has finished before it is cleared. */
        uint32_t status = atomic_load_explicit(&record->status, memory_order_acquire);
        if (status != RING_HAS_READ && status != RING_FLUSH && status != RING_GIVEN_UP) break;
        uint64_t size = ring_size(atomic_load_explicit(&record->length, memory_order_relaxed));
        if (!shared_fits(end, position, size, tail)) return RING_CORRUPT;
        position += size;
    }
    if (position == head) return RING_NONE;
    shared_move_head(end, head, position);
    return RING_DONE;
}

/* Take up to `limit` records that are ready; without `views`, only check whether there is one. Returns their number, or
 * RING_CORRUPT. Needs the turn. */
static inline int shared_look(ring_end *end, int limit, ring_view *views)
{
    uint64_t position = atomic_load_explicit(&end->ring->head, memory_order_relaxed);
    /* seq_cst: after consumer_waits was announced. */
    uint64_t tail = atomic_load_explicit(&end->ring->tail, memory_order_seq_cst);
    if (ring_nonsense(end->capacity, position, tail)) return RING_CORRUPT;
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
            /* Relaxed: only the holder of the turn changes a record that is ready. */
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

/* Mark a record as read. */
static inline void shared_finish(ring_view *view)
{
    RING_STEP(10);
    ring_record *record = (ring_record *)view->payload - 1;
    /* Release: reading is over before the record is cleared. */
    atomic_store_explicit(&record->status, RING_HAS_READ, memory_order_release);
}

/* Return these records, and wake producers that wait for room. RING_BELL if one wants a bell. */
static inline int shared_release(ring_end *end, ring_view *views, int count)
{
    for (int index = 0; index < count; index++) shared_finish(&views[index]);
    if (!shared_take_turn(end)) return RING_DONE; /* the holder of the turn, or the next one, clears them */
    int moved = shared_reclaim(end);
    shared_end_turn(end);
    if (moved == RING_CORRUPT) return RING_CORRUPT;
    return moved == RING_DONE && ring_wake(&end->ring->producer_waits) ? RING_BELL : RING_DONE;
}

/* Announce that this end waits for data, and how. RING_NONE if it may sleep; RING_DONE if there is data, or the ring is
 * closed and empty, or another process has the turn; or RING_CORRUPT. `bell` is set if a producer that waits for room
 * wants a bell. */
static inline int shared_want_data(ring_end *end, uint32_t how, int *bell)
{
    ring_shared *ring = end->ring;
    /* The announcement stays: other ends may share it, and it costs one unneeded wake-up at most. */
    ring_announce(&ring->consumer_waits, how);
    if (!shared_take_turn(end)) return RING_DONE;
    int found = shared_look(end, 1, NULL);
    int moved = shared_reclaim(end);
    /* seq_cst: closed before the tail, see shared_reserve. */
    int drained = atomic_load_explicit(&ring->closed, memory_order_seq_cst) &&
                  atomic_load_explicit(&ring->tail, memory_order_seq_cst) ==
                      atomic_load_explicit(&ring->head, memory_order_relaxed);
    shared_end_turn(end);
    if (found == RING_CORRUPT || moved == RING_CORRUPT) return RING_CORRUPT;
    if (moved == RING_DONE) *bell |= ring_wake(&ring->producer_waits);
    return found || drained ? RING_DONE : RING_NONE;
}

/* -- sleeping: many consumers sleep on one bell, which wakes one of them. The first record would clear an announcement,
 * and the consumer that is woken would have to renew it for the others. A counter of sleepers avoids that. */

/* Returns 1 if this consumer may sleep, and counts it as sleeping. Returns 0 if there is something to draw, or if that
 * is unknown. */
static inline int shared_prepare_sleep(ring_end *end)
{
    /* seq_cst: ordered before the look. Either a producer sees the count, or this consumer sees its record. */
    atomic_fetch_add_explicit(&end->ring->sleepers, 1, memory_order_seq_cst);
    int found = RING_DONE;
    if (shared_take_turn(end)) {
        found = shared_look(end, 1, NULL);
        shared_end_turn(end);
    }
    if (!found) return 1;
    atomic_fetch_sub_explicit(&end->ring->sleepers, 1, memory_order_relaxed);
    return found == RING_CORRUPT ? RING_CORRUPT : 0;
}

/* This consumer no longer sleeps. */
static inline void shared_awake(ring_end *end)
{
    atomic_fetch_sub_explicit(&end->ring->sleepers, 1, memory_order_relaxed); /* the worst outcome is an unneeded bell */
}

/* Take the next record and pass it to `copy`. RING_DONE if there was one, RING_BELL if there is another one for a
 * sleeping consumer; otherwise RING_NONE or RING_CORRUPT. Needs the turn. */
static inline int shared_draw(ring_end *end, void (*copy)(void *, const ring_view *), void *to)
{
    ring_view view;
    int found = shared_look(end, 1, &view);
    if (found != 1) return found == RING_CORRUPT ? RING_CORRUPT : RING_NONE;
    copy(to, &view);
    shared_finish(&view);
    int moved = shared_reclaim(end);
    if (moved == RING_CORRUPT) return RING_CORRUPT;
    if (moved == RING_DONE) ring_wake(&end->ring->producer_waits);
    if (!atomic_load_explicit(&end->ring->sleepers, memory_order_seq_cst)) return RING_DONE;
    found = shared_look(end, 1, NULL);
    return found == RING_CORRUPT ? RING_CORRUPT : found ? RING_BELL : RING_DONE;
}

/* Give up the records that the dead processes in `buried` were writing or reading, and free their slots, unless a gap
 * must wait for a living process first. Returns the number of records given up, or RING_CORRUPT. Needs the turn. */
static inline int shared_give_up(ring_end *end, uint64_t buried)
{
    ring_shared *ring = end->ring;
    uint64_t position = atomic_load_explicit(&ring->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_seq_cst);
    if (ring_nonsense(end->capacity, position, tail)) return RING_CORRUPT;
    int given_up = 0;
    while (position < tail) {
        uint32_t status;
        uint64_t size;
        int dead = 0;
        if (shared_inspect(end, position, tail, buried, &status, &size, &dead) == RING_CORRUPT) return RING_CORRUPT;
        if (!size) break;
        ring_record *record = ring_at(end->data, end->capacity, position);
        int taken = (status & RING_STATUS_MASK) == RING_TAKEN;
        uint32_t slot = taken ? status >> RING_SLOT_SHIFT : atomic_load_explicit(&record->slot, memory_order_relaxed);
        if (taken || status == RING_WRITING) dead = slot < RING_SLOTS && (buried >> slot) & 1;
        if (dead) {
            /* Relaxed and release: as when a producer writes a head. */
            atomic_store_explicit(&record->length, (uint32_t)(size - sizeof(ring_record)), memory_order_relaxed);
            atomic_store_explicit(&record->status, RING_GIVEN_UP, memory_order_release);
            given_up++;
        }
        position += size;
    }
    slot_count(&ring->given_up, (uint64_t)given_up); /* only the holder of the turn counts */
    if (position < tail) return given_up;
    for (uint32_t number = 0; number < RING_SLOTS; number++)
        if ((buried >> number) & 1) shared_leave(ring, number);
    return given_up;
}

/* Clean up after dead processes: their turn, records and slots. Returns the number of records given up, or
 * RING_CORRUPT. An end without a slot may call it. `bell` is set if a producer that waits for room
 * wants a bell. */
static inline int shared_bury(ring_end *end, const uint64_t *dead, size_t count, int *bell)
{
    int moved = RING_NONE;
    for (size_t index = 0; index < count && moved == RING_NONE; index++) moved = shared_inherit_turn(end, dead[index]);
    if (moved == RING_NONE && !shared_take_turn(end)) return 0;
    uint64_t buried = 0;
    for (uint32_t number = 0; number < RING_SLOTS; number++) { /* slots of dead processes change only in a turn */
        uint64_t owner = atomic_load_explicit(&end->ring->slots[number].owner, memory_order_seq_cst);
        for (size_t index = 0; index < count; index++)
            if (owner && owner == dead[index]) buried |= 1ULL << number;
    }
    int given_up = moved == RING_CORRUPT ? RING_CORRUPT : shared_give_up(end, buried);
    if (given_up != RING_CORRUPT && shared_reclaim(end) == RING_DONE) moved = RING_DONE;
    shared_end_turn(end);
    if (moved == RING_DONE) *bell |= ring_wake(&end->ring->producer_waits);
    return given_up;
}

#endif
