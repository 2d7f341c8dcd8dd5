/* Sleeping and waking. An end that finds nothing to do sets a bit in a shared word (the announcement) and sleeps on
 * that word. An end that publishes something clears the word and wakes the sleeper. Each side first writes its own part
 * (the announcement, or what it publishes) and then reads the other's, all sequentially consistent, so at least one
 * sees the other: no wake-up is lost, and none is sent when no end sleeps. */
#ifndef TAILRACE_RING_WAIT_H
#define TAILRACE_RING_WAIT_H

#include <errno.h>
#include <linux/futex.h>
#include <limits.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "_layout.h"

/* Announce that this end waits, and how. Sleepers and those that want a bell have separate bits, so that neither hides
 * the other. seq_cst: ordered before the second look for data or room. */
static inline void ring_announce(_Atomic uint32_t *word, uint32_t how)
{
    atomic_fetch_or_explicit(word, how, memory_order_seq_cst);
}

/* Sleep until the announcement is cleared, or until the timeout. Not a private futex: the waker is another process. */
static inline void ring_sleep(_Atomic uint32_t *word, int64_t timeout_ns)
{
    struct timespec limit = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    /* Relaxed: the kernel checks again, and does not sleep if the word has changed. */
    uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    if (seen & RING_SLEEPS) syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

/* Wake all sleepers. Returns true if an end wants a bell, which the caller must ring. */
static inline int ring_wake(_Atomic uint32_t *word)
{
    /* seq_cst: must not be read before the published change is visible. */
    if (atomic_load_explicit(word, memory_order_seq_cst) == RING_NO_WAITER) return 0;
    uint32_t waited = atomic_exchange_explicit(word, RING_NO_WAITER, memory_order_seq_cst);
    if (waited & RING_SLEEPS) syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return (waited & RING_WANTS_BELL) != 0;
}

#endif
