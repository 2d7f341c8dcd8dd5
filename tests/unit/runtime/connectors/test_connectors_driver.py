"""Sinks that end in Python: a list on the driver, and a call per row."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import pytest

from tailrace.connector import Entry, SinkContext
from tailrace.errors import Fenced, OptionError
from tailrace.runtime.connectors import to_call, to_list


def context(sink: Any, epoch: int = 1, task: int = 0, job_id: str = "job", first_epoch: int = 1) -> SinkContext:
    def call_driver(operator: str, message: Any) -> Any:
        return sink.on_message(task, epoch, message)

    return SinkContext("out", task, 2, epoch, job_id, call_driver, first_epoch)


def open_writer(sink: Any, **where: Any) -> Any:
    return pickle.loads(pickle.dumps(sink)).open(context(sink, **where))


def commit(writer: Any, *offsets: int) -> None:
    for offset in offsets:
        writer.write(offset)
    writer.commit([Entry("s", offset, offset) for offset in offsets])


def test_rows_reach_the_list_with_their_commit() -> None:
    rows: list[Any] = ["before"]
    sink = to_list(rows)
    writer = open_writer(sink)
    writer.write(1)
    assert rows == ["before"]
    writer.commit([Entry("s", 1, 1)])
    assert rows == ["before", 1]
    assert sink.values is rows


def test_the_list_stays_on_the_driver() -> None:
    sink = to_list(["x" * 1_000_000])
    assert len(pickle.dumps(sink)) < 1000
    assert pickle.loads(pickle.dumps(sink)).values == []


def test_a_row_that_two_tasks_commit_appears_once() -> None:
    sink = to_list()
    for task in range(2):
        commit(open_writer(sink, task=task), 1, 2 + task)
    assert sink.values == [1, 2, 3]


def test_the_driver_remembers_entries_above_the_prefix() -> None:
    sink = to_list()
    commit(open_writer(sink), 1, 2, 3)
    assert [entry.offset for entry in open_writer(sink, epoch=2).recover({"s": 2})] == [2, 3]


def test_a_lower_epoch_is_refused() -> None:
    sink = to_list()
    zombie = open_writer(sink, epoch=1)
    open_writer(sink, epoch=2).recover({})
    with pytest.raises(Fenced, match="a higher epoch has taken over: task=0 epoch=1 found=2, was this worker declared"):
        commit(zombie, 1)
    assert sink.values == []


def test_memory_is_bounded_by_what_lies_above_the_prefix() -> None:
    sink = to_list()
    writer = open_writer(sink)
    for start in range(0, 100_000, 100):
        commit(writer, *range(start, start + 100))
        writer.forget({"s": start})
    assert len(sink.values) == 100_000
    assert len(list(open_writer(sink, epoch=2).recover({}))) < 10_000


def test_another_job_may_repeat_everything() -> None:
    sink = to_list()
    commit(open_writer(sink, epoch=5), 1)
    commit(open_writer(sink, epoch=1, job_id="other"), 1)
    assert sink.values == [1, 1]


def test_a_commit_that_does_not_add_up_changes_nothing() -> None:
    sink = to_list()
    writer = open_writer(sink)
    writer.write(1)
    with pytest.raises(ValueError, match="commit needs one entry per row: rows=1 entries=2, was one skipped"):
        writer.commit([Entry("s", 1, 1), Entry("s", 2, 2)])
    assert sink.values == []


def test_a_list_writer_is_full_before_a_message_is_large() -> None:
    writer = open_writer(to_list())
    for n in range(4095):
        writer.write(n)
    assert not writer.full
    writer.write(0)
    assert writer.full


def test_only_a_list_will_do() -> None:
    with pytest.raises(OptionError, match="not a list: to_list type=set, did you mean to_call"):
        to_list({1})  # type: ignore[arg-type]


class Recorder:
    events: ClassVar[list[Any]] = []

    def open(self, context: SinkContext) -> None:
        self.events.append(("open", context.task))

    def process(self, value: Any) -> None:
        self.events.append(value)

    def close(self) -> None:
        self.events.append("close")


class Bare:
    def process(self, value: Any) -> None:
        raise LookupError(value)


async def later(value: Any) -> None: ...


def test_a_function_is_called_per_row() -> None:
    rows: list[Any] = []
    sink = to_call(rows.append)
    assert not sink.committing
    writer = sink.open(context(None))
    writer.write(1)
    writer.write(2)
    writer.close()
    assert rows == [1, 2]


def test_a_class_lives_once_per_task() -> None:
    writers = [to_call(Recorder).open(context(None, task=task)) for task in range(2)]
    for number, writer in enumerate(writers):
        writer.write(number)
        writer.close()
    assert Recorder.events == [("open", 0), ("open", 1), 0, "close", 1, "close"]


def test_a_class_needs_no_more_than_process_and_its_errors_pass() -> None:
    writer = to_call(Bare).open(context(None))
    with pytest.raises(LookupError, match="7"):
        writer.write(7)
    writer.close()


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(OptionError, match="not callable: to_call=7 type=int, did you call the function already"):
        to_call(7)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="class has no process method: to_call=int, did you mean a function"):
        to_call(int)
    with pytest.raises(OptionError, match="function is async: to_call=later, did you mean an async map before"):
        to_call(later)


def test_runs_at_once_keep_apart_in_one_list() -> None:
    """Both are of one topology: the same operator, tasks, splits and entries. They took each other for a new job."""
    sink = to_list()
    one, two = open_writer(sink, epoch=1, job_id="one"), open_writer(sink, epoch=1, job_id="two")
    for writer in (one, two, one, two):
        commit(writer, len(sink.values) // 2)
    again = open_writer(sink, epoch=2, job_id="one")
    known = list(again.recover({}))
    assert [entry.offset for entry in known] == [0, 1]
    commit(again, 0, 1)
    assert sink.values == [0, 0, 1, 1]
    with pytest.raises(Fenced):
        commit(one, 2)
    commit(two, 2)
    assert sink.values == [0, 0, 1, 1, 2]


def test_a_new_run_of_a_job_shuts_out_all_tasks_of_the_one_before() -> None:
    """Its number of tasks may be another: a row of theirs may come to any of its own."""
    sink = to_list()
    old = open_writer(sink, epoch=1, task=0)
    assert list(open_writer(sink, epoch=4, task=1, first_epoch=3).recover({})) == []
    with pytest.raises(Fenced, match="a higher epoch has taken over: task=0 epoch=1 found=3"):
        commit(old, 1)
    commit(open_writer(sink, epoch=3, task=0, first_epoch=3), 1)
    assert sink.values == [1]
