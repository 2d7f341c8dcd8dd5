"""Hone's model of a node that sends: time in slots, one tuple leaves a slot, a send scheduler says from which queue.

Tuples that arrive during a slot can leave at its end at the earliest, which is the beginning of the next. Backlogs are
what is left once a slot's tuple is gone: B(t+1) = B(t) + a(t) - x(t), the paper's Eq. 1. The schedulers are the ones
that the runtime uses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tailrace.errors import OptionError
from tailrace.policy.send_order.api import NEVER_NS, NOTHING, SendScheduler, Waiting

S_NS = 1_000_000_000


class Arrival(NamedTuple):
    at_ns: int
    queue: int


def poisson_arrivals(queues: int, rate_per_s: float, duration_ns: int, rng: Random) -> Iterator[Arrival]:
    """Independent Poisson streams into all queues, in order of time: one of the summed rate, dealt out at random.

    Gaps are whole nanoseconds, so that a last digit in which two machines' logarithms differ does not add up.
    """
    if queues < 1 or not rate_per_s > 0:
        raise OptionError(f"nothing would ever arrive: queues={queues} rate_per_s={rate_per_s}: are both positive?")
    gaps_per_ns = queues * rate_per_s / S_NS
    at_ns = 0
    while True:
        at_ns += round(rng.expovariate(gaps_per_ns))
        if at_ns >= duration_ns:
            return
        yield Arrival(at_ns, rng.randrange(queues))


@dataclass(frozen=True)
class SlotsResult:
    max_backlog: int  # of one queue, after the slot's tuple has left
    max_seen: int  # of one queue, before it has
    delays_ns: list[int]  # of the tuples that left, from arrival to the beginning of their slot; sorted
    whole_slots: int  # these delays summed and counted in whole slots: 0 for who leaves as soon as it can
    left_behind: int  # tuples that still wait at the end
    lost_slots: int  # in which something waited and nothing left
    sampled: list[list[int]]  # backlogs of all queues, at the slots asked for


def simulate_slots(
    scheduler: SendScheduler,
    arrivals: Iterable[Arrival],
    *,
    queues: int,
    slots: int,
    slot_ns: int,
    rng: Random,
    sample_at: Sequence[int] = (),
) -> SlotsResult:
    """Let ``scheduler`` send for so many slots. ``arrivals`` are in order of time; slot t sends at t * ``slot_ns``."""
    picker = scheduler.bind(queues, rng)
    pick = picker.pick
    waiting = Waiting(queues)
    tuples, work_ns, since_ns = waiting.tuples, waiting.work_ns, waiting.since_ns
    held: list[deque[int]] = [deque() for _ in range(queues)]
    coming = iter(arrivals)
    at_ns, queue = next(coming, (NEVER_NS, NOTHING))
    max_backlog = max_seen = whole_slots = lost_slots = 0
    delays_ns: list[int] = []
    sampled: dict[int, list[int]] = {}
    samples = set(sample_at)
    for slot in range(1, slots + 1):
        now_ns = slot * slot_ns
        while at_ns < now_ns:
            if not held[queue]:
                since_ns[queue] = at_ns
            held[queue].append(at_ns)
            tuples[queue] += 1
            work_ns[queue] += slot_ns
            if tuples[queue] > max_seen:
                max_seen = tuples[queue]
            at_ns, queue = next(coming, (NEVER_NS, NOTHING))
        picked = pick(waiting, now_ns)
        if picked != NOTHING and tuples[picked]:
            arrived_ns = held[picked].popleft()
            since_ns[picked] = held[picked][0] if held[picked] else NEVER_NS
            tuples[picked] -= 1
            work_ns[picked] -= slot_ns
            delays_ns.append(now_ns - arrived_ns)
            whole_slots += slot - 1 - arrived_ns // slot_ns
        elif any(tuples):
            lost_slots += 1
        backlog = max(tuples)
        if backlog > max_backlog:
            max_backlog = backlog
        if slot in samples:
            sampled[slot] = tuples.copy()
    waiting.validate()
    delays_ns.sort()
    return SlotsResult(
        max_backlog, max_seen, delays_ns, whole_slots, sum(tuples), lost_slots, [sampled[slot] for slot in sample_at]
    )


def jain_index(backlogs: Sequence[int]) -> float | None:
    """How evenly tuples lie in queues: 1 if all hold the same, 1/N if one holds all. None where nothing waits: 0/0."""
    total = sum(backlogs)
    return total * total / (len(backlogs) * sum(backlog * backlog for backlog in backlogs)) if total else None
