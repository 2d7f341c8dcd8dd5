/* One producer, one consumer, no compare-and-swap and no gaps.
 *
 * Only the producer moves the tail, only the consumer the head. The producer writes a record above the tail and then
 * moves the tail past it, so everything below the tail is complete. The consumer reads below the tail and then moves
 * the head, so everything below the head is free. A record never wraps, so that it can be read in place: a record
 * marked FLUSH skips the rest of the data. */
#ifndef TAILRACE_RING_PAIR_H
#define TAILRACE_RING_PAIR_H

#include <string.h>

#include "_wait.h"

#ifndef RING_STEP
#define RING_STEP(number) ((void)0) /* tests can stop a process here */
#endif

enum ring_result { RING_CORRUPT = -3, RING_TOO_LARGE = -2, RING_CLOSED = -1, RING_NONE = 0, RING_DONE = 1, RING_BELL = 2 };

typedef struct {
    uint32_t target;
    uint32_t length;
    const uint8_t *payload;
    uint64_t end; /* the position after it */
} ring_view;

static inline uint64_t ring_size(uint64_t length)
{
    return (sizeof(ring_record) + length + RING_UNIT - 1) & ~(uint64_t)(RING_UNIT - 1);
}

/* The largest payload that always fits: wherever a record begins, it and the space skipped before it must fit. */
static inline uint64_t ring_largest(uint64_t capacity) { return capacity / 2 - sizeof(ring_record); }

static inline ring_record *ring_at(uint8_t *data, uint64_t capacity, uint64_t position)
{
    return (ring_record *)(data + (position & (capacity - 1)));
}

/* The bytes to skip before a record that does not fit before the end of the data; else 0. */
static inline uint64_t ring_skip(uint64_t capacity, uint64_t position, uint64_t size)
{
    uint64_t left = capacity - (position & (capacity - 1));
    return left < size ? left : 0;
}

/* Whether positions are impossible. Using them would access memory outside of the segment. */
static inline int ring_nonsense(uint64_t capacity, uint64_t head, uint64_t tail)
{
    return ((head | tail) & (RING_UNIT - 1)) || tail < head || tail - head > capacity;
}

/* RING_DONE if there is room for this many bytes, head included; otherwise RING_NONE or RING_CORRUPT. */
static inline int pair_has_room(ring_pair *ring, uint64_t capacity, uint64_t size)
{
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed); /* only this end moves it */
    /* seq_cst: ordered after the announcement in producer_waits; otherwise the consumer might free space and not see
     * that the producer waits. Includes acquire: the consumer has finished reading what it frees. */
    uint64_t head = atomic_load_explicit(&ring->head, memory_order_seq_cst);
    if (ring_nonsense(capacity, head, tail)) return RING_CORRUPT;
    return tail + ring_skip(capacity, tail, size) + size - head <= capacity ? RING_DONE : RING_NONE;
}

static inline int pair_write(
    ring_pair *ring, uint8_t *data, uint64_t capacity, uint32_t target, const uint8_t *payload, uint64_t length)
{
    if (length > ring_largest(capacity)) return RING_TOO_LARGE;
    if (atomic_load_explicit(&ring->closed, memory_order_acquire)) return RING_CLOSED;
    uint64_t size = ring_size(length);
    int room = pair_has_room(ring, capacity, size);
    if (room != RING_DONE) return room;
    uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    uint64_t skip = ring_skip(capacity, tail, size);
    /* Relaxed: the consumer reads none of this before the tail has passed it. */
    if (skip) {
        ring_record *mark = ring_at(data, capacity, tail);
        atomic_store_explicit(&mark->status, RING_FLUSH, memory_order_relaxed);
        atomic_store_explicit(&mark->length, (uint32_t)(skip - sizeof(ring_record)), memory_order_relaxed);
        tail += skip;
    }
    ring_record *record = ring_at(data, capacity, tail);
    atomic_store_explicit(&record->status, RING_READY, memory_order_relaxed);
    atomic_store_explicit(&record->target, target, memory_order_relaxed);
    atomic_store_explicit(&record->length, (uint32_t)length, memory_order_relaxed);
    memcpy(record + 1, payload, length);
    tail += size;
    uint64_t held = tail - atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (held > atomic_load_explicit(&ring->high_water, memory_order_relaxed))
        atomic_store_explicit(&ring->high_water, held, memory_order_relaxed);
    uint64_t records = atomic_load_explicit(&ring->records, memory_order_relaxed) + 1;
    uint64_t bytes = atomic_load_explicit(&ring->bytes, memory_order_relaxed) + length;
    atomic_store_explicit(&ring->records, records, memory_order_relaxed);
    atomic_store_explicit(&ring->bytes, bytes, memory_order_relaxed);
    RING_STEP(7);
    /* seq_cst: releases the record, and is ordered before the read of consumer_waits. */
    atomic_store_explicit(&ring->tail, tail, memory_order_seq_cst);
    RING_STEP(8);
    return ring_wake(&ring->consumer_waits) ? RING_BELL : RING_DONE;
}

/* Find the first record at or after a position, skipping FLUSH. RING_NONE if there is none yet. */
static inline int pair_look(ring_pair *ring, uint8_t *data, uint64_t capacity, uint64_t position, ring_view *view)
{
    for (;;) {
        /* seq_cst: ordered after the announcement in consumer_waits. Includes acquire: the record is complete. */
        uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_seq_cst);
        if (tail == position) return RING_NONE;
        if (ring_nonsense(capacity, position, tail)) return RING_CORRUPT;
        ring_record *record = ring_at(data, capacity, position);
        uint32_t status = atomic_load_explicit(&record->status, memory_order_relaxed);
        uint32_t length = atomic_load_explicit(&record->length, memory_order_relaxed);
        uint64_t end = position + ring_size(length);
        uint64_t left = capacity - (position & (capacity - 1));
        if (end - position > left || end > tail) return RING_CORRUPT;
        if (status == RING_READY) {
            view->target = atomic_load_explicit(&record->target, memory_order_relaxed);
            view->length = length;
            view->payload = (const uint8_t *)(record + 1);
            view->end = end;
            return RING_DONE;
        }
        if (status != RING_FLUSH) return RING_CORRUPT;
        position = end;
    }
}

/* Free everything below a position. RING_BELL if the producer waits for a bell. */
static inline int pair_release(ring_pair *ring, uint64_t capacity, uint64_t position)
{
    RING_STEP(10);
    /* seq_cst: releases the space, and is ordered before the read of producer_waits. */
    atomic_store_explicit(&ring->head, position, memory_order_seq_cst);
    uint32_t waiting = atomic_load_explicit(&ring->producer_waits, memory_order_seq_cst);
    if (waiting == RING_NO_WAITER) return RING_DONE;
    /* A producer that found the ring full sleeps until half is free: woken for every record, it would sleep again at
     * once. It is always woken, because the consumer passes that point before it finds the ring empty. */
    uint64_t held = atomic_load_explicit(&ring->tail, memory_order_relaxed) - position;
    if (held > capacity / 2) return RING_DONE;
    return ring_wake(&ring->producer_waits) ? RING_BELL : RING_DONE;
}

#endif
