/* Where everything is in a segment. layout.py says the same to Python, and a test compares the two.
 *
 * A position counts all bytes ever reserved and never goes back; its place in the data is position & (capacity - 1),
 * as a capacity is a power of two. Whatever one side writes often has a cache line to itself. */
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
#define RING_BATCH 0x80000000U /* in a head's target: the payload is many tuples, each after its length */
#define RING_NOWHERE UINT64_MAX

enum ring_kind { RING_PAIR = 1, RING_SHARED = 2 };

/* Who waits for what, as bits: nobody, someone in a futex, someone who wants to be told by other means (a bell). */
enum ring_waiting { RING_NOBODY = 0, RING_SLEEPS = 1, RING_WANTS_BELL = 2 };

/* A head's status; TAKEN carries the slot of the consumer in its higher bytes. EMPTY is what cleared memory says. */
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
    uint64_t owner;     /* process number << 32 | when it started */
    uint64_t processes; /* the namespace in which that number means something */
    uint8_t nonce[16];
} ring_segment;

/* The head of a record. A pair of tasks needs no status: what is below the tail is ready. */
typedef struct {
    _Atomic uint32_t status;
    _Atomic uint32_t target;
    _Atomic uint32_t length; /* of the payload */
    _Atomic uint32_t slot;   /* of the producer */
} ring_record;

typedef struct {
    ring_segment segment;
    alignas(RING_LINE) _Atomic uint64_t tail; /* the producer's line */
    _Atomic uint64_t records;
    _Atomic uint64_t bytes;
    _Atomic uint64_t waits;
    _Atomic uint64_t high_water;
    alignas(RING_LINE) _Atomic uint64_t head; /* the consumer's */
    _Atomic uint64_t sleeps;
    alignas(RING_LINE) _Atomic uint32_t consumer_waits; /* written by both, seldom */
    _Atomic uint32_t producer_waits;
    _Atomic uint32_t closed;
} ring_pair;

/* A process at a shared ring. Its last reservation, or the one it tries to make, is where a consumer finds it if the
 * process dies before it has written a head. */
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
    alignas(RING_LINE) _Atomic uint64_t tail; /* the producers' */
    _Atomic uint64_t high_water;
    alignas(RING_LINE) _Atomic uint64_t head; /* the consumers' */
    _Atomic uint64_t turn;                    /* the process whose turn it is to look and to clear; 0: nobody's */
    _Atomic uint64_t clearing;                /* up to where it is about to clear */
    _Atomic uint64_t given_up;
    alignas(RING_LINE) _Atomic uint32_t consumer_waits;
    _Atomic uint32_t producer_waits;
    _Atomic uint32_t closed;
    _Atomic uint32_t resting; /* consumers that want a bell for every record */
    ring_slot slots[RING_SLOTS];
} ring_shared;

#define RING_PAIR_DATA sizeof(ring_pair)
#define RING_SHARED_DATA sizeof(ring_shared)

#endif
