"""Rounds of admission: each sender gets its share of a task that is behind, wherever it is.

A queue that is served in order is fair if all senders put in the same. A task's own worker could put in more than
others: it hands tuples over without a copy and at any time, while links are read now and then. So once a queue has been
full there are rounds. In each a sender may put in as many bundles as any other, and waits for the next one with what
it has left. A round begins when the queue is half empty, so that the task has something to run meanwhile. A task that
keeps up has no rounds.

Nothing is counted when bundles are taken from the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from tailrace.clock import MILLISECOND_NS

QUEUE_BUNDLES = 256
"""Bundles that may wait in front of a task. Beyond, senders are held back."""

QUEUE_BYTES = 2 << 20
"""The same in bytes, as far as the size of a bundle can be told from those before it."""

ROUND_NS = 10 * MILLISECOND_NS
"""About how long a task runs what comes in one round: senders take turns as often."""

FIRST_ROUND = 8
"""Bundles in a round while it is not known how long they take."""

FIRST_QUEUE = FIRST_ROUND
"""Bundles that a queue takes before its task has run any. The sender that connects first must not fill it alone."""

LARGEST_ROUND = 4
"""Full queues in the largest round. Fast tasks need it: with one queue a round, wake-ups cost 15% more CPU in bulk."""

ANY = 1 << 62
"""As many as a sender has."""


class Rounds:
    """In front of one queue.

    Law: in a round no sender puts in more than its share, unless the queue is empty or it was late for the one before.
    """

    def __init__(self, queued: Callable[[], int], limit: Callable[[], int]) -> None:
        self.behind = False  # the queue has been full, and not been empty since
        self._queued = queued  # bundles in the queue
        self._limit = limit  # and how many may be, once the task has run as many
        self._grown = FIRST_QUEUE  # how many may be until then
        self._bundles = FIRST_ROUND  # of all senders in a round
        self._share = FIRST_ROUND  # of one
        self._left: dict[Hashable, int] = {}  # what senders may still put in before the next round
        self._held: set[Hashable] = set()  # those that have more
        self._began_ns = 0

    # -- by the thread of a sender

    def room(self, sender: Hashable) -> int:
        """How many bundles it may put in now. 0: it is held back until the next round."""
        queued, limit = self._queued(), self._limit()
        if self._grown < limit:
            if not queued:
                self._grown *= 2  # the task has run all that came
            limit = min(limit, self._grown)
        full = queued >= limit
        if not (self.behind or full):
            return ANY
        self.behind = True
        left = self._left.get(sender)
        if left is None and not full:
            left = self._share
        if left:
            return left
        self._held.add(sender)
        return 0 if self._queued() else self._share  # afterwards: whoever empties the queue then looks who is held

    def put(self, sender: Hashable, bundles: int) -> None:
        """It has put in so many. At a time when there are no rounds this need not be said."""
        left = self._left
        left[sender] = max(0, left.get(sender, self._share) - bundles)

    # -- by whoever has taken something from the queue

    @property
    def due(self) -> bool:
        """Whether another round may begin."""
        queued, limit = self._queued(), min(self._limit(), self._grown)
        return queued <= limit // 2 and (queued <= limit // 8 or not self._late())

    def begin(self, now_ns: int) -> bool:
        """Begin another round, if somebody waits for it. Those that were held may look again."""
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
        """Senders that have not come yet in this round, but may have been told of it only a moment ago."""
        share = self._share
        return {sender: left for sender, left in tuple(self._left.items()) if share <= left < 2 * share}

    def _resize(self, now_ns: int, senders: int) -> None:
        took_ns, self._began_ns = now_ns - self._began_ns, now_ns
        if took_ns < ROUND_NS:
            self._bundles *= 2
        elif 2 * ROUND_NS < took_ns < now_ns:  # not the first
            self._bundles //= 2
        self._bundles = max(1, min(self._bundles, LARGEST_ROUND * self._limit()))
        self._grown += self._bundles
        self._share = max(1, self._bundles // senders)


def bundle_limit(bundle_bytes: int) -> int:
    """Bundles of this size that may wait in front of a task."""
    return max(1, min(QUEUE_BUNDLES, QUEUE_BYTES // bundle_bytes))
