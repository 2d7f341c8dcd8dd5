from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, fields

import pytest

from tailrace.metrics.counters import COUNTERS, GAUGES, HISTOGRAMS, TaskCounters, TaskSnapshot, TaskValues, Totals
from tailrace.metrics.histogram import Histogram

KEY = ("count", 2)


def counters(worker: int = 0, **values: int) -> TaskCounters:
    result = TaskCounters("count", 2, worker)
    for name, value in values.items():
        setattr(result, name, value)
    return result


def filled(base: int, worker: int = 0) -> TaskCounters:
    """Every field has a value of its own, so that none can be mistaken for another."""
    result = counters(worker, **{name: base + i for i, name in enumerate((*COUNTERS, *GAUGES))})
    for i, name in enumerate(HISTOGRAMS):
        getattr(result, name).record(base + 30 + i)
    return result


def test_every_field_of_a_snapshot_has_a_rule() -> None:
    identity = ("operator", "task", "worker", "sequence")
    assert {field.name for field in fields(TaskSnapshot)} == {*identity, *COUNTERS, *GAUGES, *HISTOGRAMS}


def test_snapshot_carries_every_field_and_survives_pickling() -> None:
    snapshot = pickle.loads(pickle.dumps(filled(100, worker=7).snapshot()))
    assert (snapshot.operator, snapshot.task, snapshot.worker, snapshot.sequence) == ("count", 2, 7, 1)
    assert [getattr(snapshot, name) for name in (*COUNTERS, *GAUGES)] == list(
        range(100, 100 + len(COUNTERS) + len(GAUGES))
    )
    assert [getattr(snapshot, name) for name in HISTOGRAMS] == [Histogram.of([v]).snapshot() for v in (130, 131, 132)]


def test_snapshot_is_frozen_and_does_not_follow_the_counters() -> None:
    task = counters(received=1)
    snapshot = task.snapshot()
    task.received = 2
    task.execution.record(5)
    assert (snapshot.received, snapshot.execution[0]) == (1, 0)
    with pytest.raises(FrozenInstanceError):
        snapshot.received = 3  # type: ignore[misc]


def test_tasks_do_not_share_histograms() -> None:
    first, second = counters(), counters()
    first.execution.record(1)
    assert second.execution.count == 0


def test_later_snapshot_of_an_epoch_replaces_the_earlier() -> None:
    totals, task = Totals(), counters(received=5)
    totals.update(KEY, 1, task.snapshot())
    task.received = 8
    totals.update(KEY, 1, task.snapshot())
    assert totals.task(KEY).received == 8


def test_a_delayed_snapshot_does_not_turn_back_the_count() -> None:
    totals, task = Totals(), counters(received=5)
    delayed = task.snapshot()
    task.received = 8
    totals.update(KEY, 1, task.snapshot())
    totals.update(KEY, 1, delayed)
    assert totals.task(KEY).received == 8


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_epochs_add_up_and_the_newest_owns_the_gauges(order: tuple[int, int]) -> None:
    incarnations = {1: filled(100, worker=0).snapshot(), 2: filled(1_000, worker=3).snapshot()}
    totals = Totals()
    for epoch in order:
        totals.update(KEY, epoch, incarnations[epoch])
    total = totals.task(KEY)
    assert total.worker == 3
    assert [getattr(total, name) for name in COUNTERS] == [1_100 + 2 * i for i in range(len(COUNTERS))]
    first = 1_000 + len(COUNTERS)
    assert [getattr(total, name) for name in GAUGES] == list(range(first, first + len(GAUGES)))
    for i, name in enumerate(HISTOGRAMS):
        assert getattr(total, name) == Histogram.of([130 + i, 1_030 + i]).snapshot()


def test_an_older_epoch_still_counts_after_it_was_replaced() -> None:
    totals, old = Totals(), counters(worker=0, received=5, queued=9)
    totals.update(KEY, 1, old.snapshot())
    totals.update(KEY, 2, counters(worker=1, received=1, queued=2).snapshot())
    old.received = 6
    totals.update(KEY, 1, old.snapshot())
    total = totals.task(KEY)
    assert (total.received, total.queued, total.worker) == (7, 2, 1)


def test_a_silent_task_reads_as_zero_on_no_worker() -> None:
    assert Totals().task(KEY) == TaskSnapshot("count", 2, worker=None)


def test_reported_tasks_are_listed_in_order() -> None:
    totals = Totals()
    for task in (TaskCounters("b", 0, 0), TaskCounters("a", 1, 0), TaskCounters("a", 0, 0)):
        totals.update((task.operator, task.task), 1, task.snapshot())
    assert list(totals.keys()) == [("a", 0), ("a", 1), ("b", 0)]


def test_a_snapshot_under_the_wrong_key_is_refused() -> None:
    with pytest.raises(ValueError, match=r"snapshot of another task: key=\('split', 0\) snapshot=\('count', 2\)"):
        Totals().update(("split", 0), 1, counters().snapshot())


def test_every_number_has_one_kind_and_a_meaning() -> None:
    numbers = [value for value in fields(TaskValues) if value.name not in ("operator", "task", "worker")]
    assert {value.metadata["kind"] for value in numbers} == {"counter", "gauge"}
    assert all(value.metadata["meaning"] for value in numbers)
