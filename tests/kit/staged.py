"""For tests of several stages and of hedging: rules that hedge, and an auditor that watches every task."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any
from unittest.mock import patch

from tailrace.policy.hedging.api import MOST_HEDGES, Load
from tailrace.sim import Forest, Model, Report
from tailrace.sim.load.queues import Job
from tailrace.sim.load.stage import StageAtWork


class Planned:
    """Knows when it will emit a root again, unless that is done by then, from the moment of its last emission."""

    def __init__(self, delay_ns: Callable[[], int | None], most: int = 1) -> None:
        self.delay_ns = delay_ns
        self.most = most
        self.pending: Counter[int] = Counter()
        self.plan: list[tuple[int, int]] = []

    def emitted(self, root: int, now_ns: int) -> None:
        self.pending[root] += 1
        delay_ns = self.delay_ns() if self.pending[root] <= self.most else None
        if delay_ns is not None:
            heapq.heappush(self.plan, (now_ns + delay_ns, root))

    def completed(self, root: int, now_ns: int, hedge: bool) -> None:
        del self.pending[root]

    def observed(self, load: Load, now_ns: int) -> None:
        assert 0 <= load.utilisation <= 1
        assert min(load.roots, load.hedges, load.work_ns, load.unrun_ns) >= 0

    def due(self, now_ns: int) -> Sequence[int]:
        found = []
        while self.plan and self.plan[0][0] <= now_ns:
            root = heapq.heappop(self.plan)[1]
            if root in self.pending:
                found.append(root)
                self.emitted(root, now_ns + 1)
        return found

    def wake_ns(self) -> int | None:
        return self.plan[0][0] if self.plan else None


@dataclass(frozen=True)
class Chance:
    """A share of the roots, each at a random moment; of these some once more."""

    share: float = 0.5
    spread_ns: int = 5_000_000
    name: str = "chance"
    cancels: bool = True
    budget: float | None = None

    def bind(self, rng: Random) -> Planned:
        return Planned(lambda: rng.randrange(self.spread_ns) if rng.random() < self.share else None, MOST_HEDGES)


@dataclass(frozen=True)
class Timeout:
    """All roots that are not done after so long."""

    after_ns: int
    name: str = "timeout"
    cancels: bool = True
    budget: float | None = None

    def bind(self, rng: Random) -> Planned:
        return Planned(lambda: self.after_ns)


@dataclass
class Audit:
    """Everything that tasks ran: (incarnation, tuple) -> when each run of it ended."""

    roots: int
    ends_ns: dict[int, dict[int, list[int]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    def check(self, model: Model, forest: Forest, report: Report, broadcasting: set[int]) -> None:
        """Of each root one incarnation was run in full, every tuple as often as there are copies; others in part."""
        hedged = 0
        for root in range(self.roots):
            expected = _copies(model, forest, root, broadcasting)
            runs = [self.ends_ns[root + again * self.roots] for again in range(1 + MOST_HEDGES)]
            ran = [Counter({index: len(ends) for index, ends in run.items()}) for run in runs]
            ends_ns = [max((max(ends) for ends in run.values()), default=0) for run in runs]
            whole = [end_ns for one, end_ns in zip(ran, ends_ns, strict=True) if one == expected]
            assert report.done_ns[root] in whole, f"root={root}"
            assert all(one <= expected for one in ran), f"run too often: root={root}"
            hedged += sum(map(bool, ran[1:]))
        assert hedged <= report.hedges
        assert sum(report.executed) == sum(len(ends) for runs in self.ends_ns.values() for ends in runs.values())


@contextmanager
def audited(roots: int) -> Iterator[Audit]:
    audit = Audit(roots)
    finish = StageAtWork.finish

    def watched(stage: StageAtWork, task: int, duration_ns: int, job: Job) -> None:
        audit.ends_ns[job[1]][job[0]].append(stage.agenda.now_ns)
        finish(stage, task, duration_ns, job)

    with patch.object(StageAtWork, "finish", watched):
        yield audit


def _copies(model: Model, forest: Forest, root: int, broadcasting: set[int]) -> Counter[int]:
    found: Counter[int] = Counter()
    left: list[tuple[int, int]] = [(index, 1) for index in forest.roots[root]]
    while left:
        index, copies = left.pop()
        stage = forest.stages[index]
        copies *= model.operators[stage].tasks if stage in broadcasting else 1
        found[index] = copies
        left += [(child, copies) for child in forest.children[index]]
    return found


def facts(report: Report) -> tuple[Any, ...]:
    """All that must be equal if seeds are."""
    waits = [list(stage.waits_ns) for stage in report.stages]
    hedging = (report.hedges, report.hedges_won, report.cancelled, report.extra_work)
    return list(report.done_ns), report.executed, report.busy_ns, report.messages, waits, hedging
