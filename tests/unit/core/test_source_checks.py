"""A source that breaks the law of offsets or names is told so at once: it would lose rows without a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kit.tasks import context_of, source_of
from tailrace.connector import Record, SplitStart
from tailrace.core.plan.planner import make_plan
from tailrace.core.protocol.ledger import LedgerLimits
from tailrace.core.protocol.messages import Recover
from tailrace.core.source_checks import check_reader
from tailrace.core.tasks.source import SourceTask
from tailrace.errors import TailraceError, TopologyError
from tailrace.sim.faults.topologies import SimSink
from tailrace.topology import Topology


class Given:
    """A reader that gives what it was made with, one poll after the other."""

    ready_ns = 0
    done = False

    def __init__(self, *polls: Any) -> None:
        self._polls = list(polls)

    def poll(self, limit: int, now_ns: int) -> Sequence[Record]:
        given: Sequence[Record] = self._polls.pop(0)
        return given

    def close(self) -> None: ...


class Named:
    replayable = True

    def __init__(self, names: Any = ("a",)) -> None:
        self._names = names

    def splits(self, tasks: int) -> Any:
        return self._names

    def open(self, start: SplitStart) -> Given:
        return Given()


def topology_of(source: Named) -> Topology:
    topology = Topology("t")
    topology.source("s", source).sink("out", SimSink())
    return topology


def source_task(start: int, *polls: Any) -> SourceTask:
    plan = make_plan(topology_of(Named()), 1)
    context = context_of(plan, limits=LedgerLimits(100, 1_000))
    task = source_of(context, Given(*polls), durable=start)
    task.handle(Recover())
    return task


def records(*offsets: Any) -> list[Record]:
    return [Record(offset, 0, None) for offset in offsets]


@pytest.mark.parametrize(
    ("start", "polls", "offset", "lowest"),
    [
        (0, [records(0, 1, 1)], 1, 2),  # the same again
        (0, [records(3, 7, 5)], 5, 8),  # falling
        (0, [records(4), records(4)], 4, 5),  # in another poll
        (0, [records(-1)], -1, 0),
        (9, [records(8)], 8, 9),  # below where it was told to begin
    ],
)
def test_offsets_that_do_not_increase_are_an_error(start: int, polls: list[Any], offset: int, lowest: int) -> None:
    task = source_task(start, *polls)
    with pytest.raises(TailraceError) as caught:
        for _ in polls:
            task.read(10)
    assert str(caught.value) == (
        f"offsets do not increase: source=s split=a offset={offset} lowest={lowest}, does each record have a higher "
        "offset than the one before, from where open() was told to begin?"
    )


def test_offsets_may_have_gaps_and_polls_may_be_empty() -> None:
    task = source_task(5, records(7, 100), [], (), records(101))
    assert [task.read(10) for _ in range(4)] == [2, 0, 0, 1]


@pytest.mark.parametrize(("offset", "kind"), [(1.0, "float"), ("1", "str"), (True, "bool"), (None, "NoneType")])
def test_an_offset_is_an_integer(offset: Any, kind: str) -> None:
    with pytest.raises(TailraceError) as caught:
        source_task(0, records(0, offset)).read(10)
    assert str(caught.value) == (
        f"offset is not an integer: source=s split=a offset={offset!r} type={kind}, did you mean int(…)?"
    )


@pytest.mark.parametrize("given", [None, 7, "abc", iter(()), [None], [Record(0, 0, 1), "b"]])
def test_what_is_no_list_of_records_is_named(given: Any) -> None:
    wrong = given[-1] if isinstance(given, list) else given
    with pytest.raises(TailraceError) as caught:
        source_task(0, given).read(10)
    assert str(caught.value) == (
        f"poll() did not return records: source=s split=a returned={wrong!r} type={type(wrong).__name__}, "
        "did you mean a list of Record(offset, due_ns, value), which may be empty?"
    )


def test_a_poll_gives_no_more_than_was_asked_for() -> None:
    """More would not fit into the span that a successor has to read again."""
    assert source_task(0, records(0, 1)).read(2) == 2
    with pytest.raises(TailraceError) as caught:
        source_task(0, records(0, 1, 2)).read(2)
    assert str(caught.value) == (
        "poll() returned more records than were asked for: source=s split=a records=3 limit=2, "
        "does it keep the rest for the next call?"
    )


def test_a_reader_without_its_attributes_is_named() -> None:
    class OnlyPolls:
        poll = None

    check_reader("s", "a", Given())
    with pytest.raises(TailraceError) as caught:
        check_reader("s", "a", OnlyPolls())
    assert str(caught.value) == (
        "not a reader: source=s split=a type=OnlyPolls missing=ready_ns,done,close, "
        "does open() return an object with poll, ready_ns, done and close?"
    )


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (
            ["a", "a"],
            "two splits have one name: source=s split='a' splits=2, does splits() return each name once?",
        ),
        ([1], "name of a split is not a string: source=s split=1 type=int, did you mean str(…)?"),
        ("ab", "splits() did not return names: source=s returned='ab' type=str, did you mean a list of strings?"),
        (None, "splits() did not return names: source=s returned=None type=NoneType, did you mean a list of strings?"),
    ],
)
def test_splits_have_names_of_their_own(names: Any, text: str) -> None:
    with pytest.raises(TopologyError) as caught:
        make_plan(topology_of(Named(names)), 1)
    assert str(caught.value) == text
