"""Rounds of admission: each sender, local or remote, gets an equal share of a task that is behind.

A queue that is served in order is fair only if all senders put in equally much. Senders in the task's own worker could
put in more than others: they hand tuples over at any time and without a copy, while links are read only now and then.
Once a queue has been full, admission therefore goes by rounds. In each round every sender may put in the same number of
bundles, and keeps the rest for the next round. A round begins when the queue is half empty, so that the task has
something to run meanwhile. A task that keeps up has no rounds.

Taking bundles from the queue costs nothing here: only senders count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from tailrace.clock import MILLISECOND_NS

QUEUE_BUNDLES = 256
"""Bundles that may wait in front of a task. Beyond that, senders are held back."""

QUEUE_BYTES = 2 << 20
"""Bytes that may wait in front of a task, estimated from the size of earlier bundles."""

ROUND_NS = 10 * MILLISECOND_NS
"""About how long a task should take for the bundles of one round."""

FIRST_ROUND = 2
"""Bundles in the first round, when it is not known how long they take."""

FIRST_QUEUE = FIRST_ROUND
"""Bundles that a queue takes before its task has run any: the first sender to connect must not fill it alone. With 8,
a sender in the task's own worker got a fifth more than another in the first two seconds at 400 calls a second."""

LARGEST_ROUND = 4
"""The largest round, in full queues. Fast tasks need it: with one queue a round, wake-ups cost 15% more CPU in bulk."""

ANY = 1 << 62
"""No limit."""


class Rounds:
    """Admission to one queue.

    Law: in a round no sender puts in more than its share, unless the queue is empty, or the sender was late for the
    round before.
    """

    def __init__(self, queued: Callable[[], int], limit: Callable[[], int]) -> None:
        self.behind = False  # whether the queue has been full, and not been empty since
        self._queued = queued  # bundles in the queue
        self._limit = limit  # bundles that may be in the queue, once the task has run as many
        self._grown = FIRST_QUEUE  # bundles that may be in it until then
        self._bundles = FIRST_ROUND  # of all senders together, in a round
        self._share = FIRST_ROUND  # of one sender
        self._left: dict[Hashable, int] = {}  # bundles that each sender may still put in before the next round
        self._held: set[Hashable] = set()  # senders that wait for the next round
        self._began_ns = 0

    # -- for the thread of a sender

    def room(self, sender: Hashable) -> int:
        """How many bundles a sender may put in now. 0: it is held back until the next round."""
        queued, limit = self._queued(), self._limit()
        room = ANY
        if self._grown < limit:
            if not queued:
                self._grown *= 2  # the task has run all that came
            limit = min(limit, self._grown)
            room = limit - queued
        full = queued >= limit
        if not (self.behind or full):
            return room
        self.behind = True
        left = self._left.get(sender)
        if left is None and not full:
            left = self._share
        if left:
            return left
        self._held.add(sender)
        return 0 if self._queued() else self._share  # only now: who empties the queue looks at _held next

    def put(self, sender: Hashable, bundles: int) -> None:
        """A sender has put in so many bundles. It need not say so while the task is not ``behind``."""
        left = self._left
        left[sender] = max(0, left.get(sender, self._share) - bundles)

    # -- for the thread that takes bundles from the queue

    @property
    def due(self) -> bool:
        """Whether another round may begin."""
        queued, limit = self._queued(), min(self._limit(), self._grown)
        return queued <= limit // 2 and (queued <= limit // 8 or not self._late())

    def begin(self, now_ns: int) -> bool:
        """Begin another round if a sender waits for one. True: the caller must wake the senders that were held back."""
        if not self._held:
            if not self._queued():
                self.behind, self._began_ns = False, 0
                self._left = {}
            return False
        held, self._held = self._held, set()
        late = self._late()
        left = dict.fromkeys(tuple(held), 0)
        left.update(late)
        self._resize(now_ns, len(left))
        self._left = {sender: unused + self._share for sender, unused in left.items()}
        return True

    def _late(self) -> dict[Hashable, int]:
        """Senders that have put in nothing in this round, but may have been woken only a moment ago."""
        share = self._share
        return {sender: left for sender, left in tuple(self._left.items()) if share <= left < 2 * share}

    def _resize(self, now_ns: int, senders: int) -> None:
        took_ns, self._began_ns = now_ns - self._began_ns, now_ns
        if took_ns < ROUND_NS:
            self._bundles *= 2
        elif 2 * ROUND_NS < took_ns < now_ns:  # not in the first round
            self._bundles //= 2
        self._bundles = max(1, min(self._bundles, LARGEST_ROUND * self._limit()))
        self._grown += self._bundles
        self._share = max(1, self._bundles // senders)


def bundle_limit(bundle_bytes: int) -> int:
    """How many bundles of this size may wait in front of a task."""
    return max(1, min(QUEUE_BUNDLES, QUEUE_BYTES // bundle_bytes))
