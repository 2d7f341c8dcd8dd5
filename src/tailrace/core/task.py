"""A task receives bundles, runs them through its stages, and leaves what follows in its lanes and ack folds.

It is pure: the runtime brings it bundles and empties its lanes and folds, and decides when it runs. A task object
stands for a whole unit, that is a leading operator's task together with the tasks fused to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tailrace.clock import Clock
from tailrace.core.acks import AckFold
from tailrace.core.messages import Committed, Flush, ToWorker
from tailrace.core.plan import Plan
from tailrace.core.router import Bundle, Lane
from tailrace.core.stage import CommitSinkStage, Stage, Wiring
from tailrace.errors import TailraceError
from tailrace.metrics.counters import TaskCounters


class Task:
    """What all tasks have in common: an input queue, lanes, ack folds, and the sinks that are fused in."""

    def __init__(self, plan: Plan, number: int, clock: Clock) -> None:
        self.plan = plan
        self.number = number
        self.queue: deque[Bundle] = deque()
        self.lanes: list[Lane] = []
        self.acks: dict[int, AckFold] = {owner: AckFold() for owner in plan.owners}
        self.wirings: list[Wiring] = []  # of the leader first, then of what is fused to it
        self.sinks: list[CommitSinkStage] = []
        self.clock = clock
        self._owners = plan.owners

    @property
    def label(self) -> str:
        return self.plan.label(self.number)

    def receive(self, bundles: Sequence[Bundle]) -> None:
        self.queue.extend(bundles)

    @property
    def runnable(self) -> bool:
        return bool(self.queue)

    def run(self, budget_ns: int) -> None:
        """Work for about this long, or until there is nothing to do."""
        raise NotImplementedError

    @property
    def counters(self) -> list[TaskCounters]:
        return [wiring.counters for wiring in self.wirings]

    def settle(self) -> None:
        """Bring the counters up to date."""
        for wiring in self.wirings:
            wiring.settle()

    def handle(self, message: ToWorker) -> None:
        """The coordinator said something."""
        match message:
            case Committed():
                for sink in self.sinks:
                    for split, offset in message.offsets.items():
                        sink.log.advance(split, offset)
            case Flush():
                for sink in self.sinks:
                    sink.commit()

    def unsendable(self, edge: int, bundle: Bundle, position: int, cause: Exception) -> None:
        """A tuple of a bundle cannot leave this task. What becomes of it is up to the operator that emitted it."""
        upstream, downstream = (self.plan.operators[end].name for end in self.plan.edges[edge].ends)
        wiring = next(wiring for wiring in self.wirings if wiring.operator == upstream)
        emission, split, offset, _, lineages, values = bundle
        error = TailraceError(
            f"a tuple cannot be sent: from={upstream} to={downstream} cause={type(cause).__name__}: {cause}"
        )
        lineage = None if lineages is None else lineages[position]
        self.acknowledge(emission, split, wiring.failed(emission, split, offset, values[position], lineage, error))

    def acknowledge(self, emission: int, split: int, ids: int) -> None:
        both = self.acks[self._owners[split]].both
        both[emission] = both.get(emission, 0) ^ ids


class PlainTask(Task):
    """A task whose leader takes tuples one by one."""

    stage: Stage

    def run(self, budget_ns: int) -> None:
        queue, run, acks, owners, clock = self.queue, self.stage.run, self.acks, self._owners, self.clock
        end_ns = clock() + budget_ns
        while queue:
            emission, split, offset, ack, lineages, values = queue.popleft()
            ids = ack ^ run(emission, split, offset, values, lineages)
            both = acks[owners[split]].both
            both[emission] = both.get(emission, 0) ^ ids
            if clock() >= end_ns:
                return
