"""Faults of sinks, besides those of their workers.

A run that continues after the death of its driver may have another number of sink tasks while zombies of the old ones
live. Sinks may be on the driver, and another run may use the same sinks at the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from tailrace.clock import MILLISECOND_NS
from tailrace.connector import Entry
from tailrace.core.protocol.driver_rows import SinkTask
from tailrace.sim.faults.cluster import MAX_RESTARTS, Cluster
from tailrace.sim.faults.topologies import Case, Row

MS = MILLISECOND_NS
JOB = "other"
RESTARTS = 0.3
"""Probability that the driver dies at a stored prefix, in runs whose number of sink tasks changes then."""


@dataclass(frozen=True)
class SinkFaults:
    """The part of a seed's decisions that is about sinks."""

    plans: Sequence[int]  # the plan of each later run, as a position; empty: all have the same
    on_driver: bool
    other_run_at_ns: Sequence[int]  # when another run uses the same sinks


def sink_faults_of(seed: int) -> SinkFaults:
    """Drawn from a generator of its own, so that the rest of a seed stays the same."""
    rng = Random(f"{seed} sinks")
    plans = [rng.choice([1, 2]), *(rng.randrange(3) for _ in range(1, MAX_RESTARTS))] if rng.random() < 0.35 else []
    on_driver = rng.random() < 0.25
    times = [rng.randrange(10, 600) * MS for _ in range(rng.randrange(1, 30))] if on_driver else []
    return SinkFaults(plans, on_driver, times)


def bring_about(faults: SinkFaults, cluster: Cluster, case: Case) -> OtherRun:
    """Prepare the cluster for these faults. Returns the other run, which acts at its times."""
    if faults.plans:
        plans = (case.plan, *case.other_sinks)
        cluster.later_plans = [plans[number] for number in faults.plans]
        cluster.crashes = replace(cluster.crashes, at_persist=RESTARTS)
    cluster.store.on_driver = faults.on_driver
    other = OtherRun(cluster, sorted(case.rows))
    for at_ns in faults.other_run_at_ns:
        cluster.engine.after(at_ns, other.act)
    return other


class OtherRun:
    """Another run of the same topology on the same driver: the same operators, splits, offsets and epochs.

    Each time its one task is a new epoch, recovers, and commits all its rows again with one more.
    """

    def __init__(self, cluster: Cluster, sinks: Sequence[str]) -> None:
        self._cluster = cluster
        self._sinks = sinks
        self._split = cluster.plan.splits[0].key
        self.times = 0

    def act(self) -> None:
        self.times += 1
        entries = [Entry(self._split, offset, offset) for offset in range(self.times)]
        rows = [self._row(offset) for offset in range(self.times)]
        for sink in self._sinks:
            driver_side = self._cluster.store.driver_side(sink)
            place = SinkTask(JOB, sink, 0, self.times, 1)
            driver_side.recover(place, {})
            driver_side.commit(place, rows, entries, {})

    def wrong(self, sink: str) -> Counter[Row]:
        """Remove the rows of this run from a sink. Returns those that are missing or doubled."""
        rows = self._cluster.store.rows.get(sink, Counter())
        got = Counter({row: count for row, count in rows.items() if row[0] == JOB})
        rows.subtract(got)
        expected = Counter(self._row(offset) for offset in range(self.times))
        return (got - expected) + (expected - got)

    def _row(self, offset: int) -> Row:
        return (JOB, self._split, offset)
