"""Who counts, which frames are taken, and how a worker lives."""

from __future__ import annotations

import pytest

from tailrace.core.protocol.membership import ACCEPT, ACCEPT_AFTER_LOSS, REFUSE, LinkSequence, Membership
from tailrace.core.protocol.messages import Applied, Assign, Flush, Leave, Member, Members, Ready
from tailrace.core.protocol.worker import CloseLinks, Exit, Life, OpenTasks, Reply, TellTasks, Worker


def members(version: int, **epochs: int) -> Members:
    """Workers by letter; only those with an even epoch are ready."""
    table = {ord(name) - ord("a"): epoch for name, epoch in epochs.items()}
    ready = {worker: Member(epoch, ("host", worker)) for worker, epoch in table.items() if epoch % 2 == 0}
    return Members(version, ready, table)


@pytest.mark.parametrize(
    ("numbers", "verdicts"),
    [
        ([1, 2, 3], [ACCEPT, ACCEPT, ACCEPT]),
        ([2], [ACCEPT_AFTER_LOSS]),
        ([1, 1], [ACCEPT, REFUSE]),
        ([1, 3, 2, 3, 4], [ACCEPT, ACCEPT_AFTER_LOSS, REFUSE, REFUSE, ACCEPT]),
        ([0], [REFUSE]),
    ],
)
def test_a_link_takes_each_frame_once_and_in_order(numbers: list[int], verdicts: list[int]) -> None:
    link = LinkSequence()
    assert [link.check(number) for number in numbers] == verdicts


def test_lower_epochs_do_not_count() -> None:
    membership = Membership(0, 2)
    assert membership.counts(1, 1)  # nothing is known yet
    membership.update(members(1, a=2, b=4))
    assert [membership.counts(1, epoch) for epoch in (3, 4, 5)] == [False, True, True]
    assert membership.member(1) == Member(4, ("host", 1)) and membership.member(2) is None


def test_a_worker_that_is_absent_is_refused_all_the_same() -> None:
    membership = Membership(0, 2)
    membership.update(members(1, a=2, b=4))
    membership.update(members(2, a=2, b=5))  # its successor is not ready
    assert membership.member(1) is None and not membership.counts(1, 4)


def test_update_says_whose_links_are_dead() -> None:
    membership = Membership(0, 2)
    assert membership.update(members(1, a=2, b=4, c=6)) == {0, 1, 2}
    assert membership.update(members(2, a=2, b=7, c=6)) == {1}
    assert membership.update(members(3, a=2, b=7, c=6)) == set()


def test_old_news_changes_nothing() -> None:
    membership = Membership(0, 2)
    membership.update(members(5, a=2, b=8))
    assert membership.update(members(5, a=2, b=10)) == set()
    assert membership.update(members(4, a=2, b=4)) == set()
    assert membership.counts(1, 8) and not membership.counts(1, 4) and membership.version == 5


def test_the_life_of_a_worker() -> None:
    worker = Worker(0, 2)
    assign = Assign({}, False)
    assert worker.handle(assign) == [OpenTasks(assign)] and worker.life is Life.OPENING
    assert worker.opened() == [Reply(Ready(0, 2))] and worker.life is Life.RUNNING
    first, same, stale = members(1, a=2, b=4), members(2, a=2, b=4), members(1, a=2, b=4)
    assert worker.handle(first) == [CloseLinks(frozenset({0, 1})), TellTasks(first), Reply(Applied(0, 2, 1))]
    assert worker.handle(same) == [TellTasks(same), Reply(Applied(0, 2, 2))]
    assert worker.handle(stale) == [Reply(Applied(0, 2, 1))]
    assert worker.handle(Flush()) == [TellTasks(Flush())]
    assert worker.handle(Leave("enough")) == [Exit("enough")]
    assert worker.handle(Flush()) == [] and worker.opened() == [] and worker.life is Life.LEAVING


def test_a_worker_that_was_replaced_leaves() -> None:
    worker = Worker(0, 2)
    assert worker.handle(members(3, a=4)) == [Exit("another process has taken this worker's place")]
    assert worker.life is Life.LEAVING and worker.handle(members(4, a=4)) == []


def test_tasks_that_open_after_the_worker_was_told_to_leave_are_not_announced() -> None:
    worker = Worker(0, 2)
    worker.handle(Assign({}, False))
    worker.handle(Leave("too late"))
    assert worker.opened() == []
