"""The uplink that the workers of a node share: its token bucket, and what waits for it, in shared words of memory.

Each worker writes what waits in the outgoing queues of its own tasks. It sends only if the scheduler, which looks at
the tasks of all workers of the node, picks one of its own. The position after the last pick is a shared word too, and
pickers are bound there for each turn, so that workers that see the same words pick the same task. Operators take turns.

A worker that is not here, because it starts later or cannot map the words, has an equal part of the uplink to itself.

A turn is reserved for a worker for ``PATIENCE_NS``. Then the worker is passed over: until it looks again its tasks do
not count. A worker that is dead, or in a long call, therefore delays the others once, and the bucket is deep enough to
make up for that.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from itertools import accumulate, pairwise
from random import Random
from typing import TypeAlias

from tailrace.clock import MICROSECOND_NS, MILLISECOND_NS
from tailrace.core.send_order.uplink_budget import UplinkBudget
from tailrace.policy.send_order.api import NEVER_NS, NOTHING, SendScheduler, Waiting

Words: TypeAlias = "MutableSequence[int] | memoryview[int]"

PATIENCE_NS = 2 * MILLISECOND_NS
"""Longer than a thread takes to wake up, shorter than what the bucket makes up for."""

POLL_NS = 500 * MICROSECOND_NS
"""How often to look whether another worker has taken its turn: there is no wake-up for that."""

WAIT = -1
"""Returned instead of a task: it is not this worker's turn."""


class NodeWords:
    """The layout of the words.

    ``operators``: the number of tasks of each operator; tasks are numbered through all of them. ``home``: the worker of
    each task.
    """

    FREE, OPERATOR = range(2)  # when the uplink is free again; the operator whose turn is next

    def __init__(self, operators: Sequence[int], home: Sequence[int]) -> None:
        ends = list(accumulate(operators, initial=0))
        self.spans = list(pairwise(ends))
        self.home = home
        self.after = 2  # by operator: the position after the last pick
        self.tick = self.after + len(operators)  # by operator: the interval in which it was picked
        self.passed = self.tick + len(operators)  # by worker: whether it has been passed over
        self.joined = self.passed + max(home) + 1  # by worker: whether it takes part
        self.tuples = self.joined + max(home) + 1  # by task, as the next two: what waits, as in ``Waiting``
        self.work = self.tuples + len(home)
        self.since = self.work + len(home)
        self.count = self.since + len(home)

    def clear(self, words: Words) -> None:
        """Set all words to their first values: nothing waits."""
        for place in range(self.count):
            words[place] = NEVER_NS if place >= self.since else 0


class NodeUplink:
    """One worker's access to the uplink of its node.

    The caller must guarantee that no other worker looks or spends between a ``look`` and the ``spend`` that follows it.

    Law: in any time t no more leaves the node than the rate times t, what the bucket holds, and one parcel. While
    something waits at a worker that looks, the uplink is idle no longer than ``PATIENCE_NS`` for each worker that does
    not look.
    """

    def __init__(self, words: Words, places: NodeWords, worker: int, bytes_per_s: int, workers: int) -> None:
        words[places.joined + worker] = 1
        self.again_ns = 0  # when to look again after ``WAIT``
        self._workers = workers  # how many the node has
        self._words = words
        self._places = places
        self._worker = worker
        self._budget = UplinkBudget(bytes_per_s)
        self._at = _At()

    def publish(self, waiting: Waiting, tasks: Sequence[int]) -> None:
        """Write what waits at these tasks of this worker."""
        words, places = self._words, self._places
        words[places.passed + self._worker] = 0
        for index, task in enumerate(tasks):
            words[places.tuples + task] = waiting.tuples[index]
            words[places.work + task] = waiting.work_ns[index]
            words[places.since + task] = waiting.since_ns[index]

    def look(self, scheduler: SendScheduler, now_ns: int) -> int:
        """The task of this worker whose turn it is, or ``WAIT`` until ``again_ns``."""
        words, places = self._words, self._places
        free_ns = words[places.FREE]
        if free_ns > now_ns:
            self.again_ns = free_ns
            return WAIT
        while (task := self._pick(scheduler, now_ns)) != NOTHING:
            worker = places.home[task]
            if worker == self._worker:
                return task
            reserved_ns = max(free_ns, words[places.since + task]) + PATIENCE_NS
            if now_ns < reserved_ns or scheduler.interval_ns is not None:  # an interval's turn is never passed on
                self.again_ns = min(max(now_ns + 1, reserved_ns), now_ns + POLL_NS)
                return WAIT
            words[places.passed + worker] = 1
        self.again_ns = now_ns + POLL_NS
        return WAIT

    def spend(self, task: int, size: int, now_ns: int) -> None:
        """This task sends ``size`` bytes now."""
        words, places = self._words, self._places
        here = sum(words[places.joined : places.tuples])
        self._budget.free_ns = words[places.FREE]
        self._budget.spend(size * self._workers // here, now_ns)
        words[places.FREE] = self._budget.free_ns
        for operator, (first, end) in enumerate(places.spans):
            if first <= task < end:
                words[places.OPERATOR] = (operator + 1) % len(places.spans)
                words[places.after + operator] = task - first + 1

    def _pick(self, scheduler: SendScheduler, now_ns: int) -> int:
        """The task whose turn it is, among those of workers that have not been passed over."""
        words, places = self._words, self._places
        operators, first_operator = len(places.spans), words[places.OPERATOR]
        for step in range(operators):
            operator = (first_operator + step) % operators
            waiting = self._waiting(*places.spans[operator])
            if any(waiting.tuples):
                picked = self._pick_of(operator, scheduler, waiting, now_ns)
                if picked != NOTHING:
                    return places.spans[operator][0] + picked
        return NOTHING

    def _pick_of(self, operator: int, scheduler: SendScheduler, waiting: Waiting, now_ns: int) -> int:
        words, places = self._words, self._places
        if scheduler.interval_ns is not None:
            tick = 1 + now_ns // scheduler.interval_ns
            if words[places.tick + operator] == tick:
                signalled = words[places.after + operator] - 1
                return signalled if waiting.tuples[signalled] else NOTHING
            words[places.tick + operator] = tick
        self._at.place = words[places.after + operator]
        picked = scheduler.bind(len(waiting.tuples), self._at).pick(waiting, now_ns)
        if scheduler.interval_ns is not None:
            words[places.after + operator] = picked + 1
        return picked

    def _waiting(self, first: int, end: int) -> Waiting:
        words, places = self._words, self._places
        waiting = Waiting(0)
        waiting.tuples = list(words[places.tuples + first : places.tuples + end])
        waiting.work_ns = list(words[places.work + first : places.work + end])
        waiting.since_ns = list(words[places.since + first : places.since + end])
        if any(words[places.passed : places.joined]):
            for index, worker in enumerate(places.home[first:end]):
                if words[places.passed + worker]:
                    waiting.tuples[index], waiting.work_ns[index], waiting.since_ns[index] = 0, 0, NEVER_NS
        return waiting


class _At(Random):
    """A generator that draws a given position: a new picker goes on where the last one stopped."""

    place = 0

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return self.place % (start if stop is None else stop)
