"""Builds progress: one dict of JSON values that describes a run, in the manner of Spark's StreamingQueryProgress.

Counts and percentiles cover the whole run. Rates, busy ratios and everything under a name that says ``interval`` or
``recent`` cover the time since the last build. A percentile of nothing is null, not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.metrics.coarse import coarse_buckets
from tailrace.metrics.counters import TaskKey, TaskSnapshot, Totals
from tailrace.metrics.cumulative import LATENCY_BOUNDS_NS, cumulative_counts
from tailrace.metrics.edges import WatchedEdge, edge_progress
from tailrace.metrics.histogram import Histogram

Progress = dict[str, Any]

SOURCE_ROLE = "source"
RUNNING, STARTING, STOPPED, FINISHED = "running", "starting", "stopped", "finished"
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker as the coordinator sees it. ``state`` is starting, running, stopped, or a word for what is wrong."""

    worker: int
    epoch: int
    pid: int | None
    host: str | None
    restarts: int
    cpu_seconds: float
    state: str

    def to_json(self) -> Progress:
        return {
            "worker": self.worker,
            "epoch": self.epoch,
            "pid": self.pid,
            "host": self.host,
            "restarts": self.restarts,
            "cpuSeconds": round(self.cpu_seconds, 3),
            "state": self.state,
        }


@dataclass(frozen=True, slots=True)
class _Group:
    """The counters of some tasks, at the last build and now."""

    earlier: Sequence[TaskSnapshot]
    now: Sequence[TaskSnapshot]
    interval_ns: int

    def total(self, name: str) -> int:
        return _sum(self.now, name)

    def delta(self, name: str) -> int:
        return self.total(name) - _sum(self.earlier, name)

    def per_second(self, name: str) -> float:
        return round(self.delta(name) * SECOND_NS / self.interval_ns, 3) if self.interval_ns > 0 else 0.0

    def busy_ratio(self) -> float:
        """The mean over the tasks. It exceeds 1 if a task runs several tuples at once."""
        return round(self._share("busy_ns") / len(self.now), 4) if self.now else 0.0

    def share(self, name: str) -> float:
        """The counted time as a share of one core."""
        return round(self._share(name), 5)

    def _share(self, name: str) -> float:
        """Mean share of time, relative to the interval between a task's own reports: these are not taken at builds."""
        before = {task.key: task for task in self.earlier}
        shares = 0.0
        for task in self.now:
            earlier, elapsed_ns = before.get(task.key), self.interval_ns
            if earlier is not None and task.worker == earlier.worker and 0 < earlier.at_ns < task.at_ns:
                elapsed_ns = task.at_ns - earlier.at_ns
            spent_ns = getattr(task, name) - (getattr(earlier, name) if earlier is not None else 0)
            shares += spent_ns / elapsed_ns if elapsed_ns > 0 else 0.0
        return shares

    def histogram(self, name: str) -> Histogram:
        return _merge(self.now, name)

    def interval_histogram(self, name: str) -> Histogram:
        return self.histogram(name).subtract(_merge(self.earlier, name))


class ProgressBuilder:
    """Collects the snapshots of all workers and builds progress from them.

    ``operators``: ``(name, role, tasks)``. ``scopes``: by operator, whether its tasks share a queue per "worker", per
    "node", or not (None); it may change. ``edges``: those with load-aware groupings, by index. ``calling``: operators
    that have ``calls``.
    """

    def __init__(
        self,
        run_id: str,
        job_id: str,
        name: str,
        operators: Iterable[tuple[str, str, int]],
        *,
        started_ns: int,
        scopes: Mapping[str, str | None] | None = None,
        edges: Mapping[int, WatchedEdge] | None = None,
        calling: Iterable[str] = (),
    ) -> None:
        self._run_id = run_id
        self._job_id = job_id
        self._name = name
        self._operators = list(operators)
        self._names = frozenset(operator for operator, _, _ in self._operators)
        self.scopes = dict(scopes or {})
        self._edges = dict(edges or {})
        self._calling = frozenset(calling)
        self._started_ns = started_ns
        self._totals = Totals()
        self._last_ns = started_ns
        self._last: dict[TaskKey, TaskSnapshot] = {}

    def update(self, worker: int, epoch: int, snapshots: Iterable[TaskSnapshot]) -> None:
        """Add what ``worker`` reports about its tasks, all from its process of ``epoch``."""
        for snapshot in snapshots:
            if snapshot.operator not in self._names:
                raise ValueError(f"snapshot of an unknown operator: operator={snapshot.operator!r} worker={worker}")
            if snapshot.worker != worker:
                raise ValueError(f"snapshot of another worker's task: worker={worker} snapshot={snapshot.worker}")
            self._totals.update(snapshot.key, epoch, snapshot)

    def snapshots(self) -> list[TaskSnapshot]:
        """The counters of every task that has reported, summed over all its epochs."""
        return list(map(self._totals.task, self._totals.keys()))

    def build(
        self,
        now_ns: int,
        timestamp_iso: str,
        workers: Sequence[WorkerStatus],
        recoveries: int,
        state_lost: Sequence[str],
        status: str | None = None,
        tail: Mapping[str, str | None] | None = None,
    ) -> Progress:
        """The progress until now. The next interval starts here.

        ``status`` replaces the one derived from the workers' states. ``tail`` names the techniques that are on.
        """
        tasks = self._tasks_by_operator()
        groups = {operator: self._group(keys, now_ns) for operator, keys in tasks.items()}
        everything = self._group([key for keys in tasks.values() for key in keys], now_ns)
        sources = [name for name, role, _ in self._operators if role == SOURCE_ROLE]
        roots = self._group([key for name in sources for key in tasks[name]], now_ns)
        total, recent = _latency(roots.histogram), _latency(roots.interval_histogram)
        progress = {
            "id": self._job_id,
            "runId": self._run_id,
            "name": self._name,
            "timestamp": timestamp_iso,
            "elapsedMs": _ms(now_ns - self._started_ns),
            "intervalMs": _ms(now_ns - self._last_ns),
            "status": status or describe(workers),
            **_flow(roots),
            "pending": roots.total("pending"),
            "completed": roots.total("completed"),
            "durable": roots.total("durable"),
            "recoveries": recoveries,
            "reemitted": roots.total("reemitted"),
            "duplicatesDropped": everything.total("duplicates"),
            "skipped": everything.total("skipped"),
            "deadLetters": everything.total("dead_letters"),
            "stateLost": list(state_lost),
            "tail": dict(tail or {}),
            "replay": _replay(roots, everything),
            "latencyMs": {**total, "interval": recent},
            "totalLatencyMs": total,
            "recentLatencyMs": recent,
            "latencyHistogram": _chart(roots.histogram("complete")),
            "latencyBuckets": {
                "complete": _cumulative(roots.histogram("complete")),
                "durable": _cumulative(roots.histogram("durable_latency")),
            },
            "sources": [{"name": name, **_flow(groups[name])} for name in sources],
            "operators": [
                self._operator(name, role, groups[name], now_ns, workers) for name, role, _ in self._operators
            ],
            "edges": [self._edge(index, edge, groups, everything) for index, edge in self._edges.items()],
            "workers": [{**worker.to_json(), "feedback": self._feedback(worker.worker, now_ns)} for worker in workers],
        }
        self._last_ns = now_ns
        self._last = {snapshot.key: snapshot for snapshot in everything.now}
        return progress

    def _edge(self, index: int, edge: WatchedEdge, groups: Mapping[str, _Group], everything: _Group) -> Progress:
        """The progress of one edge. If its senders are fused into other tasks, those report its state."""
        states = [state for task in everything.now for state in task.edges if state.edge == index]
        receivers = groups[edge.downstream]
        return edge_progress(edge, states, receivers.earlier, receivers.now)

    def _feedback(self, worker: int, now_ns: int) -> Progress:
        """The cost of load-aware groupings, for the tasks that are on this worker now."""
        tasks = map(self._totals.task, self._totals.keys())
        keys = [task.key for task in tasks if task.worker == worker]
        group = self._group(keys, now_ns)
        return {
            "messages": group.total("feedback_messages"),
            "bytes": group.total("feedback_bytes"),
            "ms": _ms(group.total("feedback_ns")),
            "share": group.share("feedback_ns"),
            "choosingMs": _ms(group.total("choosing_ns")),
        }

    def _tasks_by_operator(self) -> dict[str, list[TaskKey]]:
        """All declared tasks, and others that have reported."""
        keys = {(name, task) for name, _, tasks in self._operators for task in range(tasks)}
        keys.update(self._totals.keys())
        return {name: sorted(key for key in keys if key[0] == name) for name, _, _ in self._operators}

    def _group(self, keys: Sequence[TaskKey], now_ns: int) -> _Group:
        earlier = [self._last[key] for key in keys if key in self._last]
        return _Group(earlier, [self._totals.task(key) for key in keys], now_ns - self._last_ns)

    def _shared_queues(self, name: str, group: _Group, workers: Sequence[WorkerStatus]) -> list[Progress]:
        """The queues of an operator that several tasks share."""
        scope = self.scopes.get(name)
        if scope is None:
            return []
        queues = _queues_by_worker(group)
        if scope == "node":
            queues = _queues_by_node(queues, workers)
        return [queue for queue in queues if queue["tasks"] > 1]

    def _operator(self, name: str, role: str, group: _Group, now_ns: int, workers: Sequence[WorkerStatus]) -> Progress:
        tasks = [self._task(snapshot, now_ns) for snapshot in group.now]
        return {
            "name": name,
            "role": role,
            "received": group.total("received"),
            "emitted": group.total("emitted"),
            "receivedPerSecond": group.per_second("received"),
            "emittedPerSecond": group.per_second("emitted"),
            "queued": group.total("queued"),
            "backlog": group.total("backlog"),
            "largestBacklog": max((task.largest_backlog for task in group.now), default=0),
            "blockedMs": _ms(group.total("blocked_ns")),
            "sharedQueues": self._shared_queues(name, group, workers),
            "busyRatio": group.busy_ratio(),
            "skipped": group.total("skipped"),
            "deadLetters": group.total("dead_letters"),
            "duplicates": group.total("duplicates"),
            "executionMs": distribution_ms(group.histogram("execution")),
            "intervalExecutionMs": distribution_ms(group.interval_histogram("execution")),
            "calls": _calls(group) if name in self._calling else None,
            "tasks": tasks,
        }

    def _task(self, now: TaskSnapshot, now_ns: int) -> Progress:
        return {
            "task": now.task,
            "worker": now.worker,
            "received": now.received,
            "emitted": now.emitted,
            "queued": now.queued,
            "held": now.held,
            "backlog": now.backlog,
            "largestBacklog": now.largest_backlog,
            "busyRatio": self._group([now.key], now_ns).busy_ratio(),
            "executionMs": distribution_ms(Histogram.from_snapshot(now.execution)),
            "skipped": now.skipped,
            "deadLetters": now.dead_letters,
            "duplicates": now.duplicates,
            "blockedMs": _ms(now.blocked_ns),
            "cpuMs": _ms(now.cpu_ns),
            "calls": _calls(self._group([now.key], now_ns)) if now.operator in self._calling else None,
        }


def _calls(group: _Group) -> Progress:
    """The calls of an operator that has ``calls=…``, or of one of its tasks."""
    return {
        "calls": group.total("calls"),
        "attempts": group.total("call_attempts"),
        "retries": group.total("call_retries"),
        "timeouts": group.total("call_timeouts"),
        "throttled": group.total("call_refusals"),
        "hedges": group.total("call_hedges"),
        "hedgesWon": group.total("call_hedges_won"),
        "failed": group.total("calls_failed"),
        "found": group.total("calls_found"),
        "limitWaitMs": _ms(group.total("limit_wait_ns")),
        "givenUpThreads": group.total("given_up_threads"),
    }


def describe(workers: Sequence[WorkerStatus]) -> str:
    """The state of a run in a few words, derived from its workers."""
    states = [worker.state for worker in workers]
    running = states.count(RUNNING)
    if states and running == len(states):
        return RUNNING
    if states and states.count(STOPPED) == len(states):
        return STOPPED
    fresh = all(worker.restarts == 0 and worker.state in (RUNNING, STARTING) for worker in workers)
    return f"{STARTING if fresh else 'recovering'}: {running} of {len(states)} workers running"


def distribution_ms(histogram: Histogram) -> Progress:
    """Percentiles, largest, mean, sum and count; all but the last two are null if nothing was recorded."""
    if not histogram.count:
        return {**dict.fromkeys((*_PERCENTILES, "max", "mean")), "sum": 0, "count": 0}
    values = dict(zip(_PERCENTILES, map(_ms, histogram.percentiles(*_PERCENTILES.values())), strict=True))
    whole = {"max": _ms(histogram.max), "mean": _ms(histogram.mean), "sum": _ms(histogram.sum)}
    return {**values, **whole, "count": histogram.count}


def _queues_by_worker(group: _Group) -> list[Progress]:
    """Shared queues by worker. The first task of each worker reports the tuples that wait for all of its tasks."""
    by_worker: dict[int, list[TaskSnapshot]] = {}
    for task in group.now:
        if task.worker is not None:
            by_worker.setdefault(task.worker, []).append(task)
    return [
        {"worker": worker, "tasks": len(tasks), "queued": _sum(tasks, "queued")}
        for worker, tasks in sorted(by_worker.items())
    ]


def _queues_by_node(queues: Sequence[Progress], workers: Sequence[WorkerStatus]) -> list[Progress]:
    """Shared queues by node. One worker of each node reports the tuples that wait in its queue."""
    host_of = {worker.worker: worker.host or "" for worker in workers}
    by_node: dict[str, list[Progress]] = {}
    for queue in queues:
        by_node.setdefault(host_of.get(queue["worker"], ""), []).append(queue)
    return [
        {
            "node": node,
            "workers": [queue["worker"] for queue in some],
            "tasks": sum(queue["tasks"] for queue in some),
            "queued": sum(queue["queued"] for queue in some),
        }
        for node, some in sorted(by_node.items())
    ]


def _flow(roots: _Group) -> Progress:
    """Throughput under Spark's names: rows of the interval, and rows read and completed per second."""
    return {
        "numInputRows": roots.delta("received"),
        "inputRowsPerSecond": roots.per_second("received"),
        "processedRowsPerSecond": roots.per_second("completed"),
    }


def _latency(histogram: Callable[[str], Histogram]) -> Progress:
    return {
        "complete": distribution_ms(histogram("complete")),
        "durable": distribution_ms(histogram("durable_latency")),
    }


def _replay(roots: _Group, everything: _Group) -> Progress:
    """The effect of hedging. The timeout is the longest of all source tasks, or null if none has one.

    The number of hedges left is null if nothing limits them.
    """
    timeout_ns = max((task.timeout_ns for task in roots.now), default=0)
    left = [task.hedges_left for task in roots.now]
    return {
        "hedges": roots.total("hedges"),
        "won": roots.total("hedges_won"),
        "wasted": roots.total("hedges_wasted"),
        "cancelledTuples": everything.total("unrun") + everything.total("unrun_hedges"),
        "timeoutMs": _ms(timeout_ns) if timeout_ns else None,
        "hedgesLeft": None if None in left else round(sum(filter(None, left), 0.0), 1),
    }


def _chart(histogram: Histogram) -> list[list[float]]:
    return [[_ms(upper_ns), count] for upper_ns, count in coarse_buckets(histogram)]


def _cumulative(histogram: Histogram) -> list[list[float]]:
    counts = cumulative_counts(histogram)
    return [[_ms(bound_ns), count] for bound_ns, count in zip(LATENCY_BOUNDS_NS, counts, strict=True)]


def _sum(snapshots: Iterable[TaskSnapshot], name: str) -> int:
    return sum(getattr(snapshot, name) for snapshot in snapshots)


def _merge(snapshots: Iterable[TaskSnapshot], name: str) -> Histogram:
    return Histogram.merged(getattr(snapshot, name) for snapshot in snapshots)


def _ms(ns: float) -> float:
    return round(ns / MILLISECOND_NS, 6)
