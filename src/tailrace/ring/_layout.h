/* The memory layout of a segment. layout.py has the same for Python, and a test compares the two.
 *
 * A position counts all bytes ever reserved and never decreases; its offset in the data is position & (capacity - 1),
 * because a capacity is a power of two. Fields that one side writes often have a cache line of their own. */
#ifndef TAILRACE_RING_LAYOUT_H
#define TAILRACE_RING_LAYOUT_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define RING_MAGIC 0x31474e4952525454ULL /* "TTRRING1" in memory */
#define RING_VERSION 2U
#define RING_LINE 64U
#define RING_UNIT 16U /* records begin at multiples of it */
#define RING_SLOTS 64U
#define RING_BATCH 0x80000000U /* flag in a head's target: the payload is many tuples, each preceded by its length */
#define RING_NOWHERE UINT64_MAX

enum ring_kind { RING_PAIR = 1, RING_SHARED = 2 };

/* How ends wait, as bits: none, in a futex, or by another mechanism of the caller (a bell). */
enum ring_waiting { RING_NO_WAITER = 0, RING_SLEEPS = 1, RING_WANTS_BELL = 2 };

/* The status of a head. TAKEN has the consumer's slot in its upper bytes. EMPTY is 0, as in cleared memory. */
enum ring_status {
    RING_EMPTY = 0,
    RING_WRITING = 1,
    RING_READY = 2,
    RING_HAS_READ = 3,
    RING_FLUSH = 4,
    RING_TAKEN = 5,
    RING_GIVEN_UP = 6
};
#define RING_STATUS_MASK 0xffU
#define RING_SLOT_SHIFT 8

typedef struct {
    uint64_t magic;
    uint32_t version;
    uint32_t kind;
    uint64_t capacity;
    uint64_t owner;     /* pid << 32 | start time */
    uint64_t processes; /* the PID namespace of that pid */
    uint8_t nonce[16];
} ring_segment;

/* The head of a record. A pair ring does not use the status: every record below the tail is ready. */
typedef struct {
    _Atomic uint32_t status;
    _Atomic uint32_t target;
    _Atomic uint32_t length; /* of the payload */
    _Atomic uint32_t slot;   /* of the producer */
} ring_record;

typedef struct {
    ring_segment segment;
    alignas(RING_LINE) _Atomic uint64_t tail; /* the cache line of the producer */
    _Atomic uint64_t records;
    _Atomic uint64_t bytes;
    _Atomic uint64_t waits;
    _Atomic uint64_t high_water;
    alignas(RING_LINE) _Atomic uint64_t head; /* of the consumer */
    _Atomic uint64_t sleeps;
    alignas(RING_LINE) _Atomic uint32_t consumer_waits; /* written by both, seldom */
    _Atomic uint32_t producer_waits;
    _Atomic uint32_t closed;
} ring_pair;

/* A process that uses a shared ring. It stores its latest attempt at a reservation, from which consumers determine the
 * length of a gap if the process dies before it has written a head. */
typedef struct {
    alignas(RING_LINE) _Atomic uint64_t owner; /* 0 if free */
    _Atomic uint64_t position;
    _Atomic uint64_t length;
    _Atomic uint64_t records;
    _Atomic uint64_t bytes;
    _Atomic uint64_t waits;
    _Atomic uint64_t sleeps;
} ring_slot;

typedef struct {
    ring_segment segment;
    alignas(RING_LINE) _Atomic uint64_t tail; /* of the producers */
    _Atomic uint64_t high_water;
    alignas(RING_LINE) _Atomic uint64_t head; /* of the consumers */
    _Atomic uint64_t turn;                    /* the process that may take records and clear; 0 if none */
    _Atomic uint64_t clearing;                /* up to which position it is about to clear */
    _Atomic uint64_t given_up;
    alignas(RING_LINE) _Atomic uint32_t consumer_waits;
    _Atomic uint32_t producer_waits;
    _Atomic uint32_t closed;
    _Atomic uint32_t sleepers; /* number of consumers that sleep until a bell */
    ring_slot slots[RING_SLOTS];
} ring_shared;

#define RING_PAIR_DATA sizeof(ring_pair)
#define RING_SHARED_DATA sizeof(ring_shared)

#endif
