"""A receiver that reports to senders how many of their tuples have run, with sampled durations if asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from tailrace.clock import MILLISECOND_NS
from tailrace.policy.groupings.feedback import Message, Receiver
from tailrace.policy.groupings.load.sampling import some_of

REPORT_EVERY_NS = MILLISECOND_NS
"""A busy task reports to a sender at most once in this time, which bounds the cost. An idle one reports at once."""

MAX_REPORT = 256
"""Most tuples in one report: more than Python functions execute in a millisecond."""

MAX_SAMPLES = 4
"""Most durations in one report. If more tuples ran there is no lack of samples, and to learn from one costs a sender
as much as to choose a task."""

SAMPLES_EVERY_NS = 10 * MILLISECOND_NS
"""Longest wait of a sample. Samples travel together with the report of the last of them, because four at once cost
little more than one."""


class Done(NamedTuple):
    """From a task to a sender: what has happened since the last report."""

    tuples: int
    samples: tuple[int, ...]  # item, duration_ns, item, duration_ns, …; empty if not asked for
    others: int  # tuples of other senders that are in this task's queue
    late: bool = False  # some tuples were executed earlier, and reported to the receiver only now


class Reporter(Receiver):
    """Counts executed tuples by sender. Law: the counts that it reports add up to the tuples that it was told of."""

    arrivals_can_wait = True

    def __init__(self, senders: int, item_of: Callable[[Any], int] | None, rng: Random) -> None:
        super().__init__()
        self._item_of = item_of
        self._rng = rng
        self.hears_arrivals = senders > 1  # to a lone sender there are no others to report
        self._counts = [0] * senders
        self._samples: list[list[int]] = [[] for _ in range(senders)]
        self._late = [False] * senders
        self._waiting = [0] * senders
        self._reported_ns = 0
        self._sampled_ns = [-SAMPLES_EVERY_NS] * senders  # when each was last sent samples

    def received(self, sender: int, attached: Message | None, now_ns: int) -> None:
        self._waiting[sender] += 1

    def received_many(self, sender: int, tuples: int, now_ns: int) -> None:
        self._waiting[sender] += tuples

    def executed(
        self, sender: int, value: Any, attached: Message | None, duration_ns: int, queued: int, now_ns: int
    ) -> None:
        if self._item_of is not None and len(self._samples[sender]) < 2 * MAX_SAMPLES:
            self._samples[sender] += (self._item_of(value), duration_ns)
        self._count(sender, 1, queued, now_ns)

    def executed_many(
        self, sender: int, values: Sequence[Any], durations_ns: Sequence[int], queued: int, now_ns: int
    ) -> None:
        if self._item_of is not None:
            samples = self._samples[sender]
            if room := MAX_SAMPLES - len(samples) // 2:
                some = some_of(len(values), room, self._rng)
                for value, duration_ns in zip(values[some], durations_ns[some], strict=True):
                    samples += (self._item_of(value), duration_ns)
        self._late[sender] = True
        self._count(sender, len(values), queued, now_ns)

    def dropped(self, sender: int, attached: Message | None, queued: int, now_ns: int) -> None:
        self._count(sender, 1, queued, now_ns)

    def _count(self, sender: int, tuples: int, queued: int, now_ns: int) -> None:
        self._counts[sender] += tuples
        self._waiting[sender] -= tuples
        if not queued or self._counts[sender] >= MAX_REPORT or now_ns - self._reported_ns >= REPORT_EVERY_NS:
            self._report(now_ns)

    def _report(self, now_ns: int) -> None:
        self._reported_ns = now_ns
        here = sum(self._waiting) if self.hears_arrivals else 0
        for sender, count in enumerate(self._counts):
            if count:
                others = here - self._waiting[sender] if here else 0
                samples = self._take_samples(sender, now_ns)
                self.outbox.append((sender, Done(count, samples, others, self._late[sender])))
                self._counts[sender] = 0
                self._late[sender] = False

    def _take_samples(self, sender: int, now_ns: int) -> tuple[int, ...]:
        samples = self._samples[sender]
        if not samples or (len(samples) < 2 * MAX_SAMPLES and now_ns - self._sampled_ns[sender] < SAMPLES_EVERY_NS):
            return ()
        taken = tuple(samples)
        samples.clear()
        self._sampled_ns[sender] = now_ns
        return taken
