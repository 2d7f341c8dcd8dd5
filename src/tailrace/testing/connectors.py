"""The laws of connectors as functions: ``check_source`` for sources, ``check_sink`` for committing sinks.

A crash is simulated at every step of a sink: each call of ``os`` that touches the file system, and each call of the
driver. After a crash the dead writer can do nothing more, and a successor with a higher epoch recovers.
"""

from __future__ import annotations

import os
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, cast

from tailrace.connector import CommittingWriter, Entry, Record, Sink, SinkContext, Source, SplitStart
from tailrace.errors import Fenced, TailraceError
from tailrace.runtime.connectors.fingerprint import fingerprint

Hook = Callable[[str], None]

_CHANGES = ("open", "write", "fsync", "rename", "replace", "link", "mkdir", "unlink", "remove", "rmdir")
_LOOKS = ("listdir", "scandir", "stat")
_FAR_FUTURE_NS = 1 << 62
_PATIENCE_S = 10.0  # longest time without a record from a reader that is not done
_PAUSE_S = 0.0002  # after an empty poll
_BATCHES = ((0, 1), (2,), (3, 4))  # the offsets of the rows in each commit
_FORGET = {"split": 2}  # sent after the second commit: the entries of the first may be forgotten
_ROWS = [offset for batch in _BATCHES for offset in batch]
_JOB, _OTHER_JOB = "0123456789abcdef", "fedcba9876543210"


class Crash(BaseException):
    """The simulated death of a process. It is not an ``Exception``, so that code under test does not catch it."""


# --- sources


def check_source(source: Source, *, tasks: int = 2, limit: int = 3, most: int = 1000) -> list[Record]:
    """Check the law of sources: reading from offset *n* gives what reading from 0 gave, from *n* on.

    Polls may be empty, and ``ready_ns`` may lie in the future: reading by it must give the same as reading by a clock
    that is far ahead. Raises ``AssertionError`` where the law is broken.

    Args:
        source: the source.
        tasks: how many tasks it is asked to make splits for.
        limit: how many records a poll asks for.
        most: how many records of each split are read at most, from every offset.

    Returns:
        The records of all splits, read from 0.

    Example:
        >>> from tailrace.testing import check_source
        >>> [record.value for record in check_source(tr.from_iterable(["the", "mill"]))]
        ['the', 'mill']
    """
    names = list(source.splits(tasks))
    assert names == list(source.splits(tasks)), f"names of splits are not stable: splits={names}"
    assert len(set(names)) == len(names), f"names of splits are not unique: splits={names}"
    source = pickle.loads(pickle.dumps(source))
    records = []
    for name in names:
        whole = _read(source, SplitStart(name), limit, most)
        offsets = [record.offset for record in whole]
        assert all(type(offset) is int and offset >= 0 for offset in offsets), f"not offsets: {offsets}"
        assert all(a < b for a, b in pairwise(offsets)), f"offsets do not rise: {offsets}"
        paced = _read(source, SplitStart(name), limit, most, paced=True)
        assert _plain(paced) == _plain(whole), f"records differ when they are asked for at ready_ns: split={name}"
        for n in range(len(whole)):
            last = whole[n - 1] if n else None
            mark = None if last is None else fingerprint(last.value)
            for start in {whole[n].offset, 0 if last is None else last.offset + 1}:
                tail = _read(source, SplitStart(name, start, mark), limit, most - n)
                assert _plain(tail) == _plain(whole[n:]), f"tail differs: split={name} offset={start}"
        records += whole
    return records


def _read(source: Source, start: SplitStart, limit: int, most: int, paced: bool = False) -> list[Record]:
    reader = source.open(start)
    records: list[Record] = []
    now_ns = 0
    given = time.monotonic()
    while not reader.done and len(records) < most:
        batch = reader.poll(min(limit, most - len(records)), now_ns)
        assert len(batch) <= limit, f"poll gave too much: limit={limit} records={len(batch)}"
        records += batch
        now_ns = max(now_ns, reader.ready_ns) if paced else _FAR_FUTURE_NS
        if batch:
            given = time.monotonic()
        else:
            assert time.monotonic() < given + _PATIENCE_S, f"reader gives nothing and is not done: split={start.split}"
            time.sleep(_PAUSE_S)
    reader.close()
    return records


def _plain(records: Sequence[Record]) -> list[tuple[int, Any]]:
    return [(record.offset, record.value) for record in records]


# --- steps

_hook: Hook | None = None
_hooked = False


@contextmanager
def steps(hook: Hook | None) -> Iterator[None]:
    """Call ``hook(name)`` before each step. If it raises ``Crash`` before a write, half of the data is written.

    ``os.fsync`` counts as a step but does nothing: it takes long, and these tests do not simulate a power failure.
    """
    global _hook, _hooked
    outer, outer_hooked = _hook, _hooked
    saved = {} if _hooked else {name: getattr(os, name) for name in (*_CHANGES, *_LOOKS)}
    _hook, _hooked = hook, True
    for name, function in saved.items():
        setattr(os, name, _stepping(name, function))
    try:
        yield
    finally:
        _hook, _hooked = outer, outer_hooked
        for name, function in saved.items():
            setattr(os, name, function)


def _stepping(name: str, function: Any) -> Any:
    def step(*args: Any, **kwargs: Any) -> Any:
        try:
            _step(name)
        except Crash as crash:
            if name == "write" and crash.args:
                function(args[0], memoryview(args[1])[: len(args[1]) // 2])
            raise
        return None if name == "fsync" else function(*args, **kwargs)

    return step


def _step(name: str) -> None:
    if _hook is not None:
        _hook(name)


class CrashAt:
    """A hook that lets a process die at step number ``at``. All later steps fail as well."""

    def __init__(self, at: int | None) -> None:
        self.at = at
        self.taken = 0

    def __call__(self, name: str) -> None:
        if name in _LOOKS:
            return
        self.taken += 1
        if self.at is not None and self.taken > self.at:
            raise Crash(*(["first"] if self.taken == self.at + 1 else []))


# --- sinks


def check_sink(
    make_sink: Callable[[], Sink],
    read_back: Callable[[Any], Iterable[Any]],
    *,
    row: Callable[[int], Any] = lambda n: {"n": n},
) -> None:
    """Check the law of committing sinks: after a crash at any point each row is visible once.

    After a crash ``recover`` in a higher epoch returns exactly the entries whose rows are or will be visible, and no
    ``commit`` of a lower epoch succeeds any more. Two jobs at once do not touch each other, and a new run of a job with
    another number of tasks shuts out all tasks of the one before. Raises ``AssertionError`` where the law is broken.

    Args:
        make_sink: gives a sink with a new, empty place to write to.
        read_back: gives what a reader sees at the place of a sink.
        row: makes rows that differ from each other, by number.

    Example:
        >>> from tailrace.testing import check_sink
        >>> check_sink(tr.to_list, lambda sink: sink.values)
    """
    check_crashes(lambda: SinkTrial(make_sink(), read_back, row))
    check_zombies(lambda: SinkTrial(make_sink(), read_back, row))
    check_runs(lambda: SinkTrial(make_sink(), read_back, row))
    check_tasks(lambda: SinkTrial(make_sink(), read_back, row))


def check_crashes(new_trial: Callable[[], SinkTrial]) -> None:
    """The writer dies at each step, its successor dies at each step of its recovery, and a third one recovers."""
    for at in range(_count(partial(new_trial().run, 1)) + 1):
        for again in range(_count(partial(_crashed(new_trial(), at).recover, 2)) + 1):
            trial = _crashed(new_trial(), at)
            _die(again, partial(trial.recover, 2))
            trial.finish(3, f"first writer died at step {at}, the second at step {again}")


def check_zombies(new_trial: Callable[[], SinkTrial]) -> None:
    """A writer pauses before each step while a successor recovers and writes the rest, and then goes on."""
    seen: list[str] = []
    with steps(seen.append):
        new_trial().run(1)
    for at in range(len(seen)):
        trial = new_trial()
        story = f"writer stood still before step {at} ({seen[at]})"
        _with_zombie(trial, at, story)
        trial.verify(_ROWS, story)


def check_runs(new_trial: Callable[[], SinkTrial]) -> None:
    """Two runs of a topology write at the same time, and a task of one is replaced. A sink may refuse the second."""
    trial = new_trial()
    first = trial.open(1)
    assert list(first.recover({})) == []
    try:
        second = trial.open(1, _OTHER_JOB)
    except TailraceError:
        return
    assert list(second.recover({})) == [], "a new job has entries: are runs told apart by context.job_id?"
    for offset in _ROWS[:2]:
        for writer in (first, second):
            writer.write(trial.row(offset))
            writer.commit([_entry(offset)])
    third = trial.open(2)
    known = sorted(entry.offset for entry in third.recover({}))
    assert known == _ROWS[:2], f"another run changed what is known: offsets={known}, are runs told apart by job_id?"
    second.write(trial.row(2))
    second.commit([_entry(2)])
    trial.verify([*_ROWS[:2], *_ROWS[:2], 2], "two runs wrote at once")


def check_tasks(new_trial: Callable[[], SinkTrial]) -> None:
    """A new run of the job has another number of tasks. The first of them that recovers fences the whole earlier run,
    because a row that an old task had may come to any new one. A sink may refuse to have two tasks."""
    trial = new_trial()
    zombie = trial.open(1)
    zombie.recover({})
    zombie.write(trial.row(0))
    zombie.commit([_entry(0)])
    zombie.write(trial.row(1))
    try:
        second = trial.open(4, task=1, tasks=2, first_epoch=3)
    except TailraceError:
        return
    known = [entry.offset for entry in second.recover({})]
    assert known == [0], f"a new task does not know what the run before had committed: offsets={known}"
    try:
        zombie.commit([_entry(1)])
    except Fenced:
        pass
    else:
        raise AssertionError("a run with another number of tasks has begun, and one before it still commits")
    first = trial.open(3, task=0, tasks=2, first_epoch=3)
    first.recover({})
    for writer, offset in ((second, 1), (first, 2)):
        writer.write(trial.row(offset))
        writer.commit([_entry(offset)])
    trial.verify([0, 1, 2], "a new run has another number of tasks")


def _with_zombie(trial: SinkTrial, at: int, story: str) -> None:
    taken = 0

    def hook(name: str) -> None:
        nonlocal taken
        taken += 1
        if taken == at + 1:
            with steps(None):
                trial.finish(2, story)

    try:
        with steps(hook):
            writer = trial.run(1)
            writer.write(trial.row(99))
            writer.commit([_entry(99)])
    except Fenced:
        return
    raise AssertionError(f"commit of a lower epoch succeeded: {story}")


class SinkTrial:
    """A sink under test, and which of its commits were acknowledged."""

    def __init__(self, sink: Sink, read_back: Callable[[Any], Iterable[Any]], row: Callable[[int], Any]) -> None:
        self.sink = sink
        self.row = row
        self.acknowledged: set[int] = set()
        self.prefixes: Mapping[str, int] = {}
        self._read_back = read_back

    def open(
        self, epoch: int, job_id: str = _JOB, task: int = 0, tasks: int = 1, first_epoch: int = 1
    ) -> CommittingWriter:
        def call_driver(operator: str, message: Any) -> Any:
            _step("call_driver")
            reply = cast("Any", self.sink).on_message(task, epoch, message)
            _step("reply")
            return reply

        sink = pickle.loads(pickle.dumps(self.sink))
        assert sink.committing, "sink is not committing: did you mean another sink?"
        context = SinkContext("out", task, tasks, epoch, job_id, call_driver, first_epoch)
        return cast("CommittingWriter", sink.open(context))

    def run(self, epoch: int) -> CommittingWriter:
        """Write and commit all rows, without closing the writer."""
        writer = self.open(epoch)
        assert list(writer.recover({})) == [], "a new place has entries: does make_sink give a new one each time?"
        for number, batch in enumerate(_BATCHES):
            for offset in batch:
                writer.write(self.row(offset))
            writer.commit([_entry(offset) for offset in batch])
            self.acknowledged.update(batch)
            if number == 1:
                self.prefixes = _FORGET
                writer.forget(_FORGET)
        return writer

    def recover(self, epoch: int) -> None:
        self.open(epoch).recover(self.prefixes)

    def finish(self, epoch: int, story: str) -> None:
        """Recover, compare the entries with what is visible, and write the missing rows."""
        writer = self.open(epoch)
        entries = list(writer.recover(self.prefixes))
        done = [entry.offset for entry in entries] + list(range(self.prefixes.get("split", 0)))
        assert entries == [_entry(entry.offset) for entry in entries], f"entries differ: {entries}: {story}"
        self.verify(done, story)
        assert self.acknowledged <= set(done), f"commit was lost: {self.acknowledged - set(done)}: {story}"
        missing = [offset for offset in _ROWS if offset not in done]
        for offset in missing:
            writer.write(self.row(offset))
        writer.commit([_entry(offset) for offset in missing])
        writer.close()
        self.verify(_ROWS, story)

    def verify(self, offsets: Iterable[int], story: str) -> None:
        visible = Counter(repr(row) for row in self._read_back(self.sink))
        expected = Counter(repr(self.row(offset)) for offset in offsets)
        assert visible == expected, (
            f"rows differ: missing={dict(expected - visible)} too many={dict(visible - expected)}: {story}"
        )


def _entry(offset: int) -> Entry:
    return Entry("split", offset, (1 << 63) + offset)


def _count(act: Callable[[], Any]) -> int:
    counter = CrashAt(None)
    with steps(counter):
        act()
    return counter.taken


def _die(at: int | None, act: Callable[[], Any]) -> None:
    try:
        with steps(CrashAt(at)):
            act()
    except Crash:
        pass


def _crashed(trial: SinkTrial, at: int | None) -> SinkTrial:
    _die(at, partial(trial.run, 1))
    return trial
