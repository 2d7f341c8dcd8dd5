"""Nobody starves under largest work first, however long it is overloaded, and backlogs still decide who sends."""

from __future__ import annotations

from collections import deque
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tailrace.clock import MILLISECOND_NS
from tailrace.policy.send_order.api import NEVER_NS, Waiting
from tailrace.policy.send_order.largest_backlog import LargestWorkFirst, lbf_work

MS = MILLISECOND_NS
MOST = 8  # tuples in a queue
QUEUES = 4


class Sender:
    """Queues that are filled up with tuples of their own sizes whenever they have room, some at every turn."""

    def __init__(self, scheduler: LargestWorkFirst, costs_ns: list[int], seed: int) -> None:
        self._costs_ns = costs_ns
        self._rng = Random(seed)
        self._picker = scheduler.bind(QUEUES, self._rng)
        self._queues: list[deque[int]] = [deque() for _ in range(QUEUES)]
        self.now_ns = MS
        self.waits_ns: list[list[int]] = [[] for _ in range(QUEUES)]
        self.most_work_ns = 0

    def run(self, turns: int, rates: list[float]) -> None:
        for _ in range(turns):
            for queue, rate in zip(self._queues, rates, strict=True):
                while len(queue) < MOST and self._rng.random() < rate:
                    queue.append(self.now_ns)
            waiting = Waiting(QUEUES)
            waiting.tuples = [len(queue) for queue in self._queues]
            waiting.work_ns = [len(q) * cost_ns for q, cost_ns in zip(self._queues, self._costs_ns, strict=True)]
            waiting.since_ns = [queue[0] if queue else NEVER_NS for queue in self._queues]
            self.most_work_ns = max(self.most_work_ns, sum(waiting.work_ns))
            picked = self._picker.pick(waiting, self.now_ns)
            if picked >= 0:
                self.waits_ns[picked].append(self.now_ns - self._queues[picked].popleft())
                self.now_ns += self._costs_ns[picked]
            else:
                self.now_ns += MS
        oldest_ns = min((queue[0] for queue in self._queues if queue), default=self.now_ns)
        self.waits_ns[0].append(self.now_ns - oldest_ns)  # of those that are still there


costs = st.lists(st.integers(1, 9 * MS), min_size=QUEUES, max_size=QUEUES)
rates = st.lists(st.sampled_from([0.02, 0.3, 0.95]), min_size=QUEUES, max_size=QUEUES)


@given(costs, rates, st.integers(1, 60), st.sampled_from([0.5, 1.0, 2.0, 3.0]), st.integers(0, 10**6))
def test_no_tuple_waits_longer_than_its_age_allows_and_then_for_all_that_waits(
    costs_ns: list[int], filled: list[float], floor_ms: int, drains: float, seed: int
) -> None:
    sender = Sender(lbf_work(floor_ms, drains), costs_ns, seed)
    sender.run(400, filled)
    most_ns = max(map(max, filter(None, sender.waits_ns)))
    assert most_ns <= max(floor_ms * MS, drains * sender.most_work_ns) + sender.most_work_ns


def test_in_an_overload_the_queue_with_the_most_work_still_sends_most() -> None:
    """Four queues are always full; one has tuples four times as large. A floor alone makes it first in, first out."""
    sent = {}
    for drains in (0.0, 2.0):
        sender = Sender(lbf_work(5, drains), [4 * MS, MS, MS, MS], seed=1)
        sender.run(2_000, [0.95] * QUEUES)
        sent[drains] = [len(waits_ns) for waits_ns in sender.waits_ns]
    assert sent[0.0][0] < 1.1 * sent[0.0][1], sent
    assert sent[2.0][0] > 1.5 * max(sent[2.0][1:]), sent
    assert min(sent[2.0]) > 0, "starved"
