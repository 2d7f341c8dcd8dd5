/* Sleeping and waking. Whoever finds nothing to do announces it in a word and sleeps on that word; whoever changes
 * something takes the announcement away and wakes. Both sides first write (what changed; the announcement) and then
 * read what the other writes, all sequentially consistent, so at least one sees the other: no wake-up is lost, and
 * none is sent when nobody sleeps. */
#ifndef TAILRACE_RING_WAIT_H
#define TAILRACE_RING_WAIT_H

#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "_layout.h"

/* Say that we wait, and how. A bit of its own each: one who sleeps must not be forgotten for one who wants a bell.
 * seq_cst: comes before the second look for what we wait for. */
static inline void ring_announce(_Atomic uint32_t *word, uint32_t how)
{
    atomic_fetch_or_explicit(word, how, memory_order_seq_cst);
}

/* Sleep until someone takes the announcement away, at most so long. Not private: the waker is another process. */
static inline void ring_sleep(_Atomic uint32_t *word, int64_t timeout_ns)
{
    struct timespec limit = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    /* Relaxed: the kernel looks again, and does not sleep if the word has changed. */
    uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    if (seen & RING_SLEEPS) syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

/* True if someone wants a bell, which is the caller's to ring. */
static inline int ring_wake(_Atomic uint32_t *word)
{
    /* seq_cst: must not be read before what was published is visible. */
    if (atomic_load_explicit(word, memory_order_seq_cst) == RING_NOBODY) return 0;
    uint32_t waited = atomic_exchange_explicit(word, RING_NOBODY, memory_order_seq_cst);
    if (waited & RING_SLEEPS) syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return (waited & RING_WANTS_BELL) != 0;
}

#endif
