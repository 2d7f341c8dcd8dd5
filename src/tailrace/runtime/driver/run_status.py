"""The reports of a run about itself: the state of its workers, its progress, and the load of its tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tailrace.clock import system_clock
from tailrace.core.plan.plan import EdgePlan, Plan
from tailrace.core.protocol.coordinator import Coordinator, Phase, WorkerState
from tailrace.core.protocol.messages import Registered
from tailrace.metrics.edges import WatchedEdge
from tailrace.metrics.progress import ProgressBuilder, WorkerStatus, describe
from tailrace.policy.hedging.api import Load
from tailrace.policy.techniques import Tail
from tailrace.runtime.driver.load import LoadMeter
from tailrace.runtime.links.control import Metrics, Opening


@dataclass
class _WorkerFacts:
    pid: int = 0
    host: str = ""
    opening: str = ""  # describes a task that takes long to open
    cpu_seconds: dict[int, float] = field(default_factory=dict)  # by epoch: a dead one's last report may come late


class RunStatus:
    """Collects what workers report, and builds progress from it. Any thread may call any method.

    It only reads from the coordinator, and decides nothing.
    """

    def __init__(
        self,
        plan: Plan,
        coordinator: Coordinator,
        run_id: str,
        job_id: str,
        tail: Tail,
        lost_state: Iterable[str],
        started_ns: int,
    ) -> None:
        self._plan = plan
        self._core = coordinator
        self._workers = {worker: _WorkerFacts() for worker in range(plan.workers)}
        self._lost_state = set(lost_state)  # stateful operators that have restarted empty
        self._progress = ProgressBuilder(
            run_id,
            job_id,
            plan.name,
            [(op.name, op.operator.role.value, op.tasks) for op in plan.operators],
            started_ns=started_ns,
            scopes=_scopes(plan, tail),
            edges={edge.index: _watched(plan, edge) for edge in plan.edges if edge.feedback},
            calling=[op.name for op in plan.operators if op.operator.calls is not None],
        )
        self._load = LoadMeter(plan)
        self._lock = threading.Lock()  # of the progress and the load meter

    # -- what workers report

    def registered(self, worker: int, message: Registered) -> None:
        facts = self._workers[worker]
        facts.pid, facts.host, facts.opening = message.pid, message.host, ""

    def opening(self, worker: int, message: Opening) -> None:
        """A task of this worker takes long to open."""
        text = f"worker {worker} has been opening {message.label} for {message.seconds:.0f} s"
        self._workers[worker].opening = text

    def counted(self, worker: int, epoch: int, metrics: Metrics) -> None:
        with self._lock:
            self._workers[worker].cpu_seconds[epoch] = metrics.cpu_seconds
            self._progress.update(worker, epoch, metrics.snapshots)

    # -- what the coordinator decides

    def abandoned(self, worker: int) -> None:
        """This worker is dead, and the state of its tasks with it."""
        self._workers[worker].pid = 0
        for task, home in enumerate(self._plan.home):
            operator = self._plan.operators[self._plan.operator_of[task]].operator
            if home == worker and operator.stateful:
                self._lost_state.add(operator.name)

    def switched(self, tail: Tail) -> None:
        self._progress.scopes = _scopes(self._plan, tail)

    # -- what the driver asks for

    def pids(self) -> dict[int, int]:
        """Process ids of the newest process of each worker, once it has registered."""
        return {worker: facts.pid for worker, facts in self._workers.items() if facts.pid}

    def load(self) -> Load | None:
        """The load since the last call; None on the first call."""
        with self._lock:
            return self._load.measure(self._progress.snapshots())

    def progress(self, tail: Tail, outcome: str | None) -> dict[str, Any]:
        """The progress of the run; rates are since the last call. ``outcome``: how the run ended, if it did."""
        with self._lock:
            workers = [self._status(worker) for worker in range(self._plan.workers)]
            return self._progress.build(
                system_clock(),
                datetime.now(UTC).isoformat(timespec="milliseconds"),
                workers,
                self._core.recoveries,
                sorted(self._lost_state),
                status=outcome or self._describe(workers),
                tail=tail.names(),
            )

    def _describe(self, workers: Sequence[WorkerStatus]) -> str:
        if self._core.phase is Phase.LEAVING:
            return "stopping"
        if self._core.draining:
            return "draining"
        slow = [
            facts.opening
            for worker, facts in self._workers.items()
            if facts.opening and self._core.state_of(worker) is WorkerState.OPENING
        ]
        return "; ".join([describe(workers), *slow])

    def _status(self, worker: int) -> WorkerStatus:
        facts = self._workers[worker]
        state = self._core.state_of(worker).value
        return WorkerStatus(
            worker=worker,
            epoch=self._core.epoch_of(worker),
            pid=facts.pid,
            host=facts.host,
            restarts=self._core.restarts_of(worker),
            cpu_seconds=sum(facts.cpu_seconds.values()),
            state={"ready": "running", "gone": "stopped", "opening": "starting"}.get(state, state),
        )


def _scopes(plan: Plan, tail: Tail) -> dict[str, str | None]:
    """By operator, whose tasks share a queue: those of a worker, of a node, or none."""
    return {op.name: op.scope(tail.shared_queues) for op in plan.operators}


def _watched(plan: Plan, edge: EdgePlan) -> WatchedEdge:
    upstream, downstream = (plan.operators[end].name for end in edge.ends)
    return WatchedEdge(upstream, downstream, edge.grouping.name)
