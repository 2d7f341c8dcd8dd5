from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tailrace.clock import MILLISECOND_NS, SECOND_NS
from tailrace.metrics.counters import EdgeState, TaskCounters
from tailrace.metrics.edges import WatchedEdge
from tailrace.metrics.progress import ProgressBuilder, WorkerStatus, describe

STARTED_NS = 5 * SECOND_NS
OPERATORS = [("lines", "source", 2), ("count", "map", 2), ("out", "sink", 1)]


def builder() -> ProgressBuilder:
    return ProgressBuilder("run-1", "job-1", "wordcount", OPERATORS, started_ns=STARTED_NS)


def worker(number: int, state: str = "running", restarts: int = 0) -> WorkerStatus:
    return WorkerStatus(number, 1 + restarts, 100 + number, "node-a", restarts, 1.5, state)


def build(progress: ProgressBuilder, seconds: float, **options: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"workers": [worker(0)], "recoveries": 0, "state_lost": [], **options}
    return progress.build(STARTED_NS + round(seconds * SECOND_NS), "2026-01-01T00:00:00Z", **values)


def task(name: str, number: int = 0, on: int = 0, **values: int) -> TaskCounters:
    counters = TaskCounters(name, number, on)
    for field, value in values.items():
        setattr(counters, field, value)
    return counters


def test_identity_time_and_json() -> None:
    found = build(builder(), 2.5, recoveries=3, state_lost=["count[1]"])
    assert json.loads(json.dumps(found)) == found
    assert (found["id"], found["runId"], found["name"]) == ("job-1", "run-1", "wordcount")
    assert (found["timestamp"], found["elapsedMs"], found["intervalMs"]) == ("2026-01-01T00:00:00Z", 2500.0, 2500.0)
    assert (found["recoveries"], found["stateLost"], found["status"]) == (3, ["count[1]"], "running")
    assert found["workers"] == [
        {
            "worker": 0,
            "epoch": 1,
            "pid": 100,
            "host": "node-a",
            "restarts": 0,
            "cpuSeconds": 1.5,
            "state": "running",
            "feedback": {"messages": 0, "bytes": 0, "ms": 0.0, "share": 0.0, "choosingMs": 0.0},
        }
    ]


def test_declared_tasks_appear_before_they_report() -> None:
    found = build(builder(), 1)
    assert [(op["name"], op["role"], len(op["tasks"])) for op in found["operators"]] == OPERATORS
    silent = found["operators"][1]["tasks"][1]
    assert (silent["task"], silent["worker"], silent["received"]) == (1, None, 0)
    nothing = {"p50": None, "p90": None, "p99": None, "p999": None, "max": None, "mean": None, "sum": 0, "count": 0}
    assert silent["executionMs"] == found["latencyMs"]["complete"] == nothing
    assert found["latencyHistogram"] == []
    assert {count for _, count in found["latencyBuckets"]["complete"]} == {0}  # the bounds are there from the start


def test_a_task_beyond_the_declared_ones_appears_too() -> None:
    progress = builder()
    progress.update(0, 1, [task("out", 4, received=7).snapshot()])
    out = build(progress, 1)["operators"][2]
    assert [entry["task"] for entry in out["tasks"]] == [0, 4]
    assert out["received"] == 7


@pytest.mark.parametrize(("left", "shown"), [((1.25, 2.0), 3.2), ((0.0, 0.0), 0.0), ((1.25, None), None)])
def test_hedges_that_are_left_are_those_of_all_sources_unless_one_has_no_limit(
    left: tuple[float | None, ...], shown: float | None
) -> None:
    progress = builder()
    sources = [task("lines", number) for number in range(2)]
    for source, hedges in zip(sources, left, strict=True):
        source.hedges_left = hedges
    progress.update(0, 1, [source.snapshot() for source in sources])
    assert build(progress, 1)["replay"]["hedgesLeft"] == shown


def edges_of(tasks: int, received: Sequence[int], states: Sequence[EdgeState]) -> dict[str, Any]:
    """The one edge of a run, in the second of two intervals; in the first, every task got 100 tuples."""
    operators = [("lines", "source", 1), ("count", "map", tasks)]
    watched = {3: WatchedEdge("lines", "count", "pull")}
    progress = ProgressBuilder("run-1", "job-1", "wordcount", operators, started_ns=STARTED_NS, edges=watched)
    counters = [task("count", number, received=100, busy_ns=200 * MILLISECOND_NS) for number in range(tasks)]
    progress.update(0, 1, [one.snapshot() for one in counters])
    first = build(progress, 1)
    assert first["edges"][0]["mostShare"] == pytest.approx(1 / tasks, abs=1e-4)
    source = task("lines")
    source.edges = (*states, EdgeState(4, 1_000, 1_000, 1_000, 1_000))  # another edge
    for one, some in zip(counters, received, strict=True):
        one.received += some
    progress.update(0, 1, [source.snapshot(), *(one.snapshot() for one in counters)])
    (edge,) = build(progress, 2)["edges"]
    return dict(edge)


def test_an_edge_tells_shares_of_the_interval_and_what_its_senders_are_about() -> None:
    edge = edges_of(2, [75, 25], [EdgeState(3, 5, 1, 10, 30 * MILLISECOND_NS)])
    assert (edge["from"], edge["to"], edge["grouping"]) == ("lines", "count", "pull")
    assert (edge["shares"], edge["leastShare"], edge["mostShare"]) == ([0.75, 0.25], 0.25, 0.75)
    assert (edge["held"], edge["credits"]) == (5, 1)
    assert (edge["estimateMs"], edge["measuredMs"]) == (3.0, pytest.approx(4 / 3, abs=1e-5))


def test_an_edge_of_many_tasks_is_summed_up() -> None:
    edge = edges_of(40, [1] * 39 + [61], [])
    assert (edge["shares"], edge["leastShare"], edge["mostShare"]) == ([], 0.01, 0.61)
    assert edge["estimateMs"] is None, "nobody estimates"
    idle = edges_of(2, [0, 0], [])
    assert (idle["shares"], idle["leastShare"], idle["mostShare"]) == ([], None, None)


def test_feedback_is_counted_by_worker_and_its_share_by_interval() -> None:
    progress = builder()
    ms = MILLISECOND_NS
    here = [
        task("count", number, on=0, feedback_messages=5, feedback_bytes=70, feedback_ns=10 * ms, choosing_ns=ms)
        for number in (0, 1)
    ]
    there = task("out", 0, on=1, feedback_messages=1, feedback_bytes=2, feedback_ns=3 * ms)
    progress.update(0, 1, [one.snapshot() for one in here])
    progress.update(1, 1, [there.snapshot()])
    first = build(progress, 2, workers=[worker(0), worker(1)])
    assert first["workers"][0]["feedback"] == {
        "messages": 10,
        "bytes": 140,
        "ms": 20.0,
        "share": 0.01,
        "choosingMs": 2.0,
    }
    assert first["workers"][1]["feedback"] == {"messages": 1, "bytes": 2, "ms": 3.0, "share": 0.0015, "choosingMs": 0.0}
    assert build(progress, 3)["workers"][0]["feedback"] == {
        "messages": 10,
        "bytes": 140,
        "ms": 20.0,
        "share": 0.0,
        "choosingMs": 2.0,
    }


def test_a_share_is_of_the_time_between_a_tasks_own_reports() -> None:
    progress, one = builder(), task("count", 0, feedback_ns=0, busy_ns=0)
    one.at_ns = 900 * MILLISECOND_NS
    progress.update(0, 1, [one.snapshot()])
    build(progress, 1, workers=[worker(0)])
    one.at_ns, one.feedback_ns, one.busy_ns = 2_100 * MILLISECOND_NS, 12 * MILLISECOND_NS, 600 * MILLISECOND_NS
    progress.update(0, 1, [one.snapshot()])
    found = build(progress, 2, workers=[worker(0)])
    assert found["workers"][0]["feedback"]["share"] == 0.01, "1.2 s went by for the task, and 1 s here"
    assert found["operators"][1]["tasks"][0]["busyRatio"] == 0.5
    elsewhere = task("count", 0, on=1, feedback_ns=20 * MILLISECOND_NS)
    elsewhere.at_ns = 5 * MILLISECOND_NS
    progress.update(1, 2, [elsewhere.snapshot()])
    found = build(progress, 3, workers=[worker(1)])
    assert found["workers"][0]["feedback"]["share"] == 0.02, "clocks of two machines have nothing in common"


def test_task_entry_has_all_its_numbers() -> None:
    progress = builder()
    count = task("count", 1, on=2, received=10, emitted=9, queued=4, skipped=3, dead_letters=2, duplicates=1)
    count.held = 6
    count.busy_ns, count.cpu_ns, count.blocked_ns = SECOND_NS, 700 * MILLISECOND_NS, 250 * MILLISECOND_NS
    count.execution.record_many([1 * MILLISECOND_NS, 3 * MILLISECOND_NS])
    progress.update(2, 1, [count.snapshot()])
    operator = build(progress, 2)["operators"][1]
    execution = operator["tasks"][1].pop("executionMs")
    assert (execution["max"], execution["mean"], execution["count"]) == (3.0, 2.0, 2)
    assert 1.0 <= execution["p50"] <= 1.0 * 33 / 32
    assert operator["executionMs"] == operator["intervalExecutionMs"] == execution
    assert operator["tasks"][1] == {
        "task": 1,
        "worker": 2,
        "received": 10,
        "emitted": 9,
        "queued": 4,
        "backlog": 0,
        "largestBacklog": 0,
        "held": 6,
        "busyRatio": 0.5,
        "skipped": 3,
        "deadLetters": 2,
        "duplicates": 1,
        "blockedMs": 250.0,
        "cpuMs": 700.0,
        "calls": None,
    }
    assert operator["busyRatio"] == 0.25  # the other of its two tasks was idle
    assert (operator["skipped"], operator["deadLetters"], operator["duplicates"]) == (3, 2, 1)


def test_an_operator_with_calls_has_their_numbers() -> None:
    operators = [("lines", "source", 1), ("score", "map", 2), ("out", "sink", 1)]
    progress = ProgressBuilder("run-1", "job-1", "calls", operators, started_ns=STARTED_NS, calling=["score"])
    for number in range(2):
        score = task("score", number, calls=100, call_attempts=120, call_retries=15, call_timeouts=7, call_refusals=5)
        score.call_hedges, score.call_hedges_won, score.calls_failed, score.calls_found = 4, 3, 2, 1
        score.limit_wait_ns, score.given_up_threads = 1_500 * MILLISECOND_NS, number
        progress.update(0, 1, [score.snapshot()])
    lines, found, _ = build(progress, 2)["operators"]
    assert lines["calls"] is None
    assert found["calls"] == {
        "calls": 200,
        "attempts": 240,
        "retries": 30,
        "timeouts": 14,
        "throttled": 10,
        "hedges": 8,
        "hedgesWon": 6,
        "failed": 4,
        "found": 2,
        "limitWaitMs": 3_000.0,
        "givenUpThreads": 1,
    }
    assert [one["calls"]["givenUpThreads"] for one in found["tasks"]] == [0, 1]


def test_rates_cover_the_interval_and_counts_the_run() -> None:
    progress, count = builder(), task("count", received=100, emitted=50, busy_ns=SECOND_NS)
    progress.update(0, 1, [count.snapshot()])
    first = build(progress, 2)["operators"][1]
    count.received, count.emitted, count.busy_ns = 160, 80, 2 * SECOND_NS
    progress.update(0, 1, [count.snapshot()])
    second = build(progress, 6)["operators"][1]
    assert (first["receivedPerSecond"], first["emittedPerSecond"], first["tasks"][0]["busyRatio"]) == (50.0, 25.0, 0.5)
    assert (second["receivedPerSecond"], second["emittedPerSecond"], second["tasks"][0]["busyRatio"]) == (
        15.0,
        7.5,
        0.25,
    )
    assert (second["received"], second["emitted"]) == (160, 80)


def test_rates_of_an_empty_interval_are_zero() -> None:
    progress = builder()
    progress.update(0, 1, [task("count", received=100).snapshot()])
    operator = build(progress, 0)["operators"][1]
    assert (operator["receivedPerSecond"], operator["busyRatio"], operator["received"]) == (0.0, 0.0, 100)


def test_roots_are_counted_at_sources_only() -> None:
    progress = builder()
    sources = [
        task("lines", 0, received=100, completed=60, durable=50, pending=50, reemitted=3),
        task("lines", 1, received=20, completed=20, durable=20),
    ]
    progress.update(0, 1, [*(source.snapshot() for source in sources), task("count", received=999).snapshot()])
    found = build(progress, 2)
    names = ("numInputRows", "inputRowsPerSecond", "processedRowsPerSecond")
    assert [found[name] for name in names] == [120, 60.0, 40.0]
    assert [found[name] for name in ("pending", "completed", "durable", "reemitted")] == [50, 80, 70, 3]
    assert found["sources"] == [
        {"name": "lines", "numInputRows": 120, "inputRowsPerSecond": 60.0, "processedRowsPerSecond": 40.0}
    ]


def test_errors_and_duplicates_are_summed_over_operators() -> None:
    progress = builder()
    tasks = [task("count", skipped=1, dead_letters=2), task("out", skipped=10, dead_letters=20, duplicates=5)]
    progress.update(0, 1, [counters.snapshot() for counters in tasks])
    found = build(progress, 1)
    assert (found["skipped"], found["deadLetters"], found["duplicatesDropped"]) == (11, 22, 5)


def test_latency_covers_the_run_and_the_interval() -> None:
    progress, source = builder(), task("lines")
    source.complete.record(8 * MILLISECOND_NS)
    source.durable_latency.record(20 * MILLISECOND_NS)
    progress.update(0, 1, [source.snapshot()])
    build(progress, 1)
    source.complete.record_many([1 * MILLISECOND_NS] * 3)
    progress.update(0, 1, [source.snapshot()])
    found = build(progress, 2)
    latency = found["latencyMs"]
    assert (latency["complete"]["max"], latency["complete"]["count"], latency["durable"]["max"]) == (8.0, 4, 20.0)
    assert latency["interval"]["complete"]["count"] == 3
    assert 1.0 <= latency["interval"]["complete"]["max"] <= 1.0 * 33 / 32
    assert latency["interval"]["durable"]["count"] == 0
    assert found["totalLatencyMs"] == {name: latency[name] for name in ("complete", "durable")}
    assert found["recentLatencyMs"] == latency["interval"]
    assert found["latencyHistogram"] == [[1.5, 3], [2.0, 0], [3.0, 0], [5.0, 0], [7.0, 0], [10.0, 1]]
    buckets = {name: dict(pairs) for name, pairs in found["latencyBuckets"].items()}
    assert [buckets["complete"][bound] for bound in (0.1, 1.0, 2.0, 5.0, 10.0, 500_000.0)] == [0, 0, 3, 3, 4, 4]
    assert [buckets["durable"][bound] for bound in (0.1, 10.0, 20.0, 50.0, 500_000.0)] == [0, 0, 0, 1, 1]


def test_after_a_recovery_the_recent_latency_falls_again() -> None:
    progress, before = builder(), task("lines", on=0)
    before.complete.record_many([1 * MILLISECOND_NS] * 1000)
    progress.update(0, 1, [before.snapshot()])
    build(progress, 1)
    after = task("lines", on=1)  # its worker was lost, and roots had to wait
    after.complete.record_many([3000 * MILLISECOND_NS] * 200)
    progress.update(1, 2, [after.snapshot()])
    recovering = build(progress, 2)
    after.complete.record_many([1 * MILLISECOND_NS] * 1000)
    progress.update(1, 2, [after.snapshot()])
    recovered = build(progress, 3)
    assert recovering["recentLatencyMs"]["complete"]["p99"] > 2900
    assert recovered["recentLatencyMs"]["complete"]["p99"] < 2
    assert recovered["totalLatencyMs"]["complete"]["p99"] > 2900


def test_a_restarted_task_keeps_its_counts_and_its_rate_stays_positive() -> None:
    progress, before = builder(), task("count", on=0, received=100, queued=30)
    before.execution.record(MILLISECOND_NS)
    progress.update(0, 1, [before.snapshot()])
    build(progress, 1)
    after = task("count", on=1, received=10, queued=2)
    after.execution.record(2 * MILLISECOND_NS)
    progress.update(1, 2, [after.snapshot()])
    operator = build(progress, 2)["operators"][1]
    assert (operator["received"], operator["receivedPerSecond"], operator["queued"]) == (110, 10.0, 2)
    assert (operator["executionMs"]["count"], operator["intervalExecutionMs"]["count"]) == (2, 1)
    assert operator["tasks"][0]["worker"] == 1


def test_strangers_are_refused() -> None:
    with pytest.raises(ValueError, match="snapshot of an unknown operator: operator='sum' worker=0"):
        builder().update(0, 1, [task("sum").snapshot()])
    with pytest.raises(ValueError, match="snapshot of another worker's task: worker=1 snapshot=0"):
        builder().update(1, 1, [task("count", on=0).snapshot()])


@pytest.mark.parametrize(
    ("workers", "words"),
    [
        ([], "starting: 0 of 0 workers running"),
        ([worker(0), worker(1, "starting")], "starting: 1 of 2 workers running"),
        ([worker(0), worker(1)], "running"),
        ([worker(0), worker(1, restarts=1)], "running"),
        ([worker(0), worker(1, "lost")], "recovering: 1 of 2 workers running"),
        ([worker(0), worker(1, "starting", restarts=1)], "recovering: 1 of 2 workers running"),
        ([worker(0, "stopped"), worker(1, "stopped")], "stopped"),
    ],
)
def test_status_follows_the_workers(workers: list[WorkerStatus], words: str) -> None:
    assert describe(workers) == words


def test_status_can_be_told() -> None:
    assert build(builder(), 1, status="stopping")["status"] == "stopping"
