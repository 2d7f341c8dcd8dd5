"""All metrics: the name, kind and meaning of each, and where its value is in a progress.

Names follow the Prometheus conventions: seconds, ``_total`` for counters. Counters cover one run; a run that resumes
from a checkpoint starts at zero again, which Prometheus treats as a counter reset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any

from tailrace.metrics.exposition import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    SUMMARY,
    Family,
    Labels,
    Sample,
    histogram,
    render_family,
    summary,
)
from tailrace.metrics.progress import RUNNING, Progress

PREFIX = "tailrace_"
QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))

Read = Callable[[Progress], Iterable[Sample]]
Metric = tuple[Family, Read]


def render(progress: Progress, *, active: bool = True) -> str:
    """A progress in the text format 0.0.4. Metrics of parts that ``progress`` does not have are left out."""
    state = {**progress, "active": active}
    lines = (line for family, read in _METRICS for line in render_family(family, list(read(state))))
    return "".join(f"{line}\n" for line in lines)


# -- the scope of a metric: the run, each task, each worker, each edge


@dataclass(frozen=True, slots=True)
class _Scope:
    """``parts`` yields every part of a progress that has such a metric, with its labels."""

    labels: tuple[str, ...]
    parts: Callable[[Progress], Iterable[tuple[Labels, Progress]]]


def _the_run(progress: Progress) -> Iterator[tuple[Labels, Progress]]:
    yield (("topology", str(progress.get("name", ""))),), progress


def _each_task(progress: Progress) -> Iterator[tuple[Labels, Progress]]:
    """Tasks that have reported. Before that they have no worker and no counters."""
    for labels, run in _the_run(progress):
        for operator in run.get("operators", ()):
            for task in operator["tasks"]:
                if task["worker"] is not None:
                    place = {"operator": operator["name"], "task": str(task["task"]), "worker": str(task["worker"])}
                    yield (*labels, *place.items()), task


def _each_worker(progress: Progress) -> Iterator[tuple[Labels, Progress]]:
    for labels, run in _the_run(progress):
        for worker in run.get("workers", ()):
            yield (*labels, ("worker", str(worker["worker"]))), worker


def _each_edge(progress: Progress) -> Iterator[tuple[Labels, Progress]]:
    """Edges with load-aware groupings."""
    for labels, run in _the_run(progress):
        for edge in run.get("edges", ()):
            yield (*labels, ("from", edge["from"]), ("to", edge["to"]), ("grouping", edge["grouping"])), edge


RUN = _Scope(("topology",), _the_run)
EDGE = _Scope(("topology", "from", "to", "grouping"), _each_edge)
TASK = _Scope(("topology", "operator", "task", "worker"), _each_task)
WORKER = _Scope(("topology", "worker"), _each_worker)


# -- how a metric is read: as a number, a summary or a histogram


def _itself(value: float) -> float:
    return value


def _seconds(ms: float) -> float:
    return round(ms / 1_000, 9)


def _sum_s(distribution: Progress) -> float:
    return _seconds(distribution["sum"])


def _is_running(state: str) -> bool:
    return state == RUNNING


def _number(
    scope: _Scope, name: str, kind: str, meaning: str, key: str, value: Callable[[Any], float] = _itself
) -> Metric:
    def read(progress: Progress) -> Iterator[Sample]:
        for labels, part in scope.parts(progress):
            if part.get(key) is not None:
                yield Sample(labels, value(part[key]))

    return Family(PREFIX + name, kind, meaning, scope.labels), read


def _summary(scope: _Scope, name: str, meaning: str, *keys: str) -> Metric:
    def read(progress: Progress) -> Iterator[Sample]:
        for labels, part in scope.parts(progress):
            if keys[0] in part:
                found = reduce(getitem, keys, part)
                known = [(quantile, found[key]) for key, quantile in QUANTILES if found[key] is not None]
                quantiles = [(quantile, _seconds(ms)) for quantile, ms in known]
                yield from summary(labels, quantiles, found["count"], _sum_s(found))

    return Family(PREFIX + name, SUMMARY, meaning, scope.labels), read


def _recent(name: str, meaning: str, key: str) -> Metric:
    def read(progress: Progress) -> Iterator[Sample]:
        for labels, run in RUN.parts(progress):
            ms = run["recentLatencyMs"][key]["p99"] if "recentLatencyMs" in run else None
            if ms is not None:  # else no root has completed since the last progress
                yield Sample(labels, _seconds(ms))

    return Family(PREFIX + name, GAUGE, meaning, RUN.labels), read


def _latency_histogram(name: str, meaning: str, key: str) -> Metric:
    def read(progress: Progress) -> Iterator[Sample]:
        for labels, run in RUN.parts(progress):
            if "latencyBuckets" in run:
                whole = run["latencyMs"][key]
                buckets = [(_seconds(bound_ms), count) for bound_ms, count in run["latencyBuckets"][key]]
                yield from histogram(labels, buckets, whole["count"], _sum_s(whole))

    return Family(PREFIX + name, HISTOGRAM, meaning, RUN.labels), read


def _feedback(name: str, meaning: str, key: str, value: Callable[[Any], float] = _itself) -> Metric:
    def read(progress: Progress) -> Iterator[Sample]:
        for labels, part in WORKER.parts(progress):
            if "feedback" in part:
                yield Sample(labels, value(part["feedback"][key]))

    return Family(PREFIX + name, COUNTER, meaning, WORKER.labels), read


def _replay(name: str, kind: str, meaning: str, key: str, value: Callable[[Any], float] = _itself) -> Metric:
    def read(progress: Progress) -> Iterator[Sample]:
        for labels, run in RUN.parts(progress):
            found = run.get("replay", {}).get(key)
            if found is not None:
                yield Sample(labels, value(found))

    return Family(PREFIX + name, kind, meaning, RUN.labels), read


def _calls(name: str, kind: str, meaning: str, key: str, value: Callable[[Any], float] = _itself) -> Metric:
    """A metric of the tasks whose operator has ``calls=…``."""

    def read(progress: Progress) -> Iterator[Sample]:
        for labels, part in TASK.parts(progress):
            if part.get("calls") is not None:
                yield Sample(labels, value(part["calls"][key]))

    return Family(PREFIX + name, kind, meaning, TASK.labels), read


def _run_info(name: str, meaning: str) -> Metric:
    def read(progress: Progress) -> Iterator[Sample]:
        for labels, run in RUN.parts(progress):
            yield Sample((*labels, ("id", str(run.get("id", ""))), ("run_id", str(run.get("runId", "")))), 1)

    return Family(PREFIX + name, GAUGE, meaning, (*RUN.labels, "id", "run_id")), read


# -- all of them, in the order in which they are served

_METRICS: tuple[Metric, ...] = (
    _run_info("run_info", "Always 1; says which run this is."),
    _number(RUN, "run_active", GAUGE, "1 while the run goes on, 0 once it has ended.", "active"),
    _number(RUN, "run_elapsed_seconds", GAUGE, "Time since the run started.", "elapsedMs", _seconds),
    _number(RUN, "roots_pending", GAUGE, "Roots that were read and are not yet durable.", "pending"),
    _number(RUN, "roots_completed_total", COUNTER, "Roots that every operator has processed.", "completed"),
    _number(RUN, "roots_durable_total", COUNTER, "Roots that every sink has committed.", "durable"),
    _number(RUN, "roots_reemitted_total", COUNTER, "Roots that were sent again after a loss.", "reemitted"),
    _number(RUN, "recoveries_total", COUNTER, "Recoveries from a lost worker or link.", "recoveries"),
    _replay("hedges_total", COUNTER, "Times a root was sent once more because it was late.", "hedges"),
    _replay("hedges_won_total", COUNTER, "Hedges that were complete before what they raced.", "won"),
    _replay("hedges_wasted_total", COUNTER, "Hedges that were not.", "wasted"),
    _replay("cancelled_tuples_total", COUNTER, "Tuples thrown away because another was first.", "cancelledTuples"),
    _replay("hedge_timeout_seconds", GAUGE, "The age from which a root is late.", "timeoutMs", _seconds),
    _replay("hedges_left", GAUGE, "Hedges that the budget pays for now.", "hedgesLeft"),
    _number(
        RUN,
        "state_lost_operators",
        GAUGE,
        "Stateful operators that lost state, with a worker or before.",
        "stateLost",
        len,
    ),
    _summary(RUN, "complete_latency_seconds", "From due to complete, since the run started.", "latencyMs", "complete"),
    _summary(RUN, "durable_latency_seconds", "From due to durable, since the run started.", "latencyMs", "durable"),
    _recent("recent_complete_latency_p99_seconds", "99% took no longer to complete, in the last second.", "complete"),
    _recent("recent_durable_latency_p99_seconds", "99% took no longer to be durable, in the last second.", "durable"),
    _latency_histogram("complete_latency_histogram_seconds", "From due to complete, in buckets.", "complete"),
    _latency_histogram("durable_latency_histogram_seconds", "From due to durable, in buckets.", "durable"),
    _number(TASK, "received_total", COUNTER, "Tuples taken in; by a source: records read.", "received"),
    _number(TASK, "emitted_total", COUNTER, "Tuples sent, those sent again included.", "emitted"),
    _number(TASK, "skipped_total", COUNTER, "Tuples given up under on_error=skip.", "skipped"),
    _number(TASK, "dead_letters_total", COUNTER, "Tuples sent to the dead letters.", "deadLetters"),
    _number(TASK, "duplicates_total", COUNTER, "Rows that a sink dropped because it had them.", "duplicates"),
    _number(TASK, "queued_tuples", GAUGE, "Tuples that wait to be executed.", "queued"),
    _number(TASK, "held_tuples", GAUGE, "Tuples that wait here for some task to have room.", "held"),
    _number(TASK, "backlog_tuples", GAUGE, "Tuples in the outgoing queue of a scheduled task.", "backlog"),
    _number(TASK, "largest_backlog_tuples", GAUGE, "The most that its outgoing queue has held.", "largestBacklog"),
    _number(TASK, "busy_seconds_total", COUNTER, "Time spent inside the operator's function.", "executionMs", _sum_s),
    _number(
        TASK,
        "blocked_seconds_total",
        COUNTER,
        "Time held back by a full queue ahead.",
        "blockedMs",
        _seconds,
    ),
    _number(TASK, "cpu_seconds_total", COUNTER, "Processor time of the task.", "cpuMs", _seconds),
    _summary(TASK, "execution_seconds", "Time of one call, since the run started.", "executionMs"),
    _calls("calls_total", COUNTER, "Calls that have ended, of an operator with calls=….", "calls"),
    _calls("call_attempts_total", COUNTER, "Attempts that these calls took, without hedges.", "attempts"),
    _calls("call_retries_total", COUNTER, "Attempts after an error.", "retries"),
    _calls("call_timeouts_total", COUNTER, "Attempts that took longer than timeout_s.", "timeouts"),
    _calls("call_throttled_total", COUNTER, "Attempts that the service refused with RetryAfter.", "throttled"),
    _calls("call_hedges_total", COUNTER, "Calls that were made once more because they were late.", "hedges"),
    _calls("call_hedges_won_total", COUNTER, "Hedges of calls that answered first.", "hedgesWon"),
    _calls("calls_failed_total", COUNTER, "Calls that failed for good.", "failed"),
    _calls("calls_found_total", COUNTER, "Calls whose result was in the journal.", "found"),
    _calls("call_limit_wait_seconds_total", COUNTER, "Time calls waited for their limit.", "limitWaitMs", _seconds),
    _calls("given_up_threads", GAUGE, "Threads in a function whose result is not wanted any more.", "givenUpThreads"),
    _number(EDGE, "edge_held_tuples", GAUGE, "Tuples that wait for some task to have room.", "held"),
    _number(EDGE, "edge_credits", GAUGE, "Tuples that senders may send at once (pull).", "credits"),
    _number(EDGE, "edge_estimate_seconds", GAUGE, "Mean of what tuples were taken to cost.", "estimateMs", _seconds),
    _number(EDGE, "edge_measured_seconds", GAUGE, "Mean of what they did cost.", "measuredMs", _seconds),
    _number(EDGE, "edge_least_share_ratio", GAUGE, "Of the tuples: what the task with the fewest got.", "leastShare"),
    _number(EDGE, "edge_most_share_ratio", GAUGE, "Of the tuples: what the task with the most got.", "mostShare"),
    _number(WORKER, "worker_up", GAUGE, "1 while the worker runs, 0 while it does not.", "state", _is_running),
    _number(WORKER, "worker_restarts_total", COUNTER, "Times the worker was started again.", "restarts"),
    _number(WORKER, "worker_cpu_seconds_total", COUNTER, "Processor time of the worker's process.", "cpuSeconds"),
    _feedback("worker_feedback_messages_total", "Messages that its load-aware groupings sent.", "messages"),
    _feedback("worker_feedback_bytes_total", "What they took on links, about.", "bytes"),
    _feedback("worker_feedback_seconds_total", "Time spent on these messages.", "ms", _seconds),
    _feedback("worker_choosing_seconds_total", "Time its groupings spent on choosing tasks.", "choosingMs", _seconds),
)

FAMILIES = tuple(family for family, _ in _METRICS)
